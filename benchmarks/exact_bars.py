"""Coverage of nominal 95% intervals where `lv.sample` goes on exactly: posteriors that the minibatch method declines.

    python -m benchmarks.exact_bars                      # 200 runs a posterior, about a quarter of an hour on two cores
    python -m benchmarks.exact_bars --runs 40 banana     # fewer runs, one posterior
    python -m benchmarks.exact_bars --record rows.jsonl --output docs/benchmarks/exact_bars.txt    # can be interrupted

Every run is `lv.sample(target, data, theta_0, precision=0.1, seed=seed)` and nothing else. Truth is a closed form, or
one-dimensional integrals on a grid: no reference run has an error of its own. Covered counts runs of any status but
those without an interval, pooled over parameters, +- one standard error between runs; `ok` is the share of runs that
say so, `declined` what method="minibatch" says of the same posterior at the first seed.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import stats

import langevin as lv
from benchmarks.importance import LEVELS
from benchmarks.page import Page, output_option
from benchmarks.record import Record, record_option

_GRID = 400_001
PRECISION = 0.1


@dataclass(frozen=True)
class Case:
    """A posterior, with means (d,), sds (d,) and quantiles (levels, d)."""

    target: lv.Target
    data: Any
    theta_0: Any
    mean: np.ndarray
    sd: np.ndarray
    quantiles: np.ndarray


def known(target: lv.Target, data: Any, theta_0: Any, laws: list[Any]) -> Case:
    """A case whose parameters have these laws of SciPy."""
    return Case(
        target, data, theta_0,
        np.array([law.mean() for law in laws]), np.array([law.std() for law in laws]),
        np.stack([law.ppf(LEVELS) for law in laws], axis=1),
    )  # fmt: skip


class Gridded:
    """A law of one parameter from its log density on a grid."""

    def __init__(self, log_density: Callable[[np.ndarray], np.ndarray], low: float, high: float) -> None:
        self.x = np.linspace(low, high, _GRID)
        value = log_density(self.x)
        weight = np.exp(value - value.max())
        self.weight = weight / weight.sum()

    def mean(self) -> float:
        return float(self.weight @ self.x)

    def std(self) -> float:
        return float(np.sqrt(self.weight @ (self.x - self.mean()) ** 2))

    def ppf(self, levels: np.ndarray) -> np.ndarray:
        return np.interp(levels, np.cumsum(self.weight) - 0.5 * self.weight, self.x)


def log_gamma() -> Case:
    """Logarithms of five gamma variables of shape 1/2: the posterior of a log rate from half an event."""
    return known(lv.Target(lambda t: jnp.sum(0.5 * t - jnp.exp(t))), None, np.zeros(5), [stats.loggamma(0.5)] * 5)


def student() -> Case:
    """Three independent t variables with 7 degrees of freedom."""
    return known(lv.Target(lambda t: -4.0 * jnp.sum(jnp.log1p(t**2 / 7.0))), None, np.ones(3), [stats.t(7)] * 3)


def gumbel() -> Case:
    return known(lv.Target(lambda t: jnp.sum(-t - jnp.exp(-t))), None, np.full(2, 0.3), [stats.gumbel_r()] * 2)


def banana() -> Case:
    """x ~ N(1, 1), y ~ N(x^2, 1): y is a noncentral chi-square variable with noise, by its characteristic function."""
    target = lv.Target(lambda t: -0.5 * (t[0] - 1.0) ** 2 - 0.5 * (t[1] - t[0] ** 2) ** 2)
    x = np.linspace(-9.0, 11.0, 20_001)
    weight = stats.norm.pdf(x - 1.0)

    def log_density(y: np.ndarray) -> np.ndarray:
        near = np.linspace(y[0], y[-1], 2001)
        values = np.log(stats.norm.pdf(near[:, None] - x**2) @ weight + 1e-300)
        return np.interp(y, near, values)

    return known(target, None, np.full(2, 0.5), [stats.norm(1.0), Gridded(log_density, -5.0, 60.0)])


def quartic() -> Case:
    """No curvature at the mode."""
    law = Gridded(lambda x: -(x**4), -3.0, 3.0)
    return known(lv.Target(lambda t: -jnp.sum(t**4)), None, np.ones(3), [law] * 3)


def mixture() -> Case:
    """Two modes four sds apart, .7 and .3 of the mass, which chains travel between."""

    def log_density(x: Any, log: Any, add: Any) -> Any:
        return add(log(0.7) - 0.5 * x**2, log(0.3) - 0.5 * (x - 4.0) ** 2)

    law = Gridded(lambda x: log_density(x, np.log, np.logaddexp), -8.0, 12.0)
    target = lv.Target(lambda t: log_density(t[0], jnp.log, jnp.logaddexp))
    return known(target, None, np.full(1, 0.3), [law])


def regression() -> Case:
    """Twenty rows, four coefficients and log sigma under the reference prior: t variables and a log chi-square."""
    rng = np.random.default_rng(5)
    x = np.column_stack([np.ones(20), rng.normal(size=(20, 3))]).astype(np.float32)
    y = (x @ [1.0, 0.5, 0.0, -2.0] + rng.normal(size=20)).astype(np.float32)

    def log_likelihood(theta: Any, row: Any) -> Any:
        return -theta["log_sigma"] - 0.5 * ((row["y"] - row["x"] @ theta["beta"]) * jnp.exp(-theta["log_sigma"])) ** 2

    wide = x.astype(np.float64)
    precision, df = wide.T @ wide, 16
    beta = np.linalg.solve(precision, wide.T @ y)
    squares = float(np.sum((y - wide @ beta) ** 2))
    scale = np.sqrt(squares / df * np.diag(np.linalg.inv(precision)))
    # sigma^2 = squares / chi^2_df, so log sigma = (log squares - log chi^2) / 2, log chi^2 = log 2 + log Gamma(df/2).
    mirrored = stats.loggamma(df / 2, scale=0.5)

    class LogSigma:
        shift = 0.5 * (np.log(squares) - np.log(2.0))

        def mean(self) -> float:
            return float(self.shift - mirrored.mean())

        def std(self) -> float:
            return float(mirrored.std())

        def ppf(self, levels: np.ndarray) -> np.ndarray:
            return np.asarray(self.shift - mirrored.ppf(1.0 - np.asarray(levels)))

    laws = [stats.t(df, m, s) for m, s in zip(beta, scale, strict=True)] + [LogSigma()]
    theta_0 = {"beta": np.zeros(4), "log_sigma": np.zeros(())}
    return known(lv.Target(lambda t: 0.0 * t["log_sigma"], log_likelihood), {"x": x, "y": y}, theta_0, laws)


def rare_events() -> Case:
    """Sixty trials and one success: the logit of its chance, under N(0, 5^2)."""
    y = np.zeros(60, np.float32)
    y[0] = 1.0
    target = lv.Target(lambda t: -0.02 * t[0] ** 2, lambda t, y: y * t[0] - jnp.logaddexp(0.0, t[0]))
    law = Gridded(lambda x: -0.02 * x**2 + x - 60.0 * np.logaddexp(0.0, x), -25.0, 5.0)
    return known(target, y, np.zeros(1), [law])


CASES: dict[str, Callable[[], Case]] = {
    case.__name__: case for case in (log_gamma, student, gumbel, banana, quartic, mixture, regression, rare_events)
}


@cache
def case_of(name: str) -> Case:
    """The same functions for every run of a process, so that they are compiled once."""
    return CASES[name]()


def one_run(name: str, seed: int) -> dict[str, Any]:
    """Whether each interval of a run holds the truth, by kind, with its status and seconds."""
    case, began = case_of(name), time.monotonic()
    result = lv.sample(case.target, case.data, case.theta_0, precision=PRECISION, seed=seed, progress=False)
    found = {"mean": (result.mean, case.mean), "sd": (result.sd, case.sd)}
    found["quantile"] = (result.quantiles(LEVELS), case.quantiles)
    inside, errors, halves = {}, {}, {}
    for kind, (estimate, truth) in found.items():
        lower, upper = estimate.interval()
        inside[kind] = (lower <= truth) & (truth <= upper)
        errors[kind], halves[kind] = estimate.value - truth, 0.5 * (upper - lower)
    return {
        "inside": inside, "errors": errors, "halves": halves, "status": result.status, "method": result.method,
        "seconds": time.monotonic() - began,
    }  # fmt: skip


def declined(name: str) -> str:
    """What the minibatch method alone says."""
    case = case_of(name)
    try:
        return lv.sample(
            case.target, case.data, case.theta_0, precision=PRECISION, method="minibatch", progress=False
        ).status
    except (lv.AnchorError, lv.Diverged) as error:
        return type(error).__name__


def runs_of(name: str, count: int, record: Record, pool: ProcessPoolExecutor) -> list[dict[str, Any]]:
    """The runs of a posterior with seeds from 0 on; those that the record has are not made again."""
    waiting = [seed for seed in range(count) if f"{name} {seed}" not in record]
    for seed, found in zip(waiting, pool.map(partial(one_run, name), waiting, chunksize=5), strict=True):
        record.add(f"{name} {seed}", found)
    return [record[f"{name} {seed}"] for seed in range(count)]


def row(name: str, runs: list[dict[str, Any]], without: str) -> tuple[str, ...]:
    """A line of the table; `without` is what the minibatch method says."""
    answered = [run for run in runs if np.all(np.isfinite(run["halves"]["mean"]))]
    halves = {kind: np.array([run["halves"][kind] for run in answered]) for kind in runs[0]["halves"]}
    spread = {kind: np.std([run["errors"][kind] for run in answered], axis=0) for kind in halves}
    width = max(float(np.median(np.median(halves[kind], axis=0) / (1.96 * spread[kind]))) for kind in halves)
    return (
        name,
        str(len(case_of(name).mean)),
        str(len(answered)),
        *(_covered([np.mean(run["inside"][kind]) for run in answered]) for kind in halves),
        f"{width:.2f}",
        f"{np.mean([run['status'] == 'ok' for run in runs]):.0%}",
        f"{np.mean([run['method'] == 'exact' for run in runs]):.0%}",
        f"{np.median([run['seconds'] for run in runs]):.1f}",
        without,
    )


def _covered(shares: list[Any]) -> str:
    """Coverage with its error between runs: the parameters of one run err together."""
    return f"{np.mean(shares):.3f} +- {np.std(shares, ddof=1) / np.sqrt(len(shares)):.3f}"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="posteriors, all by default")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    output_option(parser)
    record_option(parser)
    options = parser.parse_args(arguments)
    page, record = Page(options.output), Record(options.record)
    head = ("posterior", "d", "runs", "means", "sds", "quantiles", "width", "ok", "exact", "s", "declined with")
    rows = []
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        for name in options.cases or CASES:
            runs = runs_of(name, options.runs, record, pool)
            rows.append(row(name, runs, record.piece(f"{name} minibatch", partial(declined, name))))
            print(*rows[-1], flush=True)
    page.table(head, rows)
    page.write()


if __name__ == "__main__":
    main(sys.argv[1:])
