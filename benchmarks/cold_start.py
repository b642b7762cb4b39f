"""Seconds from the start of a process to the printed table of `lv.sample`, side by side with another version.

    python -m benchmarks.cold_start --against ../other-checkout     # e.g. a git worktree of an earlier commit

Logistic regression, d = 10, at two sizes; every call in a fresh process, versions in turn: a busy machine is then busy
for all of them. "cached" starts with the compiled programs of an earlier process, "cold" without any.
"""

import argparse
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


def seconds(source: Path, size: int, environment: dict[str, str]) -> float:
    """Wall clock of one process."""
    began = time.perf_counter()
    settings = {**os.environ, "PYTHONPATH": str(source / "src"), **environment}
    subprocess.run([sys.executable, "-c", CALL, str(size)], env=settings, check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    """Prints the medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="a checkout of another version")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        cold, cached = {"LANGEVIN_NO_CACHE": "1"}, {"XDG_CACHE_HOME": cache}
        kinds = {"other, cold": (given.against, cold)} if given.against is not None else {}
        kinds |= {"this, cold": (HERE, cold), "this, cached": (HERE, cached)}
        for size in (10_000, 1_000_000):
            seconds(HERE, size, cached)
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
