"""The shell around a contestant: a timed run from the command line, or a server that `speed.py` commands."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from benchmarks import truth
from benchmarks.workloads import NAMES, Workload, load

Run = Callable[[int], np.ndarray]  # seed -> posterior mean
Prepare = Callable[[Workload, int, str], Run]


def timed(run: Run, seed: int) -> tuple[dict[str, float], np.ndarray]:
    wall, cpu = time.perf_counter(), time.process_time()
    mean = np.ravel(run(seed))
    return {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}, mean


def versions(packages: list[str]) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "source tree"
    return found


def measure(workload: Workload, steps: int, repeats: int, run: Run) -> dict[str, Any]:
    first, _ = timed(run, 0)
    runs, means = zip(*(timed(run, seed) for seed in range(1, repeats + 1)), strict=True)
    prediction = truth.predict(workload, steps)
    best = min(one["seconds"] for one in runs)
    middle = float(np.median([one["seconds"] for one in runs]))
    return {
        "workload": workload.name,
        "steps": steps,
        "chains": workload.chains,
        "compile_seconds": first["seconds"] - best,
        "seconds": [one["seconds"] for one in runs],
        "cpu_seconds": [one["cpu_seconds"] for one in runs],
        "chain_steps_per_second": workload.chains * steps / middle,
        "mean": means[-1].tolist(),
        "expected_mean": prediction.mean.tolist(),
        "expected_stderr": prediction.stderr.tolist(),
        "worst_z": max(prediction.worst_z(mean) for mean in means),
    }


def serve(workload: Workload, steps: int, prepare: Prepare, variants: list[str], packages: list[str]) -> None:
    """Say what there is, then answer each order {"variant", "seed"} with times and mean, in JSON lines."""
    answers, sys.stdout = sys.stdout, sys.stderr  # a library that prints must not disturb the conversation

    def say(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=answers, flush=True)

    runs = {variant: prepare(workload, steps, variant) for variant in variants}
    say({"variants": variants, "versions": versions(packages)})
    for line in sys.stdin:
        order = json.loads(line)
        times, mean = timed(runs[order["variant"]], order["seed"])
        say(times | {"mean": mean.tolist()})


def main(prepare: Prepare, variants: Callable[[Workload], list[str]], packages: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=NAMES)
    parser.add_argument("--steps", type=int, help="default: one to two seconds of blackjax")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--variant", help="default: the first one")
    parser.add_argument("--json", action="store_true", help="print the whole record instead of one line")
    parser.add_argument("--serve", action="store_true", help="take orders on stdin")
    options = parser.parse_args()

    workload = load(options.workload)
    steps = workload.steps if options.steps is None else options.steps
    offered = variants(workload)
    if options.serve:
        serve(workload, steps, prepare, offered, packages)
        return
    variant = offered[0] if options.variant is None else options.variant
    if variant not in offered:
        parser.error(f"variant must be one of {', '.join(offered)}, got {variant!r}")
    record = measure(workload, steps, options.repeats, prepare(workload, steps, variant))
    record = {"variant": variant, "versions": versions(packages)} | record
    if options.json:
        print(json.dumps(record, indent=1))
    else:
        rate, first, z = record["chain_steps_per_second"], record["compile_seconds"], record["worst_z"]
        print(f"{workload.name} {variant}: {rate:,.0f} chain-steps/s, compile {first:.2f} s, worst |z| {z:.2f}")
