"""Coverage of nominal 95% intervals of a logistic regression with a thousand parameters or more.

    python -m benchmarks.many_coverage --parameters 1000 2000 --draws 400 --record rows.jsonl --output many_coverage.txt

The data of `benchmarks.many_parameters`. Runs are those of `lv.sample`, 1008 steps of four chains, ten of them to a
set-up (`benchmarks.sampled`: bit for bit what lv.sample gives). The reference is Hamiltonian Monte Carlo on all the
data, written here in NumPy and independent of the library: pairs of chains that start opposite each other, and every
draw corrected with its exact gradient, as in E[theta + covariance grad] = E[theta]. Its own error is a column; so is
the share of intervals that hold Laplace's values, which is what coverage looks like when the truth is off.
"""

import argparse
import time
from functools import partial
from typing import Any

import numpy as np

from benchmarks.many_parameters import TARGET, by_numpy, simulated
from benchmarks.page import Page, output_option
from benchmarks.record import Record, record_option
from benchmarks.sampled import runs

STEPS, RUNS_A_SETUP = 1008, 10
# Paths of a quarter of a period of the Gaussian model, which forget where they began.
PAIRS, LEAPFROGS, PATH, SETTLING = 16, 5, 1.5, 10

Floats = np.ndarray


class Posterior:
    """The posterior in whitened coordinates z, theta = mode + root z, for many z at once, (d, chains)."""

    def __init__(self, data: dict[str, Floats]) -> None:
        # Rows times labels: a margin is positive where the label is the likelier one.
        self.x = data["x"] * data["y"][:, None]
        self.mode, self.covariance = by_numpy(data)
        self.root = np.linalg.cholesky(self.covariance)
        self.margin = (self.x @ self.mode)[:, None]
        self.miss = 1.0 / (1.0 + np.exp(self.margin))
        self.slope = (self.x.T @ self.miss[:, 0] - self.mode)[:, None]

    def __call__(self, z: Floats) -> tuple[Floats, Floats]:
        """Log density of every z and its gradient; differences to the mode, so that float32 loses nothing."""
        moved = self.root @ z
        odds = np.exp(-self.margin - self.x @ moved.astype(np.float32))
        value = -np.sum(np.log1p(odds), axis=0) - 0.5 * np.sum((self.mode[:, None] + moved) ** 2, axis=0)
        change = (odds / (1.0 + odds) - self.miss).astype(np.float32)
        return value, self.root.T @ (self.slope + self.x.T @ change - moved)


def reference(data: dict[str, Floats], draws: int) -> dict[str, Any]:
    """Means, sds and their standard errors from `draws` draws of every chain."""
    posterior, rng = Posterior(data), np.random.default_rng(1)
    mirrored = lambda half: np.concatenate([half, -half], axis=1)  # noqa: E731
    d = len(posterior.mode)
    z = mirrored(rng.normal(size=(d, PAIRS)))
    (value, grad), accepted = posterior(z), 0.0
    first, second = np.zeros((draws, d, PAIRS)), np.zeros((draws, d, PAIRS))
    variance = np.diag(posterior.covariance)[:, None]
    for k in range(-SETTLING, draws):
        p = mirrored(rng.normal(size=(d, PAIRS)))
        step = PATH / LEAPFROGS * rng.uniform(0.8, 1.0)
        new, energy = z, 0.5 * np.sum(p**2, axis=0) - value
        momentum, slope = p, grad
        for _ in range(LEAPFROGS):
            momentum = momentum + 0.5 * step * slope
            new = new + step * momentum
            height, slope = posterior(new)
            momentum = momentum + 0.5 * step * slope
        gained = energy - (0.5 * np.sum(momentum**2, axis=0) - height)
        taken = np.tile(np.log(rng.random(PAIRS)), 2) < gained
        z, value, grad = np.where(taken, new, z), np.where(taken, height, value), np.where(taken, slope, grad)
        if k >= 0:
            accepted += taken.mean() / draws
            x, push = posterior.root @ z, posterior.root @ grad
            # Of a pair one value each: half the sum of both.
            first[k] = (x + push).reshape(d, 2, PAIRS).mean(axis=1)
            second[k] = (x**2 + x * push + variance).reshape(d, 2, PAIRS).mean(axis=1)
    mean, square = (part.mean(axis=(0, 2)) for part in (first, second))
    sd = np.sqrt(square - mean**2)
    influence = [
        first.mean(axis=0),
        (second.mean(axis=0) - 2.0 * mean[:, None] * first.mean(axis=0)) / (2 * sd[:, None]),
    ]
    errors = [part.std(axis=1, ddof=1) / np.sqrt(PAIRS) for part in influence]
    laplace = {"mean": posterior.mode, "sd": np.sqrt(variance[:, 0])}
    found = {"mean": posterior.mode + mean, "sd": sd}
    return {"value": found, "error": dict(zip(found, errors, strict=True)), "laplace": laplace, "accepted": accepted}


def group(data: dict[str, Floats], truth: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """Ten runs of one set-up: by kind the shares of intervals that hold the truth, and Laplace's value."""
    began, found = time.process_time(), []
    for result in runs(TARGET, data, np.zeros(data["x"].shape[1]), steps=STEPS, count=RUNS_A_SETUP, seed=seed):
        one: dict[str, Any] = {"status": result.status}
        for kind, estimate in (("mean", result.mean), ("sd", result.sd)):
            lower, upper = estimate.interval()
            for name in ("value", "laplace"):
                value = np.asarray(truth[name][kind])
                one[f"{kind} {name}"] = np.mean((lower <= value) & (value <= upper))
            half = 0.5 * (upper - lower)
            one[f"{kind} z"] = np.sqrt(np.mean(((estimate.value - truth["value"][kind]) / half * 1.96) ** 2))
            one[f"{kind} half"] = np.median(half / np.asarray(truth["value"]["sd"]))
            one[f"{kind} error"] = np.median(np.asarray(truth["error"][kind]) / half)
        found.append(one)
    for one in found:
        one["seconds"] = (time.process_time() - began) / RUNS_A_SETUP
    return found


def row(dimension: int, kind: str, found: list[dict[str, Any]]) -> tuple[str, ...]:
    """A line of the table; the error of a coverage is that between runs, whose parameters are not independent."""
    cover = np.array([one[f"{kind} value"] for one in found])
    typical = {name: np.median([one[f"{kind} {name}"] for one in found]) for name in ("half", "error", "laplace")}
    return (
        f"{dimension}, {kind}s",
        str(len(found)),
        f"{cover.mean():.3f} +- {cover.std(ddof=1) / np.sqrt(len(cover)):.3f}",
        f"{cover.min():.3f}",
        f"{np.sqrt(np.mean([one[f'{kind} z'] ** 2 for one in found])):.2f}",
        f"{typical['half']:.1e}",
        f"{typical['error']:.2f}",
        f"{typical['laplace']:.3f}",
        f"{np.mean([one['status'] == 'ok' for one in found]):.0%}",
        f"{np.mean([one['seconds'] for one in found]):.0f}",
    )


HEAD = ("d, kind", "runs", "coverage", "lowest run", "rms z", "half-width, sds", "reference's error over it",
        "Laplace inside", "ok", "CPU s a run")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=int, nargs="+", default=[1000])
    parser.add_argument("--data", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=40, help="in groups of ten, each with a set-up of its own")
    parser.add_argument("--draws", type=int, default=50, help=f"of each of the reference's {2 * PAIRS} chains")
    output_option(parser)
    record_option(parser)
    given = parser.parse_args()
    page, record, rows = Page(given.output), Record(given.record), []
    page.say(f"Logistic regression, N = {given.data:,}")
    for dimension in given.parameters:
        data, name = simulated(given.data, dimension), f"{given.data} {dimension}"
        truth = record.piece(f"{name} {given.draws} draws", partial(reference, data, given.draws))
        page.say(
            f"d = {dimension}: {2 * PAIRS} x {given.draws} draws of the reference, {truth['accepted']:.0%} accepted"
        )
        found: list[dict[str, Any]] = []
        for seed in range(-(-given.runs // RUNS_A_SETUP)):
            found += record.piece(f"{name} {given.draws} draws, runs {seed}", partial(group, data, truth, seed))
            print(*row(dimension, "mean", found), *row(dimension, "sd", found), flush=True)
        rows += [row(dimension, kind, found) for kind in ("mean", "sd")]
    page.table(HEAD, rows)
    page.write()


if __name__ == "__main__":
    main()
