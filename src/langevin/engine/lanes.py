"""Groups of chains, one for each core: what a group holds on the device, and how it goes through a block."""

import os
from time import monotonic
from typing import Any

import jax
import numpy as np

from langevin import random
from langevin.data.files import FileSource, reading
from langevin.data.prefetch import HostGather
from langevin.engine import block as device
from langevin.engine.block import Block, Carry, Output
from langevin.engine.prepared import Prepared
from langevin.precision import in_float32

PyTree = Any
# Vector lanes of a group below which two cores gain nothing over one.
_FEWEST_LANES = 16


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def num_groups(prepared: Prepared, cores: int) -> int:
    """As many groups as there are cores, each with chains of its own; one on an accelerator."""
    chains = len(prepared.chains)
    if jax.default_backend() != "cpu":
        return 1
    if prepared.program.layout_kind == "wide":
        # The compiler is told the number of lanes: groups must be alike.
        return cores if chains % cores == 0 and chains // cores >= _FEWEST_LANES else 1
    return min(cores, chains)


class Group:
    """Some of the chains of a run. Everything here happens in float32, whatever the user's setting is."""

    def __init__(self, prepared: Prepared, index: int, count: int) -> None:
        chains = len(prepared.chains)
        size = -(-chains // count)
        wanted = np.arange(index * size, (index + 1) * size)
        # Groups have one shape, so that one program serves all; the last may repeat a chain, which is then not run.
        self.at, self.num_chains = np.minimum(wanted, chains - 1), int(np.sum(wanted < chains))
        self.call, self.program = prepared, prepared.program
        self.keys = {name: key[self.at] for name, key in prepared.keys.items()}
        self._advance = device.advance_soon if prepared.short else device.advance
        self._block_rows = device.block_rows_soon if prepared.short else device.block_rows
        self.carry: Carry | None = None
        self.gather: HostGather | None = None
        self.ahead: tuple[Any, PyTree] = (None, None)
        if self.program.host_gather:
            rows = size * self.program.capacity * self.program.batch_size
            self.gather = HostGather(prepared.host_source, rows)

    @in_float32
    def start(self, settings: int, sums: PyTree) -> None:
        """The state before the first transition, with empty `sums` of these shapes."""
        parts, starts = self.call.parts, self.call.starts[self.at]
        self.place(device.initial_carry(self.program, parts, self.keys, starts, settings, sums))

    def place(self, carry: Carry) -> None:
        """Takes over a carry, bound to the device of the data: one that is free to move would be compiled for anew."""
        leaves = jax.tree.leaves(self.call.parts.data)
        self.carry = jax.device_put(carry, next(iter(leaves[0].devices())) if leaves else None)

    @in_float32
    def restore(self, carry: Carry) -> None:
        """The state of these chains among all of a checkpoint's; the device takes over buffers, so it gets copies."""
        self.place(jax.tree.map(lambda leaf: np.array(leaf[:, self.at]), carry))

    @in_float32
    def advance(self, block: Block, m: int, following: int | None) -> tuple[Output, float]:
        """Goes through a block after transition m; gathers the rows of the `following` one while the device works."""
        with reading(self.call.manifest.data):
            return self._through(block, m, following)

    def _through(self, block: Block, m: int, following: int | None) -> tuple[Output, float]:
        began = monotonic()
        if isinstance(self.call.manifest.data, FileSource):
            self.call.manifest.data.check()
        here = block._replace(num_chains=np.int32(self.num_chains))
        if self.gather is not None:
            here = here._replace(gathered=self._gathered(m, block.rounds))
            # The device answers in order: these row numbers must be asked for before it starts on the block.
            ahead = None if following is None else self._rows(following, block.rounds)
        self.carry, output = self._advance(self.program, self.call.parts, self.keys, here, self.carry)
        if self.gather is not None and following is not None:
            self.ahead = ((following, tuple(block.rounds)), self.gather(np.asarray(ahead)))
        jax.block_until_ready(output)
        return output, monotonic() - began

    def origin(self, m: int) -> tuple[np.uint32, ...]:
        """Where the subsampler's own order stands after transition m."""
        subsample = self.program.subsample
        return () if subsample is None else subsample.origin(m, self.program.num_data)

    def _rows(self, m: int, rounds: np.ndarray) -> jax.Array:
        """Row numbers of the minibatches of the block after transition m, on the device."""
        return self._block_rows(self.program, self.keys, random.Clock.at(m), self.origin(m), rounds)

    def _gathered(self, m: int, rounds: np.ndarray) -> PyTree:
        """Minibatches of the block after transition m: fetched ahead, or now if the run has just begun."""
        assert self.gather is not None
        if self.ahead[0] != (m, tuple(rounds)):
            self.ahead = ((m, tuple(rounds)), self.gather(np.asarray(self._rows(m, rounds))))
        return self.ahead[1]
