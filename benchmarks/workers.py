"""What a second core gives: threads of one process, one and two processes of `lv.Processes`, the same chains.

    python -m benchmarks.workers [--seconds 30] [--ray]

Logistic regression, N = 10^5 and 20 parameters, minibatches of 10 with second-order control variates, 8 chains. Each
way starts its workers and compiles, then as many steps are timed as one worker does in `--seconds` of processor time.
Two clocks: the wall, which means something on an idle machine only, and the processor time of the busiest worker,
which is what the wall would show if every worker had a core to itself and never waited for the others. Threads cannot
be told apart by that clock: for them the processor time of all is halved, as if none ever waited for a lock.
"""

import argparse
import os
from pathlib import Path
from time import monotonic

import jax.numpy as jnp
import numpy as np

import langevin as lv
from langevin.engine.run import begun
from langevin.engine.setup import prepare

NUM_DATA, DIMENSION, CHAINS = 100_000, 20, 8
WARM_STEPS = 4096


def busy_seconds(pid: int) -> float:
    """Seconds on a processor of all threads of a process."""
    return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def call():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(NUM_DATA, DIMENSION)).astype(np.float32)
    y = np.where(rng.random(NUM_DATA) < 1 / (1 + np.exp(-x @ rng.normal(size=DIMENSION) / 3)), 1, -1)
    target = lv.Target(
        lambda theta: -0.5 * jnp.sum(theta**2),
        lambda theta, datum: lv.log_sigmoid(datum["y"] * jnp.dot(datum["x"], theta)),
    )
    data = lv.DataSource.of({"x": x, "y": y})
    anchor = lv.laplace(target, data, np.zeros(DIMENSION))
    return prepare(
        target, data, anchor.mode, schedule=lv.Constant(0.5), kernel=lv.LeimkuhlerMatthews(),
        gradient=lv.ControlVariate(anchor, order=2), subsample=lv.WithReplacement(10), anchor=anchor,
        coordinates=lv.Whitened.by(anchor), observables={"theta": lv.Moments()}, chains=CHAINS, seed=0,
        weight_power=1.0, keep=100, layout=None, guard=1,
    )  # fmt: skip


def workers_of(engine) -> list[int]:
    """Process numbers of the workers; this process where there are none."""
    if engine is None:
        return [os.getpid()]
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_text()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if ("worker import serve" in line and parent == os.getpid()) or line.startswith("ray::RayHost"):
            found.append(int(folder.name))
    return found


def measured(prepared, engine, num_steps: int) -> dict[str, float]:
    going = begun(prepared, engine)
    with going.held():
        going.advance(WARM_STEPS)
        pids = workers_of(engine)
        before, began = [busy_seconds(pid) for pid in pids], monotonic()
        going.advance(WARM_STEPS + num_steps)
        wall = monotonic() - began
        busy = max(busy_seconds(pid) - one for pid, one in zip(pids, before, strict=True))
    return {"wall": wall, "busy": busy / (2 if engine is None else 1), "steps": num_steps}


def rate(prepared) -> float:
    """Steps a chain that one worker makes in a second of processor time."""
    found = measured(prepared, lv.Processes(workers=1), 4 * WARM_STEPS)
    return found["steps"] / found["busy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--ray", action="store_true")
    arguments = parser.parse_args()
    prepared = call()
    steps = int(rate(prepared) * arguments.seconds)
    ways = {"one worker": lv.Processes(workers=1), "two workers": lv.Processes(workers=2), "threads": None}
    if arguments.ray:
        ways |= {"Ray, one worker": lv.Ray(workers=1), "Ray, two workers": lv.Ray(workers=2)}
    print(f"{CHAINS} chains x {steps:,} steps; load average at the start {os.getloadavg()[0]:.1f}", flush=True)
    print(f"{'':18}{'wall s':>9}{'busy s':>9}   chain-steps/s: by the wall, by the processor")
    for name, engine in ways.items():
        found = measured(prepared, engine, steps)
        pace = [CHAINS * steps / found[clock] for clock in ("wall", "busy")]
        seconds = f"{found['wall']:9.1f}{found['busy']:9.1f}"
        print(f"{name:18}{seconds}   {pace[0]:14,.0f}{pace[1]:14,.0f}", flush=True)
    print(f"load average at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
