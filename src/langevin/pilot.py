"""The pilot: what a few Laplace draws and a few rows say about the posterior before a run is planned."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from langevin.anchor import Anchor
from langevin.data.source import DataSource
from langevin.frame import Frame
from langevin.precision import COMPILED_QUICKLY, isolated
from langevin.target import Layout, Target

PyTree = Any

# A stream of its own: default_rng(seed) may be what the data were simulated from, and draws equal to rows mislead.
_STREAM = 0x50494C4F
# Rows are drawn anew for every group of draws: what is odd about a few rows then averages out over the groups.
_GROUPS, _DRAWS = 20, 10
_GROUPS_NOT_DENSE, _DRAWS_NOT_DENSE = 8, 8
# A draw's covariances over the rows cost rows * d^2: beyond this dimension only one pair of each group has them.
_ALL_COVARIANCES_UP_TO = 64


@dataclass(frozen=True)
class Pilot:
    """What was measured at Laplace draws theta = anchor + L z, z ~ N(0, I); everything in whitened units.

    `ess`: importance-sampling effective sample size of the draws, a fraction. `curvature_spread`: largest eigenvalue of
    N sum_i A_i^2 - (sum_i A_i)^2, A_i = L' Hess_i L at the anchor: with n data a linearised step contracts iff
    n > curvature_spread / (4/delta - 1); None unless the anchor is dense. `noise`: n = 1 variance of the gradient
    estimates "plain", "cv1" and (dense) "cv2", that of the parameter with the largest, over its Laplace variance.
    `spread`: (2, d), variance over the posterior of the Poisson-corrected u_j and u_j^2 with exact gradients, means of
    an antithetic pair, in units of sd_j^2 and sd_j^4: S independent pairs give a standard error of sqrt(spread/S) sds.
    `outside`: share of the draws beyond the support. `cost`: datum visits.
    """

    ess: float
    curvature_spread: float | None
    noise: Mapping[str, float]
    spread: np.ndarray
    outside: float
    cost: int


def pilot(target: Target, source: DataSource | None, anchor: Anchor, seed: int) -> Pilot:
    """Measures a posterior at 200 Laplace draws with 100 to 250 rows each; 64 draws unless the anchor is dense.

    The log weight of a draw is what log pi keeps beyond its Taylor polynomial at the anchor, of second order (dense) or
    of first order with |z|^2/2 beside: exact for the prior, N/rows times a subsample's for the likelihood. Cost:
    22,000 to 55,000 datum visits; memory 20 d^2 or 100 d.
    """
    dense = anchor.dense
    rng = np.random.default_rng([seed, _STREAM])
    groups, draws = (_GROUPS, _DRAWS) if dense else (_GROUPS_NOT_DENSE, _DRAWS_NOT_DENSE)
    d = anchor.layout.size
    half = rng.standard_normal((groups, draws // 2, d))
    num_data = 0 if source is None else source.num_data
    rows = min(num_data, _num_rows(d, dense))
    batches = None
    if source is not None:
        picked = np.stack([rng.choice(num_data, rows, replace=False, shuffle=False) for _ in range(groups)])
        batches = jax.tree.map(lambda leaf: leaf[picked], source.arrays)
    likelihood = None if source is None else isolated(target.log_likelihood)
    apart = Target(isolated(target.log_prior), likelihood)
    frame = Frame(anchor.theta, tuple(np.asarray(block, np.float64) for block in anchor.root))
    with jax.enable_x64(True):
        found = _measure(apart, anchor.layout, dense, frame, batches, float(num_data), half)
        log_weights, row_noise, moments, noise = jax.tree.map(np.asarray, found)
    return Pilot(
        **_weighed(log_weights.ravel(), row_noise.ravel()),
        **_scattered(noise, anchor.sd, dense),
        spread=_variance(moments) / np.stack([anchor.sd**2, anchor.sd**4]),
        cost=(draws + 1) * groups * max(rows, 1),
    )


def _num_rows(d: int, dense: bool) -> int:
    """Rows a draw: the likelihood's remainder has noise (d/N)^(3/2) N / sqrt(rows), which must stay below its size."""
    if dense:
        return int(np.clip(10 * d, 100, 250))
    # No Hessian, but a few tables of rows * d numbers: 8 MB each.
    return int(np.clip(1_000_000 // d, 8, 100))


@partial(jax.jit, static_argnums=(0, 1, 2), compiler_options=COMPILED_QUICKLY)
def _measure(
    target: Target, layout: Layout, dense: bool, frame: Frame, batches: PyTree, num_data: Any, half: Any
) -> tuple[Any, Any, Any, dict[str, Any]]:
    """For each group: log weights, their variances by subsampling, moments of corrected values, sums of covariances."""
    order = 2 if dense else 1
    noise_draws = 2 * half.shape[1] if layout.size <= _ALL_COVARIANCES_UP_TO else 2

    def draw(batch: PyTree, noise: dict[str, Any], k_and_z: tuple) -> tuple[dict[str, Any], tuple]:
        k, z = k_and_z
        u = frame.push(z)
        _, _, value, grad = _remainder(lambda t: target.log_prior(layout.unravel(t)), frame.centre, u, order)
        value = value if dense else value + 0.5 * z @ z
        row_noise = jnp.zeros(())
        if batch is not None:

            def datum(one: PyTree) -> tuple:
                return _remainder(lambda t: target.log_likelihood(layout.unravel(t), one), frame.centre, u, order)

            plain, along, values, terms = jax.vmap(datum)(batch)
            value, grad = value + num_data * jnp.mean(values), grad + num_data * jnp.mean(terms, axis=0)
            rows = values.shape[0]
            row_noise = (
                num_data * (num_data - rows) / rows * jnp.sum((values - jnp.mean(values)) ** 2) / max(rows - 1, 1)
            )
        # u + Sigma grad log pi up to a constant; the second-order part of a dense Laplace model cancels u exactly.
        first = frame.push(frame.pull(grad)) + (0.0 if dense else u)
        # A draw beyond the support has weight zero and says nothing about the rest.
        inside = jnp.isfinite(value) & jnp.all(jnp.isfinite(first))
        if batch is not None:

            def with_this(sums: dict[str, Any]) -> dict[str, Any]:
                return jax.tree.map(jnp.add, sums, _covariances(frame, num_data, dense, plain, along, terms))

            noise = lax.cond(inside & (k < noise_draws), with_this, lambda sums: sums, noise)
        corrected = jnp.where(inside, jnp.stack([first, u * first]), 0.0)
        return noise, (jnp.where(inside, value, -jnp.inf), row_noise, corrected)

    def group(batch_and_half: tuple) -> tuple:
        batch, half = batch_and_half
        # Antithetic pairs side by side: the odd part of the remainder then has mean zero exactly.
        draws = jnp.stack([half, -half], axis=1).reshape(-1, layout.size)
        d = layout.size
        noise = {"count": jnp.zeros(()), "plain": jnp.zeros(d), "cv1": jnp.zeros(d)}
        if dense:
            noise |= {"cv2": jnp.zeros(d), "curvature": jnp.zeros((d, d))}
        noise, (values, row_noise, corrected) = lax.scan(
            partial(draw, batch), noise, (jnp.arange(draws.shape[0]), draws)
        )
        # The chains go in such pairs too: what counts is the spread of a pair's mean.
        inside = jnp.isfinite(values).reshape(-1, 2).all(axis=1)
        paired = jnp.where(inside[:, None, None], corrected.reshape(-1, 2, 2, d).mean(axis=1), 0.0)
        moments = (jnp.sum(inside.astype(values.dtype)), jnp.sum(paired, axis=0), jnp.sum(paired**2, axis=0))
        return values, row_noise, moments, noise

    return lax.map(group, (batches, half))


def _remainder(function: Any, centre: Any, u: Any, order: int) -> tuple[Any, Any, Any, Any]:
    """Gradient at centre + u, Hessian at the centre times u, and value and gradient beyond the Taylor polynomial.

    The gradient's polynomial is of first order (order 2) or zeroth order (order 1, where no Hessian is touched).
    """
    value_and_grad = jax.value_and_grad(function)
    value, grad = value_and_grad(centre + u)
    if order == 1:
        value_0, grad_0 = value_and_grad(centre)
        return grad, grad - grad_0, value - value_0 - grad_0 @ u, grad - grad_0
    (value_0, grad_0), (slope, along) = jax.jvp(value_and_grad, (centre,), (u,))
    return grad, along, value - value_0 - slope - 0.5 * along @ u, grad - grad_0 - along


def _covariances(frame: Frame, num_data: Any, dense: bool, plain: Any, along: Any, terms: Any) -> dict[str, Any]:
    """Variances over the rows of N Sigma term_i for each gradient estimate; the covariance of N L' Hess_i u."""

    def pulled(rows: Any) -> Any:
        return num_data * jax.vmap(frame.pull)(rows - jnp.mean(rows, axis=0))

    def variances(rows: Any) -> Any:
        return jnp.sum(jax.vmap(frame.push)(rows) ** 2, axis=0) / max(rows.shape[0] - 1, 1)

    found = {"count": jnp.ones(()), "plain": variances(pulled(plain))}
    if not dense:
        return {**found, "cv1": variances(pulled(terms))}
    linear, rest = pulled(along), pulled(terms)
    curvature = linear.T @ linear / max(linear.shape[0] - 1, 1)
    return {**found, "cv1": variances(linear + rest), "cv2": variances(rest), "curvature": curvature}


def _weighed(log_weights: np.ndarray, row_noise: np.ndarray) -> dict[str, Any]:
    """What the importance weights of the draws say, once the variance that subsampling adds is taken off."""
    inside = np.isfinite(log_weights)
    if np.sum(inside) < 2:
        return {"ess": 0.0, "outside": float(np.mean(~inside))}
    centred = log_weights - log_weights[inside].mean()
    with np.errstate(over="ignore"):  # infinite: far beyond anything that could be answered
        variance = float(np.var(centred[inside], ddof=1))
    by_rows = float(row_noise[inside].mean()) / max(variance, 1e-300)
    # Where subsampling makes most of the spread, nothing is known of the rest: then none of it is taken off.
    kept = 1.0 - by_rows if by_rows < 0.5 else 1.0
    weights = np.zeros(log_weights.size)
    weights[inside] = np.exp(np.sqrt(kept) * (centred[inside] - centred[inside].max()))
    ess = float(weights.sum() ** 2 / np.sum(weights**2) / weights.size)
    return {
        "ess": ess,
        "outside": float(np.mean(~inside)),
    }


def _scattered(noise: dict[str, np.ndarray], sd: np.ndarray, dense: bool) -> dict[str, Any]:
    """Gradient noise, the larger of two halves of the groups; the spread of curvatures over all of them."""
    names = ("plain", "cv1", "cv2") if dense else ("plain", "cv1")
    halves = [{name: part[half::2].sum(axis=0) for name, part in noise.items()} for half in (0, 1)]
    counts = [max(half["count"], 1.0) for half in halves]
    found = {
        name: float(max(np.max(half[name] / sd**2) / count for half, count in zip(halves, counts, strict=True)))
        for name in names
    }
    if not dense:
        return {"noise": found, "curvature_spread": None}
    curvature = noise["curvature"].sum(axis=0) / sum(counts)
    return {"noise": found, "curvature_spread": float(np.linalg.eigvalsh(curvature)[-1])}


def _variance(moments: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    count, total, squares = (part.sum(axis=0) for part in moments)
    count = max(float(count), 2.0)
    with np.errstate(over="ignore", invalid="ignore"):  # far beyond anything that could be answered
        return np.maximum(squares - total**2 / count, 0.0) / (count - 1.0)
