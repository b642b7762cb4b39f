"""The static description of a run: everything that decides what is compiled, and nothing that changes along the way."""

from dataclasses import dataclass
from typing import Any, Literal

from langevin.gradients import DatumGradient
from langevin.target import Layout, Target

# A ledger row covers at least this many transitions; short runs still have enough rows for equal-time batches.
BASE_ROW = 16
# Sums live in float32 on the device within a row only, so rows on the device stay short.
LONGEST_DEVICE_ROW = 256
# A ledger never holds more rows a chain than this: then neighbours merge, by m alone.
MOST_ROWS = 1024
# Up to this many parameters the ledger keeps sum delta^2 g g', d^2 numbers a row, for the bias of raw averages.
MOST_OUTER = 64
# Minibatches that one step may see: each has random numbers of its own.
MOST_ROUNDS = 2**16
# Chains share vector lanes when there are enough of them and one chain's arithmetic is small.
_WIDE_FROM_CHAINS = 16
_WIDE_UP_TO_WORK = 512

Source = Literal["exact", "custom", "stateful", "datum"]


@dataclass(frozen=True)
class Program:
    """What the compiled block depends on beside its array arguments. Hashable: equal programs share one compilation.

    `layout_kind` is "wide" (chains are vector lanes, observations are summed in turn) or "chain" (chains one after the
    other, observations are vector lanes). The two add up a minibatch in different orders, so a trajectory is a function
    of (seed, chain, layout_kind), bit for bit, but never of how many chains or steps run together. `source` says where
    gradients come from; with `double` an exact kernel's density is computed in float64. With `rounds` a step sees
    several minibatches, how many an argument says; `kept` is the room for draws of one block, 0 if none are kept.
    `kinds` are the types of the parts that come as arguments.
    """

    target: Target
    layout: Layout
    subsample: Any
    observables: tuple[tuple[str, Any], ...]
    num_data: int
    layout_kind: str
    source: Source
    double: bool
    noises: int
    corrected: bool
    rounds: bool
    host_gather: bool
    kept: int
    capacity: int
    page: int
    kinds: tuple[type, ...]

    @property
    def batch_size(self) -> int:
        """Data visited in one step, or in one round of it; 0 for a target without data."""
        return self.num_data if self.subsample is None else self.subsample.size(self.num_data)

    @property
    def gradient_outer(self) -> bool:
        """Whether rows hold the outer product of the gradient."""
        return self.corrected and self.layout.size <= MOST_OUTER

    @property
    def row_capacity(self) -> int:
        """Rows that one block can touch."""
        return self.capacity // BASE_ROW + 2


def row_steps(m: int) -> int:
    """Length of the rows of a ledger of m transitions: BASE_ROW, doubled until there are at most MOST_ROWS."""
    length = BASE_ROW
    while m > MOST_ROWS * length:
        length *= 2
    return length


def device_row_steps(m: int) -> int:
    """Length of the row that holds transition m, as the device sums it: a function of m alone."""
    return min(row_steps(m), LONGEST_DEVICE_ROW)


def choose_layout(num_chains: int, dimension: int, batch_size: int, gradient: Any, one_by_one: bool) -> str:
    """The faster layout for these sizes; some runs need their chains `one_by_one`."""
    small = batch_size * dimension <= _WIDE_UP_TO_WORK
    wide = not one_by_one and small and num_chains >= _WIDE_FROM_CHAINS and isinstance(gradient, DatumGradient)
    return "wide" if wide else "chain"


def choose_page(num_lanes: int, words_per_step: int, wide: bool) -> int:
    """Steps whose random numbers are drawn together: a power of two, the page small enough for the second cache."""
    page = 64 if not wide else 16
    while page > 1 and page * words_per_step * num_lanes > 2**18:
        page //= 2
    return page
