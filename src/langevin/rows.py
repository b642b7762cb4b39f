"""Derivatives of single rows at points about the anchor, in the precision of the caller."""

from itertools import chain
from typing import Any

import jax
import numpy as np
from jax import lax

from langevin.anchor.passes import block_size
from langevin.startup import COMPILED_QUICKLY, COMPILED_SOON, compiled
from langevin.target import Layout, Repeated, Target

PyTree = Any


def derivatives(target: Target, layout: Layout, points: Any, directions: Any, batch: PyTree) -> tuple[list, list]:
    """[value, gradient, slope, Hessian times direction] at each point: of the log prior, and of each row's term."""
    program = _soon if isinstance(target.log_likelihood, Repeated) else _quickly
    return jax.tree.map(np.asarray, program(target, layout, points, directions, batch))


def _derivatives(target: Target, layout: Layout, points: Any, directions: Any, batch: PyTree) -> tuple[list, list]:
    def at(point_and_direction: tuple) -> tuple[list, list]:
        point, direction = point_and_direction

        def parts(function: Any) -> list:
            value_and_grad = jax.value_and_grad(lambda t: function(layout.unravel(t)))
            if direction is None:
                return list(value_and_grad(point))
            return [*chain(*jax.jvp(value_and_grad, (point,), (direction,)))]

        def term(row: PyTree) -> list:
            return parts(lambda theta: target.log_likelihood(theta, row))

        prior = parts(target.log_prior)
        if batch is None:
            return prior, []
        # A few groups at a time where each is worked through many times: tables of all would leave the cache.
        return prior, lax.map(term, batch, batch_size=few) if few < rows else jax.vmap(term)(batch)

    rows = 0 if batch is None else jax.tree.leaves(batch)[0].shape[0]
    few = rows if batch is None else next(b for b in range(block_size(target, batch), 0, -1) if rows % b == 0)
    return lax.map(at, (points, directions)) if few < rows else jax.vmap(at)((points, directions))


_quickly = compiled(static_argnums=(0, 1), compiler_options=COMPILED_QUICKLY)(_derivatives)
_soon = compiled(static_argnums=(0, 1), compiler_options=COMPILED_SOON)(_derivatives)


def remainder(parts: list[np.ndarray], u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Gradient at centre + u, Hessian at the centre times u, and value and gradient beyond the Taylor polynomial.

    The gradient's polynomial is of first order, or of zeroth order where no Hessian is known.
    """
    (value, value_0), (grad, grad_0) = (np.split(part, 2) for part in parts[:2])
    if len(parts) == 2:
        return grad, grad - grad_0, value - value_0 - np.sum(grad_0 * u, axis=-1), grad - grad_0
    slope, along = (part[len(value) :] for part in parts[2:])
    return grad, along, value - value_0 - slope - 0.5 * np.sum(along * u, axis=-1), grad - grad_0 - along
