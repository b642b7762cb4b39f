"""A run whose chains are spread over workers: sends them from segment to segment, and keeps what they have reached."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from time import monotonic
from typing import Any, NoReturn, Protocol

import jax
import numpy as np

from langevin.data.travel import Leaf, Parcel
from langevin.display import tell
from langevin.engine.books import Books, Checkpoint
from langevin.engine.checks import require, whole_number
from langevin.engine.going import IN_FLIGHT, Going
from langevin.engine.ledger import Ledger
from langevin.engine.prepared import Prepared
from langevin.engine.worker import Chains, Failed, Job, Kept, Reached, versions
from langevin.errors import Diverged
from langevin.precision import wide_setting

# A segment is so long that a call, some milliseconds, is nothing beside it, and Ctrl-C does not wait for long.
_SEGMENT_SECONDS = 0.5
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


class RemoteRun(Going):
    """A `Run` on workers: the same interface, the same numbers."""

    visits = 0.0

    def __init__(self, prepared: Prepared, crew: Callable[[], Crew]) -> None:
        super().__init__(prepared)
        self._crew = crew
        self._kept: Kept | None = None
        self._kept_at, self._fetching = monotonic(), 0.0
        self._workers: list[Worker] = []

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

    def _ready(self) -> AbstractContextManager[None]:
        return self.held()

    def _launch(self, count: int, last: int) -> tuple[int, int, bool]:
        """Sends all workers `count` transitions on; now and then they are to say where they stand."""
        since, goal = self.m, self.m + count
        whole = count > 0 and monotonic() - self._kept_at > max(_KEPT_SECONDS, self._fetching / _KEPT_SHARE)
        if whole or not count:
            whole, self._kept_at = True, monotonic()
        for worker in self._workers:
            worker.ask((since, goal, self.rounds, whole))
        self.m = goal
        return since, goal, whole

    def _collect(self, launched: tuple[int, int, bool]) -> None:
        (since, goal, whole), began = launched, monotonic()
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

    def _land(self, flying: deque[Any]) -> None:
        """Waits for all segments that are on their way, and learns where the chains stand, unless that is known."""
        super()._land(flying)
        if self.m and (self._kept is None or self._kept.m != self.m):
            self._collect(self._launch(0, self.m))

    def _fail(self, failed: Failed) -> NoReturn:
        if failed.reason is not None:
            raise Diverged.lost(failed.reason, None if self._kept is None else self._ledger(self._kept))
        failed.throw()

    def _seconds(self, deadline: float | None) -> float:
        if deadline is None:
            return _SEGMENT_SECONDS
        return min(_SEGMENT_SECONDS, max(deadline - monotonic(), 0.0) / (IN_FLIGHT + 1))

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


@contextmanager
def sending(job: Job, dumps: Callable[[Any], Any]) -> Iterator[None]:
    """Says which part of a call it is that cannot be sent to another process."""
    try:
        yield
    except Exception:
        for name, part in {"target": job.target, **job.named}.items():
            try:
                dumps(part)
            except Exception as error:
                raise ValueError(
                    f"{name} must be something that can be sent to other processes, and a part of it cannot: {error}. "
                    f"Make locks, open files, connections and generators inside its functions, or leave engine out."
                ) from error
        raise


@contextmanager
def about(shards: Sequence[int] | np.ndarray, borders: Sequence[int]) -> Iterator[None]:
    """Says of an error whose shards it was about; the rows of shard s begin at borders[s]."""
    try:
        yield
    except Exception as error:
        first, last = int(shards[0]), int(shards[-1])
        which = f"shard {first}" if first == last else f"shards {first} to {last}"
        error.add_note(f"It was about {which}, rows {borders[first]} to {borders[last + 1] - 1} of the data.")
        raise


def load_extra(module: str, user: str, extra: str) -> Any:
    """A module of an extra, or an error that says what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{user} needs {module}: pip install 'langevin[{extra}]'") from error
