"""Works through studies in several processes and tells the caller what happens."""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Generator, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, cast

from langevin.paper.catalogue import GROUPS
from langevin.paper.record import Record, work_out

_PATIENCE = 5.0  # seconds for a worker to end before it is made to
_THREADS = "OPENBLAS_NUM_THREADS"


class Event(NamedTuple):
    """`kind` is "part" (begun, detail names it), "done" (detail is the Record) or "failed" (detail says why)."""

    kind: str
    name: str
    detail: Any


def work_through(names: Sequence[str], size: str, seed: int, out: Path) -> Generator[Event]:
    """Works out the named studies, as many groups at a time as there are cores; yields events as they come.

    Every finished part is on disk before the next begins, so whatever ends this process, a second call goes on.
    Closing the iterator, or Ctrl-C, ends the workers.
    """
    spawn = multiprocessing.get_context("spawn")  # JAX does not survive a fork
    waiting = [group for whole in GROUPS if (group := [name for name in whole if name in names])]
    busy: dict[Connection, tuple[BaseProcess, list[str]]] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < _cores():
                group = waiting.pop(0)
                receiver, sender = spawn.Pipe(duplex=False)
                worker = spawn.Process(target=_work, args=(group, size, seed, out, sender), daemon=True)
                _start(worker)
                sender.close()
                busy[receiver] = (worker, list(group))
            for ready in wait(list(busy)):
                receiver = cast(Connection, ready)
                process, left = busy[receiver]
                try:
                    event = receiver.recv()
                except EOFError:
                    process.join()
                    del busy[receiver]
                    reason = f"its process ended with exit code {process.exitcode}; run the command again to go on"
                    yield from (Event("failed", name, reason) for name in left)
                    continue
                if event.kind != "part":
                    left.remove(event.name)
                yield event
    finally:
        _end([process for process, _ in busy.values()])


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start(process: BaseProcess) -> None:
    """Starts a worker with settings that a new process inherits: Ctrl-C is left to its caller, NumPy keeps to one core.

    Every core has a worker of its own; several threads in each would only wait for one another (a third slower).
    """
    handler, threads = signal.getsignal(signal.SIGINT), os.environ.get(_THREADS)
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.environ[_THREADS] = "1"
        process.start()
    finally:
        signal.signal(signal.SIGINT, handler)
        if threads is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = threads


def _work(group: Sequence[str], size: str, seed: int, out: Path, sender: Connection) -> None:
    """What a worker does: the studies of one group, one after the other."""
    _end_with_parent()
    from langevin.paper.lab import Lab

    def tell(name: str, part: str) -> None:
        sender.send(Event("part", name, part))

    for name in group:
        lab = Lab(size, seed, out / "parts", report=partial(tell, name))
        try:
            record: Record = work_out(name, lab, out)
        except (KeyboardInterrupt, BrokenPipeError):
            return
        except Exception as error:
            sender.send(Event("failed", name, f"{type(error).__name__}: {error} (see {out / name}.log)"))
            with suppress(OSError):  # the disk may be full, and that be the error
                (out / f"{name}.log").write_text(traceback.format_exc(), encoding="utf-8")
        else:
            sender.send(Event("done", name, record))


def _end_with_parent() -> None:
    """A worker whose caller was killed stops too, instead of competing with the next call."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _end(processes: Sequence[BaseProcess]) -> None:
    """Ends the workers. None has anything to lose but its unfinished part."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(_PATIENCE)
        if process.is_alive():
            process.kill()
            process.join()
