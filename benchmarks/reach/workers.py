"""A worker for every posterior and method, and what it says: whatever becomes of it, every seed gets an answer."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from threading import Timer
from typing import Any

import numpy as np

PATIENCE = 300.0
# No compiled programs from earlier runs for the one; JAX's own settings, not langevin's, for the other.
ENVIRONMENTS = {"langevin": {"LANGEVIN_NO_CACHE": "1"}, "nuts": {"LANGEVIN_KEEP_XLA_FLAGS": "1"}}


def answers(name: str, method: str, seeds: list[int], patience: float = PATIENCE) -> Iterator[dict[str, Any]]:
    """What the worker found for each seed, as it comes. One that is silent for `patience` seconds is ended."""
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
    message = "".join(last)
    if silence:
        # The seeds behind one that was too slow have had no turn yet.
        seed, *waiting = waiting
        yield {"status": "out_of_time", "seed": seed, "seconds": patience, "cpu_seconds": patience, "message": message}
        if waiting:
            yield from answers(name, method, waiting, patience)
        return
    for seed in waiting:
        yield {"status": "crash", "seed": seed, "seconds": np.nan, "cpu_seconds": np.nan, "message": message}
