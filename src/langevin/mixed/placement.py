"""Where the nodes of a group go: the mode of its latent effects and the curvature there, by safeguarded Newton steps.

Matrices of at most five rows are written out entry by entry: inside a loop XLA fuses that with everything around it,
where a call of LAPACK would be a call for every group of every step.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

Array = Any

# Nodes need the mode to a fraction of the latent effects' sds only: a squared distance of 1e-3 is left to one last
# step, which squares it.
_NEAR = 1e-3
# Counts of 10^4 take a dozen evaluations, an ordinary group two to four.
_MOST_EVALUATIONS = 60
# A step that did not gain is shortened to where a parabola says, within these factors.
_SHORTEST, _LONGEST = 1 / 16, 1 / 2
# The next one may be so many times as long a share of Newton's.
_GROWTH = 8.0
# Pivots smaller than this share of the diagonal, or negative, are not those of a mode.
_LEAST_PIVOT = 1e-6


class Placement(NamedTuple):
    """The centre (D,) and the lower factor C of minus the Hessian there, C C' = -Hess: nodes at centre + C'^-1 x."""

    centre: Array
    factor: Array

    def at(self, x: Array) -> Array:
        """Points (K, D) of standard ones."""
        return self.centre + _solve_upper(self.factor, x)

    @property
    def log_volume(self) -> Array:
        """Logarithm of |C'^-1|."""
        return -jnp.sum(jnp.log(jnp.diagonal(self.factor)))


class _State(NamedTuple):
    count: Array
    centre: Array
    value: Array
    factor: Array
    step: Array
    decrement: Array
    share: Array


def place(log_density: Callable[[Array], Array], size: int, dtype: Any) -> Placement:
    """The mode of a log density of `size` variables by Newton steps from 0, each shortened until the density rises.

    One evaluation of value, gradient and Hessian at a time, in a loop that ends when the mode is near. Where the
    curvature is not that of a mode its pivots are turned positive, which leaves a direction of ascent.
    """
    directions = jnp.eye(size, dtype=dtype)
    slope = jax.value_and_grad(log_density)

    def derivatives(z: Array) -> tuple[Array, Array, Array]:
        def along(direction: Array) -> tuple:
            (value, grad), (_, product) = jax.jvp(slope, (z,), (direction,))
            return value, grad, product

        return jax.vmap(along, out_axes=(None, None, 0))(directions)

    def body(state: _State) -> _State:
        trial = state.centre + state.share * state.step
        value, grad, hessian = derivatives(trial)
        factor = _cholesky(-hessian)
        step = _solve_upper(factor, _solve_lower(factor, grad))
        decrement = jnp.dot(grad, step)
        # Within a sd of the mode a rise may drown in the rounding of large terms: there a slope that shrinks will do.
        shrunk = (state.decrement < 1.0) & (decrement < 0.25 * state.decrement)
        risen = ((value >= state.value) | shrunk) & jnp.isfinite(decrement)
        expected = state.share * state.decrement
        parabola = 0.5 * expected / (expected - (value - state.value))
        shorter = state.share * jnp.clip(jnp.nan_to_num(parabola), _SHORTEST, _LONGEST)
        longer = jnp.minimum(_GROWTH * state.share, 1.0)
        new = _State(state.count, trial, value, factor, step, decrement, longer)
        kept = state._replace(share=shorter)
        chosen = jax.tree.map(lambda a, b: jnp.where(risen, a, b), new, kept)
        return chosen._replace(count=state.count + 1)

    origin, one = jnp.zeros(size, dtype), jnp.ones((), dtype)
    # The first evaluation is at 0 and better than none.
    start = _State(jnp.int32(0), origin, -jnp.inf * one, directions, origin, jnp.inf * one, one)
    end = lax.while_loop(lambda s: (s.decrement > _NEAR) & (s.count < _MOST_EVALUATIONS), body, start)
    last = jnp.where(end.decrement <= _NEAR, end.step, jnp.zeros_like(end.step))
    return Placement(end.centre + last, end.factor)


def _cholesky(matrix: Array) -> Array:
    """The lower Cholesky factor, pivots made positive."""
    size = matrix.shape[0]
    rows: list[list[Array]] = []
    for i in range(size):
        row: list[Array] = []
        for j in range(i):
            row.append((matrix[i, j] - sum(a * b for a, b in zip(row, rows[j], strict=False))) / rows[j][j])
        pivot = matrix[i, i] - sum(a * a for a in row)
        least = _LEAST_PIVOT * jnp.abs(matrix[i, i]) + jnp.finfo(matrix.dtype).tiny
        row.append(jnp.sqrt(jnp.maximum(jnp.abs(pivot), least)))
        rows.append(row)
    zero = jnp.zeros_like(matrix[0, 0])
    return jnp.stack([jnp.stack(row + [zero] * (size - len(row))) for row in rows])


def _solve_lower(factor: Array, b: Array) -> Array:
    """C^-1 b along the last axis of b."""
    x: list[Array] = []
    for i in range(factor.shape[0]):
        x.append((b[..., i] - sum(factor[i, j] * x[j] for j in range(i))) / factor[i, i])
    return jnp.stack(x, axis=-1)


def _solve_upper(factor: Array, b: Array) -> Array:
    """C'^-1 b along the last axis of b."""
    size = factor.shape[0]
    x: dict[int, Array] = {}
    for i in reversed(range(size)):
        x[i] = (b[..., i] - sum(factor[j, i] * x[j] for j in range(i + 1, size))) / factor[i, i]
    return jnp.stack([x[i] for i in range(size)], axis=-1)
