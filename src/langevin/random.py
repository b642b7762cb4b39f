"""Counter-based random numbers: words of step m are a pure function of (key, m), drawn a page at a time.

The cipher is threefry2x32 with 20 rounds, the one behind `jax.random`, written inline so that XLA fuses it into
one vector loop (about a third of the cost of `jax.random.bits` on CPU). A *stream* is a key per chain and purpose;
step m owns the counters m W ... m W + W - 1 of its stream, W pairs of words a step, as 64-bit integers in two halves.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

# A jax.Array, a tracer of one, or on the host a NumPy array.
Array = Any

# One number a purpose: streams never share a counter.
SUBSAMPLE, NOISE, ACCEPT, CUSTOM, START = range(5)

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


class Clock(NamedTuple):
    """A transition number m as two uint32 halves, so that m = 1e12 needs no 64-bit type on the device."""

    low: Array
    high: Array

    @classmethod
    def at(cls, m: int) -> "Clock":
        """The clock of a Python integer."""
        return cls(np.uint32(m & 0xFFFFFFFF), np.uint32(m >> 32))

    def scaled(self, factor: int) -> "Clock":
        """The clock of factor * m: room for `factor` counters of a step."""
        size = jnp.uint32(factor)
        return Clock(self.low * size, lax.mulhi(self.low, size) + self.high * size)

    def plus(self, steps: Array) -> "Clock":
        """The clock some steps later."""
        low = self.low + lax.convert_element_type(steps, jnp.uint32)
        return Clock(low, self.high + lax.convert_element_type(low < self.low, jnp.uint32))


# add, xor, or, shift left, shift right. Primitives: with JAX's operators on arrays a page of normals takes nearly twice
# as long to trace (28 ms against 16), and a call of lv.sample traces half a dozen.
_ON_HOST = (np.add, np.bitwise_xor, np.bitwise_or, np.left_shift, np.right_shift)
_ON_DEVICE = (lax.add, lax.bitwise_xor, lax.bitwise_or, lax.shift_left, lax.shift_right_logical)


def threefry(key, counter) -> tuple[Array, Array]:
    """Threefry2x32-20 of Salmon et al. (2011): key and counter are pairs of uint32 arrays that broadcast."""
    host = isinstance(key[0], (np.ndarray, np.generic))
    add, xor, either, left, right = _ON_HOST if host else _ON_DEVICE
    schedule: tuple = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(_PARITY))
    x0, x1 = counter[0] + schedule[0], counter[1] + schedule[1]
    if not host:  # primitives broadcast numbers only
        x0, x1 = jnp.broadcast_arrays(x0, x1)
        schedule = tuple(lax.broadcast_to_rank(part, x0.ndim) if part.ndim else part for part in schedule)
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x0 = add(x0, x1)
            x1 = xor(either(left(x1, np.uint32(rotation)), right(x1, np.uint32(32 - rotation))), x0)
        x0 = add(x0, schedule[(block + 1) % 3])
        x1 = add(add(x1, schedule[(block + 2) % 3]), np.uint32(block + 1))
    return x0, x1


def stream_keys(seed: int, chains: np.ndarray, stream: int) -> np.ndarray:
    """Keys of one stream for each chain number, uint32 of shape (2, chains): a function of the three numbers alone."""
    root = (np.full(chains.shape, seed & 0xFFFFFFFF, np.uint32), np.full(chains.shape, seed >> 32, np.uint32))
    return np.stack(threefry(root, (chains.astype(np.uint32), np.full(chains.shape, stream, np.uint32))))


def pairs(key, first: Clock, num_steps: int, per_step: int) -> tuple[Array, Array]:
    """The two words of each counter of steps first ... first + num_steps - 1; each (num_steps * per_step, *lanes).

    Pages stay flat: XLA turns one long axis into a vector loop, and a short inner axis into a scalar one (2x to 6x).
    """
    counter = first.scaled(per_step).plus(jnp.arange(num_steps * per_step, dtype=jnp.uint32))
    lanes = (slice(None),) + (None,) * key[0].ndim
    return threefry((key[0], key[1]), (counter.low[lanes], counter.high[lanes]))


def step_of(page: Array, k: Array, num_steps: int) -> Array:
    """The entries of step k of a flat page of num_steps steps."""
    per_step = page.shape[0] // num_steps
    return lax.dynamic_slice_in_dim(page, k * per_step, per_step, allow_negative_indices=False)


def entry(array: Array, at: Array) -> Array:
    """array[at]. Places here are never negative; what looks for that takes half of the tracing."""
    return lax.dynamic_index_in_dim(array, at, keepdims=False, allow_negative_indices=False)


def with_entry(array: Array, at: Array, new: Array) -> Array:
    """The array with array[at] replaced."""
    return lax.dynamic_update_index_in_dim(array, new, at, 0, allow_negative_indices=False)


def normals(key, first: Clock, num_steps: int, size: int) -> Array:
    """A flat page of standard normals, `size` a step, by inversion of a symmetric 23-bit uniform.

    The uniform takes the midpoints of 2^23 equal cells of (-1, 1), all exact in float32, so the law is symmetric and
    never infinite: the largest value is 5.3, and the variance falls short of 1 by about 1e-6.
    """
    word, _ = pairs(key, first, num_steps, size)
    uniform = ((word >> jnp.uint32(9)).astype(jnp.float32) + np.float32(0.5)) * np.float32(2.0**-22) - np.float32(1.0)
    return np.float32(np.sqrt(2.0)) * lax.erf_inv(uniform)


def log_uniforms(key, first: Clock, num_steps: int) -> Array:
    """A flat page of logarithms of uniforms on (0, 1), one a step, for accept-reject decisions."""
    word, _ = pairs(key, first, num_steps, 1)
    return jnp.log(((word >> jnp.uint32(9)).astype(jnp.float32) + np.float32(0.5)) * np.float32(2.0**-23))


def bounded(word: Array, low_word: Array, bound) -> Array:
    """floor(bound * (word + low_word / 2^32) / 2^32): an integer below `bound`, uniform to bound * 2^-64.

    Only the carry out of the low half needs `low_word`, and it matters with probability bound / 2^32.
    """
    bound = jnp.asarray(bound, jnp.uint32)
    high, low = lax.mulhi(word, bound), word * bound
    carry = low + lax.mulhi(low_word, bound) < low
    return (high + carry.astype(jnp.uint32)).astype(jnp.int32)


def bits(number: Array) -> Array:
    """The bits of a float32 number, for keys of what a kernel draws beyond its noise."""
    return lax.bitcast_convert_type(jnp.asarray(number, jnp.float32), jnp.uint32)
