"""The host loop: sends block after block to the device and keeps the books."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from langevin import random
from langevin.engine.block import Block, Carry, added_by_a_step
from langevin.engine.books import Books, Checkpoint, Sent
from langevin.engine.going import Engine, Going, check_where
from langevin.engine.lanes import Group, num_cores, num_groups
from langevin.engine.ledger import Ledger, Rows
from langevin.engine.prepared import Prepared
from langevin.engine.program import MOST_ROWS, device_row_steps, row_steps
from langevin.errors import Diverged
from langevin.kernels import ExactKernel
from langevin.precision import in_float32
from langevin.startup import load_scipy, own_programs

PyTree = Any

# A block is so long that Ctrl-C, the clock and the display never wait for longer.
_BLOCK_SECONDS = 0.1
_RUNAWAY = 1e12


def begun(call: Prepared, engine: Engine | None) -> Going:
    """The run of a call before its first transition: on the threads of this process, or where the engine has it."""
    check_where(engine)
    return Run(call) if engine is None else engine.begin(call)


class Run(Going):
    """A run, prepared once: it advances, and gives its ledger at any border of two blocks."""

    def __init__(self, prepared: Prepared, cores: int | None = None) -> None:
        super().__init__(prepared)
        self.books = Books(prepared)
        self.settings = self.books.steps.settings
        count = num_groups(prepared, num_cores() if cores is None else cores)
        self._groups = [Group(prepared, index, count) for index in range(count)]
        # A thread for each: the blocks of a group come one after the other.
        self._workers = [ThreadPoolExecutor(1) for _ in self._groups]
        self._launched: list[Future] = []

    def restore(self, left: Checkpoint, m: int) -> None:
        """Goes back, or on, to a checkpoint after transition m."""
        self.m = m
        self.books.restore(left)
        for group in self._groups:
            group.restore(left.carry)

    @contextmanager
    def _ready(self) -> Iterator[None]:
        with own_programs():
            if self._groups[0].carry is None:
                self.start()
                self._check_exact_start()
            try:
                yield
            finally:
                # Threads take their blocks in order: whoever has ended the last one is idle.
                wait(self._launched)

    def start(self) -> None:
        """Places the chains before their first transition."""
        sums = in_float32(added_by_a_step)(self.program, self.call.parts)
        for started in self._each(lambda group: group.start(self.settings, sums)):
            started.result()

    def _check_exact_start(self) -> None:
        """An exact kernel refuses every proposal from a point of undefined density, without a word."""
        if not isinstance(self.call.kernel, ExactKernel):
            return
        state = self.carry().state
        values = state.log_density.ravel()
        value = float(values[np.argmin(np.isfinite(values))])
        if not np.isfinite(value) or not np.isfinite(state.grad).all():
            raise ValueError(
                f"theta_0 must have a finite log density and gradient on all the data, got {value}. "
                f"Start inside the support, and check the model for log(0) and 0/0."
            )

    def _seconds(self, deadline: float | None) -> float:
        return _BLOCK_SECONDS

    def _fitting(self, count: int, left: int) -> int:
        """`count` cut down so that the block stays within one length of rows and of strides, and within its buffers."""
        most = self.program.capacity // (self.rounds[0] if self.program.host_gather else 1)
        count = min(count, left, max(most, 1), MOST_ROWS * row_steps(self.m + 1) - self.m)
        if not self.program.kept:
            return count
        draws = self.books.draws
        return min(count, draws.room(self.m), max((self.program.kept - 1) * draws.stride(self.m + 1), 1))

    def _launch(self, count: int, last: int) -> tuple[int, int, list[Future]]:
        m, program = self.m, self.program
        delta, omega = np.zeros((2, self.settings, program.capacity), np.float32)
        delta[:, :count], omega[:, :count] = self.books.steps.rounded(m + 1, m + count)
        length = device_row_steps(m + 1)
        stride = self.books.draws.stride(m + 1) if program.kept else 1
        block = Block(
            start=random.Clock.at(m),
            num_steps=np.int32(count),
            num_chains=np.int32(0),
            num_settings=np.int32(self.settings),
            origin=self._groups[0].origin(m),
            row_steps=np.int32(length),
            row_offset=np.int32(m % length),
            delta=delta,
            omega=omega,
            stride=np.int32(stride),
            stride_offset=np.int32(m % stride),
            rounds=np.asarray(self.rounds, np.int32),
            gathered=None,
        )
        self.m += count
        following = self.m if self.m < last else None
        self._launched = self._each(lambda group: group.advance(block, m, following))
        return m, count, self._launched

    def _each(self, work: Callable[[Group], Any]) -> list[Future]:
        """The work of every group, each in its own thread."""
        return [worker.submit(work, group) for worker, group in zip(self._workers, self._groups, strict=True)]

    def _collect(self, launched: tuple[int, int, list[Future]]) -> None:
        """Books a finished block; raises `Diverged` if a chain left the finite numbers."""
        load_scipy()
        m, count, futures = launched
        outputs, seconds = zip(*(future.result() for future in futures), strict=True)
        if m > 0:
            self._rate = count / max(*seconds, 1e-9)
        sent = Sent(m, count, device_row_steps(m + 1), list(outputs))
        rows = self.books.read(sent)
        self._check_finite(sent, rows)
        self.books.append(sent, rows)

    def _check_finite(self, sent: Sent, rows: Rows) -> None:
        theta = self.books.joined([output.theta for output in sent.outputs])
        values = [sums for name, sums in rows.items() if name.startswith("values/")]
        # axes (rows, settings, chains); the positions at the end of the block stand for the row that is still open
        bad = np.logical_or.reduce([~np.isfinite(sums).all(axis=-1) for sums in values])
        bad = np.concatenate([bad, ~(np.abs(theta).max(axis=-1) < _RUNAWAY)[None]])
        if not bad.any():
            return
        lost = bad.any(axis=0)
        setting, chain = np.argwhere(lost)[0]
        m = (sent.start // sent.row_steps + int(np.argmax(bad[:, setting, chain]))) * sent.row_steps + 1
        delta = self.call.schedule.delta(np.array([m])).reshape(self.settings)[setting]
        raise Diverged.lost(
            f"chain {self.call.chains[chain]} left the finite numbers in the row of transitions from m = {m}, where "
            f"delta_m = {delta:.3g} ({lost.sum()} of {lost.size} chains did): the step is too large for the curvature "
            f"or the tails of this target. Use smaller steps (try a tenth), start nearer to the mode, or reduce the "
            f"gradient noise.",
            self.books.ledger(self.m, None, False) if self.books.rows.m else None,
        )

    @property
    def visits(self) -> float:
        """Datum visits so far, of all chains of one schedule setting; in the open row at least."""
        return self.books.spent + (self.m - self.books.rows.m) * self.call.cost_per_step * len(self.call.chains)

    def carry(self) -> Carry:
        """The device state of all chains, on the host."""
        return jax.tree.map(np.array, self.books.joined([group.carry for group in self._groups]))

    def checkpoint(self) -> Checkpoint:
        """Where the run can go on."""
        return self.books.checkpoint(self.carry())

    def ledger(self) -> Ledger:
        """The books as they stand."""
        return self.books.ledger(self.m, self.carry(), self.interrupted)
