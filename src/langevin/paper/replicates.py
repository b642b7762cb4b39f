"""Scores of replicates against a law whose mean and variance are known: standard normal when both agree."""

import numpy as np

from langevin.paper.study import Floats


def standard_error(values: Floats) -> Floats:
    """Standard error of the mean over the last axis."""
    return values.std(axis=-1, ddof=1) / np.sqrt(values.shape[-1])


def mean_score(values: Floats, mean: Floats | float, variance: Floats | float) -> Floats:
    """Score of the sample mean over the last axis."""
    return (values.mean(axis=-1) - mean) / np.sqrt(np.asarray(variance) / values.shape[-1])


def variance_score(values: Floats, variance: Floats | float) -> Floats:
    """Score of the sample variance over the last axis."""
    return square_score(values - values.mean(axis=-1, keepdims=True), variance, values.shape[-1] - 1)


def square_score(deviations: Floats, expected: Floats | float, free: int) -> Floats:
    """Score of a sum of squares over the last axis whose mean should be `free` times `expected`.

    A mean square of values with kurtosis k has relative variance (k - 1)/free, that of a chi-square with
    2 free/(k - 1) degrees of freedom (Box); its cube root is close to normal far into the tails (Wilson, Hilferty).
    """
    square = deviations**2
    wide = ((square**2).mean(axis=-1) / square.mean(axis=-1) ** 2 - 1) / (9 * free)
    return np.asarray((np.cbrt(square.sum(axis=-1) / (free * np.asarray(expected))) - (1 - wide)) / np.sqrt(wide))
