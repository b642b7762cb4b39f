"""Whether the chains of an exact run have met: split R-hat, divergences, and travel between known modes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from langevin.analysis import estimate
from langevin.analysis.statuses import BY_WORD
from langevin.analysis.value import apart as disagree
from langevin.sampling.tails import FEWEST_MOMENTS
from langevin.sampling.travel import Modes
from langevin.sampling.troubles import Trouble, held, point, reach
from langevin.sampling.visits import unvisited
from langevin.survey import Survey

if TYPE_CHECKING:
    from langevin.engine.ledger import Ledger

# Halves of chains whose means scatter by more than a tenth of the posterior variance: sqrt(1 + 0.1) = 1.05.
MOST_R_HAT = 1.05
# Paths break off at the mouth of a region too narrow for the steps, and chains come there seldom: in a run of the
# centred eight schools that missed a fifth of an sd it was one path in three thousand. A few may be chance.
_FEW_BROKEN, _MOST_BROKEN = 3, 5e-5
# What the field warns at: by Stan's users' experience with funnels, on another set of models than ours.
_LEAST_LIVELINESS = 0.2
# Of 4000 draws of Student's t with 5 degrees of freedom one in 25 sets has a draw with more than this share of the sum
# of squares; with 2, where there is no variance, 19 of 20.
_MOST_OF_A_VARIANCE, _MUCH_LARGER = 0.05, 4.0
# Chains that came to a mode this often know its share to within a quarter.
_FEWEST_ARRIVALS = 20


def r_hat(ledger: "Ledger") -> np.ndarray:
    """Split R-hat of every parameter: sqrt(1 + B/W), B the variance of means of half chains, W that within them."""
    d = len(ledger.names)
    i, j = ledger.columns["theta"].pairs or (np.zeros(0, int), np.zeros(0, int))
    rows = ledger.values["theta"].shape[1] // 2
    if rows < 1:
        return np.full(d, np.nan)
    halves = [slice(0, rows), slice(rows, 2 * rows)]
    moments = np.concatenate(
        [ledger.values["theta"][:, half].sum(axis=1) / ledger.sum_omega[half].sum() for half in halves]
    )
    mean, square = moments[:, :d], moments[:, d:][:, i == j]
    between = mean.var(axis=0, ddof=1)
    within = np.mean(square - mean**2, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(1.0 + between / within)


def divergences(ledger: "Ledger") -> float:
    """Share of the steps that left their path."""
    return 0.0 if ledger.divergences is None else float(ledger.divergences.sum()) / _steps(ledger)


def liveliness(ledger: "Ledger") -> float:
    """One minus the correlation of the log density with that of a step before, within chains; NaN if nobody counted.

    About a half on Gaussians: a fresh momentum makes up half of the energy. Where most of the energy is that of the
    place, as at the neck of a funnel, the little that a momentum brings does not lead far (Betancourt 2016).
    """
    if ledger.levels is None:
        return np.nan
    level, square, moved = np.moveaxis(ledger.levels.sum(axis=1), -1, 0)
    within = np.sum(square - level**2 / ledger.num_steps)
    return float(0.5 * moved.sum() / within) if within > 0.0 else np.nan


def _steps(ledger: "Ledger") -> int:
    return ledger.num_steps * len(ledger.chains)


def arrivals(ledger: "Ledger", modes: Modes) -> np.ndarray:
    """How often kept draws of a chain came to each of the modes from another one, (k,)."""
    assert ledger.draws is not None
    nearest = modes.nearest(ledger.draws.theta)
    came = nearest[:, 1:][nearest[:, 1:] != nearest[:, :-1]]
    return np.bincount(came, minlength=len(modes))


def _apart(ledger: "Ledger", modes: Modes) -> str | None:
    """Why the modes are not known to be one answer; None where they are."""
    if not modes.closed:
        return "the search for modes did not come to an end: there may be more than were found"
    came = arrivals(ledger, modes)
    if len(modes) > 1 and came.min() < _FEWEST_ARRIVALS:
        rarest = int(np.argmin(came))
        return (
            f"the chains came to the mode at {point(modes.centres[rarest])} from another one {came[rarest]} times "
            f"only: how much of the mass it holds is not known"
        )
    return None


def cut(ledger: "Ledger") -> bool:
    """Whether corrected and raw means cannot both be right: they differ by a multiple of the mean gradient."""
    corrected, raw = (estimate(ledger, method)["theta.mean"] for method in ("corrected", "raw"))
    return bool(np.any(disagree(corrected, raw)))


def largest_share(ledger: "Ledger") -> float:
    """The largest part of a variance that a single kept draw makes up, over what n normal draws would show at most."""
    if ledger.draws is None:
        return 0.0
    flat = ledger.draws.theta.reshape(-1, len(ledger.names))
    square = (flat - flat.mean(axis=0)) ** 2
    with np.errstate(invalid="ignore"):
        share = float(np.max(np.max(square, axis=0) / np.sum(square, axis=0)))
    # The largest of n squared normal numbers is about 2 log n.
    return share if share > _MUCH_LARGER * 2.0 * np.log(len(flat)) / len(flat) else 0.0


def after_exact(
    ledger: "Ledger", survey: Survey, modes: Modes | None, moments: float, precision: float | None
) -> Iterator[Trouble]:
    """What an exact run has shown against itself.

    `modes` are those that its chains should have travelled between, `moments` is how many of them the posterior has.
    """
    worst, broken = float(np.max(r_hat(ledger))), divergences(ledger)
    apart = None if modes is None else _apart(ledger, modes)
    if apart is not None:
        yield Trouble(
            "several_modes",
            f"{survey.elsewhere} of {survey.num_starts} starts, spread {reach(survey)} posterior sds about the "
            f"mode at {point(survey.home)}, climbed to another mode, e.g. {point(survey.modes[0])}, and {apart}. "
            f"Reparametrise, give a prior that decides between them, or run for much longer.",
        )
    elif not worst <= MOST_R_HAT:
        yield Trouble(
            "not_mixed",
            f"the halves of the chains disagree (split R-hat {worst:.2f}, and {MOST_R_HAT} is the most that is "
            f"accepted): they have not met. Reparametrise (non-centred, log scale), use stronger priors, or run "
            f"for much longer.",
        )
    if cut(ledger):
        yield Trouble(
            "hard_bound",
            f"the gradient does not average to zero: the density ends before it vanishes, at a bound that "
            f"gradients cannot see. {BY_WORD['hard_bound'].remedy}",
        )
    share = largest_share(ledger)
    heavy = moments < FEWEST_MOMENTS or share > _MOST_OF_A_VARIANCE
    if moments < FEWEST_MOMENTS:
        yield Trouble(
            "heavy_tails",
            f"far out the density falls like a power of the distance, so slowly that only moments below "
            f"{max(moments, 0.0):.2g} exist, and an sd with its bar needs {FEWEST_MOMENTS:.0f}. Look at quantiles "
            f"instead, or use a prior with lighter tails.",
        )
    elif heavy:
        yield Trouble(
            "heavy_tails",
            f"a single draw makes up {share:.0%} of a variance: the tails are so heavy that the next such draw, or "
            f"the lack of one, moves it by more than its bar says. Look at quantiles instead, or reparametrise.",
        )
    missed = unvisited(ledger, survey.outskirts, held(precision))
    if missed is not None:
        yield Trouble("rare_excursions", f"{missed}. {BY_WORD['rare_excursions'].remedy}")
    alive = liveliness(ledger)
    # Tails without moments are as slow, and so are modes of unequal height, whose chains are counted by arrivals.
    if alive < _LEAST_LIVELINESS and not heavy and modes is None:
        yield Trouble(
            "not_mixed",
            f"the log density hardly changes from one step to the next ({alive:.2f} of its variance, where a half is "
            f"usual): chains creep along a funnel, and what they have not reached yet does not show. "
            f"{BY_WORD['not_mixed'].remedy}",
        )
    if broken > max(_MOST_BROKEN, _FEW_BROKEN / _steps(ledger)):
        yield Trouble(
            "divergences",
            f"{broken:.2%} of the paths broke off where the density bends too sharply, and what lies behind is not "
            f"seen. Reparametrise (non-centred, log scale), or use stronger priors.",
        )
