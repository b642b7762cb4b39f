"""Moments and quantiles by importance sampling from a Gaussian with heavier tails: antithetic, with controls."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import factorial, lgamma, log, pi

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq
from scipy.special import ndtr

Floats = NDArray[np.float64]
LogDensity = Callable[[Floats], Floats]

BATCHES = 64
TAIL_SHARE, TAIL_DF = 0.2, 5.0
MOST_CONTROLS = 250
# Levels of the quantiles, and the grid of standardised values on which distribution functions are summed.
LEVELS = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)
GRID = np.linspace(-6.0, 6.0, 121)


@dataclass(frozen=True, eq=False)
class Moments:
    """Means, standard deviations and quantiles (levels, d) of the flat parameters with their standard errors.

    ess: effective share of the draws; laplace_ess: that of plain draws from N(centre, covariance), the Laplace
    approximation if centre and covariance are those of the mode.
    """

    mean: Floats
    sd: Floats
    mean_stderr: Floats
    sd_stderr: Floats
    quantiles: Floats
    quantiles_stderr: Floats
    ess: float
    laplace_ess: float

    @property
    def worst_stderr(self) -> float:
        """Largest standard error of a mean or a standard deviation, in posterior standard deviations."""
        return float(np.max(np.concatenate([self.mean_stderr, self.sd_stderr]) / np.tile(self.sd, 2)))


def hermite_indices(d: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(coordinates, degrees), each (p, 4): the products of Hermite polynomials of total degree 0, 2 and, if few, 4."""
    rows = [(), *combinations_with_replacement(range(d), 2)]
    quartic = list(combinations_with_replacement(range(d), 4))
    rows += quartic if len(rows) + len(quartic) <= MOST_CONTROLS else []
    coordinates, degrees = np.zeros((2, len(rows), 4), np.int64)
    for row, multiset in enumerate(rows):
        for slot, coordinate in enumerate(sorted(set(multiset))):
            coordinates[row, slot], degrees[row, slot] = coordinate, multiset.count(coordinate)
    return coordinates, degrees


def _hermite(z: Floats, coordinates: NDArray[np.int64], degrees: NDArray[np.int64]) -> Floats:
    """Orthonormal Hermite products of the rows of z, shape (p, n)."""
    x = z.T
    table = [np.ones_like(x), x, x**2 - 1, x**3 - 3 * x, x**4 - 6 * x**2 + 3]
    norms = np.array([factorial(k) for k in range(5)]) ** 0.5
    columns = np.stack(table) / norms[:, None, None]
    product = columns[degrees[:, 0], coordinates[:, 0]]
    for slot in range(1, 4):
        used = degrees[:, slot] > 0
        product[used] *= columns[degrees[used, slot], coordinates[used, slot]]
    return product


def importance(
    log_density: LogDensity, centre: Floats, covariance: Floats, pairs: int, seed: int, batches: int = BATCHES
) -> Moments:
    """Self-normalised importance sampling with antithetic pairs and control functions of known expectation.

    theta = centre + L z, L L' = covariance, with z and -z drawn from the mixture q = 0.8 N(0, I) + 0.2 t_5, whose tails
    keep the weights w = pi/q bounded. Any even polynomial p orthogonal to 1 under phi = N(0, I) has E_q[p phi/q] = 0,
    and so has phi/q - 1: w, w x and w x^2 (x the standardised theta, averaged over the pair) are regressed on
    these, the slopes of each half of the batches coming from the other half. Standard errors from the spread of the
    batches' influence. Cost: 2 pairs log densities.
    """
    if batches < 4 or batches % 2 or pairs < batches:
        raise ValueError(f"batches must be even, at least 4 and at most pairs, got {batches} for {pairs} pairs.")
    d, size = len(centre), pairs // batches
    sd = np.sqrt(np.diag(covariance))
    root = np.linalg.cholesky(covariance / np.outer(sd, sd))
    indices = hermite_indices(d)
    level = float(log_density(centre[None])[0])
    p = len(indices[0])
    gram, cross, plain = np.zeros((2, p, p)), np.zeros((2, p, 1 + 2 * d)), np.zeros(3)
    squares, means = 0.0, np.zeros((batches, p + 1 + 2 * d))
    below = np.zeros((batches, 2, d, len(GRID)))
    for batch, stream in enumerate(np.random.SeedSequence(seed).spawn(batches)):
        rng = np.random.default_rng(stream)
        normal = rng.random(size) >= TAIL_SHARE
        z = rng.standard_normal((size, d))
        z[~normal] /= np.sqrt(rng.chisquare(TAIL_DF, int(np.sum(~normal))) / TAIL_DF)[:, None]
        x = z @ root.T
        log_phi, log_q = _log_proposal(z)
        values = log_density(np.concatenate([centre + sd * x, centre - sd * x])).reshape(2, size) - level
        weights = np.exp(values - log_q)
        if not np.all(np.isfinite(weights)):
            raise RuntimeError("a weight is not finite: the log density is NaN, or it grows without bound.")
        even, odd = weights.mean(axis=0), (weights[0] - weights[1]) / 2
        ratio = np.exp(log_phi - log_q)
        controls = ratio * _hermite(z, *indices)
        controls[0] -= 1.0
        responses = np.concatenate([even[None], odd * x.T, even * x.T**2])
        gram[batch % 2] += controls @ controls.T / size
        cross[batch % 2] += controls @ responses.T / size
        means[batch] = np.concatenate([controls.mean(axis=1), responses.mean(axis=1)])
        squares += np.sum(weights**2)
        below[batch] = [_shares(x, weight_sum) for weight_sum in (weights, np.stack([ratio, ratio]))]
        laplace = np.exp(values[:, normal] - log_phi[normal])
        plain += np.array([laplace.size, laplace.sum(), np.sum(laplace**2)])
    first, scale, *errors = _moments(_adjusted(means, gram, cross), d)
    ess, plain_ess = 2 * size * batches * means[:, p].mean() ** 2 / squares, plain[1] ** 2 / plain[0] / plain[2]
    points, point_errors = _quantiles(below, means[:, p], means[:, 0])
    return Moments(
        mean=centre + sd * first,
        sd=sd * scale,
        mean_stderr=sd * errors[0],
        sd_stderr=sd * errors[1],
        quantiles=centre + sd * points,
        quantiles_stderr=sd * point_errors,
        ess=float(ess),
        laplace_ess=float(plain_ess),
    )


def _shares(x: Floats, weights: Floats) -> Floats:
    """Mean over draws x and -x of weight 1{x_j <= c}, for every coordinate and every c of the grid, (d, grid)."""
    found = np.zeros((x.shape[1], len(GRID)))
    for sign, weight in zip((1.0, -1.0), weights, strict=True):
        for j, column in enumerate(sign * x.T):
            cell = np.searchsorted(GRID, column, side="left")
            found[j] += np.cumsum(np.bincount(cell, weight, len(GRID) + 1))[:-1]
    return found / (2 * len(x))


def _quantiles(below: Floats, weight: Floats, ratio: Floats) -> tuple[Floats, Floats]:
    """Standardised quantiles (levels, d) with errors, from the batches' means of w 1{x <= c} and (phi/q) 1{x <= c}.

    The second is known to be Phi(c): taken off with the mean weight as its slope, it leaves the noise of w alone; so
    does phi/q - 1, whose batch means are `ratio`, in the sum of the weights.
    """
    slope = weight.mean()
    shares = below[:, 0] - slope * (below[:, 1] - ndtr(GRID))
    whole = weight - slope * ratio
    mean = shares.mean(axis=0) / whole.mean()
    influence = (shares - mean * whole[:, None, None]) / whole.mean()
    d = below.shape[2]
    points, errors = np.zeros((2, len(LEVELS), d))
    for j in range(d):
        curve = CubicSpline(GRID, mean[j] - ndtr(GRID))
        spread = CubicSpline(GRID, influence[:, j].std(axis=0, ddof=1) / np.sqrt(len(below)))
        for k, level in enumerate(LEVELS):
            c = brentq(lambda c, curve=curve, level=level: ndtr(c) + curve(c) - level, GRID[0], GRID[-1])
            slope = np.exp(-0.5 * c**2) / np.sqrt(2.0 * pi) + curve(c, 1)
            points[k, j], errors[k, j] = c, spread(c) / slope
    return points, errors


def _adjusted(means: Floats, gram: Floats, cross: Floats) -> Floats:
    """Batch means of the responses less slopes times those of the controls, from sums of products of the two halves."""
    p, count = gram.shape[1], len(means) / 2
    adjusted = means[:, p:].copy()
    for half in (0, 1):
        # Slopes from the other half: fitted to the same draws, they would flatter the spread of the batches.
        other = means[1 - half :: 2].mean(axis=0)
        covariance = gram[1 - half] / count - np.outer(other[:p], other[:p])
        slopes = np.linalg.solve(covariance, cross[1 - half] / count - np.outer(other[:p], other[p:]))
        adjusted[half::2] -= means[half::2, :p] @ slopes
    return adjusted


def _log_proposal(z: Floats) -> tuple[Floats, Floats]:
    """Log densities of N(0, I) and of the mixture, both divided by the value of N(0, I) at 0."""
    d, squared = z.shape[1], np.sum(z**2, axis=1)
    t_at_zero = lgamma((TAIL_DF + d) / 2) - lgamma(TAIL_DF / 2) - d / 2 * log(TAIL_DF * pi) + d / 2 * log(2 * pi)
    log_t = t_at_zero - (TAIL_DF + d) / 2 * np.log1p(squared / TAIL_DF)
    log_phi = -0.5 * squared
    return log_phi, np.logaddexp(log(1 - TAIL_SHARE) + log_phi, log(TAIL_SHARE) + log_t)


def _moments(batch_means: Floats, d: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Means and standard deviations from the batches' averages of (w, w x, w x^2), with delta-method errors."""
    total = batch_means.mean(axis=0)
    first, second = total[1 : d + 1] / total[0], total[d + 1 :] / total[0]
    sd = np.sqrt(second - first**2)
    first_influence = (batch_means[:, 1 : d + 1] - first * batch_means[:, :1]) / total[0]
    second_influence = (batch_means[:, d + 1 :] - second * batch_means[:, :1]) / total[0]
    sd_influence = (second_influence - 2 * first * first_influence) / (2 * sd)

    def stderr(influence: Floats) -> Floats:
        return influence.std(axis=0, ddof=1) / np.sqrt(len(influence))

    return first, sd, stderr(first_influence), stderr(sd_influence)
