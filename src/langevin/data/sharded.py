"""Minibatches from one shard of the data at a time: which shard a chain visits at step m, and what its rows weigh."""

from dataclasses import dataclass, field
from math import fsum
from typing import Any

import jax.numpy as jnp
import numpy as np

from langevin import random
from langevin.data.subsample import Subsample

# A jax.Array or a tracer of one.
Array = Any

# Visits draw from counters with this bit in the high word, rows from those below: m n stays under 2^63.
_VISITS = 0x80000000


@dataclass(frozen=True)
class Sharded(Subsample):
    """n independent rows of the shard s that the chain visits, each with weight N_s / (n q_s).

        s = s(key, (m - 1) div stay),  P(s) = q_s:    E[ N_s / (n q_s) sum_{i in batch} g_i ] = sum_{all i} g_i

    Shard s is the interval of the next `sizes[s]` rows of the data: an owner of a shard keeps these rows and nothing
    else, and chains travel (Ahn, Shahbaba and Welling, *Distributed stochastic gradient MCMC*, 2014). A chain stays for
    `stay` steps and then draws its next shard, by `probabilities` q (proportional to the sizes where None, rounded to
    2^-32). Each step by itself is unbiased; within a stay steps see the same shard, which biases averages by an amount
    that grows with stay * delta and with how unlike the shards are. `lv.shards.with_drifts` lets the estimate know that
    bias; without it what comes of long stays is `uncorrected`. Cost: n + 1 threefry blocks a step.

    With `engine=` workers own some of the shards each, and chains travel between them, to the same bits. `home=s` is
    the view of the owner of shard s: the data are that shard alone, and rows are counted from its start.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.LinearGaussian.simulate(num_data=100, seed=1)
        >>> ledger = lv.run(model.target, model.data, model.theta_0, subsample=lv.Sharded(5, sizes=(90, 10), stay=10),
        ...                 schedule=lv.Constant(0.05), num_steps=4000, chains=4)
        >>> lv.estimate(ledger)["theta.mean"].status
        'uncorrected'
    """

    sizes: tuple[int, ...] = ()
    stay: int = 1
    probabilities: tuple[float, ...] | None = None
    home: int | None = None
    # What is known of the shards' pull on a chain. Not part of the value: compiled code does not see it.
    drifts: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "sizes", tuple(self.sizes))
        if not self.sizes or any(not _whole(size) or size < 1 for size in self.sizes):
            raise ValueError(
                f"sizes must be the number of rows of each shard, at least 1 each, got {self.sizes!r}. "
                f"Try sizes=[len(shard) for shard in shards]."
            )
        if not _whole(self.stay) or not 1 <= self.stay < 2**31:
            raise ValueError(f"stay must be an integer of at least 1 and below 2^31, got {self.stay!r}. Try stay=1000.")
        if self.probabilities is not None:
            object.__setattr__(self, "probabilities", tuple(self.probabilities))
            good = len(self.probabilities) == len(self.sizes) and all(2.0**-20 <= q <= 1.0 for q in self.probabilities)
            if not good or abs(fsum(self.probabilities) - 1.0) > 1e-6:
                raise ValueError(
                    f"probabilities must be one number for each of the {len(self.sizes)} shards, at least 2^-20 each "
                    f"and 1 in all, got {self.probabilities!r}. Try None: visits in proportion to the sizes."
                )
        if self.home is not None and not (_whole(self.home) and 0 <= self.home < len(self.sizes)):
            raise ValueError(f"home must be the number of a shard, 0 to {len(self.sizes) - 1}, got {self.home!r}.")

    @property
    def iid(self) -> bool:
        """Whether steps are independent of each other: stays of one step are."""
        return self.stay == 1

    @property
    def weighted(self) -> bool:
        """Whether shards weigh differently: not where they are visited in proportion to their sizes."""
        return self.probabilities is not None

    @property
    def visits(self) -> np.ndarray:
        """q_s as visits are drawn, multiples of 2^-32, in float64."""
        return np.diff(np.append(self._borders().astype(np.float64), 2.0**32)) / 2.0**32

    def _borders(self) -> np.ndarray:
        """First 32-bit word of each shard."""
        share = self.sizes if self.probabilities is None else self.probabilities
        total = np.concatenate([[0.0], np.cumsum(np.array(share, np.float64))])
        return np.round(total[:-1] / total[-1] * 2.0**32).astype(np.uint64)

    def check(self, num_data: int) -> None:
        """See `Subsample.check`."""
        expected = sum(self.sizes) if self.home is None else self.sizes[self.home]
        if num_data != expected:
            which = "all shards together" if self.home is None else f"shard {self.home}"
            raise ValueError(
                f"sizes must add up to the data: {which} should have {expected} rows, got data of {num_data}. "
                f"Pass the shards one after the other, as lv.shards.joined(shards) gives them."
            )

    def origin(self, m: int, num_data: int) -> tuple[np.uint32, ...]:
        """The visit of step m + 1, in two halves, and how many steps of it are past."""
        visit, past = divmod(m, self.stay)
        return np.uint32(visit & 0xFFFFFFFF), np.uint32(visit >> 32), np.uint32(past)

    def shard(self, key, origin, at: Array) -> Array:
        """The shard that a chain visits `at` steps after `origin`."""
        low, high, past = origin
        later = (past + at.astype(jnp.uint32)) // jnp.uint32(self.stay)
        visit = low + later
        carried = high + (visit < later).astype(jnp.uint32)
        lanes = (...,) + (None,) * key[0].ndim
        word, _ = random.threefry((key[0], key[1]), (visit[lanes], carried[lanes] | jnp.uint32(_VISITS)))
        borders = jnp.asarray(self._borders()[1:].astype(np.uint32))
        return jnp.sum(word[..., None] >= borders, axis=-1, dtype=jnp.int32)

    def draw(self, key, first, offset, origin, num_steps, num_data):
        """See `Subsample.draw`."""
        shard = self.shard(key, origin, offset + jnp.arange(num_steps))
        size = jnp.asarray(np.array(self.sizes, np.int32))
        start = jnp.asarray((np.cumsum(self.sizes) - self.sizes).astype(np.int32))
        if self.home is not None:
            start = start - start[self.home]
        shard = jnp.repeat(shard, self.batch_size, axis=0)
        return start[shard] + random.bounded(*random.pairs(key, first, num_steps, self.batch_size), size[shard])

    def scale(self, key, origin, at, num_data):
        """N_s / (n q_s)."""
        if not self.weighted:
            return sum(self.sizes) / self.batch_size
        weight = np.array(self.sizes) / (self.batch_size * self.visits)
        return jnp.asarray(weight.astype(np.float32))[self.shard(key, origin, at)]


def _whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
