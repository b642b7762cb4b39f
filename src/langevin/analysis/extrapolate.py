"""The bias of an average: from its slope against the step, or from the anchor's Poisson solution."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from langevin.analysis.errorbars import Bar, Rows, bar, t_quantile

Array = NDArray[np.float64]

# Steps that vary by less than this fraction over the batches cannot carry an extrapolation to zero.
LEAST_SPREAD = 0.05
# A regression whose error of the bias is above this fraction of the error bar cannot rule out a bias beyond
# the bar: at 0.9 (alpha = 0.4, m = 1e5) raw intervals covered .83 to .86, at 0.6 (alpha = 0.5) .93.
MOST_LEVERAGE = 0.75
# Chance that a noisy estimate of a bias is called significant when there is none, over all values of an
# estimate, for Gaussian batches of equal variance; 0.5% to 2% on unbiased means of the paper's chains.
BIAS_LEVEL = 0.01


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


class AnchorBias(NamedTuple):
    """What the anchor says of the chain's noise, per group.

    `solution` is Y below, `inflation` the factor of gradient noise on the sd of the worst direction, `growth`
    the relative excess of variance there from gradient and discretisation noise, as far as it is significant.
    """

    solution: Array
    inflation: Array
    growth: Array

    def of(self, hessian: Array) -> Array:
        """First-order bias <Q, Y> / 4, (groups, values), for second derivatives Q (values, d, d)."""
        return 0.25 * np.einsum("vij,gij->gv", hessian, self.solution)


def anchor_bias(
    outer: Array, rows: Rows, precision: Array, discretisation: bool, pool: bool, independent: float
) -> AnchorBias:
    """Bias of raw averages in the Laplace model, from the measured sum of delta^2 g g'.

        bias = <Q, Y> / 4,    H Y + Y H = S / T,    S = sum delta^2 g g'

    The Laplace model's Poisson equation for phi has h = l.u + u'Ru/2 with H R + R H = -2Q, and the leading
    bias mubar = -1/8 E<g, Hess h g> per delta^2 gives -<R, S> / (8 T) = <Q, Y> / 4; the other two terms of
    mubar vanish up to the cubic part. For weights other than delta, S/T is averaged over rows with weights
    omega. Without a discretisation bias of its own (`discretisation` False) the part delta^2 H of the exact
    gradient is left out, and of `growth` what the largest eigenvalue of an average over so many `independent`
    states exceeds the truth by, 2 sqrt(d/independent) of the whole. `inflation` is the factor by which gradient
    noise widens the worst direction, sqrt(1 + delta V / (4n)). Cost: d^3. `outer` is (chains, rows, d, d). First
    order in delta; for minibatches that are not independent between steps an upper bound, since their noise
    cancels over an epoch.
    """
    share = rows.omega / rows.omega.sum()
    local = np.einsum("r,crij->cij", share / rows.delta, outer)
    local = local.mean(axis=0, keepdims=True) if pool else local
    exact = np.sum(share * rows.step) * precision
    rates, vectors = np.linalg.eigh(precision)

    def lyapunov(source: Array) -> Array:
        turned = vectors.T @ source @ vectors
        return vectors @ (turned / (rates[:, None] + rates[None, :])) @ vectors.T

    noise = lyapunov(local - exact)
    solution = lyapunov(local) if discretisation else noise
    root = vectors * np.sqrt(rates)

    def growth(y: Array) -> Array:
        # The covariance grows by Y/2: for phi = u_i u_j the two entries of Q give <Q, Y> / 4 = Y_ij / 2.
        return np.maximum(np.linalg.eigvalsh(root.T @ y @ root / 2.0)[..., -1], 0.0)

    by_chance = 0.0 if discretisation else 2.0 * np.sqrt(len(rates) / independent) * growth(lyapunov(local))
    return AnchorBias(solution, np.sqrt(1.0 + growth(noise)), np.maximum(growth(solution) - by_chance, 0.0))


def raw_bias(
    noise: AnchorBias | None,
    hessian: Array | None,
    laplace: Array | None,
    line: Line | None,
    value: Array,
    spread: Bar,
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
    if noise is not None and hessian is not None:
        curved = np.any(hessian != 0, axis=(1, 2))
        formula = noise.of(hessian)
        skewed, far = corrected_bias(noise, hessian, laplace, value, spread)
        bias = np.where(curved, formula, skewed)
        beyond = np.where(curved, np.abs(formula) > spread.stderr, beyond | far)
    return bias, beyond


def corrected_bias(
    noise: AnchorBias | None, hessian: Array | None, laplace: Array | None, value: Array, spread: Bar
) -> tuple[Array, NDArray[np.bool_]]:
    """Estimated bias of a corrected average and whether it is beyond the bar, each (groups, values).

        bias = c growth (value - laplace),   c = 2 for curved values, 1 for linear ones

    The correction is exact on the quadratic part of phi and log pi; what it leaves, value - laplace, is the
    mean of a quartic remainder (of a quadratic one for linear values, through the skewness), and a chain
    whose variance is larger by a factor 1 + growth sees a quartic larger by 1 + 2 growth. An order of
    magnitude, and a noisy one: beyond the bar only when the difference is significant too.
    """
    if noise is None or hessian is None or laplace is None:
        return np.zeros(value.shape), np.zeros(value.shape, dtype=bool)
    factor = np.where(np.any(hessian != 0, axis=(1, 2)), 2.0, 1.0) * noise.growth[:, None]
    left = value - laplace
    critical = np.maximum(
        1.0 / np.maximum(factor, 1e-300), t_quantile(1.0 - BIAS_LEVEL / (2 * value.shape[-1]), spread.df)
    )
    return factor * left, np.abs(left) > critical * spread.stderr
