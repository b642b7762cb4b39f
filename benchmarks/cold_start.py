"""Seconds from the start of a process to the printed table of `lv.sample`, side by side with another version.

    python -m benchmarks.cold_start --against ../other-checkout     # e.g. a git worktree of an earlier commit
    python -m benchmarks.cold_start --profile                       # where the seconds go

Logistic regression, d = 10, at two sizes; every call in a fresh process, versions in turn: a busy machine is then busy
for all of them. "cached" starts with the compiled programs of an earlier process, "cold" without any. Python's byte
code is there in both, as in an installed package.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
CALL = """
import sys
import numpy as np
import jax.numpy as jnp
import langevin as lv
N, d = int(sys.argv[1]), 10
rng = np.random.default_rng(0)
x = rng.standard_normal((N, d), dtype=np.float32)
theta = 0.3 * rng.standard_normal(d)
y = np.where(rng.random(N) < 1 / (1 + np.exp(-x @ theta)), 1.0, -1.0).astype(np.float32)
target = lv.Target(
    lambda t: -0.5 * jnp.sum(t * t), lambda t, row: lv.log_sigmoid(row["y"] * jnp.dot(row["x"], t))
)
print(lv.sample(target, {"x": x, "y": y}, np.zeros(d), precision=0.02))
"""

# The same call with a clock: imports first, and what JAX says of its work.
CLOCK = """
import collections, json, sys, time
times = [time.perf_counter()]
import jax.numpy
times.append(time.perf_counter())
import langevin
times.append(time.perf_counter())
import scipy.linalg, scipy.special
times.append(time.perf_counter())
spent = collections.Counter()
jax.monitoring.register_event_duration_secs_listener(lambda name, took, **_: spent.update({name.split("/")[-1]: took}))
exec(sys.argv[2])
times.append(time.perf_counter())
print(json.dumps({"times": times, "spent": spent}))
"""


def seconds(source: Path, size: int, environment: dict[str, str]) -> float:
    """Wall clock of one process."""
    began = time.perf_counter()
    settings = {**os.environ, "PYTHONPATH": str(source / "src"), **environment}
    settings.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, "-c", CALL, str(size)], env=settings, check=True, capture_output=True)
    return time.perf_counter() - began


def profile(size: int, environment: dict[str, str]) -> dict[str, float]:
    """Seconds by cause; what JAX does in several threads at once counts in each."""
    began = time.perf_counter()
    settings = {**os.environ, "PYTHONPATH": str(HERE / "src"), **environment}
    settings.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", CLOCK, str(size), CALL]
    found = json.loads(subprocess.run(command, env=settings, check=True, capture_output=True).stdout.splitlines()[-1])
    times, spent = found["times"], found["spent"]
    looked_up = spent.get("cache_retrieval_time_sec", 0.0)
    return {
        "import of JAX": times[1] - times[0],
        "import of langevin": times[2] - times[1],
        "import of SciPy": times[3] - times[2],
        "data, call and table": times[4] - times[3],
        "- tracing": spent["jaxpr_trace_duration"],
        "- lowering": spent["jaxpr_to_mlir_module_duration"],
        "- reading compiled programs": looked_up,
        "- compiling": spent["backend_compile_duration"] - looked_up,
        "start and end of Python": time.perf_counter() - began - (times[4] - times[0]),
    }


def main() -> None:
    """Prints the medians and their ratios, or where the seconds go."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="a checkout of another version")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="seconds by cause instead, the least of the rounds")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        # Checkouts are left as they are.
        bytecode = {"PYTHONPYCACHEPREFIX": cache}
        cold, cached = {**bytecode, "LANGEVIN_NO_CACHE": "1"}, {**bytecode, "XDG_CACHE_HOME": cache}
        if given.profile:
            profile(10_000, cached)
            for kind, environment in {"cold": cold, "cached": cached}.items():
                found = [profile(10_000, environment) for _ in range(given.rounds)]
                least = {cause: min(one[cause] for one in found) for cause in found[0]}
                print(f"{kind}: " + ", ".join(f"{cause} {value:.2f}" for cause, value in least.items()), flush=True)
            return
        kinds = {"other, cold": (given.against, cold)} if given.against is not None else {}
        kinds |= {"this, cold": (HERE, cold), "this, cached": (HERE, cached)}
        for size in (10_000, 1_000_000):
            for source in {HERE} if given.against is None else {HERE, given.against}:
                seconds(source, size, cached)
            found: dict[str, list[float]] = {kind: [] for kind in kinds}
            for _ in range(given.rounds):
                for kind, (source, environment) in kinds.items():
                    found[kind].append(seconds(source, size, environment))
            medians = {kind: statistics.median(times) for kind, times in found.items()}
            first = next(iter(medians.values()))
            words = ", ".join(f"{kind} {value:.2f} s ({value / first:.2f})" for kind, value in medians.items())
            print(f"N = {size:,}, precision 0.02: {words}; medians of {given.rounds}", flush=True)


if __name__ == "__main__":
    main()
