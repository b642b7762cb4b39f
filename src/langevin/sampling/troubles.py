"""What can stand against a trustworthy answer: each finding with its status, what was seen, and a remedy."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from langevin.analysis.statuses import BY_WORD
from langevin.analysis.value import Estimate
from langevin.anchor import Anchor
from langevin.engine.program import BASE_ROW
from langevin.pilot import Pilot
from langevin.sampling.rules import Rules, least_ess
from langevin.sampling.visits import unvisited
from langevin.survey import Survey

if TYPE_CHECKING:
    from langevin.engine.ledger import Ledger

# A Gaussian is in the far tail in 1e-4 of the steps, rare-event logistic posteriors in up to .3%, a Student t of 5
# degrees of freedom in 1%, a Cauchy law in 20%. Visits last a few steps, so a handful of steps proves nothing.
_MOST_FAR, _FEW_VISITS = 5e-3, 20
# First-order gradients leave their noise in the chain: at most this much of the variance goes without a word.
_MOST_INFLATION = 0.01
# What is known to move a number may do so by this many posterior sds.
_MOST_MOVED = 0.01


@dataclass(frozen=True)
class Trouble:
    """A status and a sentence about what was seen."""

    status: str
    text: str

    @property
    def refused(self) -> bool:
        """Whether no interval is given at all."""
        return not BY_WORD[self.status].bar


_CUT = Trouble("hard_bound", f"{BY_WORD['hard_bound'].meaning}. {BY_WORD['hard_bound'].remedy}")


def before(anchor: Anchor, pilot: Pilot, survey: Survey, rules: Rules, num_steps: int | None) -> Iterator[Trouble]:
    """What set-up has found."""
    if survey.elsewhere:
        yield Trouble(
            "several_modes",
            f"{survey.elsewhere} of {survey.num_starts} starts, spread {reach(survey)} posterior sds about the "
            f"mode, climbed to another mode, e.g. {point(survey.modes[0])}: the chains describe the one at "
            f"{point(anchor.theta)} only. Reparametrise, or sample with method='exact'.",
        )
    if not anchor.converged:
        yield Trouble(
            "not_gaussian",
            "the optimiser did not reach a proper mode, so the anchor is only a point of high density. "
            "Start closer, or use stronger priors.",
        )
    if pilot.outside > 0:
        yield _CUT
    if not pilot.ess >= least_ess(pilot):
        where = " in its worst direction" if pilot.by_parameter else ""
        yield Trouble(
            "not_gaussian",
            f"the posterior is far from its Gaussian approximation: importance sampling from that keeps "
            f"{pilot.ess:.1%} of its draws effective{where}, and {least_ess(pilot):.0%} is the least that is "
            f"accepted. Reparametrise (non-centred, log scale), or sample with method='exact'.",
        )
    if num_steps is not None and num_steps + BASE_ROW <= rules.least_steps:
        yield Trouble(
            "too_few_batches",
            f"the budget allows {num_steps} steps a chain, fewer than the {rules.least_steps} that the error bars "
            f"need here. Allow {_times(rules.least_steps / num_steps)} the passes.",
        )


def after(
    ledger: "Ledger", survey: Survey, rules: Rules, batch_size: int, outside: float, precision: float | None
) -> Iterator[Trouble]:
    """What the run has shown; `outside` is the share of points within the chains' reach where the prior is zero."""
    if outside > 0:
        yield _CUT
    if ledger.far is not None:
        visits = float(ledger.far.sum())
        share = visits / (ledger.num_steps * len(ledger.chains))
        if share > _MOST_FAR and visits > _FEW_VISITS:
            yield Trouble(
                "heavy_tails",
                f"the chains were in the far tail in {share:.1%} of their steps, where a Gaussian is in 0.01%: the "
                f"posterior has heavier tails than its approximation, or the steps are too large for it. "
                f"Reparametrise, or sample with method='exact'.",
            )
    missed = unvisited(ledger, survey.outskirts, held(precision))
    if missed is not None:
        yield Trouble("not_gaussian", f"{missed}. Reparametrise, or sample with method='exact'.")
    inflation = rules.inflation(float(ledger.sum_delta2.sum() / ledger.sum_delta.sum()), batch_size)
    if rules.order in ("plain", "cv1") and inflation > _MOST_INFLATION:
        yield Trouble(
            "gradient_noise",
            f"gradients are {'plain minibatches' if rules.order == 'plain' else 'first-order control variates'}, "
            f"whose noise makes the variances about {inflation:.0%} too large. A new run with more passes takes "
            f"smaller steps; fewer parameters allow second-order control variates.",
        )
    if ledger.num_steps + BASE_ROW <= rules.least_steps:
        yield Trouble(
            "too_few_batches",
            f"{ledger.num_steps} steps a chain were recorded, fewer than the {rules.least_steps} that the error "
            f"bars need here. Extend the run.",
        )


def held(precision: float | None) -> float:
    """What may move a number without a word: a hundredth of a posterior sd, or half the precision asked for."""
    return _MOST_MOVED if precision is None else min(_MOST_MOVED, 0.5 * precision)


_MOVES = {"quadrature": "more quadrature nodes would move", "rounding": "computing in float32 moves"}


def of_moves(
    moves: Mapping[str, np.ndarray], precision: float | None, mean: Estimate, sd: Estimate
) -> Iterator[Trouble]:
    """Whether quadrature or rounding leave more than the error bars hold; `moves` as in `Plan.moves`.

    Intervals have room for them.
    """
    bars = np.maximum(np.stack([mean.stderr, sd.stderr]) / sd.value, held(precision))
    for status, error in moves.items():
        if np.any(error > bars):
            yield Trouble(
                status,
                f"{_MOVES[status]} a mean by up to {error[0].max():.2g} posterior sds and an sd by up to "
                f"{error[1].max():.2g}, more than the error bars hold. {BY_WORD[status].remedy}",
            )


def reach(survey: Survey) -> str:
    """How far apart the survey's starts were, in posterior sds."""
    return f"{min(survey.spread):.0f} to {max(survey.spread):.0f}"


def point(theta: np.ndarray) -> str:
    """The first coordinates of a flat point."""
    shown = ", ".join(f"{value:.3g}" for value in theta[:4])
    return f"({shown}{', ...' if len(theta) > 4 else ''})"


def _times(factor: float) -> str:
    return f"{np.ceil(factor):.0f} times"
