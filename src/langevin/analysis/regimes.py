"""Words about a run as it grows: which term rules the error of its averages."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from langevin.engine.ledger import Ledger

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
