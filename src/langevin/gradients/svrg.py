"""Minibatch gradients with the noise at a reference point removed, the reference moving along with the chain."""

import numbers
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from langevin.gradients.protocol import Posterior

Array = jax.Array


class Reference(NamedTuple):
    """A point, the likelihood's gradient there on all the data, and the steps since it was taken."""

    theta: Array
    likelihood_grad: Array
    age: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SVRG:
    """grad log prior(theta) + G(r) + (N/n) sum_{i in batch} (g_i(theta) - g_i(r)),    G = sum of all g_i,

    with g_i the gradient of one log likelihood and r the position of the chain, taken anew in the steps 1, 1 + period,
    1 + 2 period and so on. Unbiased given r, with the noise of a first-order control variate at r: a short period is
    quiet, a long one cheap. Cost: N datum visits where r is taken, and the gradient of that step is exact; n elsewhere.
    A period of N/n spends half of all visits on full passes. Memory: 2 d numbers a chain.

    Johnson and Zhang, *Accelerating stochastic gradient descent using predictive variance reduction* (2013); for
    Langevin dynamics Dubey et al., *Variance reduction in stochastic gradient Langevin dynamics* (2016).

    Example:
        >>> import langevin as lv
        >>> model = lv.models.LinearGaussian.simulate(num_data=1000, seed=1)
        >>> ledger = lv.run(model.target, model.data, model.theta_0, gradient=lv.SVRG(period=100),
        ...                 subsample=lv.WithReplacement(10), schedule=lv.Constant(0.001), num_steps=300)
        >>> ledger.cost
        5970
    """

    period: int

    def __post_init__(self) -> None:
        # JAX rebuilds registered dataclasses with placeholders: only what a user could have meant is refused.
        if isinstance(self.period, str | numbers.Number):
            whole = isinstance(self.period, int | np.integer) and not isinstance(self.period, bool)
            if not whole or self.period < 1:
                raise ValueError(
                    f"period must be an integer of at least 1, got {self.period!r}: a full pass is made every `period` "
                    f"steps. Try N/n, the steps of one pass."
                )

    def remember(self, posterior: Posterior, theta: Array) -> Reference:
        """A reference due at once, so that its pass is counted with the first step."""
        return Reference(theta, jnp.zeros_like(theta), jnp.asarray(self.period, jnp.int32))

    def refresh(
        self, posterior: Posterior, memory: Reference, theta: Array, rows: Array
    ) -> tuple[Array, Reference, Array]:
        """The gradient, the reference after it, and N or n datum visits."""
        due = memory.age >= self.period

        def anew() -> tuple[Array, Reference]:
            total = posterior.likelihood_grad(theta)
            return total, Reference(theta, total, jnp.ones_like(memory.age))

        def along() -> tuple[Array, Reference]:
            change = posterior.datum_grads(theta, rows) - posterior.datum_grads(memory.theta, rows)
            total = memory.likelihood_grad + posterior.num_data / len(rows) * jnp.sum(change, axis=0)
            return total, memory._replace(age=memory.age + 1)

        total, memory = lax.cond(due, anew, along)
        return posterior.prior_grad(theta) + total, memory, jnp.where(due, posterior.num_data, len(rows))
