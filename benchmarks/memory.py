"""Memory of a long run: 512 chains of a million steps on the Gaussian model, N = 100 and n = 10.

    python -m benchmarks.memory              # a minute on one idle core

The resident set is read each time the engine asks for the steps of its next block, so every reading belongs to
a transition m. Rule: the largest reading after a tenth of the run exceeds the largest one before it by at most
20 MB, two ledger tables (1024 rows x 512 chains x 2 values in float64 are 8 MB, and a table may be half full at
a tenth); and the peak of the whole process stays below 1 GB. The exit code is 1 otherwise.
"""

import argparse
import itertools
import resource
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import numpy as np

import langevin as lv

MEGABYTE = 2**20
MOST_GROWTH = 20.0
MOST_PEAK = 1024.0


def resident() -> float:
    """Memory of this process in MB, from the second field of statm."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / MEGABYTE


def peak_resident() -> float:
    """Largest memory of this process in MB; `getrusage` would count what its parent held when it was started."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


@dataclass(frozen=True)
class Usage:
    """Readings of the resident set in MB, each at the transition before which it was taken."""

    m: np.ndarray
    resident: np.ndarray
    seconds: float

    @property
    def num_steps(self) -> int:
        return int(self.m[-1])

    def largest(self, start: float, stop: float) -> float:
        """Largest reading between two shares of the run."""
        inside = (self.m >= start * self.num_steps) & (self.m <= stop * self.num_steps)
        return float(self.resident[inside].max())

    @property
    def growth(self) -> float:
        """Largest reading after a tenth of the run over the largest before it."""
        return self.largest(0.1, 1.0) - self.largest(0.0, 0.1)


def usage(chains: int, num_steps: int, leak: int = 0) -> Usage:
    """Runs the chains and reads the memory along the way; a control leaks this many MB at every reading."""
    model = lv.models.LinearGaussian.simulate(seed=1)
    readings: list[tuple[int, float]] = []
    leaked: list[np.ndarray] = []

    def steps(m: np.ndarray) -> np.ndarray:
        leaked.append(np.ones(leak * MEGABYTE, np.uint8))
        readings.append((int(m.max()), resident()))
        return 0.1 * (1 + m / 1000.0) ** (-1 / 3)

    def run(schedule: lv.schedules.Schedule, count: int) -> None:
        lv.run(
            model.target, model.data, model.theta_0, schedule=schedule, num_steps=count, chains=chains,
            subsample=lv.WithoutReplacement(10), progress=False,
        )  # fmt: skip

    run(lv.Constant(0.1), 16)  # compiles
    began = monotonic()
    run(lv.Custom(steps), num_steps)
    seconds = monotonic() - began
    readings.append((num_steps, resident()))
    m, values = zip(*sorted(readings), strict=True)
    return Usage(np.array(m), np.array(values), seconds)


def main() -> None:
    """Prints the table and fails when memory grew or passed the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chains", type=int, default=512)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--leak", type=int, default=0, help="MB to leak at every reading, as a control")
    options = parser.parse_args()
    before = resident()
    used = usage(options.chains, options.steps, options.leak)
    print(f"{options.chains} chains x {options.steps} steps in {used.seconds:.1f} s; {len(used.m)} readings")
    print(f"resident before the run: {before:.0f} MB")
    print("share of the run | largest resident set, MB")
    edges = (0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
    for start, stop in itertools.pairwise(edges):
        print(f"{start:7.0%} to {stop:4.0%}  | {used.largest(start, stop):8.1f}")
    peak = peak_resident()
    print(f"growth after the first tenth: {used.growth:+.1f} MB, allowed {MOST_GROWTH:.0f}")
    print(f"peak of the process: {peak:.0f} MB, allowed {MOST_PEAK:.0f}")
    raise SystemExit(0 if used.growth <= MOST_GROWTH and peak < MOST_PEAK else 1)


if __name__ == "__main__":
    main()
