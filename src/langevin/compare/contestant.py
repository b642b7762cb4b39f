"""A contestant: a sampler with its settings, where it applies, and how it is set in one line."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from langevin.compare.found import Snapshots
from langevin.compare.problem import Problem

# (seed, seconds, visits) -> what was found at the visits and at the seconds
Replicate = Callable[[int, float, float], Snapshots]
# From a problem and the seconds of a run to what makes replicates; programs are compiled once for all seeds.
Build = Callable[[Problem, float], Replicate]


@dataclass(frozen=True)
class Contestant:
    """A sampler by name. `refuses` says why it cannot be had on a problem, or None; `needs` are packages to import."""

    name: str
    library: str
    how: str
    build: Build
    needs: tuple[str, ...] = ()
    install: str = "pip install 'langevin[compare]'"
    refuses: Callable[[Problem], str | None] = lambda problem: None

    @property
    def missing(self) -> list[str]:
        """Packages that are not installed."""
        return [package for package in self.needs if find_spec(package) is None]


def by_pace(fitted: Callable[[int, float], dict[str, Any]], problem: Problem, pace: dict[str, float]) -> Replicate:
    """Replicates of what must know its number of steps beforehand: for the visits, and for the seconds by its pace."""

    def replicate(seed: int, seconds: float, visits: float) -> Snapshots:
        return {
            "visits": fitted(seed, visits / problem.batch_size),
            "seconds": fitted(seed, seconds / pace["seconds a step"]),
        }

    return replicate


def without_prior(problem: Problem) -> str | None:
    """For samplers that need a Gaussian prior."""
    return None if problem.prior_sd is not None else "its prior is not Gaussian"


def not_written(language: str) -> Callable[[Problem], str | None]:
    """For samplers whose likelihoods are written anew here."""
    written = ("logistic", "poisson", "location", "linear")
    return lambda problem: None if problem.family in written else f"its likelihood is not written in {language} here"


def not_logistic(problem: Problem) -> str | None:
    """For samplers that need a bound on how fast the likelihood of a datum changes."""
    return None if problem.family == "logistic" else "no bound on the likelihood of a datum is known"


def predicts(problem: Problem) -> str | None:
    """For estimates that are not averages over draws: of theta they can be made, and of nothing else."""
    return None if problem.predict is None else "it makes better averages of theta, and predictions are compared"


def identified(problem: Problem) -> str | None:
    """For what looks whether chains meet in theta, and gives no bars where they do not."""
    return None if problem.predict is None else "not_mixed: its chains stay in modes that differ by theta alone"


def few_rows(problem: Problem) -> str | None:
    """For samplers that look at ten minibatches at a time."""
    return None if 10 * problem.batch_size < problem.num_data else "ten minibatches are all its data"
