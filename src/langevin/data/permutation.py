"""Keyed permutations with random access: any entry of a shuffled order without the others."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

# A jax.Array or a tracer of one.
Array = Any


def bijection(position: Array, seed, num_data: int) -> Array:
    """A keyed permutation of 0 ... num_data-1 by an unbalanced Feistel network with cycle walking."""
    if num_data == 1:
        return jnp.zeros(position.shape, jnp.int32)
    rows = int(np.ceil(np.sqrt(num_data)))
    columns = -(-num_data // rows)

    def scramble(x):
        left, right = x // jnp.uint32(columns), x % jnp.uint32(columns)
        for turn in range(3):
            left = (left + _hash(right, seed, 2 * turn)) % jnp.uint32(rows)
            right = (right + _hash(left, seed, 2 * turn + 1)) % jnp.uint32(columns)
        return left * jnp.uint32(columns) + right

    def outside(x):
        return x >= jnp.uint32(num_data)

    walked = lax.while_loop(
        lambda x: jnp.any(outside(x)), lambda x: jnp.where(outside(x), scramble(x), x), scramble(position)
    )
    return walked.astype(jnp.int32)


def _hash(x: Array, seed, turn: int) -> Array:
    """A 32-bit mixing of x with the epoch's seed; its low quality bits are never used alone (reduced mod rows)."""
    x = x * jnp.uint32(0x9E3779B1) + seed[turn % 2] + jnp.uint32(0x85EBCA6B * (turn + 1) & 0xFFFFFFFF)
    x = (x ^ (x >> jnp.uint32(16))) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> jnp.uint32(15))) * jnp.uint32(0x846CA68B)
    return (x ^ (x >> jnp.uint32(16))) >> jnp.uint32(1)
