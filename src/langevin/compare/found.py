"""What a sampler says at some moment: estimates, its own intervals, what it has spent; and how draws are read."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from time import process_time
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from langevin.compare.problem import Problem

Floats = NDArray[np.float64]
Ends = tuple[Floats, Floats]
LEVELS = (0.025, 0.975)
# The normal quantile by which a standard error becomes a 95% interval.
NORMAL = 1.959963984540054
# What ArviZ advises: below it draws should not be reported.
_MOST_RHAT, _FEWEST_EFFECTIVE = 1.01, 400.0
# Draws of a normal law that stand for it: points known to a hundredth of an sd.
_PUSHED = 100_000


@dataclass(frozen=True, eq=False)
class Found:
    """Means, sds (d,) and 95% points (2, d); intervals (lower, upper) of each where the sampler gives any; a status."""

    mean: Floats
    sd: Floats
    points: Floats
    mean_interval: Ends | None = None
    sd_interval: Ends | None = None
    points_interval: Ends | None = None
    status: str = "no bars"


class Chain(Protocol):
    """A sampler at work: set up by whoever made it, it goes on in portions and can be looked at between them."""

    @property
    def visits(self) -> float:
        """Datum visits so far, those of the set-up included."""

    def advance(self, seconds: float, visits: float) -> bool:
        """Some more work, about as many seconds or up to as many visits in all; False when there is no more to do."""

    def look(self) -> Found:
        """The estimates so far. Not part of what is timed."""


Begin = Callable[[int], Chain]
Snapshots = dict[str, dict[str, Any]]


def measured(begin: Begin, seed: int, seconds: float, visits: float) -> Snapshots:
    """One replicate: what is found at the fixed number of visits and after the fixed seconds of processor time.

    Each snapshot is taken at the end of the portion in which its limit was passed, and says what was spent by then. A
    limit that is not reached has no snapshot.
    """
    began = process_time()
    chain = begin(seed)
    spent, going = process_time() - began, True
    snapshots: Snapshots = {}
    # A set-up that takes all the time still has to give an answer: the snapshot says what it took.
    while going:
        began = process_time()
        at_first = "visits" not in snapshots
        going = chain.advance(max(seconds - spent, 0.0), visits if at_first else np.inf)
        spent += process_time() - began
        if at_first and chain.visits >= visits:
            snapshots["visits"] = snapshot(chain.look(), spent, chain.visits)
        going = going and spent < seconds
    snapshots["seconds"] = snapshot(chain.look(), spent, chain.visits)
    return snapshots


def snapshot(found: Found, seconds: float, visits: float) -> dict[str, Any]:
    """What the record keeps of a moment."""
    return asdict(found) | {"seconds": float(seconds), "visits": float(visits)}


def from_draws(problem: Problem, draws: Floats) -> Found:
    """What ArviZ makes of draws (chains, draws, d) of theta: moments and points of what the problem compares, and bars.

    The bars are its Monte Carlo standard errors.
    """
    if not np.all(np.isfinite(draws)):
        raise ArithmeticError("a chain left the finite numbers")
    draws = problem.compared(draws)
    if draws.shape[1] < 8:
        raise ArithmeticError(f"only {draws.shape[1]} draws a chain in the time")
    array_stats = import_module("arviz_stats.base").array_stats

    def error(method: str, prob: float | None = None) -> Floats:
        return np.asarray(array_stats.mcse(draws, chain_axis=0, draw_axis=1, method=method, prob=prob))

    flat = draws.reshape(-1, draws.shape[2])
    mean, sd, points = flat.mean(axis=0), flat.std(axis=0, ddof=1), np.quantile(flat, LEVELS, axis=0)
    rhat = float(np.max(array_stats.rhat(draws, chain_axis=0, draw_axis=1)))
    effective = float(np.min(array_stats.ess(draws, chain_axis=0, draw_axis=1)))
    status = "rhat" if not rhat < _MOST_RHAT else "low ess" if effective < _FEWEST_EFFECTIVE else "ok"
    around = [(mean, error("mean")), (sd, error("sd")), (points, np.stack([error("quantile", p) for p in LEVELS]))]
    intervals = [(value - NORMAL * bar, value + NORMAL * bar) for value, bar in around]
    return Found(mean, sd, points, intervals[0], intervals[1], intervals[2], status)


def gaussian(problem: Problem, mean: Floats, root: Floats) -> Found:
    """A normal law in place of the posterior, without any claim; `root` has its sds, or is a root of its covariance.

    Predictions are those of draws from it.
    """
    if problem.predict is None:
        sd = root if root.ndim == 1 else np.linalg.norm(root, axis=1)
        return Found(mean, sd, mean + sd * NORMAL * np.array([[-1.0], [1.0]]))
    z = np.random.default_rng(0).standard_normal((_PUSHED, len(mean)))
    draws = problem.compared(mean + (z * root if root.ndim == 1 else z @ root.T))
    return Found(draws.mean(axis=0), draws.std(axis=0, ddof=1), np.quantile(draws, LEVELS, axis=0))
