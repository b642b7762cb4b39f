"""Every word that can stand beside a number: what it means, what to do, and whether an interval is given at all."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Status:
    """A word, what it means in a sentence, a remedy, and whether an error bar is given (`bar`)."""

    word: str
    meaning: str
    remedy: str
    bar: bool = True


# Worst first. Another mode, a bound or a shape that the method cannot follow make all that is said beside the point;
# without batches no other word means anything; a bias beyond the bar makes the bar beside the point; the next three say
# that an assumption of the method is not met; the last only asks for more steps.
ALL = (
    Status(
        "several_modes",
        "the posterior has several modes, and the chains describe one",
        "Reparametrise, or use a sampler made for several modes.",
        bar=False,
    ),
    Status(
        "not_mixed",
        "chains from different starts, or the two halves of a chain, disagree: they have not met",
        "Reparametrise (non-centred, log scale), use stronger priors, or run for much longer.",
        bar=False,
    ),
    Status(
        "hard_bound",
        "the density is zero at points that the chains can reach: a hard bound cuts the posterior, and gradients "
        "cannot see it",
        "Transform the parameter so that it is free (log for a positive one, logit for one in an interval).",
        bar=False,
    ),
    Status(
        "not_gaussian",
        "the posterior is too far from its Gaussian approximation for this method",
        "Reparametrise (non-centred, log scale), or sample with method='exact'.",
        bar=False,
    ),
    Status(
        "heavy_tails",
        "the chains spend more of their steps far out than a Gaussian would: the posterior has heavier tails than its "
        "approximation, or the steps are too large for it",
        "Reparametrise, or sample with method='exact'.",
    ),
    Status(
        "divergences",
        "some paths of the exact sampler broke off where the density bends too sharply: what lies behind is not seen",
        "Reparametrise (non-centred, log scale), or use stronger priors.",
    ),
    Status(
        "too_few_batches",
        "the run is too short for its error bars, or its batches remember each other",
        "Extend the run.",
    ),
    Status(
        "quadrature",
        "the error of integrating latent effects out by quadrature is more than the error bars hold",
        "Take more nodes: lv.marginal(..., nodes=...).",
    ),
    Status(
        "rounding",
        "the log density loses digits in float32, which moves the numbers by more than the error bars hold",
        "Write it without differences of large numbers (log-gamma functions, most often), or sample with "
        "method='exact', which then computes it in float64.",
    ),
    Status(
        "bias_dominates",
        "the estimated bias is larger than the standard error",
        "Steps fall as a run goes on: extend it, or take smaller ones.",
    ),
    Status(
        "gradient_noise",
        "the minibatch noise widens the chain too much",
        "Take larger minibatches, smaller steps or a better anchor.",
    ),
    Status(
        "transient",
        "the first batch differs from the others, or the chains hardly move: they had not settled",
        "Extend the run, or start nearer to the mode.",
    ),
    Status(
        "uncorrected",
        "no theory of the kernel or no correction applies: these values keep the bias of the chain, which is not known",
        "Give an anchor and smooth functions, and a kernel that states its law.",
    ),
    Status(
        "rare_excursions",
        "a few batches make up the error bar: rare excursions rule it",
        "Extend the run.",
    ),
    Status("ok", "nothing speaks against the error bar", ""),
)
STATUSES = tuple(status.word for status in ALL)
BY_WORD = {status.word: status for status in ALL}

Words = NDArray[np.str_]


def words(codes: NDArray[np.int64]) -> Words:
    """Statuses by their index."""
    return np.array(STATUSES)[codes]


def worse(statuses: Words, status: str, where: NDArray[np.bool_] | bool = True) -> Words:
    """`statuses` with `status` wherever it applies and is worse."""
    milder = np.isin(statuses, STATUSES[STATUSES.index(status) :])
    return np.where(milder & where, np.str_(status), statuses)


def worst(one: Words, other: Words) -> Words:
    """The worse of two statuses, entry by entry."""
    for status in STATUSES:
        one = worse(one, status, other == status)
    return one
