"""Counter-based random numbers: words of step m are a pure function of (key, m), drawn a page at a time.

The cipher is threefry2x32 with 20 rounds, the one behind `jax.random`, written inline so that XLA fuses it into
one vector loop (about a third of the cost of `jax.random.bits` on CPU). A *stream* is a key per chain and purpose;
step m owns the counters m W ... m W + W - 1 of its stream, W pairs of words a step, as 64-bit integers in two halves.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Array = jax.Array

# One number a purpose: streams never share a counter.
SUBSAMPLE, NOISE, ACCEPT, CUSTOM = range(4)

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


class Clock(NamedTuple):
    """A transition number m as two uint32 halves, so that m = 1e12 needs no 64-bit type on the device."""

    low: Array
    high: Array

    @classmethod
    def at(cls, m: int) -> "Clock":
        return cls(np.uint32(m & 0xFFFFFFFF), np.uint32(m >> 32))

    def plus(self, steps: Array) -> "Clock":
        low = self.low + steps.astype(jnp.uint32)
        return Clock(low, self.high + (low < self.low).astype(jnp.uint32))


def threefry(key, counter):
    """Threefry2x32-20 of Salmon et al. (2011): key and counter are pairs of uint32 arrays that broadcast."""
    uint = np.uint32 if isinstance(key[0], (np.ndarray, np.generic)) else jnp.uint32
    schedule = (key[0], key[1], key[0] ^ key[1] ^ uint(_PARITY))
    x0, x1 = counter[0] + schedule[0], counter[1] + schedule[1]
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x0 = x0 + x1
            x1 = ((x1 << uint(rotation)) | (x1 >> uint(32 - rotation))) ^ x0
        x0 = x0 + schedule[(block + 1) % 3]
        x1 = x1 + schedule[(block + 2) % 3] + uint(block + 1)
    return x0, x1


def stream_keys(seed: int, chains: np.ndarray, stream: int) -> np.ndarray:
    """Keys of one stream for each chain number, uint32 of shape (2, chains): a function of the three numbers alone."""
    root = (np.full(chains.shape, seed & 0xFFFFFFFF, np.uint32), np.full(chains.shape, seed >> 32, np.uint32))
    return np.stack(threefry(root, (chains.astype(np.uint32), np.full(chains.shape, stream, np.uint32))))


def pairs(key, first: Clock, num_steps: int, pairs_per_step: int):
    """The two words of each counter for steps first ... first + num_steps - 1; each (num_steps, pairs, *lanes)."""
    per_step = jnp.uint32(pairs_per_step)
    base = Clock(first.low * per_step, lax.mulhi(first.low, per_step) + first.high * per_step)
    # Flat and contiguous in the counter: a vector loop without index arithmetic.
    counter = base.plus(jnp.arange(num_steps * pairs_per_step, dtype=jnp.uint32))
    lanes = (slice(None),) + (None,) * key[0].ndim
    words = threefry((key[0], key[1]), (counter.low[lanes], counter.high[lanes]))
    return tuple(w.reshape(num_steps, pairs_per_step, *key[0].shape) for w in words)


def words(key, first: Clock, num_steps: int, num_words: int) -> Array:
    """uint32 words of shape (num_steps, num_words, *lanes)."""
    left, right = pairs(key, first, num_steps, -(-num_words // 2))
    return jnp.concatenate([left, right], axis=1)[:, :num_words]


def normals(key, first: Clock, num_steps: int, size: int, dtype=jnp.float32) -> Array:
    """Standard normals of shape (num_steps, size, *lanes) by inversion of a symmetric 24-bit uniform.

    The uniform takes the midpoints of 2^24 equal cells of (-1, 1), so the law is exactly symmetric and never infinite;
    its variance is 1 - 1e-6.
    """
    bits = words(key, first, num_steps, size)
    uniform = ((bits >> jnp.uint32(8)).astype(dtype) + dtype(0.5)) * dtype(2.0**-23) - dtype(1.0)
    return dtype(np.sqrt(2.0)) * lax.erf_inv(uniform)


def log_uniforms(key, first: Clock, num_steps: int, dtype=jnp.float32) -> Array:
    """Logarithms of uniforms on (0, 1), shape (num_steps, *lanes), for accept-reject decisions."""
    left, _ = pairs(key, first, num_steps, 1)
    return jnp.log(((left[:, 0] >> jnp.uint32(8)).astype(dtype) + dtype(0.5)) * dtype(2.0**-24))


def bounded(word: Array, low_word: Array, bound) -> Array:
    """floor(bound * (word + low_word / 2^32) / 2^32): an integer below `bound`, uniform to bound * 2^-64.

    Only the carry out of the low half needs `low_word`, and it matters with probability bound / 2^32.
    """
    bound = jnp.asarray(bound, jnp.uint32)
    high, low = lax.mulhi(word, bound), word * bound
    carry = low + lax.mulhi(low_word, bound) < low
    return (high + carry.astype(jnp.uint32)).astype(jnp.int32)
