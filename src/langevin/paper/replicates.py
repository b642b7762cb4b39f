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
    """Score of the sample variance over the last axis.

    A mean square of R values of kurtosis k spreads like a chi-square with 2 (R - 1)/(k - 1) degrees of freedom, and
    the cube root of a chi-square is nearly normal far into its tails.
    """
    free = values.shape[-1] - 1
    square = (values - values.mean(axis=-1, keepdims=True)) ** 2
    kurtosis = np.mean(square**2, axis=-1) / np.mean(square, axis=-1) ** 2
    wide = (kurtosis - 1) / (9 * free)
    return (np.cbrt(square.sum(axis=-1) / (free * np.asarray(variance))) - (1 - wide)) / np.sqrt(wide)
