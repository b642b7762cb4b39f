"""What a gradient estimator is: three protocols, for sums over a minibatch, for memory, and for anything unbiased.

Most estimators have the form  base(theta) + (N/n) term(l, theta)  with l the log likelihood of a minibatch and `term`
linear in l: they state `term` and `base`, and the engine chooses the minibatch and the fastest way to sum (l of one
datum at a time, or of all n). One that remembers (a reference point, a table of gradients) is a `StatefulGradient`; one
with randomness of its own (the paper's general U) states `draw` and `estimate` instead.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from langevin.target import Layout, Target

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
class AnchoredGradient(DatumGradient, Protocol):
    """A `DatumGradient` whose base, if `anchored`, is the Laplace model's -H (theta - anchor) and something beyond.

    In whitened coordinates the model's part is -z exactly: multiplying L'HL out in float32 would lose what a collinear
    posterior cannot spare.
    """

    @property
    def anchored(self) -> bool:
        """Whether it is."""

    def beyond(self, target: Target, theta: PyTree) -> PyTree:
        """base(theta) + H (theta - anchor)."""


class Posterior(NamedTuple):
    """The posterior as a `StatefulGradient` sees it: flat theta in, flat gradients out.

    `data` may hold rows beyond the first `num_data`: repeated ones, for subsamplers that read across the end. `iid`
    says whether the rows of a step are drawn independently of those before.
    """

    target: Target
    layout: Layout
    data: PyTree
    num_data: int
    iid: bool = True

    def prior_grad(self, theta: Array) -> Array:
        """Gradient of the log prior."""
        return jax.grad(lambda t: self.target.log_prior(self.layout.unravel(t)))(theta)

    def datum_grads(self, theta: Array, rows: Array) -> Array:
        """Gradients of the log likelihood of each of these rows, (n, d). Cost: n datum visits."""

        def one(datum: PyTree) -> Array:
            return jax.grad(lambda t: self.target.log_likelihood(self.layout.unravel(t), datum))(theta)

        return jax.vmap(one)(jax.tree.map(lambda leaf: leaf.at[rows].get(mode="promise_in_bounds"), self.data))

    def likelihood_grad(self, theta: Array) -> Array:
        """Gradient of the log likelihood of all the data. Cost: N datum visits."""
        data = jax.tree.map(lambda leaf: leaf[: self.num_data], self.data)

        def total(t: Array) -> Array:
            return jnp.sum(jax.vmap(self.target.log_likelihood, (None, 0))(self.layout.unravel(t), data))

        return jax.grad(total)(theta)


@runtime_checkable
class StatefulGradient(Protocol):
    """An estimate of grad log pi(theta), unbiased given its state, that remembers something from step to step.

    The rows are those of the run's subsampler, so the state is a function of the seed and m like everything else.
    """

    def remember(self, posterior: Posterior, theta: Array) -> PyTree:
        """The state before the first step: any pytree of arrays of fixed shapes."""

    def refresh(self, posterior: Posterior, memory: PyTree, theta: Array, rows: Array) -> tuple[Array, PyTree, Array]:
        """The flat gradient at flat theta from these n rows, the state after it, and the datum visits that it took."""


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
