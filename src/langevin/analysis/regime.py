"""Words about an estimate: which term rules its error as the run grows, and its status now."""

from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from langevin.analysis import errorbars
from langevin.analysis.errorbars import Bar, Batches

if TYPE_CHECKING:
    from langevin.engine.ledger import Ledger

Array = NDArray[np.float64]

# Worst first: another mode makes all that is said of this one beside the point; without batches no other word means
# anything; a bias beyond the bar makes the bar beside the point; the next three say that an assumption of the method
# fails; a kurtosis only asks for more steps.
STATUSES = (
    "several_modes", "too_few_batches", "bias_dominates", "gradient_noise", "transient", "uncorrected", "not_gaussian",
    "ok",
)  # fmt: skip
# Where gradient noise makes the sd half as large again, the chain lives where anchor and first-order bias
# fade: the worst corrected mean of the logistic problem, 100 passes, covers .945 at a factor 1.24, .91 at
# 1.69 and .73 at 2.25.
_MOST_INFLATION = 1.5
# Reshuffled minibatches are not independent of the state; the correction may carry 2% of variance from them.
_MOST_REUSED_INFLATION = 1.01
# Neighbouring batch means this many standard errors from uncorrelated: by chance in one run of 160.
_MOST_CORRELATION = 2.5

FLUCTUATIONS, BALANCED, BIAS = "fluctuations dominate", "balanced", "bias dominates"


def regime_of(limit: ArrayLike) -> str | np.ndarray:
    """The words for a limit of B_m = T_m^(-1/2) sum delta^2: 0, positive, infinite; "unknown" for NaN.

    The paper's theorem on fluctuations: T_m^(1/2) (pi_m - pi) tends to N(0, sigma^2) if B_m -> 0, to
    N(B mubar, sigma^2) if B_m -> B, and T_m / sum delta^2 (pi_m - pi) to mubar if B_m -> infinity.
    """
    limit = np.asarray(limit, dtype=np.float64)
    words = np.select(
        [np.isnan(limit), limit == 0.0, np.isfinite(limit)], ["unknown", FLUCTUATIONS, BALANCED], default=BIAS
    )
    return str(words) if words.ndim == 0 else words


def regime(ledger: "Ledger") -> str | np.ndarray:
    """The regime of a ledger's schedule, an array for a batch of schedules. Cost: O(1).

    A law whose limit is unknown is judged by how B_m moved over the second half of the run's time: the
    exponent of B_m against T_m below -1/20 means falling, above 1/20 rising. An exact kernel has no bias:
    fluctuations dominate.
    """
    if ledger.exact:
        return regime_of(np.zeros(ledger.schedule.batch_shape))
    limit = ledger.schedule.B_limit()
    if limit is not None:
        return regime_of(limit)
    time, square = np.cumsum(ledger.sum_delta, axis=-1), np.cumsum(ledger.sum_delta2, axis=-1)
    half = np.argmax(time >= 0.5 * time[..., -1:], axis=-1)[..., None]
    early_time, early_square = np.take_along_axis(time, half, -1), np.take_along_axis(square, half, -1)
    if np.any(early_time >= time[..., -1:]):
        return regime_of(np.full(time.shape[:-1], np.nan))
    growth = np.log(square[..., -1:] / early_square) / np.log(time[..., -1:] / early_time) - 0.5
    slope = growth[..., 0]
    return regime_of(np.where(slope < -0.05, 0.0, np.where(slope > 0.05, np.inf, 1.0)))


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
    the variance under the correction; where exact gradients do that, it means `not_gaussian`. transient: see
    `errorbars.transient`, and chains that are `stuck`. not_gaussian: a kurtosis so high that the degrees of freedom
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
        # Batches of one run cannot tell; `lv.sample` looks for other modes.
        "several_modes": False,
        "too_few_batches": remembered,
        "bias_dominates": beyond,
        "gradient_noise": inflated if noisy else False,
        "transient": (errorbars.transient(means, batches.omega, batches.step, trend) if settling else False) | stuck,
        "uncorrected": uncorrected,
        "not_gaussian": ((spread.kurtosis > kurtosis) & ~negligible) | (False if noisy else inflated),
    }
    conditions = [np.broadcast_to(applies[status], spread.stderr.shape) for status in STATUSES[:-1]]
    return np.select(conditions, range(len(conditions)), default=len(conditions))


def words(codes: NDArray[np.int64]) -> NDArray[np.str_]:
    """Statuses by their index."""
    return np.array(STATUSES)[codes]


def worse(statuses: NDArray[np.str_], status: str, where: NDArray[np.bool_] | bool = True) -> NDArray[np.str_]:
    """`statuses` with `status` wherever it applies and is worse."""
    milder = np.isin(statuses, STATUSES[STATUSES.index(status) :])
    return np.where(milder & where, np.str_(status), statuses)


def worst(one: NDArray[np.str_], other: NDArray[np.str_]) -> NDArray[np.str_]:
    """The worse of two statuses, entry by entry."""
    for status in STATUSES:
        one = worse(one, status, other == status)
    return one
