"""How far the quadrature moves the posterior: the same gradients with more nodes, on a sample of the groups."""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from langevin.anchor import Anchor
from langevin.data.source import DataSource
from langevin.mixed.marginal import MOST_NODES, Marginal
from langevin.precision import in_float32, isolated
from langevin.startup import COMPILED_SOON, compiled, own_programs
from langevin.target import Layout, Target, arithmetic

Array = Any
PyTree = Any

# A stream of its own: default_rng(seed) may be what the data were simulated from.
_STREAM = 0x51554144
# Gradients that the check may take, with either number of nodes; and groups that say something about all of them.
_MOST_GRADIENTS, _FEWEST_GROUPS = 2**13, 64
# Numbers of one vector operation.
_FLOATS = 2**16


@in_float32
def quadrature_error(target: Target, source: DataSource | None, anchor: Anchor, seed: int) -> np.ndarray | None:
    """What more nodes would change, (2, d): posterior means and sds, in posterior sds; None without quadrature.

    With e(theta) the sum over groups of the gradients' differences, fine minus coarse, and Sigma the covariance,

        shift of the mean = Sigma e,    change of the covariance = Sigma (de/dtheta) Sigma

    e is taken at the mode and one posterior sd up and down along each parameter, from a random sample of groups; the
    standard error of sampling them is added in squares. Cost: at most 8192 gradients of groups, coarse and fine.
    """
    coarse, covariance = target.log_likelihood, anchor.covariance
    if not isinstance(coarse, Marginal) or source is None or covariance is None:
        return None
    d, num_data = anchor.layout.size, source.num_data
    count = min(num_data, max(_FEWEST_GROUPS, _MOST_GRADIENTS // (2 * d + 1)))
    rows = np.sort(np.random.default_rng([seed, _STREAM]).choice(num_data, count, replace=False, shuffle=False))
    batch = source.take(rows)
    along = (covariance / anchor.sd).T
    points = np.concatenate([anchor.theta[None], anchor.theta + along, anchor.theta - along]).astype(np.float32)
    with own_programs():
        fine, rough = (
            np.asarray(_gradients(isolated(one, 32), anchor.layout, points, batch), np.float64)
            for one in (finer(coarse), coarse)
        )
    # (points, groups, d), in posterior sds of each parameter.
    shift = (fine - rough) @ covariance / anchor.sd
    # Along parameter j only its own entry counts: Sigma_j' (de/dtheta) Sigma_j is the change of its variance.
    up, down = (np.diagonal(part, axis1=0, axis2=2) for part in (shift[1 : d + 1], shift[d + 1 :]))
    both = np.stack([shift.mean(axis=0), 0.25 * (up - down)])
    left = 1.0 - count / num_data
    spread = both.std(axis=1, ddof=1) * num_data * np.sqrt(left / count)
    return np.hypot(num_data * both.mean(axis=1), spread)


# The same object for the same marginal: the programs of a second call are found by it.
@lru_cache(maxsize=8)
def finer(coarse: Marginal) -> Marginal:
    """The same with more nodes: twice as many, or as many more as many dimensions allow."""
    more = {1: coarse.nodes + 1, 2: coarse.nodes + 1, 3: 4}.get(coarse.size, 2)
    return Marginal(coarse.log_joint, coarse.shape, min(coarse.nodes + more, MOST_NODES))


@compiled(static_argnums=(0, 1), compiler_options=COMPILED_SOON)
def _gradients(likelihood: Marginal, layout: Layout, points: Array, batch: PyTree) -> Array:
    """Gradients of every group at every point, (points, groups, d)."""
    few = max(_FLOATS // arithmetic(likelihood, batch), 1)
    num_groups = jax.tree.leaves(batch)[0].shape[0]

    def one(k: Array) -> Array:
        group = jax.tree.map(lambda leaf: leaf[k % num_groups], batch)
        return jax.grad(lambda t: likelihood(layout.unravel(t), group))(points[k // num_groups])

    found = lax.map(one, jnp.arange(len(points) * num_groups), batch_size=few)
    return found.reshape(len(points), num_groups, -1)
