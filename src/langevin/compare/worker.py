"""One cell in a process of its own: python -m langevin.compare.worker '{"target": ..., "sampler": ..., ...}'."""

import json
import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from threading import Thread
from time import process_time
from typing import Any

# What JAX calls it, and how often a replicate is made at most until nothing is compiled.
_COMPILED, _TRIES = "/jax/core/compile/backend_compile_duration", 3


def work(target: str, sampler: str, seconds: float, passes: float, replicates: int) -> dict[str, Any]:
    """The replicates of a cell, and the processor seconds that came before them.

    Two shorter runs go before: the first compiles, the second learns the pace. Their time, less what two such runs
    take, is told as that of compiling. A replicate that has compiled something all the same, as one does that goes
    another way than those before it, is made again from its seed, whatever it has found.
    """
    from langevin.compare import topics
    from langevin.compare.samplers import SAMPLERS
    from langevin.compare.targets import problem

    one: Any = topics.corpus() if target == topics.NAME else problem(target)
    contestant = (topics.METHODS if target == topics.NAME else SAMPLERS)[sampler]
    visits = passes * one.num_data
    began = process_time()
    try:
        replicate = contestant.build(one, seconds)
    except Exception as error:
        return {"failed": _said(error)}
    for seed in (1001, 1002):
        # A time limit may end a run that has to compile first; one that fails for good fails again below.
        with suppress(Exception):
            replicate(seed, 0.5 * seconds, visits)
    first = process_time() - began
    made, took = [], []
    programs = _Programs()
    for seed in range(1, replicates + 1):
        for _ in range(_TRIES):
            began, before = process_time(), programs.compiled
            made_now = _made(replicate, seed, seconds, visits)
            took_now = process_time() - began
            if programs.compiled == before:
                break
        made.append(made_now)
        took.append(took_now)
    if all("failed" in one for one in made):
        return made[0]
    return {"compiling": max(first - sum(took) / replicates, 0.0), "replicates": made}


class _Programs:
    """Counts the programs that JAX compiles from now on."""

    def __init__(self) -> None:
        import jax

        self.compiled = 0
        jax.monitoring.register_event_duration_secs_listener(self._heard)

    def _heard(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        self.compiled += event == _COMPILED


def _made(replicate: Any, seed: int, seconds: float, visits: float) -> dict[str, Any]:
    try:
        return replicate(seed, seconds, visits)
    except Exception as error:
        return {"failed": _said(error)}


def _said(error: Exception) -> str:
    """One line that fits into a table."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]


def _end_with_input() -> None:
    """Standard input ends with the caller: a worker whose caller was killed stops, and does not compete with the next.

    Not by `sys.stdin`, whose lock a waiting thread would keep to the end of the interpreter.
    """

    def watch() -> None:
        os.read(0, 1)
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def main() -> None:
    """Works on one core, so that processor time is the time that a run would take alone."""
    _end_with_input()
    asked = json.loads(sys.argv[1])
    answer, core = Path(asked.pop("answer")), asked.pop("core")
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[core % len(cores)]})
    # Peers warn of their own futures; what matters here is in the answer.
    warnings.simplefilter("ignore")
    found = work(**asked)
    from langevin.compare.record import plain

    draft = answer.with_suffix(".tmp")
    draft.write_text(json.dumps(found, default=plain), encoding="utf-8")
    os.replace(draft, answer)


if __name__ == "__main__":
    main()
