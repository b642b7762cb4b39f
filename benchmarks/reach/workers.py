"""A worker for every posterior and method, and what it says: whatever becomes of it, every seed gets an answer."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from threading import Timer
from typing import Any

PATIENCE = 300.0
# No compiled programs from earlier runs for the one; JAX's own settings, not langevin's, for the other.
ENVIRONMENTS = {"langevin": {"LANGEVIN_NO_CACHE": "1"}, "nuts": {"LANGEVIN_KEEP_XLA_FLAGS": "1"}}


def answers(name: str, method: str, seeds: list[int], patience: float = PATIENCE) -> Iterator[dict[str, Any]]:
    """What the worker found for each seed, as it comes. A worker that is silent for `patience` seconds is ended."""
    command = [sys.executable, "-m", "benchmarks.reach.worker", name, method, *map(str, seeds)]
    environment = os.environ | ENVIRONMENTS[method]
    waiting = list(seeds)
    with (
        tempfile.TemporaryFile("w+") as complaints,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, text=True, env=environment) as worker,
    ):
        assert worker.stdout is not None
        silence = False

        def end() -> None:
            nonlocal silence
            silence = True
            worker.kill()

        while waiting:
            timer = Timer(patience, end)
            timer.start()
            line = worker.stdout.readline()
            timer.cancel()
            if not line:
                break
            yield json.loads(line)
            waiting.pop(0)
        worker.wait()
        complaints.seek(0)
        last = complaints.read().strip().splitlines()[-1:]
    for seed in waiting:
        status, seconds = ("out_of_time", patience) if silence else ("crash", float("nan"))
        yield {"status": status, "seed": seed, "seconds": seconds, "cpu_seconds": seconds, "message": "".join(last)}
