"""What rays through a target tell of its far field: which Lyapunov condition fails there, or constants that serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from langevin.theory import _rays
from langevin.theory._rays import Floats, Surroundings

# A ratio that behaves as r^s at the far end counts as bounded for |s| below this: r^0.02 is a factor of 4 on the way to
# r = 1e30, while what tends to a limit has an s that vanishes with r.
FLAT_SLOPE = 0.02
# A ray that ends early ended in an overflow if its last ratio passes the usual one by this; else it left the support.
OVERFLOWING = 1e30
REFINEMENTS, NEIGHBOURS = (0.3, 0.1, 0.03), 6
# alpha is looked for among these shares of the pull at the far end, which may be that of a growing gradient. Just below
# 1, so that far points, where V is 1e60, are decided by the sign of a number that is larger than its rounding error.
SHARES = (1 - 1e-9) * np.concatenate([np.linspace(1, 0.1, 19), 10.0 ** -np.arange(1.25, 65, 0.25)])


class Fault(NamedTuple):
    """How a condition fails, on which ray, and the numbers that show it."""

    kind: str
    ray: int
    seen: str


@dataclass(frozen=True, eq=False)
class Survey:
    """The field along rays, shape (rays, radii), with nan from the first point on at which it is not finite."""

    directions: Floats
    radii: Floats
    V: Floats
    drift: Floats
    grad_V2: Floats
    grad2: Floats
    noise: Floats

    @classmethod
    def along(cls, around: Surroundings, precision: Floats, directions: Floats) -> Survey:
        """Looks along these directions."""
        radii = _rays.radii(around, precision, directions)
        parts = around(around.centre + radii[..., None] * directions[:, None, :])._asdict()
        finite = np.isfinite(parts.pop("grad")).all(axis=-1) & np.isfinite(parts.pop("log_density"))
        for part in parts.values():
            finite &= np.isfinite(part)
        ended = ~np.logical_and.accumulate(finite, axis=1)
        return cls(directions, radii, **{name: np.where(ended, np.nan, part) for name, part in parts.items()})

    @classmethod
    def of(cls, around: Surroundings, num_random: int, rng: np.random.Generator) -> Survey:
        """Looks in all kinds of directions, then around the worst ones."""
        precision, d = around.precision(), around.layout.size
        survey = cls.along(around, precision, _rays.directions(around, precision, num_random, rng))
        for width in REFINEMENTS if d > 1 else ():
            worst = survey.directions[survey._worst()]
            shift = width * rng.standard_normal((NEIGHBOURS, len(worst), d)) / np.sqrt(d)
            more = cls.along(around, precision, _rays.normalised((worst + shift).reshape(-1, d)))
            both = zip(vars(survey).values(), vars(more).values(), strict=True)
            survey = cls(*(np.concatenate(pair) for pair in both))
        return survey

    @property
    def size(self) -> Floats:
        """|grad V|^2 + |grad log pi|^2."""
        return self.grad_V2 + self.grad2

    def _worst(self) -> list[int]:
        """The ray with the weakest pull at its end, and those with the largest gradients and noise for their V."""
        tops = [np.nanmax(part / self.V, axis=1) for part in (self.grad2, self.noise)]
        return [int(np.argmin(self._far_pull)), *(int(np.argmax(top)) for top in tops)]

    @property
    def _ends(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Indices of the last point of every ray and of one before it, six decades or one point nearer."""
        last = np.isfinite(self.V).sum(axis=1) - 1
        return last, np.maximum(np.where(self._whole, last - 3, last - 1), 0)

    @property
    def _whole(self) -> NDArray[np.bool_]:
        return np.isfinite(self.V[:, -1])

    def _far(self, values: Floats) -> Floats:
        """The values at the last point of every ray."""
        return np.take_along_axis(values, self._ends[0][:, None], axis=1)[:, 0]

    @property
    def _far_pull(self) -> Floats:
        """The least -1/2 <grad V, grad log pi> / V between the two `_ends` of every ray."""
        columns, (last, before) = np.arange(self.V.shape[1]), self._ends
        between = (columns >= before[:, None]) & (columns <= last[:, None])
        return np.min(np.where(between, -self.drift / self.V, np.inf), axis=1)

    def _slope(self, ratio: Floats) -> Floats:
        """s where the ratio behaves as r^s at the far end of each ray; 0 where it is not positive."""
        (last, before), rays = self._ends, np.arange(len(self.V))
        with np.errstate(divide="ignore", invalid="ignore"):
            rise = np.log(ratio[rays, last]) - np.log(ratio[rays, before])
            slope = rise / (np.log(self.radii[rays, last]) - np.log(self.radii[rays, before]))
        return np.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0)

    def _grows(self, part: Floats) -> NDArray[np.bool_]:
        """Whether part / V grows without bound on each ray."""
        ratio = part / self.V
        overflowing = self._far(ratio) > OVERFLOWING * np.nanmedian(ratio, axis=1)
        return np.where(self._whole, self._slope(ratio) > FLAT_SLOPE, overflowing)

    def growth(self, part: Floats, kind: str, name: str) -> Fault | None:
        """The ray on which part / V grows fastest, if it grows on any."""
        grows, slope = self._grows(part), self._slope(part / self.V)
        if not grows.any():
            return None
        k = int(np.argmax(np.where(grows, slope, -np.inf)))
        return Fault(kind, k, f"{name} grows like r^{slope[k]:.3g} at r = {self._far(self.radii)[k]:.1e}")

    def drift_fault(self) -> Fault | None:
        """The ray on which the drift condition fails most plainly, if it fails on any."""
        pull, last_pull, reach = self._far_pull, self._far(-self.drift / self.V), self._far(self.radii)
        most = self._far(0.5 * np.sqrt(self.grad_V2) * np.sqrt(self.grad2) / self.V)
        fading = self._slope(-self.drift / self.V)
        # A pull that is small against the product of the two gradients' lengths is their rounding error, and one that
        # is negative but tiny beside that of other directions may be rounding in the model's own constants.
        flat = (np.abs(last_pull) <= _rays.ROUNDING * most) | ((pull <= 0) & (-pull <= _rays.ROUNDING * pull.max()))
        shown = "-1/2 <grad V, grad log pi> / V is {pull:.3g} at r = {reach:.1e}"
        kinds = {
            "wrong way": ((pull < 0) & ~flat, shown),
            "flat": (flat, shown),
            "heavy tails": ((fading < -FLAT_SLOPE) & self._whole & ~flat, shown + " and falls like r^{fading:.3g}"),
            "no density": (~self._whole & ~self._grows(self.grad2), "no finite numbers beyond r = {reach:.1e}"),
        }
        for kind, (where, seen) in kinds.items():
            if where.any():
                k = int(np.argmin(np.where(where, pull, np.inf)))
                return Fault(kind, k, seen.format(pull=pull[k], reach=reach[k], fading=fading[k]))
        return None

    def drift_constants(self) -> tuple[float, float]:
        """The largest alpha whose beta / alpha is at most twice the least possible, and its beta."""
        alphas = SHARES * self._far_pull.min()
        betas = np.array([smallest_beta(self.drift, self.V, self.size, alpha) for alpha in alphas])
        levels = betas / alphas
        best = int(np.argmax(levels <= 2 * levels.min()))
        return float(alphas[best]), float(betas[best])


def smallest_beta(drift: Floats, V: Floats, size: Floats, alpha: float) -> float:
    """Supremum of drift + alpha V, less its rounding error: that is all that is left of it where V is 1e60.

    At the minimum of V, which no ray may have met, drift is 0 and V at least 1: so it is never below alpha.
    """
    return max(float(np.nanmax(drift + alpha * V - 1e-13 * (size + alpha * V))), alpha)
