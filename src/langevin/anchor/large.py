"""The mode and the dense curvature of many parameters or of very many data, with few Hessians of all the data."""

from typing import Any

import numpy as np

from langevin.anchor.climb import lbfgs, num_passes
from langevin.anchor.curvature import Curvature, positive_root
from langevin.anchor.newton import NEAR, Point
from langevin.anchor.passes import Passes
from langevin.anchor.roots import pull
from langevin.anchor.wide import first_scale, some_rows

# A Hessian of n d rows has curvatures within (1 +- n^-1/2)^2 of all the data's: at 8, climbs in its units gain a factor
# of 2.8 a pass.
_ROWS_PER_PARAMETER = 8
# Hessians of all the data. One does for a log-concave posterior; a mode that takes more than three is not regular.
_MOST_HESSIANS = 3
# Rows beyond this share of the data are no saving.
_MOST_ROWS = 0.25
# Steps with the curvature of n rows leave d/n of a squared distance to the mode. Where they leave more than this, the
# curvature of all rows serves better.
_LEAST_GAIN = 0.25


def climb(passes: Passes, source: Any, flat: np.ndarray, max_steps: int, rng: np.random.Generator) -> Point | None:
    """The mode, rounded to float32, with all derivatives there; None where no positive definite Hessian is found.

    L-BFGS on some rows, their Hessian, L-BFGS on all rows in its units, and the Hessian of all rows where that ends;
    again in the units of the latter where the mode was missed. Cost: about 20 passes, one of them with a Hessian.
    """
    few = _subsample(passes, source, rng)
    scale = (first_scale(few, source, flat, rng),)
    most = min(max_steps, num_passes(passes))
    if few is not passes:
        flat = lbfgs(few, flat, scale, num_passes(few))
    root = positive_root(Point.at(few, flat).precision)
    passes.cost += few.cost if few is not passes else 0
    units = scale if root is None else (root,)
    for _ in range(_MOST_HESSIANS):
        flat = lbfgs(passes, flat, units, most, near=float(np.sqrt(NEAR)))
        point, root, reached = _rounded(passes, flat)
        if root is None:
            return None
        if reached:
            return point
        units = (root,)
    return None


def chord(passes: Passes, some: Point, max_steps: int) -> Point | None:
    """The mode of all rows from that of some, rounded to float32; None where it is not reached.

    Newton steps with the curvature of the few, s = H_some^-1 grad, which need no Hessian of all rows but one at the
    end. Cost: about 5 passes, one of them with a Hessian.
    """
    curvature, flat, last = Curvature.of(some.precision), some.flat, np.inf
    for _ in range(max_steps):
        value, grad = passes.total(flat, 1)
        if not (np.isfinite(value) and np.all(np.isfinite(grad))):
            return None
        step, decrement = curvature.newton(grad)
        gain = decrement / last if np.isfinite(last) else _LEAST_GAIN
        if gain > _LEAST_GAIN:
            return None
        flat, last = flat + step, decrement
        # As much is gained once more.
        if gain * decrement < NEAR:
            break
    point, _, reached = _rounded(passes, flat)
    return point if reached else None


def _rounded(passes: Passes, flat: np.ndarray) -> tuple[Point, np.ndarray | None, bool]:
    """The nearest float32 point, the root of its inverse curvature, and whether the mode is as near as float32 lets."""
    with np.errstate(over="ignore"):
        point = Point.at(passes, flat.astype(np.float32).astype(np.float64))
    root = positive_root(point.precision) if point.finite else None
    if root is None:
        return point, None, False
    moved = point.flat - flat
    rounding = float(moved @ (point.precision @ moved))
    return point, root, bool(np.sum(pull((root,), point.grad) ** 2) < 4.0 * (NEAR + rounding))


def _subsample(passes: Passes, source: Any, rng: np.random.Generator) -> Passes:
    """Some rows, or all where they are few."""
    # Whole chunks: the program for all the data serves.
    chunk = passes.whole_chunk
    size = chunk * -(-_ROWS_PER_PARAMETER * passes.layout.size // chunk)
    return some_rows(passes, source, size, rng) if size <= _MOST_ROWS * passes.num_rows else passes
