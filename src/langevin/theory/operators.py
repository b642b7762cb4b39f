"""The generator of the Langevin diffusion, applied to any function by automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

PyTree = Any

DIRECTIONS = 16  # second derivatives taken side by side: more memory, fewer sequential passes


def generator(
    phi: Callable[[PyTree], PyTree], log_density: Callable[[PyTree], jax.Array]
) -> Callable[[PyTree], PyTree]:
    """The function theta -> A phi(theta), with A the generator of d theta = 1/2 grad log pi dt + dW.

        A phi = 1/2 <grad log pi, grad phi> + 1/2 Laplacian phi

    theta is any pytree of real arrays; phi may return a number, an array or a pytree of arrays, and A acts on
    each entry. `log_density` may be unnormalised. For any smooth phi of moderate growth pi(A phi) = 0.

    Cost: one gradient of log pi and d second directional derivatives of phi, each a small multiple of one
    evaluation of phi. No Hessian is formed.

    >>> A = generator(lambda theta: theta**2, lambda theta: -0.5 * theta**2)
    >>> float(A(3.0))  # 1/2 (-3)(6) + 1/2 (2)
    -8.0
    """

    def apply(theta: PyTree) -> PyTree:
        flat, unravel = ravel_pytree(theta)

        def phi_flat(v: jax.Array) -> PyTree:
            return phi(unravel(v))

        drift = jax.grad(lambda v: log_density(unravel(v)))(flat)
        along_drift = jax.jvp(phi_flat, (flat,), (drift,))[1]
        return jax.tree.map(lambda a, b: 0.5 * (a + b), along_drift, laplacian(phi_flat, flat))

    return apply


def laplacian(phi: Callable[[jax.Array], PyTree], theta: jax.Array) -> PyTree:
    """Laplacian of phi at the vector theta, entry by entry, as a sum of second derivatives along the axes.

    Cost: d forward-over-forward derivatives; memory that of `DIRECTIONS` evaluations of phi, whatever d is.

    Example:
        >>> float(laplacian(lambda v: jnp.sum(v**2), jnp.ones(3)))
        6.0
    """

    def second(direction: jax.Array) -> PyTree:
        def first(v: jax.Array) -> PyTree:
            return jax.jvp(phi, (v,), (direction,))[1]

        return jax.jvp(first, (theta,), (direction,))[1]

    def add_block(total: PyTree, axes: jax.Array) -> tuple[PyTree, None]:
        # one_hot is zero past the last axis: the padding of the last block adds nothing.
        block = jax.vmap(second)(jax.nn.one_hot(axes, theta.size, dtype=theta.dtype))
        return jax.tree.map(lambda t, b: t + b.sum(axis=0), total, block), None

    width = max(1, min(DIRECTIONS, theta.size))
    blocks = -(-theta.size // width)
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(phi, theta))
    return jax.lax.scan(add_block, zero, jnp.arange(blocks * width).reshape(blocks, width))[0]
