"""What a gradient estimator is: two protocols, one for sums over a minibatch and one for anything unbiased.

Most estimators have the form  base(theta) + (N/n) sum_{i in batch} term(theta, datum_i):  they state `term` and `base`
and the engine chooses the minibatch and the fastest way to sum. An estimator with randomness of its own (the paper's
general U) states `draw` and `estimate` instead.
"""

from typing import Any, Protocol, runtime_checkable

import jax

from langevin.target import Target

Array = jax.Array
PyTree = Any


@runtime_checkable
class DatumGradient(Protocol):
    """base(theta) + (N/n) sum term(theta, datum): unbiased when base + sum over all data of term is the gradient."""

    def base(self, target: Target, theta: PyTree) -> PyTree:
        """The part that needs no data."""

    def term(self, target: Target, theta: PyTree, datum: PyTree) -> PyTree:
        """The part of one datum."""


@runtime_checkable
class CustomGradient(Protocol):
    """Any unbiased estimate of grad log pi(theta) with its own randomness U = draw(key).

    `draw(key)`: a JAX key to any pytree, independent from step to step. `estimate(theta, data, u)`: a pytree like theta
    with mean grad log pi(theta) over u. `cost(num_data)`: datum visits of one estimate. It must be hashable or a pytree.
    """

    def draw(self, key: Array) -> PyTree:
        """The randomness of one step."""

    def estimate(self, theta: PyTree, data: PyTree, u: PyTree) -> PyTree:
        """The estimate at theta."""

    def cost(self, num_data: int) -> int:
        """Datum visits of one estimate."""
