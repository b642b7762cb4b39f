"""Works through cells, each in a process of its own with a limit of time, some at once, and tells what happens."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from langevin.compare.record import Record
from langevin.compare.topics import NAME


@dataclass(frozen=True)
class Size:
    """Budgets of a replicate, their number, and the wall seconds after which a cell is given up."""

    seconds: float
    passes: float
    replicates: int
    limit: float


# Topics are learned in ten times the seconds, by half as many replicates.
_LONGER, _PATIENCE = 10.0, 3.0


def scaled(target: str, size: Size) -> Size:
    """The budgets of a target."""
    if target != NAME:
        return size
    return replace(
        size, seconds=_LONGER * size.seconds, replicates=(size.replicates + 1) // 2, limit=_PATIENCE * size.limit
    )


class Cells:
    """The processes of a call; closing it ends those that are left."""

    def __init__(self, size: Size, at_once: int) -> None:
        self._size, self._at_once = size, at_once
        self._cores: SimpleQueue[int] = SimpleQueue()
        for core in range(at_once):
            self._cores.put(core)
        self._running: set[subprocess.Popen] = set()
        self._ended = False

    def work_through(self, cells: Sequence[tuple[str, str]], record: Record) -> Generator[tuple[str, str, Any]]:
        """Yields (target, sampler, found) as they come, each in the record by then."""
        with _silent_pipe() as self._caller, ThreadPoolExecutor(self._at_once) as pool:
            waiting = {pool.submit(self._cell, *cell): cell for cell in cells}
            try:
                for done in as_completed(waiting):
                    target, sampler = waiting[done]
                    found = done.result()
                    record.add(cell_name(target, sampler, self._size), found)
                    yield target, sampler, found
            finally:
                # Interrupted: what was not begun is dropped, what runs is ended.
                self._ended = True
                for process in list(self._running):
                    process.kill()
                for one in waiting:
                    one.cancel()

    def _cell(self, target: str, sampler: str) -> Any:
        core = self._cores.get()
        began = monotonic()
        try:
            return self._worked(target, sampler, core) | {"took": monotonic() - began}
        finally:
            self._cores.put(core)

    def _worked(self, target: str, sampler: str, core: int) -> Any:
        if self._ended:
            return {"failed": "interrupted"}
        with TemporaryDirectory() as folder:
            answer = Path(folder, "answer.json")
            size = scaled(target, self._size)
            asked = {
                "target": target, "sampler": sampler, "seconds": size.seconds, "passes": size.passes,
                "replicates": size.replicates, "answer": str(answer), "core": core,
            }  # fmt: skip
            command = [sys.executable, "-m", "langevin.compare.worker", json.dumps(asked)]
            with subprocess.Popen(
                command, env=environment(), stdin=self._caller, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                text=True,
            ) as process:  # fmt: skip
                self._running.add(process)
                try:
                    said = process.communicate(timeout=size.limit)[1]
                except subprocess.TimeoutExpired:
                    process.kill()
                    return {"failed": f"no answer within {size.limit:.0f} s"}
                finally:
                    self._running.discard(process)
            if answer.exists():
                return json.loads(answer.read_text(encoding="utf-8"))
            last = said.strip().splitlines()[-1:] or ["no words"]
            return {"failed": f"its process ended with exit code {process.returncode}: {last[0]}"[:160]}


@contextmanager
def _silent_pipe() -> Generator[int]:
    """The end to read from, where nothing ever comes: it ends with this process, however that was ended."""
    to_read, to_write = os.pipe()
    try:
        yield to_read
    finally:
        os.close(to_write)
        os.close(to_read)


def environment() -> dict[str, str]:
    """One thread for each library; no programs from the disk, so that compiling is the same for all."""
    single = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
    return {**os.environ, **single, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "LANGEVIN_NO_CACHE": "1"}


def cell_name(target: str, sampler: str, size: Size) -> str:
    """What the record calls a cell: all that its numbers depend on."""
    own = scaled(target, size)
    return f"{target} {sampler} {own.seconds:g} s {own.passes:g} passes x {own.replicates}"
