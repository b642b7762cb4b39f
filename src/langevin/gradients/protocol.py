"""What a gradient estimator is: two protocols, one for sums over a minibatch and one for anything unbiased.

Most estimators have the form  base(theta) + (N/n) term(l, theta)  with l the log likelihood of a minibatch and `term`
linear in l: they state `term` and `base`, and the engine chooses the minibatch and the fastest way to sum (l of one
datum at a time, or of all n). An estimator with randomness of its own (the paper's general U) states `draw` and
`estimate` instead.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax

from langevin.target import Target

Array = jax.Array
PyTree = Any


@runtime_checkable
class DatumGradient(Protocol):
    """base(theta) + (N/n) term(l, theta): unbiased when base + term(log likelihood of all data) is the gradient."""

    def base(self, target: Target, theta: PyTree) -> PyTree:
        """The part that needs no data."""

    def term(self, log_likelihood: Callable[[PyTree], Array], theta: PyTree) -> PyTree:
        """The part of some data, linear in their log likelihood."""


@runtime_checkable
class WhitenedGradient(DatumGradient, Protocol):
    """A `DatumGradient` that can also state its base in the whitened coordinates z of a frame."""

    def whitened_base(self, target: Target, theta: Array, z: Array, frame: Any, layout: Any) -> Array:
        """L' base at flat theta = anchor + L z, flat."""


@runtime_checkable
class CustomGradient(Protocol):
    """Any unbiased estimate of grad log pi(theta) with its own randomness U = draw(key).

    `draw(key)`: a JAX key to any pytree, independent from step to step. `estimate(theta, data, u)`: a pytree like theta
    with mean grad log pi(theta) over u. `cost(num_data)`: datum visits of one estimate. Hashable or a pytree.

    Example:
        >>> import jax, langevin as lv
        >>> class Noisy:
        ...     def draw(self, key):
        ...         return jax.random.normal(key)
        ...     def estimate(self, theta, data, u):
        ...         return -theta + u
        ...     def cost(self, num_data):
        ...         return 1
        >>> isinstance(Noisy(), lv.CustomGradient)
        True
    """

    def draw(self, key: Array) -> PyTree:
        """The randomness of one step."""

    def estimate(self, theta: PyTree, data: PyTree, u: PyTree) -> PyTree:
        """The estimate at theta."""

    def cost(self, num_data: int) -> int:
        """Datum visits of one estimate."""
