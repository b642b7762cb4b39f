"""The status of an estimate: what its batches, its bias and the noise of its gradients say against its error bar."""

from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langevin.analysis import errorbars
from langevin.analysis.errorbars import Bar, Batches
from langevin.analysis.statuses import STATUSES

Array = NDArray[np.float64]

# Where gradient noise makes the sd half as large again, the chain lives where anchor and first-order bias
# fade: the worst corrected mean of the logistic problem, 100 passes, covers .945 at a factor 1.24, .91 at
# 1.69 and .73 at 2.25.
_MOST_INFLATION = 1.5
# Reshuffled minibatches are not independent of the state; the correction may carry 2% of variance from them.
_MOST_REUSED_INFLATION = 1.01
# Neighbouring batch means this many standard errors from uncorrelated: by chance in one run of 160.
_MOST_CORRELATION = 2.5


def judge(
    batches: Batches,
    means: Array,
    spread: Bar,
    *,
    beyond: NDArray[np.bool_],
    uncorrected: bool,
    trend: bool,
    settling: bool,
    inflation: Array | None,
    noisy: bool,
    reused: bool,
    relaxations: float | None,
    stuck: bool,
    negligible: NDArray[np.bool_] | np.bool_,
) -> NDArray[np.int64]:
    """Index into STATUSES of every value, (groups, values): the worst that applies.

    too_few_batches: fewer than 4, or batches that remember each other: shorter than 5 relaxation times where
    the anchor tells, or correlated (each value by itself, Bonferroni). bias_dominates: `beyond`.
    gradient_noise: the noise makes the sd half as large again, or `reused` minibatches make more than 2% of
    the variance under the correction; where exact gradients do that, it means `heavy_tails`. transient: see
    `errorbars.transient`, and chains that are `stuck`. rare_excursions: a kurtosis so high that the degrees of freedom
    stand at their floor of 3, where one batch makes the bar; unless the bar is `negligible` for the posterior.
    """
    chains = batches.sums.shape[1]
    # The degrees of freedom 2K/(kurt - 1) reach 3 here; below, they widen the interval as much as is needed.
    kurtosis = 1.0 + 2.0 * batches.count / 3.0
    remembered: Any = batches.count < errorbars.FEWEST_BATCHES
    if relaxations is not None:
        remembered |= relaxations * chains < errorbars.RELAXATIONS * batches.count * (1.0 - 1e-9)
    if batches.omega.size >= 8:
        # A bias that falls with the step correlates batches too, and has its own word.
        critical = NormalDist().inv_cdf(1.0 - NormalDist().cdf(-_MOST_CORRELATION) / means.shape[-1])
        remembered = remembered | ((errorbars.lag_one(means) > critical) & ~beyond)
    inflated: Any = False
    if inflation is not None:
        inflated = (inflation > (_MOST_REUSED_INFLATION if reused else _MOST_INFLATION))[:, None]
    applies = {
        "too_few_batches": remembered,
        "bias_dominates": beyond,
        "gradient_noise": inflated if noisy else False,
        "transient": (errorbars.transient(means, batches.omega, batches.step, trend) if settling else False) | stuck,
        "uncorrected": uncorrected,
        "heavy_tails": False if noisy else inflated,
        "rare_excursions": (spread.kurtosis > kurtosis) & ~negligible,
    }
    codes = np.full(spread.stderr.shape, STATUSES.index("ok"))
    for status, where in applies.items():
        codes = np.minimum(codes, np.where(where, STATUSES.index(status), codes))
    return codes
