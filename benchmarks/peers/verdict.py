"""Whether two answers agree, given their Monte Carlo errors; how far a posterior is from its likelihood's maximum."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

# The chance that two right answers are told to differ, for one table.
FALSE_ALARM = 0.01
# What one Newton step leaves of the way from the maximum of the likelihood to that of the posterior, in posterior sds.
MOST_LEFT = 0.1


@dataclass(frozen=True)
class Verdict:
    """agree, differ or declined; the largest differences of means and of sds in combined errors, and their limit."""

    word: str
    mean: float
    sd: float
    limit: float


def limit(parameters: int) -> float:
    """Bonferroni: means and sds of so many parameters, two-sided."""
    return float(stats.norm.isf(FALSE_ALARM / (2.0 * 2.0 * parameters)))


def compared(ours: dict[str, Any], theirs: dict[str, Any]) -> Verdict:
    """agree: our status is ok, and no mean or sd is farther from theirs than the limit in combined errors."""
    place = places(ours, theirs)
    most = limit(len(place))
    scores = []
    for key in ("mean", "sd"):
        off = np.abs(np.asarray(ours[key]) - np.asarray(theirs[key])[place])
        scores.append(float(np.max(off / np.hypot(ours[f"mcse_{key}"], np.asarray(theirs[f"mcse_{key}"])[place]))))
    # No comparison holds for NaN: an answer without a bar agrees with nothing.
    word = "agree" if all(score <= most for score in scores) else "differ"
    return Verdict(word if ours["status"] == "ok" else "declined", *scores, most)


def places(ours: dict[str, Any], theirs: dict[str, Any]) -> list[int]:
    """Where our parameters are among theirs; both must have the same."""
    if set(ours["name"]) != set(theirs["name"]):
        raise ValueError(f"both must have the same parameters, got {ours['name']} and {theirs['name']}.")
    return [theirs["name"].index(name) for name in ours["name"]]


@dataclass(frozen=True)
class Likelihood:
    """The way from the maximum of the likelihood to the posterior mean, largest parts in posterior sds.

    `prior` is what the prior explains, by one Newton step from the maximum; `left` what that leaves of the way to the
    posterior's mode; `skew` the way from there to the mean; `whole` all of it.
    """

    word: str
    whole: float
    prior: float
    left: float
    skew: float


def beside_maximum(ours: dict[str, Any], maximum: dict[str, Any], step: Any) -> Likelihood:
    """agree: our mode is where the maximum of the likelihood and the prior's pull, `step`, say that it is."""
    top = np.asarray(maximum["value"])[places(ours, maximum)]
    mean, mode, sd = (np.asarray(ours[key]) for key in ("mean", "laplace_mean", "sd"))

    def largest(way: Any) -> float:
        return float(np.max(np.abs(way) / sd))

    left = largest(mode - top - np.asarray(step))
    word = "agree" if left <= MOST_LEFT else "differ"
    return Likelihood(word, largest(mean - top), largest(step), left, largest(mean - mode))
