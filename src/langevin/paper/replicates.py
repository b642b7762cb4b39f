"""Scores of replicates against a law whose mean and variance are known: standard normal when both agree."""

import numpy as np

from langevin.paper.study import Floats


def standard_error(values: Floats) -> Floats:
    """Standard error of the mean over the last axis."""
    return values.std(axis=-1, ddof=1) / np.sqrt(values.shape[-1])


def mean_score(values: Floats, mean: Floats | float, variance: Floats | float) -> Floats:
    """Score of the sample mean over the last axis."""
    return (values.mean(axis=-1) - mean) / np.sqrt(np.asarray(variance) / values.shape[-1])


def own_mean_score(values: Floats, mean: Floats | float) -> Floats:
    """Score of the sample mean over the last axis by the sample's own spread, for a variance that is not known.

    Sums whose terms have skewness g, divided by their own spread, lean by g/sqrt(n): Hall's cubic takes that out. Then
    Student's law is carried to the normal (Wallace). With hundreds of values and |g| below 1 the tails are those of the
    normal as far as resampling shows them, at 4.5; beyond |g| of 2 they are too heavy.
    """
    n, deviations = values.shape[-1], values - values.mean(axis=-1, keepdims=True)
    t = (values.mean(axis=-1) - mean) / standard_error(values)
    lean = (deviations**3).mean(axis=-1) / (deviations**2).mean(axis=-1) ** 1.5 / np.sqrt(n)
    # ((1 + lean t/3)^3 - 1)/lean + lean/6, multiplied out: it rises with t whatever the lean.
    t = t * (1 + lean * t / 3 + (lean * t) ** 2 / 27) + lean / 6
    return np.asarray(np.sign(t) * np.sqrt((n - 1) * np.log1p(t**2 / (n - 1))) * (8 * n - 7) / (8 * n - 5))


def variance_score(values: Floats, variance: Floats | float, kurtosis: float | None = None) -> Floats:
    """Score of the sample variance over the last axis; `kurtosis` as in `square_score`."""
    return square_score(values - values.mean(axis=-1, keepdims=True), variance, values.shape[-1] - 1, kurtosis)


def square_score(deviations: Floats, expected: Floats | float, free: int, kurtosis: float | None = None) -> Floats:
    """Score of a sum of squares over the last axis whose mean should be `free` times `expected`.

    A mean square of values with kurtosis k has relative variance (k - 1)/free, that of a chi-square with
    2 free/(k - 1) degrees of freedom (Box); its cube root is close to normal far into the tails (Wilson, Hilferty).
    Without `kurtosis` that of the sample is taken, and with a few hundred values scores beyond 4 come twice as often.
    """
    square = deviations**2
    if kurtosis is None:
        kurtosis = (square**2).mean(axis=-1) / square.mean(axis=-1) ** 2
    wide = (kurtosis - 1) / (9 * free)
    return np.asarray((np.cbrt(square.sum(axis=-1) / (free * np.asarray(expected))) - (1 - wide)) / np.sqrt(wide))
