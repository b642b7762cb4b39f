"""Modes that some rows have, weighed on all of them: what a sample says of two modes is off by many nats."""

from dataclasses import dataclass

import numpy as np

from langevin.anchor import Anchor
from langevin.anchor.curvature import positive_root
from langevin.anchor.newton import NEAR, Point, newton
from langevin.anchor.passes import Passes
from langevin.errors import AnchorError

_MOST_STEPS = 30
# Where a point leads, beside the numbers of modes: to the anchor's, or to none worth looking at.
HOME, NOWHERE = -1, -2


@dataclass(frozen=True, eq=False)
class Weighed:
    """Modes (k, d) of all rows that are not the anchor's, and their log masses by Laplace over that of the anchor's.

    `which`: for each of the points they were climbed to from, the mode's number, `HOME` or `NOWHERE`.
    """

    modes: np.ndarray
    log_mass: np.ndarray
    which: np.ndarray


def log_mass(passes: Passes, anchor: Anchor) -> float:
    """Laplace approximation to the log mass of a mode, up to a constant. Cost: a pass."""
    # The Hessian is not needed, but its program is there.
    return float(passes.total(anchor.theta, 2)[0]) + float(np.sum(np.log(np.diag(anchor.root[0]))))


def weighed(passes: Passes, anchor: Anchor, points: np.ndarray, believed: np.ndarray, worth: np.ndarray) -> Weighed:
    """The modes uphill from those flat points (k, d) that are worth it. Cost: about five passes a point.

    A point that does not lead to a mode stays as it is, with the log mass that some rows gave it, but never as heavier
    than the anchor.
    """
    whole = log_mass(passes, anchor) if worth.any() else 0.0
    modes: list[np.ndarray] = []
    masses: list[float] = []
    which = np.full(len(points), NOWHERE)
    for k in np.flatnonzero(worth):
        end, found = points[k], min(float(believed[k]), 0.0)
        try:
            top = newton(passes, points[k], _MOST_STEPS, NEAR)
            root = positive_root(top.precision)
            if root is not None:
                end, found = top.flat, _mass(top, root) - whole
        except AnchorError:
            pass
        if _near(end, anchor.theta, anchor.precision):
            which[k] = HOME
            continue
        same = [number for number, mode in enumerate(modes) if _near(end, mode, anchor.precision)]
        which[k] = same[0] if same else len(modes)
        if not same:
            modes.append(end)
            masses.append(found)
    return Weighed(np.reshape(modes, (-1, points.shape[1])), np.array(masses), which)


def _mass(top: Point, root: np.ndarray) -> float:
    return top.value + float(np.sum(np.log(np.diag(root))))


def _near(one: np.ndarray, other: np.ndarray, precision: np.ndarray) -> bool:
    """Whether two points are less than one of the anchor's sds apart."""
    return bool((one - other) @ precision @ (one - other) < 1.0)
