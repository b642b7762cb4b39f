"""Which data a step sees: each subsampler maps (key, m) to the minibatch of step m, a page of steps at a time.

A subsampler is a value. `prepare` and `origin` run on the host; the other methods are traced. `draw` returns a flat
page of draws (see `random.step_of`); `walk` names the observations of a step one by one; `batch` gathers all n.
The index of one draw is uniform on 0 ... N-1 to N 2^-64. All but `Epochs`, and `Sharded` with long
stays, draw the steps independently (`iid`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from langevin import random
from langevin.data.files import FileSource
from langevin.data.permutation import bijection
from langevin.data.source import DataSource
from langevin.random import Clock

# A jax.Array or a tracer of one.
Array = Any


# Up to this many data two indices share a threefry block and a word.
_PACKED_UP_TO = 4096
# Odd, near the golden ratio times 2^32: its multiples are evenly spread, so a word's product says little of the word.
_SPREAD = 0x9E3779B1

Walk = tuple[int, Callable[[Array], Array]]


@dataclass(frozen=True)
class Subsample:
    """What all subsamplers of n data share."""

    batch_size: int

    def __post_init__(self) -> None:
        if isinstance(self.batch_size, bool) or not isinstance(self.batch_size, (int, np.integer)):
            raise ValueError(f"batch_size must be an integer, got {self.batch_size!r}. Try batch_size=10.")
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}. Try batch_size=10.")

    @property
    def iid(self) -> bool:
        """Whether the steps draw independently of each other."""
        return True

    def size(self, num_data: int) -> int:
        """Data visited in one step."""
        return int(self.batch_size)

    def gathers(self, source: DataSource) -> bool:
        """Whether the host should gather minibatches of large data: those scattered over it, or waiting on a disk."""
        return True

    def check(self, num_data: int) -> None:
        """Raises if a minibatch of this kind cannot be drawn from num_data data."""

    def prepare(self, source: DataSource) -> Any:
        """The host arrays in the order in which `walk`, `rows` and `batch` count them."""
        return source.aligned()

    def origin(self, m: int, num_data: int) -> tuple[np.uint32, ...]:
        """Host integers that locate step m + 1 in the sampler's own order; none for independent draws."""
        return ()

    def scale(self, key, origin, at: Array, num_data: int) -> Any:
        """What the sum over the minibatch is multiplied by, `at` steps after `origin`; one number for each lane."""
        return num_data / self.size(num_data)

    def draw(self, key, first: Clock, offset: Array, origin, num_steps: int, num_data: int) -> Array:
        """A flat page of draws of steps first ... first + num_steps - 1; `offset` counts steps from `origin`."""
        raise NotImplementedError

    def walk(self, page: Array, k: Array, num_steps: int, num_data: int) -> list[Walk]:
        """Ways through the observations of step k: (how many, j -> row number of the j-th for each lane)."""
        return [(self.batch_size, lambda j: page[k * self.batch_size + j])]

    def rows(self, page: Array, k: Array, num_steps: int, num_data: int) -> Array:
        """Row numbers of the n observations of step k (one lane)."""
        return random.step_of(page, k, num_steps)

    def batch(self, data: Any, page: Array, k: Array, num_steps: int, num_data: int) -> Any:
        """The n observations of step k (one lane), stacked on a leading axis."""
        rows = self.rows(page, k, num_steps, num_data)
        return jax.tree.map(lambda leaf: leaf.at[rows].get(mode="promise_in_bounds"), data)


class _AtMostAllData(Subsample):
    def check(self, num_data: int) -> None:
        if self.batch_size > num_data:
            raise ValueError(
                f"batch_size must be at most the number of data N={num_data} for {type(self).__name__}, got "
                f"{self.batch_size}. Use WithReplacement({self.batch_size}), or Full() for all the data."
            )


@dataclass(frozen=True)
class WithReplacement(Subsample):
    """n independent uniform indices a step. Cost: n threefry blocks a step, or half of that up to 4096 data.

    Up to 4096 data two indices come from one 64-bit block (high words left and right, low words right * K and left * K)
    and travel packed in one word. Each keeps its exact law; the low word matters with probability N / 2^32 and K hides
    what the two share, so that the pair is within 1e-10 of independent in total variation.

    Example:
        >>> WithReplacement(10).size(num_data=1000)
        10
    """

    def draw(self, key, first, offset, origin, num_steps, num_data):
        """See `Subsample.draw`."""
        if num_data > _PACKED_UP_TO:
            return random.bounded(*random.pairs(key, first, num_steps, self.batch_size), num_data)
        left, right = random.pairs(key, first, num_steps, -(-self.batch_size // 2))
        one = random.bounded(left, right * jnp.uint32(_SPREAD), num_data)
        other = random.bounded(right, left * jnp.uint32(_SPREAD), num_data)
        return one | (other << 16)

    def walk(self, page, k, num_steps, num_data):
        """See `Subsample.walk`."""
        if num_data > _PACKED_UP_TO:
            return super().walk(page, k, num_steps, num_data)
        half = page.shape[0] // num_steps
        return [
            (half, lambda j: page[k * half + j] & 0xFFFF),
            (self.batch_size - half, lambda j: page[k * half + j] >> 16),
        ]

    def rows(self, page, k, num_steps, num_data):
        """See `Subsample.rows`."""
        entries = random.step_of(page, k, num_steps)
        if num_data > _PACKED_UP_TO:
            return entries
        return jnp.concatenate([entries & 0xFFFF, entries >> 16])[: self.batch_size]


@dataclass(frozen=True)
class WithoutReplacement(_AtMostAllData):
    """A uniformly random set of n distinct indices a step, exactly, in time and memory that do not depend on N.

    Floyd's algorithm: for j = 0 ... n-1 draw t uniform on 0 ... N-n+j and take t, or N-n+j if t was taken before.
    Cost: n threefry blocks and n^2/2 comparisons a step, vectorised over steps and chains.

    Example:
        >>> WithoutReplacement(10).check(num_data=5)
        Traceback (most recent call last):
        ValueError: batch_size must be at most the number of data N=5 for WithoutReplacement, got 10. ...
    """

    def draw(self, key, first, offset, origin, num_steps, num_data):
        """See `Subsample.draw`."""
        shape = (num_steps, self.batch_size, *key[0].shape)
        # Step and chain innermost: the comparisons of all lanes of a page are one vector operation.
        high, low = (
            jnp.moveaxis(word.reshape(shape), 1, 0) for word in random.pairs(key, first, num_steps, self.batch_size)
        )
        last = num_data - self.batch_size

        def insert(j, chosen):
            candidate = random.bounded(high[j], low[j], (last + j + 1).astype(jnp.uint32)).astype(jnp.uint32)
            # A zero among the exclusive-ors means "taken before": integer arithmetic alone, so that lanes vectorise.
            gap = lax.fori_loop(0, j, lambda i, g: jnp.minimum(g, chosen[i] ^ candidate), jnp.full_like(candidate, 1))
            return chosen.at[j].set(jnp.where(gap == 0, (last + j).astype(jnp.uint32), candidate))

        chosen = lax.fori_loop(0, self.batch_size, insert, jnp.zeros(high.shape, jnp.uint32))
        return jnp.moveaxis(chosen, 0, 1).reshape(-1, *key[0].shape).astype(jnp.int32)


@dataclass(frozen=True)
class Epochs(_AtMostAllData):
    """Reshuffled passes: every epoch visits each datum once, in a fresh pseudo-random order; steps are not independent.

    Draw q = (m-1) n + j is item r = q mod N of epoch q div N, so a remainder rolls into the next epoch. The order is a
    keyed bijection with random access (a six-round Feistel network on a x b >= N cells, walked until it lands below N)
    followed by a uniform rotation, which makes the marginal law of every draw exactly uniform. Cost: about 7 hashes a
    datum, no memory. Do not combine with the Poisson correction of plain gradients: their errors are then correlated
    with the state.

    Example:
        >>> epoch, item = Epochs(10).origin(m=7, num_data=25)  # where step 8 begins
        >>> int(epoch), int(item)
        (2, 20)
    """

    @property
    def iid(self):
        """Not within an epoch."""
        return False

    def origin(self, m, num_data):
        """Epoch and item of the first draw of step m + 1."""
        epoch, item = divmod(m * self.batch_size, num_data)
        return np.uint32(epoch & 0xFFFFFFFF), np.uint32(item)

    def draw(self, key, first, offset, origin, num_steps, num_data):
        """See `Subsample.draw`."""
        epoch, item = origin
        lanes = key[0].ndim
        count = jnp.arange(num_steps * self.batch_size, dtype=jnp.uint32) + offset.astype(jnp.uint32) * self.batch_size
        position = (item + count).reshape(-1, *(1,) * lanes)
        epoch = epoch + position // jnp.uint32(num_data)
        # Two blocks of the epoch's own counters give the four words that key its order.
        seeds = [random.threefry((key[0], key[1]), (epoch, jnp.uint32(block))) for block in (0xFFFFFFFE, 0xFFFFFFFF)]
        position = jnp.broadcast_to(position % jnp.uint32(num_data), (position.shape[0], *key[0].shape))
        shuffled = bijection(position, seeds[0], num_data)
        return (shuffled + random.bounded(*seeds[1], num_data)) % jnp.int32(num_data)


@dataclass(frozen=True)
class Blocks(_AtMostAllData):
    """n consecutive rows of the data, shuffled once; the first row is uniform and the end wraps.

    Independent over steps given the shuffle, marginals exactly uniform. One contiguous read a step: the fast choice
    when the data are much larger than the caches, or than memory: a folder that `lv.import_data` has shuffled is read
    as it is. Cost: one threefry block a step, and for other data one shuffled copy in memory.

    Example:
        >>> import langevin as lv
        >>> Blocks(3).prepare(lv.DataSource.of(np.arange(1000))).shape
        (1002,)
    """

    def gathers(self, source):
        """Only from files that are shuffled already."""
        return isinstance(source, FileSource) and source.in_random_order

    def prepare(self, source):
        """A shuffled copy, its first n - 1 rows repeated at the end so that a block never wraps."""
        return source.shuffled(self.batch_size - 1)

    def draw(self, key, first, offset, origin, num_steps, num_data):
        """See `Subsample.draw`; the page holds first rows only."""
        return random.bounded(*random.pairs(key, first, num_steps, 1), num_data)

    def walk(self, page, k, num_steps, num_data):
        """See `Subsample.walk`."""
        return [(self.batch_size, lambda j: page[k] + j)]

    def rows(self, page, k, num_steps, num_data):
        """See `Subsample.rows`; in the shuffled order."""
        beyond = page[k] - num_data + jnp.arange(self.batch_size)
        return jnp.where(beyond < 0, beyond + num_data, beyond)

    def batch(self, data, page, k, num_steps, num_data):
        """See `Subsample.batch`."""
        return jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, page[k], self.batch_size), data)


@dataclass(frozen=True)
class Full(Subsample):
    """All the data in every step: the exact gradient. Cost: N datum visits a step, no randomness.

    Example:
        >>> Full().size(num_data=1000)
        1000
    """

    batch_size: int = 1

    def gathers(self, source):
        """No: there is nothing to choose."""
        return False

    def size(self, num_data):
        """N."""
        return num_data

    def draw(self, key, first, offset, origin, num_steps, num_data):
        """Nothing to draw: every step sees the same data."""
        return jnp.zeros(num_steps, jnp.int32)

    def walk(self, page, k, num_steps, num_data):
        """See `Subsample.walk`."""
        return [(num_data, lambda j: j)]

    def rows(self, page, k, num_steps, num_data):
        """See `Subsample.rows`."""
        return jnp.arange(num_data)

    def batch(self, data, page, k, num_steps, num_data):
        """All the data, as they are."""
        return data
