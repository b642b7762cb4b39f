"""What a run offers to who drives it, wherever its chains are."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import Any, Protocol, runtime_checkable

import numpy as np

from langevin.engine.books import Checkpoint
from langevin.engine.checks import require
from langevin.engine.ledger import Ledger
from langevin.engine.prepared import Prepared
from langevin.limits import stop_requests
from langevin.saving.journal import Bookmark

_FIRST_STEPS, _FASTEST_GROWTH = 16, 8
# Pieces that may wait to be worked on: one to work on, and one so that nobody need wait.
IN_FLIGHT = 1


class Going(ABC):
    """A run under way: `m` transitions are done, each step sees `rounds` minibatches, see `Prepared.rounds`.

    It goes from piece to piece: blocks of threads here, or segments of workers elsewhere.
    """

    def __init__(self, prepared: Prepared) -> None:
        self.call, self.program = prepared, prepared.program
        self.rounds = prepared.rounds
        self.m, self.interrupted = 0, False
        # Transitions in a second.
        self._rate: float | None = None

    @property
    @abstractmethod
    def visits(self) -> float:
        """Datum visits so far, of all chains of one schedule setting."""

    @abstractmethod
    def restore(self, left: Checkpoint, m: int) -> None:
        """Goes back, or on, to a checkpoint after transition m. Not while workers are at work."""

    def held(self) -> AbstractContextManager[None]:
        """Keeps what is costly to start between two calls of `advance`; threads can stay."""
        return nullcontext()

    def advance(
        self,
        num_steps: int,
        *,
        watch: Callable[[int], None] | None = None,
        block_steps: int | None = None,
        deadline: float | None = None,
        bookmark: Bookmark | None = None,
    ) -> None:
        """Runs until transition num_steps, or to a border after the `deadline` of `monotonic` or a Ctrl-C.

        `watch` is told how many transitions are done, some times a second. Wherever it is due, the `bookmark` is asked
        to keep the books as they stand at a border, which is that of two pieces.
        """
        with stop_requests() as stop_requested, self._ready():
            flying: deque[Any] = deque()
            count = _FIRST_STEPS
            while self.m < num_steps and not stop_requested():
                # A run without a single row would have nothing to say.
                if deadline is not None and self.m and monotonic() > deadline:
                    break
                if bookmark is not None and self.m and bookmark.due():
                    self._land(flying)
                    bookmark.keep()
                    count = self._next_count(count, deadline)
                count = self._fitting(count if block_steps is None else block_steps, num_steps - self.m)
                flying.append(self._launch(count, num_steps))
                # Nobody waits for others, nor for the books, while one more piece is on its way.
                if len(flying) > IN_FLIGHT:
                    self._collect(flying.popleft())
                    if watch is not None:
                        watch(self.m)
                    count = self._next_count(count, deadline)
            self._land(flying)
            self.interrupted = self.m < num_steps and stop_requested()

    def _next_count(self, count: int, deadline: float | None) -> int:
        """Steps of the next piece, by the pace of the last; the first one compiles, and its pace says nothing."""
        if self._rate is None:
            return count
        return int(np.clip(self._rate * self._seconds(deadline), 1, _FASTEST_GROWTH * count))

    def _land(self, flying: deque[Any]) -> None:
        """Waits for all pieces that are on their way."""
        while flying:
            self._collect(flying.popleft())

    def _fitting(self, count: int, left: int) -> int:
        return min(count, left)

    @abstractmethod
    def _ready(self) -> AbstractContextManager[None]:
        """What `advance` happens in."""

    @abstractmethod
    def _seconds(self, deadline: float | None) -> float:
        """How long the next piece should take."""

    @abstractmethod
    def _launch(self, count: int, last: int) -> Any:
        """Sends all chains `count` transitions on, of a run up to `last`: what `_collect` needs."""

    @abstractmethod
    def _collect(self, launched: Any) -> None:
        """Waits for a piece, and books it."""

    @abstractmethod
    def ledger(self) -> Ledger:
        """The books as they stand."""


@runtime_checkable
class Engine(Protocol):
    """Where the chains of a run go: `lv.Processes` or `lv.Ray`."""

    @property
    def elsewhere(self) -> bool:
        """Whether its workers have other machines than this one to work on."""

    def crew(self) -> Any:
        """Workers that can be started, a `Crew`."""

    def begin(self, prepared: Prepared) -> Any:
        """The run of a call, a `Going`."""


def check_where(engine: Any) -> None:
    """Raises unless it is an engine, or None for the threads of this process."""
    # A class has the methods of its instances, and would pass for one.
    known, kind = isinstance(engine, Engine), isinstance(engine, type)
    remedy = f"lv.{engine.__name__}()" if known and kind else "lv.Processes()"
    require(engine is None or (known and not kind), "engine", engine, "where chains go", remedy)
