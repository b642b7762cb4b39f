"""A run whose chains are spread over workers: sends them from segment to segment, and keeps what they have reached."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from time import monotonic
from typing import Any, NoReturn, Protocol

import jax
import numpy as np

from langevin.data.travel import Leaf, Parcel
from langevin.display import tell
from langevin.engine.books import Books, Checkpoint
from langevin.engine.checks import require, whole_number
from langevin.engine.ledger import Ledger
from langevin.engine.prepared import Prepared
from langevin.engine.worker import Chains, Failed, Job, Kept, Reached, versions
from langevin.errors import Diverged
from langevin.limits import stop_requests
from langevin.precision import wide_setting
from langevin.saving.journal import Bookmark

# A segment is so long that a call, some milliseconds, is nothing beside it, and Ctrl-C does not wait for long.
_SEGMENT_SECONDS = 0.5
_FIRST_STEPS, _FASTEST_GROWTH = 16, 8
# Segments that a worker may have before it: one to work on, and one so that it need not wait.
_IN_FLIGHT = 1
# What a lost worker would have to do again, at most; fetching the states shall take a fiftieth of the time.
_KEPT_SECONDS, _KEPT_SHARE = 5.0, 0.02


class Lost(RuntimeError):
    """A worker did not answer in time, or ended again and again."""


class Worker(Protocol):
    """A worker as the driver sees it: requests are answered in order, by another worker if the first one is lost."""

    def keep(self, kept: Kept) -> None:
        """Remembers where a worker that takes this one's place goes on."""

    def ask(self, request: tuple) -> None:
        """Sends a request; see `Work.answer`."""

    def answer(self) -> Any:
        """The answer to the oldest request that has none; raises `Lost` after the time limit."""


class Crew(ABC):
    """Workers of one run, from their start to their end."""

    size: int

    @abstractmethod
    def store(self, array: np.ndarray) -> Leaf:
        """Puts an array where all workers find it."""

    @abstractmethod
    def start(self, job: Job) -> Worker:
        """A worker for this job; it opens its data at the first request."""

    @abstractmethod
    def close(self) -> None:
        """Ends all workers at once: the driver has what is worth keeping."""


class RemoteRun:
    """A `Run` on workers: the same interface, the same numbers."""

    def __init__(self, prepared: Prepared, crew: Callable[[], Crew]) -> None:
        self.call, self.program = prepared, prepared.program
        self._crew = crew
        self.rounds = prepared.rounds
        self.m, self.visits, self.interrupted = 0, 0.0, False
        self._kept: Kept | None = None
        self._kept_at, self._fetching = monotonic(), 0.0
        self._workers: list[Worker] = []
        self._rate: float | None = None

    def restore(self, left: Checkpoint, m: int) -> None:
        """Goes back, or on, to a checkpoint after transition m. Not while workers are at work."""
        self.m, self._kept = m, Kept(m, left)
        self.visits = left.spent + (m - left.rows.m) * self.call.cost_per_step * len(self.call.chains)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps the workers between two calls of `advance`."""
        if self._workers:
            yield
            return
        crew = self._crew()
        try:
            self._start(crew)
            yield
        finally:
            self._workers = []
            crew.close()

    def _start(self, crew: Crew) -> None:
        call, source = self.call, self.call.manifest.data
        data = None if source is None else Parcel.of(source, crew.store)
        self._parts = np.array_split(np.arange(len(call.chains)), min(crew.size, len(call.chains)))
        target, double, here = call.manifest.target, wide_setting(), versions()
        jobs = [Job(k, Chains, target, data, call.of_chains(part), double, here) for k, part in enumerate(self._parts)]
        self._workers = [crew.start(job) for job in jobs]
        if self._kept is None:
            return
        for k, (worker, part) in enumerate(zip(self._workers, self._parts, strict=True)):
            # Whoever spent it, it counts once.
            spent = 0.0 if k else self._kept.state.spent
            worker.keep(Kept(self._kept.m, self._kept.state.select(part, spent)))

    def advance(
        self,
        num_steps: int,
        *,
        watch: Callable[[int], None] | None = None,
        block_steps: int | None = None,
        deadline: float | None = None,
        bookmark: Bookmark | None = None,
    ) -> None:
        """See `Going.advance`; borders are those of two segments."""
        with stop_requests() as stop_requested, self.held():
            flying: deque[tuple[int, int, bool]] = deque()
            count = _FIRST_STEPS
            while self.m < num_steps and not stop_requested():
                if deadline is not None and self.m and monotonic() > deadline:
                    break
                if bookmark is not None and self.m and bookmark.due():
                    self._land(flying)
                    bookmark.keep()
                    count = self._next_count(count, deadline)
                flying.append(self._launch(min(count if block_steps is None else block_steps, num_steps - self.m)))
                if len(flying) > _IN_FLIGHT:
                    self._collect(*flying.popleft())
                    if watch is not None:
                        watch(self.m)
                    count = self._next_count(count, deadline)
            self._land(flying)
            self.interrupted = self.m < num_steps and stop_requested()

    def _launch(self, count: int) -> tuple[int, int, bool]:
        """Sends all workers `count` transitions on; now and then they are to say where they stand."""
        since, goal = self.m, self.m + count
        whole = count > 0 and monotonic() - self._kept_at > max(_KEPT_SECONDS, self._fetching / _KEPT_SHARE)
        if whole or not count:
            whole, self._kept_at = True, monotonic()
        for worker in self._workers:
            worker.ask((since, goal, self.rounds, whole))
        self.m = goal
        return since, goal, whole

    def _collect(self, since: int, goal: int, whole: bool) -> None:
        began = monotonic()
        if self._rate is None:
            tell("waiting for the workers to start and compile")
        answers = [worker.answer() for worker in self._workers]
        for answer in answers:
            if isinstance(answer, Failed):
                self._fail(answer)
        reached = [answer for answer in answers if isinstance(answer, Reached)]
        self.visits = sum(answer.visits for answer in reached)
        seconds = max(answer.seconds for answer in reached)
        if since > 0 and goal > since:
            self._rate = (goal - since) / max(seconds, 1e-9)
        if not whole:
            return
        states = [answer.state for answer in reached if answer.state is not None]
        for worker, state in zip(self._workers, states, strict=True):
            worker.keep(Kept(goal, state))
        self._kept = Kept(goal, Checkpoint.stacked(states))
        self._fetching = max(monotonic() - began - seconds, 0.0)

    def _land(self, flying: deque[tuple[int, int, bool]]) -> None:
        """Waits for all segments that are on their way, and learns where the chains stand, unless that is known."""
        while flying:
            self._collect(*flying.popleft())
        if self.m and (self._kept is None or self._kept.m != self.m):
            self._collect(*self._launch(0))

    def _fail(self, failed: Failed) -> NoReturn:
        if failed.reason is not None:
            raise Diverged.lost(failed.reason, None if self._kept is None else self._ledger(self._kept))
        failed.throw()

    def _next_count(self, count: int, deadline: float | None) -> int:
        """Steps of the next segment, by the pace of the last; the first one compiles, and its pace says nothing."""
        if self._rate is None:
            return count
        seconds = _SEGMENT_SECONDS
        if deadline is not None:
            seconds = min(seconds, max(deadline - monotonic(), 0.0) / (_IN_FLIGHT + 1))
        return int(np.clip(self._rate * seconds, 1, _FASTEST_GROWTH * count))

    def ledger(self) -> Ledger:
        """The books as they stand."""
        if self._kept is None:
            raise RuntimeError("no transition was made: there are no books.")
        return self._ledger(self._kept)

    def _ledger(self, kept: Kept) -> Ledger:
        books = Books(self.call)
        books.restore(kept.state)
        return books.ledger(kept.m, jax.tree.map(np.array, kept.state.carry), self.interrupted)


def check_engine(workers: int | None, timeout: float) -> None:
    """Checks what all engines have in common."""
    if workers is not None:
        whole_number("workers", workers, 1, try_this=2)
    good = isinstance(timeout, (int, float)) and 0 < timeout < np.inf
    require(good, "timeout", timeout, "a positive number of seconds", "300.0")


def load_extra(module: str, user: str, extra: str) -> Any:
    """A module of an extra, or an error that says what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{user} needs {module}: pip install 'langevin[{extra}]'") from error
