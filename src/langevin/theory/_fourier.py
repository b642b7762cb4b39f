"""Mean and variance of a running sum over a linear chain, by recursions in frequency space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Complexes = NDArray[np.complexfloating[Any, Any]]

CHUNK = 256  # steps in one vectorised stretch: enough to hide NumPy's call cost, few enough for the cache
FINE, COARSE = 1e-9, 1e-5  # interpolation targets; their difference is the reported truncation error


class Chain(NamedTuple):
    """Y_k = a_k Y_{k-1} + W_k, Y_0 = 0, a_k = 1 - rate delta_k, W_k = delta_k/2 H_k + sqrt(delta_k) eta_k.

    theta_k - mu_p = Y_k + offset_k, so that Y is centred.
    """

    delta: Floats
    rate: float
    offset: Floats  # of theta_0 .. theta_{m-1}
    reach: Floats  # |Y_k| stays below this but for negligible mass, k = 0..m
    noise_reach: float  # the same for H; 0 when there is no gradient noise
    noise_cf: Callable[[Floats], Complexes]  # characteristic function of H


class Observable(NamedTuple):
    """f(y) = -1/2 {precision y cos(y - shift) + sin(y - shift)}, y = theta - mu_p."""

    precision: float
    shift: float

    def times(self, offset: Floats, values: Sequence[Complexes], slopes: Sequence[Complexes]) -> Complexes:
        """E[Z f exp(isY)] from X(s) = E[Z exp(isY)]: `values` are X(s + e), `slopes` X'(s + e), e = +1, -1.

        cos and sin are halves of exp(+-i(y - shift)), which move s by one; a factor Y is -i d/ds.
        """
        total = np.zeros_like(values[0])
        for e, X, dX in zip((1, -1), values, slopes, strict=True):
            factor = -0.25 * np.exp(1j * e * (offset - self.shift))
            total += (factor * (self.precision * offset - 1j * e))[:, None] * X
            total += (factor * (-1j * self.precision))[:, None] * dX
        return total


class Grid(NamedTuple):
    """Chebyshev nodes of one degree; the matrices are transposed, to act on rows of values."""

    nodes: Floats
    analysis: Floats  # values -> Chebyshev coefficients (not transposed)
    spread: Floats  # X on |s| <= 2 -> X(s), X(s+1), X(s-1), X'(s+1), X'(s-1) at the nodes of |s| <= 1
    ends: Floats  # X on |s| <= 1 -> X'(1), X'(-1)


@lru_cache(maxsize=256)
def grid_of(degree: int) -> Grid:
    x = np.cos(np.pi * np.arange(degree + 1) / degree)
    x[degree // 2] = 0.0  # the degree is even: frequency 0 is a node, where phi = 1 and u = 0
    analysis = np.linalg.inv(chebyshev.chebvander(x, degree))
    derivative = chebyshev.chebder(np.eye(degree + 1))  # column r: coefficients of T_r'

    def value(at: Floats) -> Floats:
        return chebyshev.chebvander(at, degree) @ analysis

    def slope(at: Floats) -> Floats:
        return chebyshev.chebvander(at, degree - 1) @ derivative @ analysis

    plus, minus = (x + 1) / 2, (x - 1) / 2
    spread = np.concatenate([value(x / 2), value(plus), value(minus), slope(plus) / 2, slope(minus) / 2])
    return Grid(x, analysis, spread.T.copy(), slope(np.array([1.0, -1.0])).T.copy())


def degree_for(bandwidth: float, tolerance: float) -> int:
    """Smallest even r >= 2 with (b/2)^r / r! <= tolerance, half a bound on coefficient r of exp(ibx)."""
    r, bound = 0, 1.0
    while r < 2 or r % 2 or bound > tolerance:
        r += 1
        bound *= bandwidth / 2 / r
    return r


def sum_moments(chain: Chain, f: Observable, tolerance: float) -> tuple[Floats, Floats]:
    """Mean and variance of S_m = sum_{k<=m} delta_k f(theta_{k-1}), for every m. Cost O(m K^2), K nodes.

    With chi_k the characteristic function of W_k and S centred, two functions of s obey closed recursions:

        phi_k(s) = E exp(isY_k)     = chi_k(s) phi_{k-1}(a_k s)
        u_k(s)   = E S_k exp(isY_k) = chi_k(s) [u_{k-1} + delta_k E{(f - E f) exp(isY)}_{k-1}](a_k s)

    E f is read off phi_k, Cov(S_k, f) off u_k. As |a_k| < 1, frequencies only shrink: |s| <= 2 is enough for
    phi (f^2 has frequency 2) and |s| <= 1 for u.
    """
    size = chain.delta.size
    mean_f, var_f, cross = np.empty(size), np.empty(size), np.empty(size)
    noise = _interpolated_cf(chain, tolerance)
    grid = grid_of(2)
    phi: Complexes = np.ones(3, dtype=np.complex128)
    u: Complexes = np.zeros(3, dtype=np.complex128)
    for start in range(0, size, CHUNK):
        part = slice(start, start + CHUNK)
        delta, offset = chain.delta[part], chain.offset[part]
        reach = chain.reach[start : start + CHUNK + 1].max()  # the states before and after every step
        new = grid_of(degree_for(2 * reach, tolerance))
        phi, u = (chebyshev.chebval(new.nodes, grid.analysis @ X) for X in (phi, u))
        grid, s = new, new.nodes
        knots, weights = _knots(delta, 2 * reach * chain.rate + chain.noise_reach + 2, tolerance)
        dilation = np.tensordot(weights, _dilations(1 - chain.rate * knots, grid), axes=1)
        chi_wide, chi = (weights @ _fresh_cf(noise, knots, scale * s) for scale in (2, 1))
        _pin_zero(dilation, chi_wide, chi)
        phis, phi = _propagate(phi, dilation, chi_wide, None)
        here, *moved = np.split(_real_matmul(phis, grid.spread), 5, axis=1)
        force = f.times(offset, moved[:2], moved[2:])
        mean_f[part] = force[:, s.size // 2].real
        force -= mean_f[part, None] * here
        force[:, s.size // 2] = 0.0
        us, u = _propagate(u, dilation, chi, delta[:, None] * force)
        for out, X in ((var_f, force), (cross, us)):
            slopes = _real_matmul(X, grid.ends)
            at_zero = f.times(offset, (X[:, :1], X[:, -1:]), (slopes[:, :1], slopes[:, 1:]))
            out[part] = at_zero[:, 0].real
    return np.cumsum(chain.delta * mean_f), np.cumsum(2 * chain.delta * cross + chain.delta**2 * var_f)


def _knots(delta: Floats, bandwidth: float, tolerance: float) -> tuple[Floats, Floats]:
    """A few step sizes, and the weights that carry a smooth function of the step from them to every delta_k.

    Steps change slowly within a stretch, so what depends on delta is computed at the knots only. `bandwidth`
    bounds the frequency in delta: the dilation turns by 2 reach rate, the gradient noise by its reach, the
    Gaussian decays by s^2/2 <= 2.
    """
    middle, half = (delta.max() + delta.min()) / 2, (delta.max() - delta.min()) / 2
    if half == 0:
        return delta[:1], np.ones((delta.size, 1))
    coarse = grid_of(degree_for(bandwidth * half, tolerance))
    weights = chebyshev.chebvander((delta - middle) / half, coarse.nodes.size - 1) @ coarse.analysis
    return middle + half * coarse.nodes, weights


def _dilations(a: Floats, grid: Grid) -> Floats:
    """Matrices of X(s) -> X(a s), one per entry of a."""
    return chebyshev.chebvander(np.multiply.outer(a, grid.nodes), grid.nodes.size - 1) @ grid.analysis


def _pin_zero(dilation: Floats, *chis: Complexes) -> None:
    """Make frequency 0 a fixed point to the last bit: over 10^6 steps its rounding would add up, not fade."""
    zero = dilation.shape[1] // 2
    dilation[:, zero] = 0.0
    dilation[:, zero, zero] = 1.0
    for chi in chis:
        chi[:, zero] = 1.0


def _fresh_cf(noise: Callable[[Floats], Complexes], delta: Floats, s: Floats) -> Complexes:
    """Characteristic function of one step's noise, one row per step size."""
    return noise(np.multiply.outer(delta / 2, s)) * np.exp(-0.5 * np.multiply.outer(delta, s**2))


def _interpolated_cf(chain: Chain, tolerance: float) -> Callable[[Floats], Complexes]:
    """The gradient noise's characteristic function, sampled once a run: it may cost N n per frequency."""
    if chain.noise_reach == 0:
        return lambda t: np.ones_like(t, dtype=np.complex128)
    top = float(chain.delta.max())  # delta/2 times the largest frequency, 2
    grid = grid_of(degree_for(top * chain.noise_reach, tolerance))
    coefficients = grid.analysis @ chain.noise_cf(top * grid.nodes)
    return lambda t: chebyshev.chebval(t / top, coefficients)


def _real_matmul(X: Complexes, matrix: Floats) -> Complexes:
    """X @ matrix for a real matrix, without the complex copy that NumPy would make of it."""
    product = np.concatenate([X.real, X.imag]) @ matrix
    return product[: len(X)] + 1j * product[len(X) :]


def _propagate(X: Complexes, dilation: Floats, chi: Complexes, force: Complexes | None) -> tuple[Complexes, Complexes]:
    """States before each step, and the one after the last, of X <- chi_k (X + force_k)(a_k .)."""
    steps, size = chi.shape
    states = np.empty((steps + 1, size), dtype=np.complex128)
    states[0] = X
    # Real and imaginary parts as two real columns: the dilations are real, and BLAS needs no complex copy.
    pairs = states.view(np.float64).reshape(steps + 1, size, 2)
    moved = np.empty(size, dtype=np.complex128)
    moved_pair = moved.view(np.float64).reshape(size, 2)
    if force is None:
        for D, before, factor, after in zip(dilation, pairs, chi, states[1:], strict=False):
            np.matmul(D, before, out=moved_pair)
            np.multiply(factor, moved, out=after)
    else:
        force_pairs = np.ascontiguousarray(force).view(np.float64).reshape(steps, size, 2)
        added = chi * np.matmul(dilation, force_pairs).view(np.complex128)[..., 0]
        for D, before, factor, extra, after in zip(dilation, pairs, chi, added, states[1:], strict=False):
            np.matmul(D, before, out=moved_pair)
            np.multiply(factor, moved, out=after)
            after += extra
    return states[:-1], states[-1]
