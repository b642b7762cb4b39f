"""Step sizes (a m + b)^-alpha with the smallest error that theory predicts on the Gaussian model."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from langevin.anchor import Anchor
from langevin.engine.checks import require
from langevin.kernels import Kernel
from langevin.schedules import Polynomial

Floats = NDArray[np.float64]

# a m + b is this many times b, plus 1, at the end of the run: from a constant step to a thousandfold growth.
_DECREASES = np.concatenate([[0.0], np.logspace(-0.5, 3.0, 8)])
# The valley of good (a, b) is flat along its length. For this much of the smallest MSE the steps decrease.
_PRICE_OF_DECREASE = 1.05
# Average over at most this many parameters while searching, spread over the range of posterior sds.
_MOST_PARAMETERS = 6
# Half the limit of stability: beyond, a step overshoots the mode along the steepest direction.
_LARGEST_STEP = 2.0
_SEARCH_GROWTH, _FINAL_GROWTH = 1 / 20, 1 / 40
# Steps tried around the one of the leading order, then around the best of these.
_FACTORS = (2.0 ** np.arange(-4, 5), 2.0 ** np.linspace(-0.8, 0.8, 9))


def search(
    anchor: Anchor, noise: Floats, num_steps: int, chains: int, alpha: float
) -> tuple[Polynomial, Floats, Floats, Floats]:
    """The (a, b) with the smallest predicted MSE but for the price of decreasing steps, and its bias and variances.

    Schedules delta (1 + s m/M)^-alpha over a grid of s and of their mean step, the latter around the constant step of
    the leading order and then around the best for each s.
    """
    # Theory stands on SciPy, which importing langevin must not load.
    from langevin.theory.linearised import plug_in_law

    some = _spread_out(anchor)
    growths, steepness = _shapes(num_steps, alpha)

    def mse(first: Floats) -> Floats:
        b = _b_for(first, growths, alpha)
        schedule = Polynomial(a=b * growths[:, None], b=b, alpha=alpha)
        law = plug_in_law(
            schedule, [num_steps], anchor.precision, noise, coordinates=some, chains=chains, growth=_SEARCH_GROWTH
        )
        return np.mean((law.mean[0] - 1.0) ** 2 + law.variance[0], axis=-1)

    first = _balance(anchor, noise, some, num_steps * chains) * steepness[:, None]
    for factors in _FACTORS:
        tried = np.minimum(first * factors, _LARGEST_STEP / np.linalg.eigvalsh(anchor.precision)[-1])
        found = mse(tried)
        best = np.argmin(found, axis=1)[:, None]
        first = np.take_along_axis(tried, best, axis=1)
    smallest = np.take_along_axis(found, best, axis=1)[:, 0]
    chosen = np.flatnonzero(smallest <= _PRICE_OF_DECREASE * smallest.min())[-1]
    b = float(_b_for(first, growths, alpha)[chosen, 0])
    schedule = Polynomial(a=b * float(growths[chosen]), b=b, alpha=alpha)
    law = plug_in_law(schedule, [num_steps], anchor.precision, noise, chains=chains, growth=_FINAL_GROWTH)
    return schedule, law.mean[0] - 1.0, law.variance[0], law.mean_mse[0]


def search_settled(
    kernel: Kernel, anchor: Anchor, noise: Floats, num_steps: int, chains: int, alpha: float
) -> tuple[Polynomial, Floats, Floats, Floats]:
    """The same from the law of a settled chain at a constant step: the best step, then the decrease that it can bear.

    A bias that goes with the step is larger by r = M sum delta^2/T_M^2 when steps decrease about the same mean. At the
    best step bias^2 is half of the variance, and steps that are chosen anew make of it an MSE larger by r^(2/3).
    """
    from langevin.theory.settled import settled_law

    some = _spread_out(anchor)
    growths, steepness = _shapes(num_steps, alpha)

    def law(delta: float, coordinates: Any = None) -> Any:
        return settled_law(kernel, delta, num_steps, anchor.precision, noise, coordinates=coordinates, chains=chains)

    def mse(delta: float) -> float:
        found = law(delta, some)
        return float(np.mean((found.mean - 1.0) ** 2 + found.variance))

    best = _balance(anchor, noise, some, num_steps * chains)
    for factors in _FACTORS:
        best = min(best * factors, key=mse)
    shapes = Polynomial(a=growths, b=1.0, alpha=alpha)
    uneven = num_steps * shapes.sum_delta2(num_steps) / shapes.T_m(num_steps) ** 2
    chosen = np.flatnonzero(uneven ** (2 / 3) <= _PRICE_OF_DECREASE)[-1]
    b = float(_b_for(best * steepness[:, None], growths, alpha)[chosen, 0])
    found = law(best)
    schedule = Polynomial(a=b * float(growths[chosen]), b=b, alpha=alpha)
    return schedule, uneven[chosen] * (found.mean - 1.0), found.variance, found.mean_mse


def _spread_out(anchor: Anchor) -> Any:
    order = np.argsort(anchor.sd)
    return order[np.unique(np.linspace(0, order.size - 1, min(order.size, _MOST_PARAMETERS)).astype(int))]


def _balance(anchor: Anchor, noise: Floats, some: Any, total: int) -> float:
    """The constant step of the leading order."""
    from langevin.theory.linearised import variance_constants

    sigma2, mubar = variance_constants(anchor.precision, noise, some)
    return float(np.cbrt(np.mean(sigma2) / (2 * np.mean(mubar**2) * total)))


def _shapes(num_steps: int, alpha: float) -> tuple[Floats, Floats]:
    """Growths s/M of (1 + s m/M)^-alpha, and the first of these steps over their mean."""
    growths = _DECREASES / num_steps
    shapes = Polynomial(a=growths, b=1.0, alpha=alpha)
    return growths, shapes.delta(1) * num_steps / shapes.T_m(num_steps)


def _b_for(first: Floats, growths: Floats, alpha: float) -> Floats:
    """b of steps that begin with `first`, one row a growth."""
    with np.errstate(over="ignore"):
        b = (first / Polynomial(a=growths, b=1.0, alpha=alpha).delta(1)[:, None]) ** (-1 / alpha)
    require(np.isfinite(b).all(), "alpha", alpha, "large enough for a m + b to be a number", "1/3")
    return b
