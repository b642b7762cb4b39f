"""Passes over the data in float64: value, gradient and curvature of the log density, a chunk of rows at a time."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langevin.target import Layout, Target

PyTree = Any
# Rows times parameters that are differentiated at once: 8 MB, where passes were quickest at d = 10 and d = 300.
_CHUNK_FLOATS = 2**20


class Passes:
    """Derivatives at flat float64 points, and what they cost in datum visits.

    `rows` restricts the likelihood to these rows, scaled by N/n. Every chunk has the same shape, so that a function is
    compiled once: the last one reaches back over rows that were seen, and leaves them out.
    """

    def __init__(self, target: Target, source: Any, layout: Layout, rows: np.ndarray | None = None) -> None:
        self.target, self.layout, self.cost, self.scale = target, layout, 0, 1.0
        self.arrays = None if source is None else source.arrays
        self.num_rows = 0 if source is None else source.num_data
        if rows is not None:
            self.arrays = jax.tree.map(lambda leaf: leaf[rows], source.arrays)
            self.num_rows, self.scale = len(rows), source.num_data / len(rows)

    def prior(self, flat: np.ndarray, order: int) -> list[np.ndarray]:
        """[value, gradient, Hessian] of the log prior, up to `order`."""
        return [np.asarray(part) for part in _prior(self.target, self.layout, order, flat)]

    def likelihood(self, flat: np.ndarray, order: int) -> list[np.ndarray]:
        """[value, gradient, Hessian] of the log likelihood, up to `order`. Cost: a visit to every row."""
        shapes = [(), (self.layout.size,), (self.layout.size, self.layout.size)]
        zero = [np.zeros(shape) for shape in shapes[: order + 1]]
        return self.over(partial(_likelihood, self.target, self.layout, order, flat), zero)

    def total(self, flat: np.ndarray, order: int) -> list[np.ndarray]:
        """[value, gradient, Hessian] of the log density, up to `order`."""
        likelihood = self.likelihood(flat, order)
        return [p + q for p, q in zip(self.prior(flat, order), likelihood, strict=True)]

    def over(self, add: Callable[..., Any], zero: Any) -> Any:
        """The sum of `add(total, batch, seen)` over chunks; nothing waits for the device until the end."""
        self.cost += max(self.num_rows, 1)
        total = zero
        for batch, seen in self._chunks():
            total = add(total, batch, seen)
        return jax.tree.map(lambda part: self.scale * np.asarray(part), total)

    def _chunks(self) -> Iterator[tuple[PyTree, int]]:
        size = min(chunk_size(self.layout.size), self.num_rows)
        for start in range(0, self.num_rows, max(size, 1)):
            first = min(start, self.num_rows - size)
            yield jax.tree.map(lambda leaf, first=first: leaf[first : first + size], self.arrays), start - first


def chunk_size(num_parameters: int) -> int:
    """Rows of one chunk."""
    return int(np.clip(_CHUNK_FLOATS // num_parameters, 16, 16384))


def log_prior(target: Target, layout: Layout) -> Callable[[jax.Array], jax.Array]:
    """The log prior of a flat vector."""
    return lambda t: target.log_prior(layout.unravel(t))


def log_likelihood(target: Target, layout: Layout, batch: PyTree, seen: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """The log likelihood of a flat vector, summed over the batch without its first `seen` rows."""

    def total(t: jax.Array) -> jax.Array:
        values = jax.vmap(target.log_likelihood, (None, 0))(layout.unravel(t), batch)
        return jnp.sum(jnp.where(jnp.arange(values.shape[0]) >= seen, values, 0.0))

    return total


def _parts(function: Callable[[jax.Array], jax.Array], flat: jax.Array, order: int) -> list:
    if order == 0:
        return [function(flat)]
    if order == 1:
        return list(jax.value_and_grad(function)(flat))

    def grad(t: jax.Array) -> tuple:
        value, slope = jax.value_and_grad(function)(t)
        return slope, (value, slope)

    hessian, (value, slope) = jax.jacfwd(grad, has_aux=True)(flat)
    return [value, slope, hessian]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _prior(target: Target, layout: Layout, order: int, flat: jax.Array) -> list:
    return _parts(log_prior(target, layout), flat, order)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _likelihood(
    target: Target, layout: Layout, order: int, flat: jax.Array, total: list, batch: PyTree, seen: jax.Array
) -> list:
    parts = _parts(log_likelihood(target, layout, batch, seen), flat, order)
    return [a + b for a, b in zip(total, parts, strict=True)]
