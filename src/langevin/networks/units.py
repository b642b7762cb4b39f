"""Units of length and the longest step for a posterior without an anchor: the prior's curvature, the largest one."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from langevin.data.source import DataSource
from langevin.precision import for_float32, in_float32
from langevin.startup import compiled, own_programs
from langevin.target import Layout, Target

Array = Any
PyTree = Any
# Directions in which the prior's curvature is looked at; one would do for a prior that factorises.
_PROBES = 16
# Rows that the largest curvature is taken from: fewer only make it larger, and the steps safer.
_ROWS = 1024
# Products with the Hessian that bring the power method within a few percent of its largest eigenvalue.
_POWERS = 20


@in_float32
def prior_scale(target: Target, layout: Layout, theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Standard deviations of the parameters by the prior's curvature at theta, flat: what the chains move in units of.

        1/scale_i^2 = mean over random signs s of s_i (H s)_i,    H = -Hessian of log_prior

    is the diagonal of H, exactly so with a single s where the prior factorises. Cost: 16 products with the Hessian of
    the prior. These are units only: the law of the chains does not depend on them, their speed does. Parameters along
    which the prior is not curved get the unit of the others.
    """
    signs = rng.choice(np.array([-1.0, 1.0], np.float32), (_PROBES, layout.size))
    narrow, at = for_float32(target), theta.astype(np.float32)
    with own_programs():
        found = np.mean([np.asarray(_signed_curvature(narrow, layout, at, s), np.float64) for s in signs], axis=0)
    curved = np.isfinite(found) & (found > 0.0)
    if not curved.any():
        raise ValueError(
            "log_prior must be curved along the parameters: without an anchor its curvature at theta_0 gives the units "
            "in which chains move, and it has none there. Give every weight a proper prior, e.g. a normal one."
        )
    return 1.0 / np.sqrt(np.where(curved, found, np.exp(np.mean(np.log(found[curved])))))


@compiled(static_argnums=(0, 1))
def _signed_curvature(target: Target, layout: Layout, theta: Array, sign: Array) -> Array:
    def score(t: Array) -> Array:
        return layout.ravel(jax.grad(target.log_prior)(layout.unravel(t)))

    return -sign * jax.jvp(score, (theta,), (sign,))[1]


@in_float32
def longest_step(
    target: Target, source: DataSource, layout: Layout, scale: np.ndarray, thetas: np.ndarray, rng: np.random.Generator
) -> float:
    """2/sqrt(lambda) for the largest curvature lambda of minus the log posterior at these points, in units of `scale`.

    A momentum method with longer steps is unstable there. By the power method. Cost: 20 products with the Hessian of at
    most 1024 rows a point.
    """
    rows = rng.permutation(source.num_data)[:_ROWS]
    batch, narrow = source.take(rows), for_float32(target)
    start = rng.standard_normal(layout.size).astype(np.float32)
    factor, unit = np.float32(source.num_data / len(rows)), scale.astype(np.float32)
    with own_programs():
        found = [_largest(narrow, layout, batch, factor, unit, one.astype(np.float32), start) for one in thetas]
    return float(2.0 / np.sqrt(max(float(one) for one in found)))


@compiled(static_argnums=(0, 1))
def _largest(
    target: Target, layout: Layout, batch: PyTree, factor: Array, scale: Array, theta: Array, start: Array
) -> Array:
    def force(t: Array) -> Array:
        def log_density(tree: PyTree) -> Array:
            terms = jax.vmap(target.log_likelihood, (None, 0))(tree, batch)
            return target.log_prior(tree) + factor * jnp.sum(terms)

        return scale * layout.ravel(jax.grad(log_density)(layout.unravel(t)))

    def product(_: Array, v: Array) -> Array:
        return jax.jvp(force, (theta,), (scale * v / jnp.linalg.norm(v),))[1]

    return jnp.linalg.norm(lax.fori_loop(0, _POWERS, product, start))
