"""`lv.Processes`: the chains of a run on several processes of this machine."""

import os
import subprocess
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, ClassVar

import numpy as np

from langevin.data.travel import NpyLeaf
from langevin.engine.lanes import num_cores
from langevin.engine.prepared import Prepared
from langevin.engine.remote import Crew, Lost, RemoteRun, check_engine, load_extra, sending
from langevin.engine.sharing import SharedFolder
from langevin.engine.travelling import spread
from langevin.engine.worker import ONE_THREAD, Job, Kept, read, write

# A segment that this many workers, one after the other, did not survive will not be survived by the next.
MOST_LOSSES = 3
_SERVE = "from langevin.engine.worker import serve; serve()"


@dataclass(frozen=True)
class Processes:
    """Chains on fresh processes of this machine, one core each; every number is that of the run without them.

    `workers`: how many, None for one a core, at most one a chain. `timeout`: seconds that a worker may take to answer;
    segments are cut to take half a second, so only a single step that takes minutes asks for more, or a shard in
    `lv.shards.owned`. Arrays in memory are written once to a temporary file, which all workers map; files are opened by
    each of them. A process that ends midway is replaced, and its last segment made again, to the same bits. Cost: some
    seconds to start.

    Threads, which a run without an engine has, do as well where a step is one large operation. They wait for each other
    where it is many small ones.

    Example:
        >>> import langevin as lv
        >>> lv.Processes(workers=2)
        Processes(workers=2, timeout=300.0)
    """

    workers: int | None = None
    timeout: float = 300.0

    def __post_init__(self) -> None:
        check_engine(self.workers, self.timeout)

    # Passes over the data have all cores of this machine already.
    elsewhere: ClassVar[bool] = False

    def begin(self, prepared: Prepared) -> RemoteRun:
        """A run on such workers; they start with its first step."""
        return spread(prepared, self.crew)

    def crew(self) -> "ProcessCrew":
        """Workers that can be started."""
        return ProcessCrew(num_cores() if self.workers is None else self.workers, self.timeout)


class ProcessCrew(Crew):
    """The processes of one run, and the folder of what they share."""

    def __init__(self, size: int, timeout: float) -> None:
        self.size, self._timeout = size, timeout
        self._pickle: Any = load_extra("cloudpickle", "lv.Processes", "processes")
        self._folder = SharedFolder()
        self._started: list[Process] = []

    def store(self, array: np.ndarray) -> NpyLeaf:
        """See `Crew.store`."""
        return NpyLeaf.of(array, self._folder.next())

    def start(self, job: Job) -> "Process":
        """See `Crew.start`."""
        with sending(job, self._pickle.dumps):
            packed = self._pickle.dumps(job)
        self._started.append(Process(job.number, packed, self._timeout, self._pickle))
        return self._started[-1]

    def close(self) -> None:
        """See `Crew.close`."""
        for process in self._started:
            process.close()
        self._folder.close()


class Process:
    """One worker: requests are answered in order, by another process if need be."""

    def __init__(self, number: int, job: bytes, timeout: float, pickle: Any) -> None:
        self._number, self._job, self._timeout, self._pickle = number, job, timeout, pickle
        self._kept: Kept | None = None
        self._pending: deque[tuple] = deque()
        self._spawn()

    def keep(self, kept: Kept) -> None:
        """See `Worker.keep`."""
        self._kept = kept

    def ask(self, request: tuple) -> None:
        """See `Worker.ask`."""
        self._pending.append(request)
        self._send(request)

    def answer(self) -> Any:
        """See `Worker.answer`."""
        for _ in range(MOST_LOSSES + 1):
            try:
                frame = self._answers.get(timeout=self._timeout)
            except Empty:
                raise Lost(
                    f"worker {self._number} (process {self._process.pid}) has not answered for {self._timeout:g} s. "
                    f"Raise timeout= if a single step, or a shard in lv.shards.owned, may take that long."
                ) from None
            if frame is not None:
                self._pending.popleft()
                return self._pickle.loads(frame)
            ended = self._process.wait()
            self.close()
            self._spawn()
            for request in self._pending:
                self._send(request)
        raise Lost(
            f"worker {self._number} ended {MOST_LOSSES + 1} times during the same segment, last with exit code "
            f"{ended}. Code -9 is most often a lack of memory: take fewer workers. What it printed stands above."
        )

    def close(self) -> None:
        """Ends the process; nothing is lost that the driver has not got."""
        self._process.kill()
        self._process.wait()
        self._frames.put(None)
        for thread in self._threads:
            thread.join()

    def _spawn(self) -> None:
        path = [entry if entry else os.getcwd() for entry in sys.path]
        # Never forked: JAX has threads. In a session of its own, so that Ctrl-C reaches the driver alone.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(path)},
            start_new_session=True,
        )
        # Threads wait for the pipes, so that nothing here waits for longer than its time limit.
        self._frames: SimpleQueue[bytes | None] = SimpleQueue()
        self._answers: SimpleQueue[bytes | None] = SimpleQueue()
        self._threads = [
            Thread(target=_send_all, args=(self._process.stdin, self._frames), daemon=True),
            Thread(target=_read_all, args=(self._process.stdout, self._answers), daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self._fresh = True
        self._frames.put(self._job)

    def _send(self, request: tuple) -> None:
        """Only a process that has just begun needs to be told where to go on."""
        self._frames.put(self._pickle.dumps((request, self._kept if self._fresh else None)))
        self._fresh = False


def _send_all(stream: Any, frames: "SimpleQueue[bytes | None]") -> None:
    """Sends frames as they come, until None; a process that has ended is noticed where its answer is missing."""
    with suppress(OSError), stream:
        while (frame := frames.get()) is not None:
            write(stream, frame)


def _read_all(stream: Any, answers: "SimpleQueue[bytes | None]") -> None:
    """Hands over answers as they come, and None at the end."""
    with stream:
        while (frame := read(stream)) is not None:
            answers.put(frame)
    answers.put(None)
