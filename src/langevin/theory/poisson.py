"""The Poisson equation of the Langevin diffusion on the line, and its constants sigma^2 and mubar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from langevin.factorisations import one_by_one
from langevin.startup import COMPILED
from langevin.theory.operators import generator, laplacian

Floats = NDArray[np.float64]
Scalar = Callable[[jax.Array], jax.Array]

ORDER = 16  # Gauss-Legendre nodes a panel: exact up to degree 31
TAIL = 1e-8  # mass that may be lost at either end of the interval before it is refused


@dataclass(frozen=True, eq=False)
class PoissonSolution:
    """h with A h = phi - pi(phi), on a quadrature rule for pi: E_pi[f] = sum(weight * f(theta)).

    `dh`, `d2h` are h' and h''; h itself is free up to a constant and never needed. `mean` is pi(phi);
    `log_density` is kept for `mubar`.

    Example:
        >>> normal = solve_poisson(lambda t: t, lambda t: -0.5 * t**2, -9.0, 9.0)
        >>> round(normal.sigma2, 6)  # h = -2 theta
        4.0
    """

    theta: Floats
    weight: Floats
    dh: Floats
    d2h: Floats
    mean: float
    log_density: Scalar

    @property
    def sigma2(self) -> float:
        """sigma^2(phi) = pi(h'^2), the limit of T_m times the variance of pi_m(phi)."""
        return float(self.weight @ self.dh**2)

    def mubar(self, grad_noise: float | Scalar = 0.0) -> float:
        """Bias of pi_m(phi) per unit of sum delta^2 / T_m as delta -> 0, for gradient noise of this variance.

            mubar = -E[1/8 h'' g^2 + 1/4 h''' l' + 1/8 h''''],  l = log pi,  g = l' + noise
                  = -1/8 E[h'' (noise variance - l'')]

        The second line is the first after two integrations by parts, E[F' + F l'] = 0 with F = h''' and
        F = h'' l'. It asks for two derivatives of h instead of four, so it also holds for a phi with jumps.
        `grad_noise` is the variance of the stochastic gradient's error, a number or a function of theta.
        """
        # One step moves theta by D = delta/2 g + sqrt(delta) eta. In E[h(theta + D) - h(theta)] the terms of
        # order delta^2 are h'' E[(g/2)^2]/2! = 1/8 h'' E[g^2], h''' 3 E[(g/2) eta^2]/3! = 1/4 h''' l', and
        # h'''' E[eta^4]/4! = 3/24 h'''' = 1/8 h''''. Averaged under pi with the sign turned they are mubar.
        noise = _values(grad_noise, self.theta) if callable(grad_noise) else grad_noise
        curvature = _values(jax.grad(jax.grad(self.log_density)), self.theta)
        return float(-self.weight @ (self.d2h * (noise - curvature)) / 8)


def solve_poisson(
    phi: Scalar,
    log_density: Scalar,
    lower: float,
    upper: float,
    breaks: Sequence[float] = (),
    panels: int = 64,
) -> PoissonSolution:
    """Solve A h = phi - pi(phi) for a density on the line, phi and log pi being JAX functions of a number.

        h'(x) = 2/pi(x) int_{-inf}^x (phi - pi(phi)) pi = -2/pi(x) int_x^{inf} (phi - pi(phi)) pi
        h'' = 2 (phi - pi(phi)) - (log pi)' h'

    [lower, upper] must hold all but 1e-8 of the mass; `breaks` are points where phi jumps. Cost: 16 (panels +
    breaks) evaluations. Each side of the median uses the integral from its own end, whose terms are as small
    as pi(x); the other one would be a small difference of large numbers. Close to the two ends h' feels the
    mass cut off there; expectations do not.

    Example:
        >>> normal = solve_poisson(lambda t: t**2, lambda t: -0.5 * t**2, -9.0, 9.0)
        >>> round(normal.mean, 6), round(normal.sigma2, 6)  # h = -theta^2
        (1.0, 4.0)
    """
    theta, width = _panels(lower, upper, breaks, panels)
    density, weight = _normalised(log_density, theta, width, lower, upper)
    value = _values(phi, theta)
    mean = float(weight @ value)
    excess = ((value - mean) * density).reshape(-1, ORDER)
    from_left, from_right = _cumulative(excess, width)
    integral = np.where(np.cumsum(weight) < 0.5, from_left, -from_right)
    dh = 2 * integral / density
    d2h = 2 * (value - mean) - _values(jax.grad(log_density), theta) * dh
    return PoissonSolution(theta, weight, dh, d2h, mean, log_density)


def known_solution(h: Scalar, log_density: Scalar, lower: float, upper: float, panels: int = 64) -> PoissonSolution:
    """The same record for phi = A h, when h is chosen first: then pi(phi) = 0 and nothing needs solving.

    `mean` is still computed, by quadrature: its distance from 0 tells how good the interval is.

    Example:
        >>> known = known_solution(lambda t: -2.0 * t, lambda t: -0.5 * t**2, -9.0, 9.0)
        >>> abs(known.mean) < 1e-12, round(known.sigma2, 6)
        (True, 4.0)
    """
    theta, width = _panels(lower, upper, (), panels)
    _, weight = _normalised(log_density, theta, width, lower, upper)
    mean = float(weight @ _values(generator(h, log_density), theta))
    dh, d2h = _values(jax.grad(h), theta), _values(jax.grad(jax.grad(h)), theta)
    return PoissonSolution(theta, weight, dh, d2h, mean, log_density)


def local_bias(h: Scalar, log_density: Scalar, grad_noise: jax.Array | float = 0.0) -> Scalar:
    """The function theta -> -[1/8 <g, Hess h g> + 1/4 <grad Laplacian h, grad log pi> + 1/8 Laplacian^2 h].

    It is averaged over the stochastic gradient g, whose error has covariance `grad_noise`: a d x d matrix, or
    a number times the identity. Its mean under pi is mubar. theta is a vector, or a number.
    Cost O(d^2) nested derivatives of h: for small d.

    Example:
        >>> float(local_bias(lambda t: -(t**2), lambda t: -0.5 * t**2)(2.0))  # -1/8 h'' (theta^2) - 0 - 0
        1.0
    """

    def at(theta: jax.Array) -> jax.Array:
        shape, flat = jnp.shape(theta), jnp.ravel(theta)

        def h_flat(v: jax.Array) -> jax.Array:
            return h(v.reshape(shape))

        def laplacian_h(v: jax.Array) -> jax.Array:
            return laplacian(h_flat, v)

        grad = jax.grad(lambda v: log_density(v.reshape(shape)))(flat)
        noise = grad_noise if jnp.ndim(grad_noise) == 2 else grad_noise * jnp.eye(flat.size)
        quadratic = jnp.sum(jax.hessian(h_flat)(flat) * (jnp.outer(grad, grad) + noise))
        # 1/8, 1/4 and 1/8 = E[eta^4]/4!: see PoissonSolution.mubar.
        return -(quadratic / 8 + jax.grad(laplacian_h)(flat) @ grad / 4 + laplacian(laplacian_h, flat) / 8)

    return at


def _values(f: Scalar, theta: Floats) -> Floats:
    """f at every point, in double precision whatever the caller's setting."""
    with jax.enable_x64(True), one_by_one():
        each = jax.jit(jax.vmap(f), compiler_options=COMPILED)
        return np.asarray(each(jnp.asarray(theta, dtype=jnp.float64)), dtype=np.float64)


def _panels(lower: float, upper: float, breaks: Sequence[float], panels: int) -> tuple[Floats, Floats]:
    """Composite Gauss-Legendre nodes and the panel widths."""
    if not lower < upper or not all(lower < b < upper for b in breaks):
        raise ValueError(f"need lower < breaks < upper, got {lower=}, {breaks=}, {upper=}.")
    edges = np.unique([*np.linspace(lower, upper, panels + 1), *breaks])
    width = np.diff(edges)
    nodes = legendre.leggauss(ORDER)[0]
    return (edges[:-1, None] + width[:, None] * (nodes + 1) / 2).ravel(), width


def _normalised(log_density: Scalar, theta: Floats, width: Floats, lower: float, upper: float) -> tuple[Floats, Floats]:
    """pi at the nodes, and the quadrature weights of E_pi; refuses an interval that cuts pi off."""
    log_pi = _values(log_density, np.concatenate([theta, [lower, upper]]))
    relative = np.exp(log_pi - log_pi[:-2].max())
    rule = np.multiply.outer(width / 2, legendre.leggauss(ORDER)[1]).ravel()
    total = float(rule @ relative[:-2])
    lost = float(relative[-2:].max()) * (upper - lower) / total
    if not lost < TAIL:
        raise ValueError(
            f"[{lower}, {upper}] leaves about {lost:.1e} of the mass near or beyond its ends; "
            f"the integrals need less than {TAIL:.0e}. Try a wider interval."
        )
    density = relative[:-2] / total
    return density, rule * density


def _cumulative(f: Floats, width: Floats) -> tuple[Floats, Floats]:
    """Integrals of f (panels x nodes) from the left end to each node, and from each node to the right end."""
    nodes, rule = legendre.leggauss(ORDER)
    analysis = np.linalg.inv(legendre.legvander(nodes, ORDER - 1))
    primitive = legendre.legint(np.eye(ORDER), lbnd=-1)  # column r: coefficients of int_{-1}^x P_r
    inside = legendre.legvander(nodes, ORDER) @ primitive @ analysis
    left = f @ inside.T * width[:, None] / 2
    right = f @ (rule - inside).T * width[:, None] / 2
    panel = f @ rule * width / 2
    before = np.concatenate([[0.0], np.cumsum(panel)[:-1]])
    after = np.concatenate([np.cumsum(panel[::-1])[::-1][1:], [0.0]])
    return (left + before[:, None]).ravel(), (right + after[:, None]).ravel()
