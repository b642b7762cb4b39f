"""The pilot: what a few Laplace draws and a few rows say about the posterior before a run is planned."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from langevin.anchor import Anchor
from langevin.anchor.passes import Passes
from langevin.anchor.roots import product, pull, push
from langevin.data.source import DataSource
from langevin.forces import forces
from langevin.heaviest import heaviest_row
from langevin.limits import checkpoint, set_up
from langevin.mistakes import check_rows
from langevin.precision import apart
from langevin.rows import derivatives, remainder
from langevin.startup import own_programs
from langevin.target import Target, numbers

PyTree = Any

# A stream of its own: default_rng(seed) may be what the data were simulated from, and draws equal to rows mislead.
_STREAM = 0x50494C4F
_DOING = "measuring the posterior at a few draws"
# Rows are drawn anew for every group of draws: what is odd about a few rows then averages out over the groups.
_GROUPS, _DRAWS = 20, 10
_GROUPS_NOT_DENSE, _DRAWS_NOT_DENSE = 8, 8
# A draw's covariances over the rows cost rows * d^2: beyond this dimension only one pair of each group has them.
_ALL_COVARIANCES_UP_TO = 64
# Beyond this many parameters a sample of the rows says nothing about the weights: all rows are looked at, at few draws.
_ALL_ROWS_FROM = 500
# Products that bring a vector towards the first eigenvector: one twice as wide as the next is left alone.
_POWERS = 20
# Where a datum is a group of many rows, fewer of them: so many numbers at a time, but groups that differ.
_MOST_NUMBERS, _FEWEST_GROUPS = 2**21, 32
# Rows times parameters of which a group has one table for each draw and each derivative: a megabyte each.
_MOST_FLOATS = 2**17


@dataclass(frozen=True)
class Pilot:
    """What was measured at Laplace draws theta = anchor + L z, z ~ N(0, I); everything in whitened units.

    `ess`: importance-sampling effective sample size of the draws, a fraction; of the worst parameter by itself where
    `by_parameter`, beyond 500 parameters with a dense anchor, see `forces`.
    `curvature_spread`: largest eigenvalue of
    N sum_i A_i^2 - (sum_i A_i)^2, A_i = L' Hess_i L at the anchor: with n data a linearised step contracts iff
    n > curvature_spread / (4/delta - 1); None unless the anchor is dense. `noise`: n = 1 variance of the gradient
    estimates "plain", "cv1" and (dense) "cv2", that of the parameter with the largest, over its Laplace variance.
    `spread`: (2, d), variance over the posterior of the Poisson-corrected u_j and u_j^2 with exact gradients, means of
    an antithetic pair, in units of sd_j^2 and sd_j^4: S independent pairs give a standard error of sqrt(spread/S) sds.
    `outside`: share of the draws beyond the support. `heaviest`: of the traces of all A_i the largest that was found,
    all of which add up to about d; 0 where all rows were sampled. `cost`: datum visits.
    """

    ess: float
    curvature_spread: float | None
    noise: Mapping[str, float]
    spread: np.ndarray
    outside: float
    cost: int
    by_parameter: bool = False
    heaviest: float = 0.0

    @classmethod
    def none(cls, dimension: int) -> "Pilot":
        """Nothing was measured, and nothing can be relied on."""
        noise = dict.fromkeys(("plain", "cv1", "cv2"), float("inf"))
        return cls(0.0, None, noise, np.full((2, dimension), np.nan), 0.0, 0)


@set_up()
def pilot(target: Target, source: DataSource | None, anchor: Anchor, seed: int) -> Pilot:
    """Measures a posterior at 200 Laplace draws with 100 to 250 rows each; 64 draws unless the anchor is dense.

    The log weight of a draw is what log pi keeps beyond its Taylor polynomial at the anchor, of second order (dense) or
    of first order with |z|^2/2 beside: exact for the prior, N/rows times a subsample's for the likelihood. Cost:
    22,000 to 55,000 datum visits and a pass for the heaviest row, beyond 500 parameters 42 passes; memory a few d^2,
    and a few tables of rows * d for each of a group's draws.
    """
    dense, d = anchor.dense, anchor.layout.size
    rng = np.random.default_rng([seed, _STREAM])
    many = dense and d > _ALL_ROWS_FROM
    groups, draws, at_once, rows = sizes(target, source, anchor)
    half = rng.standard_normal((groups, draws // 2, d))
    num_data = 0 if source is None else source.num_data
    picked = [rng.choice(num_data, rows, replace=False, shuffle=False) for _ in range(groups)] if num_data else []
    twin, found, curvatures = apart(target), [], [0.0, 0.0]
    with own_programs(), jax.enable_x64(True), np.errstate(all="ignore"):
        for g in range(groups):
            batch = None if source is None else source.take(picked[g])
            # Antithetic pairs side by side: the odd part of the remainder then has mean zero exactly.
            z = np.stack([half[g], -half[g]], axis=1).reshape(-1, at_once, d)
            covering = [draws if d <= _ALL_COVARIANCES_UP_TO else (1 if many else 2) * (k == 0) for k in range(len(z))]
            parts = [_measured(twin, anchor, batch, num_data, *one) for one in zip(z, covering, strict=True)]
            # The only part with d^2 numbers is summed as it comes.
            curvatures[g % 2] = curvatures[g % 2] + sum(part[-1].pop("curvature", 0.0) for part in parts)
            found.append(jax.tree.map(lambda *one: np.stack(one), *parts))
        passes = Passes(twin, source, anchor.layout, doing=_DOING)
        exact = forces(passes, anchor, rng) if many else None
        heaviest = heaviest_row(passes, anchor, rng) if dense and rows < num_data else 0.0
    log_weights, row_noise, moments, noise = jax.tree.map(lambda *one: np.stack(one), *found)
    moments, noise = jax.tree.map(lambda part: part.sum(axis=1), (moments, noise))
    scattered = _scattered(noise, curvatures, rows, anchor)
    cost = (draws + 1) * groups * max(rows, 1)
    if exact is None:
        ess, outside = _weighed(log_weights.ravel(), row_noise.ravel())
        spread = _variance(moments) / np.stack([anchor.sd**2, anchor.sd**4])
        return Pilot(ess, **scattered, spread=spread, outside=outside, cost=cost + passes.cost, heaviest=heaviest)
    ess, spread, outside, number = exact
    cost += number * max(num_data, 1)
    return Pilot(ess, **scattered, spread=spread, outside=outside, cost=cost, by_parameter=True, heaviest=heaviest)


def sizes(target: Target, source: DataSource | None, anchor: Anchor) -> tuple[int, int, int, int]:
    """Groups of draws, draws of a group, draws that are looked at together, and rows that each group sees."""
    dense, d = anchor.dense, anchor.layout.size
    few = 2 if d > _ALL_ROWS_FROM else _DRAWS
    groups, draws = (_GROUPS, few) if dense else (_GROUPS_NOT_DENSE, _DRAWS_NOT_DENSE)
    rows = 0
    if source is not None:
        affordable = max(_MOST_NUMBERS // numbers(target.log_likelihood, source.arrays), _FEWEST_GROUPS)
        rows = min(source.num_data, _num_rows(d, dense), affordable)
    # All draws of a group at once, or one pair after the other where their tables would be large.
    return groups, draws, draws if rows * d <= _MOST_FLOATS else 2, rows


def _num_rows(d: int, dense: bool) -> int:
    """Rows a draw: the likelihood's remainder has noise (d/N)^(3/2) N / sqrt(rows), which must stay below its size."""
    if dense:
        return 500 if d > _ALL_ROWS_FROM else int(np.clip(10 * d, 100, 250))
    # No Hessian, but tables of rows * d numbers: 8 MB each.
    return int(np.clip(1_000_000 // d, 8, 100))


def _measured(
    target: Target, anchor: Anchor, batch: PyTree, num_data: int, z: np.ndarray, covering: int
) -> tuple[np.ndarray, np.ndarray, tuple, dict[str, Any]]:
    """Log weights of some draws, their variances by subsampling, moments of the corrected values, and covariances over
    the rows, summed over the first `covering` draws."""
    checkpoint(_DOING)
    dense, d, root = anchor.dense, anchor.layout.size, anchor.root
    u = push(root, z)
    centre = np.broadcast_to(anchor.theta, u.shape)
    points, directions = np.concatenate([anchor.theta + u, centre]), np.concatenate([np.zeros_like(u), u])
    prior, likelihood = derivatives(target, anchor.layout, points, directions if dense else None, batch)
    _, _, value, grad = remainder(prior, u)
    value = value if dense else value + 0.5 * np.sum(z**2, axis=1)
    row_noise = np.zeros(len(z))
    if batch is not None:
        plain, along, values, terms = remainder(likelihood, u[:, None])
        check_rows(plain, likelihood[0][0])
        value, grad = value + num_data * values.mean(axis=1), grad + num_data * terms.mean(axis=1)
        rows = values.shape[1]
        spread = np.sum((values - values.mean(axis=1, keepdims=True)) ** 2, axis=1) / max(rows - 1, 1)
        row_noise = num_data * (num_data - rows) / rows * spread
    # u + Sigma grad log pi up to a constant; the second-order part of a dense Laplace model cancels u exactly.
    first = push(root, pull(root, grad)) + (0.0 if dense else u)
    # A draw beyond the support has weight zero and says nothing about the rest.
    inside = np.isfinite(value) & np.all(np.isfinite(first), axis=1)
    noise = {"count": np.zeros(()), **{order: np.zeros(d) for order in _orders(anchor)}}
    if dense:
        noise["curvature"] = np.zeros((d, d))
    if batch is not None:
        for k in np.flatnonzero(inside[:covering]):
            found = _covariances(anchor, num_data, plain[k], along[k], terms[k])
            noise = {name: part + found[name] for name, part in noise.items()}
    corrected = np.where(inside[:, None, None], np.stack([first, u * first], axis=1), 0.0)
    # The chains go in such pairs too: what counts is the spread of a pair's mean.
    both = inside.reshape(-1, 2).all(axis=1)
    paired = np.where(both[:, None, None], corrected.reshape(-1, 2, 2, d).mean(axis=1), 0.0)
    moments = (np.sum(both, dtype=float), np.sum(paired, axis=0), np.sum(paired**2, axis=0))
    return np.where(inside, value, -np.inf), row_noise, moments, noise


def _orders(anchor: Anchor) -> tuple[str, ...]:
    """Gradient estimates whose noise is measured: with many parameters and a dense anchor the one that is used."""
    if not anchor.dense:
        return "plain", "cv1"
    return ("cv2",) if anchor.layout.size > _ALL_ROWS_FROM else ("plain", "cv1", "cv2")


def _covariances(
    anchor: Anchor, num_data: int, plain: np.ndarray, along: np.ndarray, terms: np.ndarray
) -> dict[str, Any]:
    """Variances over the rows of N Sigma term_i for each gradient estimate; the covariance of N L' Hess_i u."""
    root = anchor.root

    def pulled(rows: np.ndarray) -> np.ndarray:
        return num_data * pull(root, rows - rows.mean(axis=0))

    def variances(rows: np.ndarray) -> np.ndarray:
        return np.sum(push(root, rows) ** 2, axis=0) / max(len(rows) - 1, 1)

    found, rest = {"count": np.ones(())}, pulled(terms)
    if "plain" in _orders(anchor):
        found["plain"] = variances(pulled(plain))
    if not anchor.dense:
        return {**found, "cv1": variances(rest)}
    linear = pulled(along)
    if "cv1" in _orders(anchor):
        found["cv1"] = variances(linear + rest)
    return {**found, "cv2": variances(rest), "curvature": product(linear.T, linear) / max(len(linear) - 1, 1)}


def _weighed(log_weights: np.ndarray, row_noise: np.ndarray) -> tuple[float, float]:
    """ESS fraction, once the variance that subsampling adds is taken off, and the share of draws without a weight."""
    inside = np.isfinite(log_weights)
    if np.sum(inside) < 2:
        return 0.0, float(np.mean(~inside))
    centred = log_weights - log_weights[inside].mean()
    with np.errstate(over="ignore"):  # infinite: far beyond anything that could be answered
        variance = float(np.var(centred[inside], ddof=1))
    by_rows = float(row_noise[inside].mean()) / max(variance, 1e-300)
    # Where subsampling makes most of the spread, nothing is known of the rest: then none of it is taken off.
    kept = 1.0 - by_rows if by_rows < 0.5 else 1.0
    weights = np.zeros(log_weights.size)
    weights[inside] = np.exp(np.sqrt(kept) * (centred[inside] - centred[inside].max()))
    return float(weights.sum() ** 2 / np.sum(weights**2) / weights.size), float(np.mean(~inside))


def _scattered(noise: dict[str, np.ndarray], curvatures: list, rows: int, anchor: Anchor) -> dict[str, Any]:
    """Gradient noise, the larger of two halves of the groups; the spread of curvatures over all of them."""
    halves = [{name: part[half::2].sum(axis=0) for name, part in noise.items()} for half in (0, 1)]
    counts = [max(half["count"], 1.0) for half in halves]
    found = {
        name: float(max(np.max(half[name] / anchor.sd**2) / count for half, count in zip(halves, counts, strict=True)))
        for name in _orders(anchor)
    }
    if not anchor.dense:
        return {"noise": found, "curvature_spread": None}
    if anchor.layout.size > _ALL_ROWS_FROM:
        one, other = (matrix / count for matrix, count in zip(curvatures, counts, strict=True))
        return {"noise": found, "curvature_spread": _spread_of_many(one, other, int(sum(counts)) * rows)}
    return {"noise": found, "curvature_spread": float(np.linalg.eigvalsh(sum(curvatures) / sum(counts))[-1])}


def _spread_of_many(one: np.ndarray, other: np.ndarray, count: int) -> float:
    """The largest eigenvalue of a covariance in many dimensions, from those of two halves of `count` vectors.

    The largest of a sample's own would be several times too large. Each half's first eigenvector is weighed by the
    other half. A direction up to 1 + sqrt(3 d / count) times as wide as the average cannot be told from it (the limit
    of Baik, Ben Arous and Peche; the vectors N L' Hess_i u are normal numbers times rows, which count a third).
    """
    d, found = len(one), []
    for matrix, judge in ((one, other), (other, one)):
        vector = np.ones(d)
        for _ in range(_POWERS):
            vector = matrix @ vector
            vector /= max(float(np.linalg.norm(vector)), 1e-300)
        found.append(vector @ (judge @ vector))
    unseen = 0.5 * (np.trace(one) + np.trace(other)) / d * (1.0 + np.sqrt(3.0 * d / max(count, 1)))
    return float(max(np.mean(found), unseen))


def _variance(moments: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    count, total, squares = (part.sum(axis=0) for part in moments)
    count = max(float(count), 2.0)
    with np.errstate(over="ignore", invalid="ignore"):  # far beyond anything that could be answered
        return np.maximum(squares - total**2 / count, 0.0) / (count - 1.0)
