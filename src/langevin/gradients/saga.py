"""Minibatch gradients with the noise of each datum's last gradient removed."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from langevin.gradients.protocol import Posterior

Array = jax.Array


class Table(NamedTuple):
    """The last gradient of every datum (N, d), their sum, and datum visits not yet counted."""

    grads: Array
    total: Array
    unpaid: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SAGA:
    """grad log prior(theta) + sum_{all i} t_i + (N/n) sum_{i in batch} (g_i(theta) - t_i), and then t_i = g_i(theta)

    for the data of the batch, with g_i the gradient of one log likelihood and t_i its value when datum i was last seen,
    at first at theta_0. Unbiased given the table. A datum that a minibatch holds twice counts twice in the estimate and
    once in the sum. Rows must be drawn independently of the steps before: in a shuffled pass (`Epochs`) those still to
    come are the ones with the oldest entries, which are farther from g_i(theta) than the average of the table, and sds
    come out too small; that is refused. Cost: n datum visits, and N once, with the first step. Memory: N d numbers a
    chain: where the table is too large, `ControlVariate` needs none.

    Defazio, Bach and Lacoste-Julien, *SAGA: a fast incremental gradient method* (2014); for Langevin dynamics Dubey et
    al., *Variance reduction in stochastic gradient Langevin dynamics* (2016).

    Example:
        >>> import langevin as lv
        >>> model = lv.models.LinearGaussian.simulate(num_data=1000, seed=1)
        >>> ledger = lv.run(model.target, model.data, model.theta_0, gradient=lv.SAGA(),
        ...                 subsample=lv.WithReplacement(10), schedule=lv.Constant(0.001), num_steps=300)
        >>> ledger.cost
        4000
    """

    def remember(self, posterior: Posterior, theta: Array) -> Table:
        """The table at theta."""
        if not posterior.iid:
            raise ValueError(
                "subsample must draw the rows of every step anew for SAGA(), got one that goes through the data in "
                "passes or stays: the rows to come would be those with the oldest entries of the table, and the "
                "estimate biased. Use lv.WithoutReplacement(n), or lv.ControlVariate(anchor) with shuffled passes."
            )
        grads = posterior.datum_grads(theta, jnp.arange(posterior.num_data))
        return Table(grads, jnp.sum(grads, axis=0), jnp.int32(posterior.num_data))

    def refresh(self, posterior: Posterior, memory: Table, theta: Array, rows: Array) -> tuple[Array, Table, Array]:
        """The gradient, the table after it, and n datum visits."""
        change = posterior.datum_grads(theta, rows) - memory.grads[rows]
        scaled = posterior.num_data / len(rows) * jnp.sum(change, axis=0)
        grad = posterior.prior_grad(theta) + memory.total + scaled
        # Rows drawn twice lie side by side once sorted: the first of them stands for all.
        order = jnp.argsort(rows)
        ranked = rows[order]
        first = jnp.append(True, ranked[1:] != ranked[:-1])
        moved = jnp.where(first[:, None], change[order], 0.0)
        # Added, not set: what is written depends on what was read, so the compiler need not copy the table in between.
        table = memory.grads.at[ranked].add(moved, indices_are_sorted=True)
        after = Table(table, memory.total + jnp.sum(moved, axis=0), jnp.zeros_like(memory.unpaid))
        return grad, after, len(rows) + memory.unpaid
