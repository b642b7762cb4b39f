"""What a run offers to who drives it, wherever its chains are."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from langevin.engine.books import Checkpoint
from langevin.engine.ledger import Ledger
from langevin.engine.prepared import Prepared
from langevin.engine.program import Program
from langevin.saving.journal import Bookmark


class Going(Protocol):
    """A run under way: `m` transitions are done, each step sees `rounds` minibatches, see `Prepared.rounds`."""

    call: Prepared
    program: Program
    m: int
    rounds: tuple[int, ...]

    @property
    def visits(self) -> float:
        """Datum visits so far, of all chains of one schedule setting."""

    def restore(self, left: Checkpoint, m: int) -> None:
        """Goes back, or on, to a checkpoint after transition m."""

    def held(self) -> AbstractContextManager[None]:
        """Keeps what is costly to start between two calls of `advance`."""

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
        to keep the books as they stand at a border.
        """

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
