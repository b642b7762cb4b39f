"""What happens inside a worker: chains go from where they stand to where they are sent, or rows are looked at."""

import os
import pickle
import platform
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from time import monotonic
from typing import Any, BinaryIO, NamedTuple, NoReturn, Protocol

import jax

from langevin.anchor.passes import Passes
from langevin.data.travel import Parcel
from langevin.engine.books import Checkpoint
from langevin.engine.run import Run
from langevin.engine.setup import prepare
from langevin.errors import Diverged
from langevin.precision import apart
from langevin.startup import own_programs
from langevin.target import Target

# One thread each: chains are spread over workers, and the threads of two workers would only wait for each other.
ONE_THREAD = {"NPROC": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# What a worker needs of its parent's environment, where it does not inherit it.
INHERITED = ("XLA_FLAGS", "JAX_PLATFORMS", "LANGEVIN_NO_CACHE", "LANGEVIN_KEEP_XLA_FLAGS", "XDG_CACHE_HOME")
_LENGTH = struct.Struct(">Q")


def versions() -> dict[str, str]:
    """What decides the bits of a run beside its call."""
    return {"Python": platform.python_version(), **{name: version(name) for name in ("langevin", "jax", "numpy")}}


class Kept(NamedTuple):
    """Where chains stood after transition m, as the driver remembers it."""

    m: int
    state: Checkpoint


class Reached(NamedTuple):
    """What a worker tells of a segment; `state` only where it was asked for."""

    visits: float
    seconds: float
    state: Checkpoint | None


class Failed(NamedTuple):
    """What went wrong in a worker; `reason` is set where a chain diverged."""

    where: str
    error: Exception
    reason: str | None

    def throw(self) -> NoReturn:
        """Raises it where the user sees it."""
        self.error.add_note(f"This happened in {self.where}.")
        raise self.error


class Work(Protocol):
    """What a worker does."""

    def answer(self, request: tuple, kept: Callable[[], Any]) -> Any:
        """The answer to a request; `kept` is what the driver remembers of the work before it."""


@dataclass(frozen=True)
class Job:
    """All that a worker has to know, and the one that takes its place when it is lost.

    `work` is `Chains` or `Rows`, made of the target, the data and the arguments.
    """

    number: int
    work: Callable[[Target, Any, Any], Work]
    target: Target
    data: Parcel | None
    arguments: Any
    double: bool
    versions: dict[str, str]

    @property
    def named(self) -> dict[str, Any]:
        """The arguments, by what the user calls them."""
        return self.arguments if isinstance(self.arguments, dict) else {"theta_0": self.arguments}

    def begun(self) -> Work:
        """The work before the first request."""
        here = versions()
        for name, wanted in self.versions.items():
            if here[name] != wanted:
                raise RuntimeError(
                    f"{name} must be the same everywhere, or the numbers are not: it is {wanted} where the run was "
                    f"started and {here[name]} in this worker. Install the same versions."
                )
        jax.config.update("jax_enable_x64", self.double)
        return self.work(self.target, None if self.data is None else self.data.open(), self.arguments)


class Chains:
    """Some chains of a run; the arguments are those of `prepare`."""

    def __init__(self, target: Target, source: Any, arguments: dict[str, Any]) -> None:
        self._call = prepare(target, source, **arguments)
        self._run = Run(self._call, cores=1)

    def answer(self, request: tuple, kept: Callable[[], Any]) -> Reached:
        """From transition `since` to `goal`: a function of the call alone, so that a lost segment is made again.

        A worker that stands elsewhere, as a new one does, begins at what the driver has kept.
        """
        since, goal, rounds, whole = request
        began = monotonic()
        if self._run.m != since:
            self._go_back(kept())
        run = self._run
        run.rounds = rounds
        # A Ctrl-C that reaches a worker is none of its business: the driver decides.
        while run.m < goal:
            run.advance(goal)
        return Reached(run.visits, monotonic() - began, run.checkpoint() if whole else None)

    def _go_back(self, kept: Kept | None) -> None:
        if kept is not None:
            self._run.restore(kept.state, kept.m)
        elif self._run.m:
            self._run = Run(self._call, cores=1)


class Rows:
    """Chunks of passes over the data, for the set-up."""

    def __init__(self, target: Target, source: Any, layout: Any) -> None:
        self._passes = Passes(apart(target), source, layout)

    def answer(self, request: tuple, kept: Callable[[], Any]) -> list[Any]:
        """Parts of the log prior and of the log likelihood, chunk by chunk."""
        flat, directions, numbers = request
        with own_programs(), jax.enable_x64(True):
            return [self._passes.chunk_at(flat, directions, number) for number in numbers]


class Host:
    """Answers requests to a job; errors are answers too."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._work: Work | None = None

    def answer(self, request: tuple, kept: Callable[[], Any]) -> Any:
        """What the work answers, or how it failed."""
        where = f"worker {self._job.number} (process {os.getpid()} on {platform.node()})"
        try:
            if self._work is None:
                self._work = self._job.begun()
            return self._work.answer(request, kept)
        except Diverged as error:
            return Failed(where, RuntimeError(str(error)), error.reason)
        except Exception as error:
            return Failed(where, _plain(error), None)


def _plain(error: Exception) -> Exception:
    """The error, if it survives the way back; else its text."""
    try:
        return pickle.loads(pickle.dumps(error.with_traceback(None)))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")


def write(stream: BinaryIO, frame: bytes) -> None:
    """Sends one message."""
    stream.write(_LENGTH.pack(len(frame)))
    stream.write(frame)
    stream.flush()


def read(stream: BinaryIO) -> bytes | None:
    """The next message; None after the last one."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    frame = stream.read(length)
    return frame if len(frame) == length else None


def serve() -> None:
    """A worker's whole life as a process: a job, then requests, until the other end is closed."""
    import cloudpickle

    inward, outward = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # What the user's functions print goes to where errors go: the way back belongs to the answers.
    os.dup2(2, 1)
    job = read(inward)
    if job is None:
        return
    host = Host(cloudpickle.loads(job))
    while (frame := read(inward)) is not None:
        request, kept = cloudpickle.loads(frame)
        write(outward, cloudpickle.dumps(host.answer(request, partial(_same, kept))))


def _same(kept: Any) -> Any:
    return kept
