"""From snapshots to a verdict: relative errors with their Monte Carlo errors, coverage with its own. NumPy only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
PARTS = ("mean", "sd", "points")
NOT_FINITE = "its estimates are not finite"
# A snapshot that was taken this much beyond its limit is another budget's.
MOST_BEYOND = 1.5


@dataclass(frozen=True)
class Measure:
    """A number and its Monte Carlo standard error; `count` independent pieces went into it."""

    value: float
    error: float
    count: int


@dataclass(frozen=True)
class Verdict:
    """What became of a cell at one budget.

    `mse`: relative mean squared errors of means, sds and points, in posterior variances, averaged over parameters;
    `moments` is that of means and sds together, by which samplers are ranked.
    `coverage`: of nominal 95% intervals, of the parts for which there are any; `halves` the half-width of the
    shortest, median over replicates, in posterior sds. `ok`: share of replicates that call
    themselves so, None without any claim. `seconds` and `visits`: what was really spent, on average.
    """

    mse: Mapping[str, Measure]
    coverage: Mapping[str, Measure]
    halves: Mapping[str, float]
    ok: float | None
    seconds: float
    visits: float
    replicates: int
    failures: int


def relative_mse(values: Floats, truth: Floats, sd: Floats) -> Measure:
    """Mean over parameters and replicates (first axis) of ((value - truth)/sd)^2; the error is that over replicates."""
    each = np.mean(((values - truth) / sd) ** 2, axis=tuple(range(1, values.ndim)))
    return Measure(float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each))), len(each))


def coverage(lower: Floats, upper: Floats, truth: Floats) -> Measure | None:
    """Share of intervals that hold the truth, of those that were given; None where there was none.

    Intervals of one replicate depend on each other: the error is the spread of the shares of replicates, and at least
    the binomial one with a trial for each interval, as Agresti and Coull have it, which is not zero where all hold.
    """
    given = np.isfinite(lower) & np.isfinite(upper)
    if not given.any():
        return None
    held = given & (lower <= truth) & (truth <= upper)
    axes = tuple(range(1, held.ndim))
    some = given.any(axis=axes)
    shares = held.sum(axis=axes)[some] / given.sum(axis=axes)[some]
    value, trials = float(held.sum() / given.sum()), int(given.sum())
    middle = (value * trials + 2.0) / (trials + 4.0)
    binomial = float(np.sqrt(middle * (1.0 - middle) / (trials + 4.0)))
    spread = float(shares.std(ddof=1) / np.sqrt(len(shares))) if len(shares) > 1 else 0.0
    return Measure(value, max(spread, binomial), len(shares))


def lost(one: Mapping[str, Any], kind: str) -> str:
    """Why a replicate does not count at a budget; nothing where it does, or where it has no snapshot.

    An estimate that is no number, as the sd of a negative variance, is a failure.
    """
    if "failed" in one or kind not in one:
        return one.get("failed", "")
    return "" if all(np.isfinite(np.asarray(one[kind][part], np.float64)).all() for part in PARTS) else NOT_FINITE


def judge(
    replicates: Sequence[Mapping[str, Any]], truth: Mapping[str, Floats], kind: str, limit: float
) -> Verdict | None:
    """The verdict on replicates, each {"seconds": snapshot, "visits": snapshot} or {"failed": words}, at one budget.

    None where fewer than two replicates count, since a number without its Monte Carlo error says nothing, or where the
    snapshot of the visits was taken far beyond their `limit`.
    """
    taken = [one[kind] for one in replicates if kind in one and not lost(one, kind)]
    spent = [one[kind] for one in taken]
    if len(taken) < 2 or (kind == "visits" and np.median(spent) > MOST_BEYOND * limit):
        return None
    sd = np.asarray(truth["sd"])
    mse, covers, halves = {}, {}, {}
    for part in PARTS:
        values = np.array([one[part] for one in taken], np.float64)
        mse[part] = relative_mse(values, np.asarray(truth[part]), sd)
        intervals = [one[f"{part}_interval"] for one in taken if one[f"{part}_interval"] is not None]
        if intervals:
            ends = np.array(intervals, np.float64)
            found = coverage(ends[:, 0], ends[:, 1], np.asarray(truth[part]))
            if found is not None:
                covers[part] = found
                width = ((ends[:, 1] - ends[:, 0]) / sd).reshape(len(ends), -1)
                given = np.isfinite(width).any(axis=0)
                halves[part] = 0.5 * float(np.min(np.nanmedian(width[:, given], axis=0)))
    both = [np.array([one[part] for one in taken]) for part in ("mean", "sd")]
    pair = np.concatenate(both, axis=1)
    mse["moments"] = relative_mse(pair, np.concatenate([truth["mean"], truth["sd"]]), np.tile(sd, 2))
    statuses = [one["status"] for one in taken]
    claims = any(status != "no bars" for status in statuses)
    return Verdict(
        mse=mse,
        coverage=covers,
        halves=halves,
        ok=statuses.count("ok") / len(statuses) if claims else None,
        seconds=float(np.mean([one["seconds"] for one in taken])),
        visits=float(np.mean([one["visits"] for one in taken])),
        replicates=len(taken),
        failures=sum(bool(lost(one, kind)) for one in replicates),
    )


def root(measure: Measure) -> Measure:
    """The root of a mean square, its error by the delta method."""
    value = float(np.sqrt(measure.value))
    return Measure(value, measure.error / (2.0 * value) if value > 0.0 else measure.error, measure.count)


def holds(measure: Measure, nominal: float = 0.95) -> bool:
    """Whether a coverage is not below the nominal one by more than two of its errors."""
    return measure.value + 2.0 * measure.error >= nominal
