"""The bias of an average: from its slope against the step, or from the kernel's law on the anchor's Gaussian."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from langevin.analysis.errorbars import Bar, bar, t_quantile
from langevin.analysis.law import Law

Array = NDArray[np.float64]

# Steps that vary by less than this fraction over the batches cannot carry an extrapolation to zero.
LEAST_SPREAD = 0.05
# A regression whose error of the bias is above this fraction of the error bar cannot rule out a bias beyond
# the bar: at 0.9 (alpha = 0.4, m = 1e5) raw intervals covered .83 to .86, at 0.6 (alpha = 0.5) .93.
MOST_LEVERAGE = 0.75
# Chance that a noisy estimate of a bias is called significant when there is none, over all values of an
# estimate, for Gaussian batches of equal variance; 0.5% to 2% on unbiased means of the paper's chains.
BIAS_LEVEL = 0.01
# The same for the room that an interval makes: rare enough to leave intervals at the 99% level as they are.
ROOM_LEVEL = 1e-4


class Line(NamedTuple):
    """A fit of batch means against their steps, each (groups, values).

    `intercept` is the value at step 0, `bias` what the slope adds to the raw mean;
    `leverage` is the standard error of that bias over that of the mean, a function of the steps alone.
    """

    intercept: Array
    bar: Bar
    bias: Array
    leverage: float
    significant: NDArray[np.bool_]


def regress(means: Array, omega: Array, step: Array) -> Line:
    """Weighted least squares y_j = intercept + slope step_j over all batches (groups, chains, k, values).

        bias of the raw mean = slope * mean step,    error bar from the residuals, K - 2 degrees of freedom

    Batches equal in time have equal variance as delta -> 0 (sigma^2 a unit of time), so weights omega only
    even out what a whole number of rows leaves; gradient noise makes the early ones noisier, which the
    coverage of the intercept was seen to bear. Assumes a bias linear in the step: only the first batch, a
    twentieth of the time, has steps where delta^2 shows. Cost: a few passes over the batches.
    """
    chains, k = means.shape[1:3]
    weight = omega / omega.mean()
    mean_step = np.average(step, weights=weight)
    x = step - mean_step
    sxx = float(np.sum(weight * x**2))
    centre = np.average(means, axis=2, weights=weight).mean(axis=1)
    slope = np.einsum("j,gcjv->gv", weight * x / sxx, means) / chains
    residual = means - centre[:, None, None] - slope[:, None, None] * x[:, None]
    # The bar is that of a mean of K whitened residuals, sigma / sqrt(K): K = chains k, weights add up to k.
    error = bar(residual * np.sqrt(weight)[:, None] / (chains * k), lost=2)
    slope_stderr = error.stderr * np.sqrt(k / sxx)
    # Early batches carry the slope and, under gradient noise, more variance than the rest. Residuals over
    # 1 - leverage (HC3) see that; one variance for all fired in 3.4% of unbiased runs at a level of 1%.
    leverage = weight * (1.0 / k + x**2 / sxx) / chains
    pull = (weight * x / sxx / chains / (1.0 - leverage))[:, None]
    slope_stderr = np.maximum(slope_stderr, np.sqrt(np.sum((pull * residual) ** 2, axis=(1, 2))))
    intercept_stderr = error.stderr * np.sqrt(1.0 + k * mean_step**2 / sxx)
    critical = t_quantile(1.0 - BIAS_LEVEL / (2 * means.shape[-1]), error.df)
    return Line(
        intercept=centre - slope * mean_step,
        # The residuals' skewness is not that of the intercept, which weighs them unequally.
        bar=error._replace(stderr=intercept_stderr, skewness=np.zeros(centre.shape)),
        bias=slope * mean_step,
        leverage=float(mean_step * np.sqrt(k / sxx)),
        significant=np.abs(slope) > critical * slope_stderr,
    )


def raw_bias(
    law: Law | None,
    hessian: Array | None,
    laplace: Array | None,
    line: Line | None,
    value: Array,
    spread: Bar,
    paired: bool,
) -> tuple[Array, NDArray[np.bool_]]:
    """Estimated bias of a raw average, NaN if unknown, and whether it is beyond the bar; (groups, values).

    The anchor's formula where the observable is curved there. It says nothing of a linear one, whose bias
    comes from the skewness of the posterior: there the order of magnitude of `corrected_bias`, and the slope
    of the regression, which is all there is without an anchor. The slope is noisy, and counts as beyond the
    bar only when it is significant too.
    """
    bias, beyond = np.full(value.shape, np.nan), np.zeros(value.shape, dtype=bool)
    if line is not None:
        bias, beyond = line.bias, line.significant & (np.abs(line.bias) > spread.stderr)
    if law is not None and hessian is not None:
        curved = np.any(hessian != 0, axis=(1, 2))
        formula = law.bias(hessian)
        skewed, far = corrected_bias(law, hessian, laplace, value, spread, paired)
        bias = np.where(curved, formula, skewed)
        beyond = np.where(curved, np.abs(formula) > spread.stderr, beyond | far)
    return bias, beyond


def corrected_bias(
    law: Law | None, hessian: Array | None, laplace: Array | None, value: Array, spread: Bar, paired: bool
) -> tuple[Array, NDArray[np.bool_]]:
    """Estimated bias of a corrected average and whether it is beyond the bar, each (groups, values).

        bias = (2 growth + shape) (value - laplace) for curved values,   growth (value - laplace) for linear ones

    The correction is exact on the quadratic part of phi and log pi; what it leaves, value - laplace, is the
    mean of a quartic remainder (of a quadratic one for linear values, through the skewness), and a chain
    whose variance is larger by a factor 1 + growth sees a quartic larger by 1 + 2 growth. What comes of the
    square of the cubic part of log pi goes by the chain's third cumulants, which are off by `shape`. An order
    of magnitude, and a noisy one: of the difference counts what is beyond chance, sqrt(left^2 - (t stderr)^2).

    Chains that start at a point, as all but `paired` ones do, lack variance at first: over R relaxation times of the
    slowest direction exp(-2t) of it, 1/(2R) on average, which counts as growth does.
    """
    if law is None or hessian is None or laplace is None:
        return np.zeros(value.shape), np.zeros(value.shape, dtype=bool)
    lacking = 0.0 if paired else min(0.5 / max(law.relaxations, 0.5), 1.0)
    growth = law.growth[:, None] + lacking
    factor = np.where(np.any(hessian != 0, axis=(1, 2)), 2.0 * growth + law.shape, growth)
    left = value - laplace
    status, room = (
        t_quantile(1.0 - level / (2 * value.shape[-1]), spread.df) * spread.stderr for level in (BIAS_LEVEL, ROOM_LEVEL)
    )
    clear = np.sign(left) * np.sqrt(np.maximum(left**2 - room**2, 0.0))
    # Of steps that do not contract the factor is infinite.
    bias = np.where(clear == 0.0, 0.0, np.where(clear == 0.0, 1.0, clear) * factor)
    return bias, np.abs(left) > np.maximum(spread.stderr / np.maximum(factor, 1e-300), status)
