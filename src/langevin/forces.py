"""How far a posterior of many parameters is from its Gaussian, parameter by parameter: what all the data say at draws.

Write r = log pi - log q for the Laplace approximation q and f_j = (Sigma grad r)_j / sd_j for the force beyond q's own.
Importance weights exp(r) of the whole degenerate with d although every direction is nearly Gaussian: d directions of
variance v each leave an effective share of exp(-d v). Direction by direction they do not. Once the part of r that is
linear in theta is set aside (a shifted Gaussian is a Gaussian), a unit direction obeys

    Var(r) <= Var(f) / 2,

with equality where r only widens it (the Hermite polynomial of degree k in r has k times its variance in f, and k >= 2
here), so that exp(-max_j Var(f_j) / 2) bounds the effective share of the worst parameter by itself.
"""

from functools import partial
from typing import Any

import jax
import numpy as np

from langevin.anchor import Anchor
from langevin.anchor.passes import Passes, log_likelihood, log_prior
from langevin.anchor.roots import product, push
from langevin.startup import COMPILED_SOON, compiled
from langevin.target import Layout, Target

# Antithetic pairs of draws. The largest of a thousand variances from so few is up to ten times too large: the parameter
# that is the worst on one half of them is judged by the other half.
_PAIRS = 20


def forces(passes: Passes, anchor: Anchor, rng: np.random.Generator) -> tuple[float, np.ndarray, float, int]:
    """The ESS of the worst parameter alone, the `spread` of a `Pilot`, the share of draws beyond the support, passes.

    Cost: 41 gradients over all rows, in one go: a few matrix products with each chunk of the data.
    """
    half = rng.standard_normal((_PAIRS, anchor.layout.size))
    z = np.concatenate([half, -half])
    u = push(anchor.root, z)
    points = np.concatenate([anchor.theta[None], anchor.theta + u])
    values, grads = map(np.asarray, _prior(passes.target, passes.layout, points))
    if passes.source is not None:
        terms = passes.over(partial(_likelihood, passes.target, passes.layout, points))
        values, grads = values + terms[0], grads + terms[1]
    f = (u + product(grads[1:] - grads[0], anchor.covariance)) / anchor.sd
    inside = np.isfinite(values[1:]) & np.all(np.isfinite(f), axis=1)
    both = inside[:_PAIRS] & inside[_PAIRS:]
    outside = float(np.mean(~inside))
    if np.sum(both) < 2:
        return 0.0, np.full((2, anchor.layout.size), np.inf), outside, len(points)
    pairs = np.stack([f[:_PAIRS][both], f[_PAIRS:][both]])
    x = (u / anchor.sd)[:_PAIRS][both]
    spread = np.stack([pairs.mean(axis=0).var(axis=0, ddof=1), (0.5 * x * (pairs[0] - pairs[1])).var(axis=0, ddof=1)])
    return float(np.exp(-0.5 * _worst(pairs))), spread, outside, len(points)


def _worst(pairs: np.ndarray) -> float:
    """The largest variance over the parameters, from forces (2, pairs, d)."""
    halves = [pairs[:, k::2].reshape(-1, pairs.shape[-1]).var(axis=0, ddof=1) for k in (0, 1)]
    return float(max(one[np.argmax(other)] for one, other in (halves, halves[::-1])))


@compiled(static_argnums=(0, 1), compiler_options=COMPILED_SOON)
def _prior(target: Target, layout: Layout, points: Any) -> Any:
    return jax.vmap(jax.value_and_grad(log_prior(target, layout)))(points)


@compiled(static_argnums=(0, 1), compiler_options=COMPILED_SOON)
def _likelihood(target: Target, layout: Layout, points: Any, batch: Any, seen: Any) -> Any:
    kept = jax.numpy.arange(jax.tree.leaves(batch)[0].shape[0]) >= seen
    return jax.vmap(jax.value_and_grad(log_likelihood(target, layout, batch, kept)))(points)
