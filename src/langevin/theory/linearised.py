"""The law of SGLD's estimates of posterior means and variances, with the posterior linearised around its mean.

With u = theta - mean, Sigma the posterior covariance and C the covariance of the minibatch noise at the mean, take

    u_m = (I - delta_m/2 Sigma^-1) u_{m-1} + delta_m/2 xi_m + sqrt(delta_m) eta_m,   Cov(xi_m) = C, all Gaussian.

Of a coordinate u, the mean S/T and the plug-in variance Q/T - (S/T)^2, with T = sum delta_k, Q = sum delta_k u_{k-1}^2
and S = sum delta_k u_{k-1}, are a linear and a quadratic form of a Gaussian vector: their laws follow from second
moments alone (Isserlis), by a forward recursion. It is written in the eigenvectors of Sigma^-1, where all steps are
diagonal, so that many steps of nearly one size can be made at once.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from langevin.schedules import Schedule

Floats = NDArray[np.float64]

# Up to this many eigenvalues each has a band of its own.
_MOST_BANDS = 8
# Blocks whose step sizes are computed together.
_CHUNK = 4096


class PlugInLaw(NamedTuple):
    """Law of both estimates, shape (horizons, *settings, coordinates).

    `mean` and `variance` of the plug-in variance over the posterior variance, and over its square;
    `mean_mse` of the estimated mean over the posterior variance.
    """

    mean: Floats
    variance: Floats
    mean_mse: Floats


class _Bands(NamedTuple):
    """A coordinate u = sum_g weight_g w_g of each law, by bands of eigenvalues `rate` of the precision.

    rate, weight, start: (coordinates, bands), noise: (coordinates, bands, bands).
    """

    rate: Floats
    weight: Floats
    start: Floats
    noise: Floats


def plug_in_law(
    schedule: Schedule,
    horizons: Sequence[int],
    precision: Floats,
    noise: Floats,
    *,
    start: Floats | None = None,
    coordinates: Sequence[int] | None = None,
    chains: int = 1,
    growth: float = 0.0,
) -> PlugInLaw:
    """The law after each of `horizons` steps of each of `chains` pooled chains that start at mean + `start`.

    `growth` = 0 takes all steps one by one. Otherwise the steps from m on are taken growth * m at once, with one step
    size and all that drives a sum linear in between: an error of the order growth^2, below 0.1% at 1/20. Above 8
    dimensions, eigenvalues of the precision are put together in 8 bands equally wide on a log scale.

    Cost: 50 operations on arrays of (*settings, coordinates, bands, bands) per block, log(m)/growth blocks.
    """
    d = len(precision)
    parts = bands(precision, noise, np.zeros(d) if start is None else start, coordinates)
    edges = _edges(max(horizons), growth, horizons)
    state, found = _Sums(parts, schedule.batch_shape), []
    for m, block in _blocks(schedule, edges):
        state.advance(block)
        if m in horizons:
            found.append(state.law(chains))
    limit = np.sum(parts.weight**2 / parts.rate, axis=-1)
    mean, variance, mean_mse = (np.array(part) for part in zip(*found, strict=True))
    return PlugInLaw(mean / limit, np.maximum(variance, 0.0) / limit**2, mean_mse / limit)


def variance_constants(
    precision: Floats, noise: Floats, coordinates: Sequence[int] | None = None
) -> tuple[Floats, Floats]:
    """(sigma^2, mubar) of u_j^2 in the limit of small steps, over the square of the posterior variance and over itself.

    The Poisson equation A h = u_j^2 - Sigma_jj of the linearised posterior has h = u' K u with Sigma^-1 K + K Sigma^-1
    = -2 e_j e_j', so that sigma^2 = E|grad h|^2 = 4 tr(K Sigma K) and mubar = -tr(K (C + Sigma^-1))/4. One dimension:
    sigma^2 = 4 Sigma and mubar = (C + 1/Sigma)/4. Cost: bands^2 a coordinate.
    """
    rate, weight, _, turned = bands(precision, noise, np.zeros(len(precision)), coordinates)
    K = -2 * weight[:, :, None] * weight[:, None, :] / (rate[:, :, None] + rate[:, None, :])
    limit = np.sum(weight**2 / rate, axis=-1)
    sigma2 = 4 * np.sum(K**2 / rate[:, None, :], axis=(-1, -2))
    mubar = -(np.sum(K * turned, axis=(-1, -2)) + np.einsum("jgg,jg->j", K, rate)) / 4
    return sigma2 / limit**2, mubar / limit


def _edges(last: int, growth: float, horizons: Sequence[int]) -> NDArray[np.int64]:
    """Where blocks of steps end: 0, 1, 2, ... and, from 1/growth on, ever further apart; every horizon among them."""
    if growth == 0.0:
        return np.arange(last + 1)
    edges, m = {0, *horizons}, 0
    while m < last:
        m += max(1, int(growth * m))
        edges.add(min(m, last))
    return np.array(sorted(edges))


class _Block(NamedTuple):
    """Steps of mean size `step`, from step_0 for the first to step_1 after the last; sizes are (*settings, 1)."""

    num_steps: int
    step: Floats
    step_0: Floats
    step_1: Floats


def _blocks(schedule: Schedule, edges: NDArray[np.int64]) -> Iterator[tuple[int, _Block]]:
    """The blocks between `edges`, each with the m of its last step."""
    for first in range(0, len(edges) - 1, _CHUNK):
        some = edges[first : first + _CHUNK + 1]
        counts = np.diff(some)
        delta = schedule.delta(some + 1)
        steps = delta[..., :-1]
        if counts.max() > 1:
            # The difference of two sums T_m would lose digits of a single step.
            steps = np.where(counts == 1, steps, np.diff(schedule.T_m(some), axis=-1) / counts)
        for k, count in enumerate(counts.tolist()):
            sizes = (part[..., k, None] for part in (steps, delta[..., :-1], delta[..., 1:]))
            yield int(some[k + 1]), _Block(count, *sizes)


def bands(precision: Floats, noise: Floats, start: Floats, coordinates: Sequence[int] | None) -> _Bands:
    """Each coordinate's parts in bands of eigenvectors; a band's rate keeps its share of the posterior variance."""
    rates, vectors = np.linalg.eigh(precision)
    band = np.arange(len(rates))
    if len(rates) > _MOST_BANDS:
        reach = np.log(rates / rates[0]) / np.log(rates[-1] / rates[0]) if rates[-1] > rates[0] else 0.0 * rates
        band = np.minimum((_MOST_BANDS * reach).astype(int), _MOST_BANDS - 1)
    member = (band[:, None] == np.unique(band)).astype(float)
    parts = vectors if coordinates is None else vectors[list(coordinates)]
    weight = np.sqrt(parts**2 @ member)
    # A band without part in a coordinate may have any rate and direction.
    present = np.where(weight > 0, weight, 1.0)
    rate = np.where(weight > 0, present**2 / np.where(weight > 0, (parts**2 / rates) @ member, 1.0), rates.mean())
    directions = parts[:, :, None] * member / present[:, None, :]
    turned = vectors.T @ noise @ vectors
    return _Bands(
        rate=rate,
        weight=weight,
        start=(vectors.T @ start) @ directions,
        noise=np.swapaxes(directions, -1, -2) @ (turned @ directions),
    )


class _Geometric(NamedTuple):
    """What `count` steps y <- ratio y + f make of y, for f linear from f_0 in the first step to f_1 after the last."""

    power: Floats
    first: Floats
    slope: Floats

    @classmethod
    def of(cls, power: Floats, gap: Floats, count: int) -> "_Geometric":
        """From ratio^count and gap = 1 - ratio > 0, which the caller knows without cancellation."""
        # first = sum_t ratio^(count-1-t), slope = sum_t t ratio^(count-1-t)/count. Both closed forms are differences of
        # nearly equal numbers where ratio^count is near 1.
        if count == 1:
            return cls(power, np.ones_like(gap), np.zeros_like(gap))
        small = count * gap < 1e-4
        safe = np.where(small, 1.0, gap)
        first = np.where(small, count * (1 - gap * (count - 1) / 2), (1.0 - power) / safe)
        series = (count - 1) / 2 * (1 - gap * (count - 2) / 3)
        return cls(power, first, np.where(small, series, (1.0 - first / count) / safe))

    def __call__(self, y: Floats, f_0: Floats, f_1: Floats) -> Floats:
        return self.power * y + self.first * f_0 + self.slope * (f_1 - f_0)


class _Sums:
    """Second moments along the chain, in bands, for all settings and coordinates at once.

    P = Cov(w), p = Cov(u, w), c = Cov(S, w), M = sum_k delta_k p_k p_k' and R = sum_k delta_k Cov(u_k, S) p_k, both
    moved along to the present. Pairs of times enter the variance of Q through M, its covariance with S^2 through R.
    """

    def __init__(self, bands: _Bands, settings: tuple[int, ...]) -> None:
        self.bands, self.identity = bands, np.eye(bands.rate.shape[-1])
        vector, matrix = (*settings, *bands.rate.shape), (*settings, *bands.noise.shape)
        self.P = np.broadcast_to(bands.start[..., :, None] * bands.start[..., None, :], matrix)
        self.c, self.R, self.M = np.zeros(vector), np.zeros(vector), np.zeros(matrix)
        # T_m, the means of Q and S^2, the variance of Q, and half the covariance of Q with S^2.
        self.T, self.Q, self.S2, self.var_Q, self.G = (np.zeros(vector[:-1]) for _ in range(5))

    def _observed(self, part: Floats) -> Floats:
        return np.einsum("...g,...g->...", part, self.bands.weight)

    def _drives(self, step: Floats) -> dict[str, Any]:
        """What one step adds to each sum, per unit of step, at the present state."""
        p = np.einsum("...gh,...h->...g", self.P, self.bands.weight)
        u2, Su = self._observed(p), self._observed(self.c)
        Mu = np.einsum("...gh,...h->...g", self.M, self.bands.weight)
        uMu = self._observed(Mu)
        g = Su + step * u2
        return {
            "c": p,
            "M": p[..., :, None] * p[..., None, :],
            "R": Mu + g[..., None] * p,
            "Q": u2,
            "S2": 2 * Su + step * u2,
            "var_Q": 4 * uMu + 2 * step * u2**2,
            "G": 2 * self._observed(self.R) + step * uMu + g**2,
        }

    def advance(self, block: _Block) -> None:
        """All sums after a block of steps."""
        count, step = block.num_steps, block.step
        size, size_ = step[..., None], step[..., None, None]
        gap = 0.5 * size * self.bands.rate
        gaps = gap[..., :, None] + gap[..., None, :] - gap[..., :, None] * gap[..., None, :]
        power = (1.0 - gap) ** count
        one = _Geometric.of(power, gap, count)
        two = _Geometric.of(power[..., :, None] * power[..., None, :], gaps, count)
        # Time goes with the mean step, but the end of the block must find the noise that belongs to the step there.
        noise_0, noise_1 = (0.25 * end[..., None, None] * self.bands.noise for end in (block.step_0, block.step_1))
        before = self._drives(step)
        self.P = two(self.P, size_ * (noise_0 + self.identity), size_ * (noise_1 + self.identity))
        # What drives a sum is known at the end of the block once all that it is made of is there.
        for name, move, weight in (
            ("c", one, size * (1.0 - gap)),
            ("M", two, size_ * (1.0 - gaps)),
            ("R", one, size * (1.0 - gap)),
        ):
            after = before if count == 1 else self._drives(step)
            setattr(self, name, move(getattr(self, name), weight * before[name], weight * after[name]))
        after = before if count == 1 else self._drives(step)
        for name in ("Q", "S2", "var_Q", "G"):
            total = count * before[name] + 0.5 * (count - 1) * (after[name] - before[name])
            setattr(self, name, getattr(self, name) + step * total)
        self.T = self.T + step * count

    def law(self, chains: int) -> tuple[Floats, Floats, Floats]:
        """Mean and variance of the plug-in variance, and the variance of the mean, of pooled chains."""
        spread = self.S2 / self.T**2 / chains
        mean = self.Q / self.T - spread
        variance = self.var_Q / self.T**2 / chains - 4 * self.G / self.T**3 / chains**2 + 2 * spread**2
        return mean, variance, spread
