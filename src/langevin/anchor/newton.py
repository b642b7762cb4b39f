"""Damped Newton steps to the posterior mode in float64, and plain words when there is none."""

from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from langevin.anchor.curvature import Curvature, largest, named, unit_diagonal
from langevin.anchor.passes import Passes
from langevin.errors import AnchorError
from langevin.target import Repeated

# Squared distances to the mode in posterior standard deviations. From NEAR on, a search on large data may end.
NEAR, EXACT = 1e-6, 1e-14
# A regular mode squares the distance at every step. One that only divides it keeps running away, or has no curvature.
_REGULAR, _STALLED = 0.05, 0.9
_TRIALS = 30
# A change of the log density that matters.
_NOTICED = 0.1


@dataclass(frozen=True, eq=False)
class Point:
    """A flat point with all derivatives there: parts are [value, gradient, Hessian]."""

    flat: np.ndarray
    prior: list[np.ndarray]
    likelihood: list[np.ndarray]
    # Squared distance in sds by which the point was rounded to float32.
    rounding: float = 0.0

    @classmethod
    def at(cls, passes: Passes, flat: np.ndarray, rounding: float = 0.0) -> "Point":
        """One pass gives value, gradient and Hessian together."""
        return cls(flat, *passes.parts(flat, 2), rounding)

    @property
    def value(self) -> float:
        """The log density."""
        return float(self.prior[0] + self.likelihood[0])

    @property
    def grad(self) -> np.ndarray:
        """Its gradient."""
        return self.prior[1] + self.likelihood[1]

    @property
    def precision(self) -> np.ndarray:
        """Minus its Hessian."""
        hessian = self.prior[2] + self.likelihood[2]
        return -0.5 * hessian - 0.5 * hessian.T

    @property
    def finite(self) -> bool:
        """Whether all of it is defined."""
        parts = (self.flat, self.value, self.grad, unit_diagonal(self.precision)[0])
        return all(bool(np.all(np.isfinite(part))) for part in parts)


def newton(passes: Passes, flat: np.ndarray, max_steps: int, near: float = EXACT) -> Point:
    """The mode by Newton steps, shortened until the log density rises enough. Cost: one pass a step.

    Ends at the float32 number nearest the mode, or once the squared distance to it is below `near`. All points are
    rounded to float32 where this moves them by less than 1e-4 posterior standard deviations, so that the last one can
    serve as it is.
    """
    point = Point.at(passes, flat)
    if not point.finite:
        raise AnchorError(
            f"theta_0 must have a finite log density, gradient and Hessian, got a log density of {point.value}. "
            f"{passes.way_out(flat)}",
            improper=True,
        )
    last_decrement, last_length = np.inf, np.inf
    for _ in range(max_steps):
        curvature = Curvature.of(point.precision)
        step, decrement = curvature.newton(point.grad)
        length = float(np.linalg.norm(step))
        if decrement < NEAR:
            still = bool(np.array_equal(curvature.rounded(point.flat + step)[0], point.flat))
            ratio = decrement / last_decrement if np.isfinite(last_decrement) else _REGULAR
            regular = ratio < _REGULAR or decrement <= 4.0 * point.rounding
            if still or ratio > _STALLED or (regular and decrement < near):
                if curvature.positive:
                    return point
                point = _leave(passes, point, curvature)
                last_decrement = last_length = np.inf
                continue
            # Of a start that is the mode nothing is known yet: one step tells.
            if decrement < EXACT and not regular and np.isfinite(last_decrement):
                _refuse_a_slow_end(passes, point, step, length / last_length)
        point = _ascend(passes, point, curvature, step, decrement)
        last_decrement, last_length = decrement, length
    raise AnchorError(
        f"no posterior mode within max_steps={max_steps} Newton steps: |theta| reached "
        f"{np.linalg.norm(point.flat):.3g} with a log density of {point.value:.6g} and gradient norm "
        f"{np.linalg.norm(point.grad):.3g}, moving most in {named(largest(step), passes.layout)}. The density may "
        f"grow without bound or have no proper mode (separable data, a flat prior, a kink, a standard deviation that "
        f"can reach 0); use a proper prior, or start closer."
    )


def _ascend(passes: Passes, point: Point, curvature: Curvature, step: np.ndarray, decrement: float) -> Point:
    """The point after the longest of the steps 1, 1/4, 1/16 ... that gains what it should."""
    # Near the mode a gain drowns in the rounding of the value; there a gradient that shrinks is proof enough.
    slack = 1e-13 * (1.0 + abs(point.value))
    quadrature = isinstance(passes.target.log_likelihood, Repeated)
    for trial in range(_TRIALS):
        share = 0.25**trial
        new = Point.at(passes, *curvature.rounded(point.flat + share * step))
        if not new.finite:
            continue
        if new.value >= point.value + 1e-4 * share * decrement - slack:
            return new
        # Quadrature gives value and gradient errors of their own: its value may fall on the way to where its gradient
        # is zero. The error is measured later, by what more nodes would change.
        close = decrement < NEAR or (quadrature and curvature.positive)
        if close and curvature.newton(new.grad)[1] < 0.5 * decrement:
            return new
    if decrement < NEAR:
        return point
    raise AnchorError(
        f"no ascent from a log density of {point.value:.6g} along the Newton direction (decrement {decrement:.3g}), "
        f"which moves most in {named(largest(step), passes.layout)}: no posterior mode there. The log density grows "
        f"without bound, or is not smooth. Check it for kinks, NaN, a wrong sign or a standard deviation that can "
        f"reach 0; use a proper prior, or start elsewhere."
    )


def _leave(passes: Passes, point: Point, curvature: Curvature) -> Point:
    """A higher point, from one that is stationary but curved wrongly; raises where nothing is higher."""
    lowest = curvature.lowest
    shares = 0.25 ** np.arange(_TRIALS) if curvature.saddle else np.array([1.0, 1e3])
    # At a saddle a short step gains little, but surely. A flat direction may rise by chance, as far as rounded data do.
    least = 0.0 if curvature.saddle else _NOTICED
    fell = False
    for share in shares:
        pair = [Point.at(passes, point.flat + sign * share * lowest) for sign in (1.0, -1.0)]
        best = max((new for new in pair if new.finite), key=lambda new: new.value, default=None)
        if best is not None and best.value > point.value + least:
            return best
        fell = fell or all(not new.finite or new.value < point.value - _NOTICED for new in pair)
    weight, directions = curvature.flat
    involved = largest(weight)
    names = named(involved, passes.layout)
    if fell:
        _refuse_no_curvature(names)
    if len(involved) > directions:
        flat = f"{names} cannot be told apart: the log density is constant along a combination of them"
    else:
        flat = f"not determined: {names}, on which the log density does not depend"
    raise AnchorError(
        f"{flat}, so there is no single posterior mode. Drop a collinear or constant column, or give a proper prior.",
        improper=True,
    )


def _refuse_a_slow_end(passes: Passes, point: Point, step: np.ndarray, ratio: float) -> NoReturn:
    names = named(largest(step), passes.layout)
    # Towards an infinite maximum steps keep their length; towards a mode without curvature they shrink.
    if ratio < 0.95:
        _refuse_no_curvature(names)
    raise AnchorError(
        f"no posterior mode: the log density keeps rising, to {point.value:.6g}, as theta goes to infinity along "
        f"{names}, now at |theta| = {np.linalg.norm(point.flat):.3g}. The data may be perfectly separable under a flat "
        f"prior; use a proper prior.",
        improper=True,
    )


def _refuse_no_curvature(names: str) -> NoReturn:
    raise AnchorError(
        f"the curvature vanishes at the posterior mode along {names}: the log density falls more slowly than a "
        f"parabola there, so no Gaussian approximation exists. Transform the parameter, or sample without an anchor."
    )
