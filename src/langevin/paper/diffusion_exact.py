"""Closed forms behind the study of the diffusion limit: bridges, and the linear recursion of the Gaussian problem."""

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from langevin.paper.problems import gaussian
from langevin.paper.study import Floats


def bridge_median(time: float, num_steps: int, alpha: float, dimension: int) -> float:
    """Median of the largest |Brownian bridge| over the steps of a chain, proportional to k^-alpha on [0, time].

    Over a step of length 1 it has Kolmogorov's law in one dimension, and in three that of Kuiper: the three-dimensional
    bridge's distance from 0 is a Brownian excursion, whose height is distributed as the range of a bridge.
    """
    beyond = {1: special.kolmogorov, 3: _kuiper}[dimension]
    root = np.sqrt(np.arange(1, num_steps + 1) ** -alpha)
    root *= np.sqrt(time / np.sum(root**2))

    def excess(height: float) -> float:
        """log P(all bridges stay within height) - log 1/2."""
        return float(np.sum(np.log1p(-beyond(height / root))) + np.log(2))

    # The largest of all is above the one-dimensional median of the first, and hardly ever above ten times its unit.
    return float(optimize.brentq(excess, special.kolmogi(0.5) * root[0], 10 * root[0]))


def _kuiper(height: Floats) -> Floats:
    """P(range of a Brownian bridge > height); the terms left out are below 1e-15 for heights above 0.7."""
    square = (np.arange(1, 8)[:, None] * height) ** 2
    return np.asarray(2 * np.sum((4 * square - 1) * np.exp(-2 * square), axis=0))


def error_law(cells: NDArray[np.int64], width: float, theta_0: float, batch_size: int | None) -> tuple[float, float]:
    """Mean and variance of theta_M - reference(T): both are linear in the increments of W and in the gradient noise.

    `cells` are the steps of the chain in units of the reference's step `width`; batch_size None is the full gradient.
    """
    model = gaussian()
    rate, delta = 0.5 / model.sigma_p**2, cells * width
    # Entry k: what is left at the end of a unit displacement of theta_k.
    after = np.cumprod(np.append(1.0, 1 - rate * delta[::-1]))[::-1]
    fine = (1 - rate * width) ** np.arange(np.sum(cells), -1, -1.0)
    mean = (after[0] - fine[0]) * (theta_0 - model.mu_p)
    variance = width * np.sum((np.repeat(after[1:], cells) - fine[1:]) ** 2)
    if batch_size is not None:
        num_data = model.num_data
        finite = (num_data - batch_size) / (num_data - 1)  # drawn without replacement
        noise = num_data**2 / batch_size * finite * np.var(model.x) / model.sigma_x**4
        variance += noise * np.sum((0.5 * delta * after[1:]) ** 2)
    return float(mean), float(variance)


def chi_square_score(value: float, freedom: int) -> float:
    """Wilson and Hilferty: the cube root of a chi-square variable is almost normal, far into its tails.

    Where the law is known, this needs no kurtosis of the sample, which for a few dozen values would spoil the tails.
    """
    spread = 2 / (9 * freedom)
    return float((np.cbrt(value / freedom) - (1 - spread)) / np.sqrt(spread))


def ito_gaps(brownian: Floats, times: Floats, theta: Floats, noise: bool) -> tuple[float, float]:
    """Largest differences of I(W~ + e1 + e2) and of I(W~) + e1 + e2 to the chain's interpolation S, also midway.

    `brownian` is W at the chain's times. With gradient noise e2 is read off the chain; without, it is 0. Here the Ito
    map is explicit: u = v - mu_p solves u' = -rate u + w', and w' = p + q s on each step of the chain, so

        u(s) = u(0) e^(-rate s) + (p - q/rate)(1 - e^(-rate s))/rate + q s/rate
    """
    rate, theta = 0.5 / gaussian().sigma_p ** 2, theta - gaussian().mu_p
    delta, slope = np.diff(times), np.diff(theta) / np.diff(times)
    drift = np.diff(brownian) / delta  # of W~
    drift_2 = slope - drift + rate * theta[:-1] if noise else np.zeros(delta.size)  # of e2, half the gradient noise
    bend = rate * slope  # e1' = rate (S(s) - theta_{k-1}) = bend s
    inside, outside, extra = theta[0], theta[0], 0.0  # I(W~ + e1 + e2), I(W~) and e1 + e2 at the start of the step
    gaps = []
    for k in range(delta.size):
        for s in (0.5 * delta[k], delta[k]):
            decay, rise = np.exp(-rate * s), -np.expm1(-rate * s) / rate
            new_inside = inside * decay + (drift[k] + drift_2[k] - bend[k] / rate) * rise + bend[k] * s / rate
            new_outside = outside * decay + drift[k] * rise
            new_extra = extra + drift_2[k] * s + 0.5 * bend[k] * s**2
            S = theta[k] + slope[k] * s
            gaps.append((abs(new_inside - S), abs(new_outside + new_extra - S)))
        inside, outside, extra = new_inside, new_outside, new_extra
    right, wrong = np.max(gaps, axis=0)
    return float(right), float(wrong)
