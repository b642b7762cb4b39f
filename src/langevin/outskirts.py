"""What lies far out along each parameter: mass that a chain has to visit before its moments can be believed."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import numpy as np

from langevin.anchor import Anchor
from langevin.anchor.roots import pull, push

# Where the far begins, and the distances, in sds, at which densities are integrated from there on: nearly to where laws
# of powers are looked for (`sampling.tails`).
FAR = 4.0
_RADII = FAR * 1.25 ** np.arange(22)
# A walk outward begins where the density at so many sds is e^5 times the Gaussian's: eight sds out a component of sd s
# and mass .02/s^2, which moves an sd by a hundredth, is so from s = 2.5 to 160, if it is wide along that parameter. One
# along the diagonal of d parameters is so from 24 sds on, up to d = 15.
_SCOUTS, _EXCESS = (8.0, 24.0), 5.0
# Nothing counts below exp(-40) of the mode's density. Newton steps across a line, and the gain at which they end.
_LEAST_LOG, _NEWTON, _GAIN = -40.0, 4, 0.05
# Multiplications of passes for the curvature, one a parameter: a fifth of a second where nobody walks.
_MOST_WORK, _MOST_PARAMETERS = 2e7, 64

Array = np.ndarray
# Value, gradient and negative Hessian of the log density, whitened.
At = Callable[[Array], tuple[float, Array, Array]]


@dataclass(frozen=True)
class Outskirts:
    """Mass, second and fourth moment farther than four sds from the mode, by parameter, (d,) each.

    In units of the Gaussian approximation about `centre` with these `sd`; `variance` and `fourth` are about the centre.
    Empty arrays where nothing was looked at.
    """

    centre: Array
    sd: Array
    mass: Array
    variance: Array
    fourth: Array

    @classmethod
    def none(cls) -> "Outskirts":
        """Nothing was looked at."""
        return cls(*(np.zeros(0) for _ in range(5)))

    @property
    def widening(self) -> Array:
        """What the far adds to every sd, as a part of the Gaussian approximation's."""
        return np.asarray(np.sqrt(1.0 + self.variance) - 1.0)

    def worth(self, visits: Array) -> Array:
        """As how many visits they count whose squares scatter as much as they are: with relative variance 2/n in all.

        Of stays that end at random the lengths alone scatter so. Where E r^4 > 2 (E r^2)^2 out there, as it is under
        tails that fall like a power until something cuts them, a few visits make up most of the sum.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = self.mass * self.fourth / self.variance**2
        return np.asarray(visits * 2.0 / np.fmax(excess, 2.0))

    def scatter(self, sd: Array, worth: Array) -> Array:
        """Standard error of the sds, as a part of them, after visits of this worth, (d,); as after one if it is less.

        The sum of n squares that scatter as much as they are has relative variance 2/n.
        """
        return np.asarray(self.share(sd) * np.sqrt(2.0 / np.maximum(worth, 1.0)))

    def share(self, sd: Array) -> Array:
        """What an sd changes by, as a part of it, for each part by which the variance far out does."""
        return np.asarray(0.5 * self.variance * (self.sd / sd) ** 2)


def looked(
    total: Callable[[Array, int], list[Array]], anchor: Anchor, num_data: int, points: Array | None = None
) -> Outskirts:
    """Integrates the marginal density of every parameter outward, by Laplace's method across each line.

        p(r) = (2 pi)^(-1/2) max exp(log pi(y) - log pi(0)) det(A)^(-1/2),    y whitened, y.u = r,

    the maximum over all points at which the parameter is r sds from the mode, A the negative Hessian across u there. It
    is found by Newton's method from the line through the mode, and from where it was at the r next to it. Exact for
    mixtures of Gaussians whose components do not overlap there. Only where the density eight sds out is far above the
    Gaussian's anyone walks; else from the first of some `points` (k, d), flat, where it is, which find ridges
    between the axes. Cost: four passes a parameter and one a point, and some fifty for each walk.
    """
    d = anchor.layout.size
    if not anchor.dense or d > _MOST_PARAMETERS or max(num_data, 1) * d**3 > _MOST_WORK:
        return Outskirts.none()
    root = (anchor.root[0],)

    # The Hessian also where nobody asks for it: gradients alone would be one more program to compile.
    def at(y: Array) -> tuple[float, Array, Array]:
        value, grad, hessian = total(anchor.theta + push(root, y), 2)
        return float(value), pull(root, grad), -pull(root, pull(root, hessian).T)

    peak = at(np.zeros(d))[0]
    between = [np.linalg.solve(root[0], point - anchor.theta) for point in ([] if points is None else points)]
    # Nothing to speak of leads nowhere: in straight tails every point is far above the Gaussian's density.
    known = [one for one in ((y, *at(y)) for y in between) if one[1] - peak > _LEAST_LOG]
    found = np.zeros((3, d))
    for j, row in enumerate(anchor.root[0]):
        for unit in (row / np.linalg.norm(row), -row / np.linalg.norm(row)):
            line = _Line(at, peak, unit)
            along = ((r * unit, *at(r * unit)) for r in _SCOUTS)
            beside = (one for one in known if one[0] @ unit > FAR)
            start = next((one for one in map(line.scout, chain(along, beside)) if one is not None), None)
            if start is not None:
                found[:, j] += line.walked(*start)
    return Outskirts(anchor.theta, anchor.sd, *found)


class _Line:
    """One parameter to one side of the mode: points y with y.u = r, whitened, r sds from it."""

    def __init__(self, at: At, peak: float, unit: Array) -> None:
        self._at, self._peak, self._unit = at, peak, unit
        self._across = np.linalg.svd(unit[None])[2][1:].T

    def scout(self, seen: tuple[Array, float, Array, Array]) -> tuple[Array, float] | None:
        """Where to walk along, over r, and r: where there is more density than the Gaussian's, and any to speak of."""
        y, value, grad, hessian = seen
        r, log_ratio, across = float(y @ self._unit), value - self._peak, self._across.T @ grad
        # The gain by a step across is half the square of the slope where the curvature is the mode's, and up to d times
        # that beside a ridge.
        gain = 0.5 * len(grad) * float(across @ across)
        if not (log_ratio + 0.5 * float(y @ y) > _EXCESS and log_ratio + gain > _LEAST_LOG):
            return None
        step, gain = self._newton((value, grad, hessian))
        return ((y + step) / r, r) if log_ratio + gain > _LEAST_LOG else None

    def walked(self, start: Array, seen: float) -> Array:
        """Mass, second and fourth moment of the parameter's marginal where the far begins; at `seen` there is some.

        Inward first, and then outward from there again: further in, the slope of the mode may be higher than the ridge
        that leads out, and whoever came by it would not find the ridge.
        """
        density = np.zeros(len(_RADII))
        for inward, leg in ((True, np.flatnonzero(_RADII <= seen)[::-1]), (False, np.flatnonzero(_RADII > seen))):
            way = start
            for k in leg:
                r = _RADII[k]
                y, here = self._top(r, way)
                log_ratio = here[0] - self._peak
                if log_ratio > _LEAST_LOG:
                    way = y / r
                    # No higher than the mode: what is higher is another one.
                    density[k] = np.exp(min(log_ratio, 0.0) + self._log_width(here)) / np.sqrt(2.0 * np.pi)
                elif not inward:
                    break
        return np.array([np.trapezoid(density * _RADII**power, _RADII) for power in (0, 2, 4)])

    def _top(self, r: float, way: Array) -> tuple[Array, tuple[float, Array, Array]]:
        """The maximum across the line over r: by Newton's method from `way` or from the line, whichever is higher."""
        both = [(r * one, self._at(r * one)) for one in (way, self._unit)]
        y, here = max(both, key=lambda found: np.nan_to_num(found[1][0], nan=-np.inf))
        for _ in range(_NEWTON):
            step, gain = self._newton(here)
            if not gain > _GAIN:
                break
            there = self._at(y + step)
            if not there[0] > here[0]:
                break
            y, here = y + step, there
        return y, here

    def _curvatures(self, here: tuple[float, Array, Array]) -> tuple[Array, Array]:
        """Eigenvalues and vectors of the negative Hessian across the line."""
        across = self._across.T @ here[2] @ self._across
        if not np.all(np.isfinite(across)):
            return np.full(len(across), np.nan), across
        values, vectors = np.linalg.eigh(across)
        return values, self._across @ vectors

    def _newton(self, here: tuple[float, Array, Array]) -> tuple[Array, float]:
        """The step across to the maximum of the quadratic model, and the gain there; none where it has none."""
        values, vectors = self._curvatures(here)
        if not np.all(values > 0.0):
            return np.zeros_like(self._unit), 0.0
        slope = vectors.T @ here[1]
        return vectors @ (slope / values), 0.5 * float(slope @ (slope / values))

    def _log_width(self, here: tuple[float, Array, Array]) -> float:
        """Logarithm of the volume across over that at the mode, and of one where the density is no hill there."""
        values, _ = self._curvatures(here)
        return -0.5 * float(np.sum(np.log(values))) if np.all(values > 0.0) else 0.0
