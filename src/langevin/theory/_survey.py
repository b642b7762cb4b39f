"""What lines through a target tell of its far field: which Lyapunov condition fails there, or constants that serve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from langevin.theory import _rays
from langevin.theory._rays import Floats, Surroundings

# A ratio that behaves as r^s at the far end counts as bounded for |s| below this: r^0.02 is a factor of 4 on the way to
# r = 1e30, while what tends to a limit has an s that vanishes with r.
FLAT_SLOPE = 0.02
# A line that ends early ended in an overflow if its last ratio passes the usual one by this; else it left the support.
OVERFLOWING = 1e30
REFINEMENTS, NEIGHBOURS = (0.3, 0.1, 0.03), 6
# alpha is looked for among these shares of the pull at the far end, which may be that of a growing gradient. Just below
# 1, so that far points, where V is 1e60, are decided by the sign of a number that is larger than its rounding error.
SHARES = (1 - 1e-9) * np.concatenate([np.linspace(1, 0.1, 19), 10.0 ** -np.arange(1.25, 65, 0.25)])


class Fault(NamedTuple):
    """How a condition fails, on which line, and the numbers that show it."""

    kind: str
    line: int
    seen: str


@dataclass(frozen=True, eq=False)
class Survey:
    """The field along lines, shape (lines, radii), with nan from the first point on at which it is not finite.

    `cause` names what is not finite there, "" on lines that are seen to the end.
    """

    origins: Floats
    directions: Floats
    radii: Floats
    cause: NDArray[np.str_]
    V: Floats
    drift: Floats
    terms: Floats
    grad_V2: Floats
    grad2: Floats
    noise: Floats

    @classmethod
    def along(cls, around: Surroundings, precision: Floats, origins: Floats, directions: Floats) -> Survey:
        """Looks along these lines; those that begin outside the support, as some beside theta_0 may, are left out."""
        radii = _rays.radii(around, precision, directions)
        parts = around(origins[:, None, :] + radii[..., None] * directions[:, None, :])._asdict()
        finite = {name: np.isfinite(part) for name, part in parts.items()}
        finite["grad"] = finite["grad"].all(axis=-1)
        ended = ~np.logical_and.accumulate(np.logical_and.reduce(list(finite.values())), axis=1)
        first = np.argmax(ended, axis=1)
        named = {"log_density": "the log density", "grad": "the gradient", "V": "V", "grad_V2": "the gradient of V"}
        cause = np.full(len(radii), "the size of the gradient or of its noise", dtype="U40")
        for name, words in reversed(named.items()):
            cause[~finite[name][np.arange(len(radii)), first]] = words
        cause[~ended[:, -1]] = ""
        fields = {name: np.where(ended, np.nan, part) for name, part in parts.items() if part.ndim == 2}
        del fields["log_density"]
        inside = ~ended[:, 0]
        every = {"origins": origins, "directions": directions, "radii": radii, "cause": cause, **fields}
        return cls(**{name: part[inside] for name, part in every.items()})

    @classmethod
    def of(cls, around: Surroundings, num_random: int, rng: np.random.Generator) -> Survey:
        """Looks in all kinds of directions, then around the worst ones."""
        precision, d = around.precision(), around.layout.size
        survey = cls.along(around, precision, *_rays.lines(around, precision, num_random, rng))
        for width in REFINEMENTS if d > 1 else ():
            worst = survey._worst()
            shift = width * rng.standard_normal((NEIGHBOURS, len(worst), d)) / np.sqrt(d)
            near = _rays.normalised((survey.directions[worst] + shift).reshape(-1, d))
            more = cls.along(around, precision, np.tile(survey.origins[worst], (NEIGHBOURS, 1)), near)
            both = zip(vars(survey).values(), vars(more).values(), strict=True)
            survey = cls(*(np.concatenate(pair) for pair in both))
        return survey

    @property
    def size(self) -> Floats:
        """|grad V|^2 + |grad log pi|^2."""
        return self.grad_V2 + self.grad2

    def _worst(self) -> list[int]:
        """The line with the weakest pull at its end, and those with the largest gradients and noise for their V."""
        tops = [np.nanmax(part / self.V, axis=1) for part in (self.grad2, self.noise)]
        return [int(np.argmin(self._far_pull)), *(int(np.argmax(top)) for top in tops)]

    @property
    def _whole(self) -> NDArray[np.bool_]:
        return np.isfinite(self.V[:, -1])

    @property
    def _last(self) -> NDArray[np.int64]:
        """Index of the last finite point of every line."""
        return np.isfinite(self.V).sum(axis=1) - 1

    def _far(self, values: Floats) -> Floats:
        """The values at the last point of every line."""
        return np.take_along_axis(values, self._last[:, None], axis=1)[:, 0]

    def _windows(self, values: Floats, extreme: Callable[..., Any], missing: float) -> tuple[Floats, Floats]:
        """The extreme over the last six decades of every line and over the six before; of a short one, the last two."""
        half, columns, last = _rays.DECIDING_POINTS // 2, np.arange(self.V.shape[1]), self._last[:, None]
        width = np.where(self._whole[:, None], half, 1)
        late = (columns <= last) & (columns > last - width)
        early = (columns <= np.maximum(last - width, 0)) & (columns > last - 2 * width)
        return extreme(np.where(late, values, missing), axis=1), extreme(np.where(early, values, missing), axis=1)

    @property
    def _far_pull(self) -> Floats:
        """The least -1/2 <grad V, grad log pi> / V of both windows of every line."""
        return np.minimum(*self._windows(-self.drift / self.V, np.min, np.inf))

    def _slope(self, late: Floats, early: Floats) -> Floats:
        """s where a ratio with these extremes in the two windows behaves as r^s; 0 where it is not positive."""
        ends = self._windows(self.radii, np.max, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = (np.log(late) - np.log(early)) / (np.log(ends[0]) - np.log(ends[1]))
        return np.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0)

    def _rise(self, values: Floats) -> Floats:
        """s where the crests of the values behave as r^s at the far end of each line."""
        return self._slope(*self._windows(values, np.max, -np.inf))

    def _grows(self, part: Floats) -> NDArray[np.bool_]:
        """Whether part / V grows without bound on each line."""
        ratio = part / self.V
        overflowing = self._far(ratio) > OVERFLOWING * np.nanmedian(ratio, axis=1)
        return np.where(self._whole, self._rise(ratio) > FLAT_SLOPE, overflowing)

    def growth(self, part: Floats, kind: str, name: str) -> Fault | None:
        """The line on which part / V grows fastest, if it grows on any; the fault of V if part is at most r^2."""
        grows, slope = self._grows(part), self._rise(part / self.V)
        if not grows.any():
            return None
        k = int(np.argmax(np.where(grows, slope, -np.inf)))
        seen = f"{name} / V grows like r^{slope[k]:.3g} at r = {self._far(self.radii)[k]:.1e}"
        own = self._rise(part)[k]
        if kind == "overshoot" and self._whole[k] and own <= 2 + FLAT_SLOPE:
            return Fault("slow V", k, f"{seen}, {name} itself like r^{own:.3g}")
        return Fault(kind, k, seen)

    def drift_fault(self, around: Surroundings) -> Fault | None:
        """The line on which the drift condition fails most plainly, if it fails on any."""
        pull, last_pull, reach = self._far_pull, self._far(-self.drift / self.V), self._far(self.radii)
        # From trough to trough; where the pull only falls these are the last points of the windows.
        fading = self._slope(*self._windows(-self.drift / self.V, np.min, np.inf))
        # A pull that is small against the terms it is the sum of is their rounding error, and one that is negative but
        # tiny beside that of other directions may be rounding in the model's own constants.
        strongest = np.max(pull, where=self._whole, initial=0.0)
        flat = np.abs(last_pull) <= _rays.ROUNDING * self._far(self.terms / self.V)
        flat |= (pull <= 0) & (-pull <= _rays.ROUNDING * strongest)
        shown = "-1/2 <grad V, grad log pi> / V is {pull:.3g} at r = {reach:.1e}"
        kinds = {
            "wrong way": ((pull < 0) & ~flat, shown),
            "ended": (
                ~self._whole & ~self._grows(self.grad2) & ~self._grows(self.grad_V2),
                "{cause} is not finite beyond r = {reach:.1e}",
            ),
            "flat": (flat, shown),
            "heavy tails": ((fading < -FLAT_SLOPE) & self._whole & ~flat, shown + " and falls like r^{fading:.3g}"),
        }
        for kind, (where, seen) in kinds.items():
            if where.any():
                k = int(np.argmin(np.where(where, pull, np.inf)))
                seen = seen.format(pull=pull[k], reach=reach[k], fading=fading[k], cause=self.cause[k])
                return Fault(self._end(k, around) if kind == "ended" else kind, k, seen)
        return None

    def _end(self, k: int, around: Surroundings) -> str:
        """Why line k ends: "no density" at a boundary of the support, else "overflow"."""
        if self.cause[k] not in ("the log density", "the gradient"):
            return "overflow"
        inside, outside = self.radii[k, self._last[k]], self.radii[k, self._last[k] + 1]
        return "overflow" if around.overflows(self.origins[k], self.directions[k], inside, outside) else "no density"

    def drift_constants(self) -> tuple[float, float]:
        """The largest alpha whose beta / alpha is at most twice the least possible, and its beta."""
        alphas = SHARES * self._far_pull.min()
        betas = np.array([smallest_beta(self.drift, self.V, self.size, alpha) for alpha in alphas])
        levels = betas / alphas
        best = int(np.argmax(levels <= 2 * levels.min()))
        return float(alphas[best]), float(betas[best])


def smallest_beta(drift: Floats, V: Floats, size: Floats, alpha: float) -> float:
    """Supremum of drift + alpha V, less its rounding error: that is all that is left of it where V is 1e60.

    At the minimum of V, which no line may have met, drift is 0 and V at least 1: so it is never below alpha.
    """
    return max(float(np.nanmax(drift + alpha * V - 1e-13 * (size + alpha * V))), alpha)
