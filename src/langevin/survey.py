"""The survey of modes: do ascents from dispersed starts all end at the anchor's mode?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from langevin.anchor import Anchor
from langevin.anchor.ascent import climb
from langevin.anchor.passes import Passes, differentiate, log_likelihood, log_prior
from langevin.anchor.roots import pull, push
from langevin.data.source import DataSource
from langevin.limits import checkpoint, set_up
from langevin.outskirts import Outskirts, looked
from langevin.precision import apart
from langevin.startup import COMPILED_SOON, compiled, own_programs
from langevin.target import Layout, Target, numbers
from langevin.weighing import HOME, Weighed, weighed

# A stream of its own: default_rng(seed) may be what the data were simulated from.
_STREAM = 0x53555256
# Standard deviations of the starts, in those of the subsample's posterior; two antithetic pairs of each, one where
# parameters are many and climbs dear.
_SPREADS = (20.0, 40.0, 80.0)
_PAIRS, _MANY_PARAMETERS = 2, 500
_MOST_SWAPPED = 4
# The whole Hessian comes with the anchor's program; beyond this its products with single vectors are quicker.
_WHOLE_HESSIAN_UP_TO = 64
# Large groups are fewer: so many numbers in all, but enough groups to tell how much they differ.
_MOST_NUMBERS, _FEWEST_GROUPS = 2**21, 50
# A mode counts if its Laplace mass is above exp(-15) = 3e-7 of the anchor's; by some rows only, if it could be, within
# so many standard errors.
_LOG_MASS, _DOUBTS = 15.0, 4.0
# Inner radii of the shells in which a mode narrower than the anchor's is looked for, and points of each. A mode with a
# third of its sds is uphill from a share .4, .07, .015, .004, .001 of the points about its distance in 1, ..., 5
# dimensions: beyond that, of too few for any number that can be afforded.
_SHELLS, _PROBES, _FEW_PARAMETERS = (4.0, 8.0, 16.0, 32.0, 64.0), 200, 5


@dataclass(frozen=True)
class Survey:
    """Where ascents from `num_starts` dispersed points ended.

    Starts are anchor + L z with z normal, sds `spread` (in posterior sds, in turn), from the anchor at `home`; the
    anchor itself with entries of its arrays swapped; and, for few parameters, the most likely of many random points.
    `elsewhere`: ended at another mode whose Laplace mass matters; `modes`: those modes of all rows, (k, d), flat,
    the heaviest first; `log_mass`: the logarithm of each one's mass over that of the anchor's; `lost`: ended nowhere
    within the allowed steps, or where there is no mass to speak of. The others came back. No starts: not surveyed.
    `outskirts`: what lies far out about the anchor's mode; wide components that are no modes. `cost`: visits.
    """

    num_starts: int
    spread: tuple[float, ...]
    elsewhere: int
    lost: int
    home: np.ndarray
    modes: np.ndarray
    log_mass: np.ndarray
    outskirts: Outskirts
    cost: int

    @classmethod
    def none(cls, dimension: int) -> "Survey":
        """No survey: nothing was looked at."""
        return cls(0, (), 0, 0, np.zeros(dimension), np.zeros((0, dimension)), np.zeros(0), Outskirts.none(), 0)


@set_up()
def survey(
    target: Target, source: DataSource | None, anchor: Anchor, seed: int, known: Sequence[np.ndarray] = ()
) -> Survey:
    """Climbs from 12 dispersed starts and some swapped ones, by Newton's method, on at most 250 rows (d <= 50).

    Where a datum is a group of many rows, of 50 groups or more.

    With fewer than all N rows the likelihood is scaled by N/rows and starts spread by sqrt(N/rows) more, the resolution
    of such a sample; the reference is the mode that it has uphill from the anchor. What such a sample finds elsewhere
    is climbed from and weighed on all rows, unless it is too light beyond the sample's error. `known` are flat points
    to climb from as well. Without a dense anchor nothing is known about the scales on which to look: no starts. Beyond
    500 parameters 6 dispersed ones; up to 5 parameters also the best of 200 points in each of five shells. Cost: rows a
    Newton step, about ten steps a start, and rows a point; five passes a mode of some rows.
    """
    d = anchor.layout.size
    if not anchor.dense:
        return Survey.none(d)
    rng = np.random.default_rng([seed, _STREAM])
    scales = np.repeat(_SPREADS, _PAIRS if d <= _MANY_PARAMETERS else 1)
    half = scales[:, None] * rng.standard_normal((len(scales), d))
    starts = np.concatenate([half, -half])
    num_data = 1 if source is None else source.num_data
    each = 1 if source is None else numbers(target.log_likelihood, source.arrays)
    rows = min(num_data, 100 + 5 * d, max(_MOST_NUMBERS // each, _FEWEST_GROUPS))
    picked = None if source is None else rng.choice(num_data, rows, replace=False, shuffle=False)
    power = num_data / rows
    with own_programs(), jax.enable_x64(True), np.errstate(all="ignore"):
        shape = _Shape(apart(target), source, anchor, picked, power)
        starts = np.concatenate([starts, shape.y(np.concatenate([_swapped(anchor), np.reshape(known, (-1, d))]))])
        probes = len(_SHELLS) * _PROBES if d <= _FEW_PARAMETERS else 0
        probed = _probed(shape, d, rng) if probes else np.zeros((0, d))
        starts = np.concatenate([starts, probed])
        reference = climb(shape.at, np.zeros(d), None)
        climbs = [climb(shape.at, start, reference) for start in starts]
        back = [bool(np.linalg.norm(one.end - reference.end) < 1.0) for one in climbs]
        others = [one.end for one, home in zip(climbs, back, strict=True) if one.settled and not home]
        modes, which = _distinct(np.reshape(others, (-1, d)))
        whole = shape.log_mass(reference.end) if len(modes) else 0.0
        log_mass = np.array([shape.log_mass(mode) - whole for mode in modes])
        passes = Passes(apart(target), source, anchor.layout, doing="weighing other modes")
        found = Weighed(shape.theta(modes), log_mass, np.arange(len(modes)))
        if rows < num_data:
            doubt = np.array([shape.doubt(mode, reference.end) for mode in modes])
            found = weighed(passes, anchor, found.modes, log_mass, log_mass + _DOUBTS * doubt > -_LOG_MASS)
        matters = found.log_mass > -_LOG_MASS
        order = np.argsort(-found.log_mass)[: int(matters.sum())]
        # All rows: a sample of them has a curvature of its own, which rules what it says about the tail.
        passes.doing = "looking for mass far out"
        both_sides = shape.theta(np.concatenate([probed, -probed]))
        outskirts = looked(passes.total, anchor, num_data, both_sides)
        ends = found.which[which]
        home, elsewhere = int(np.sum(ends == HOME)), int(np.sum(matters[ends[ends >= 0]]))
    evaluations = sum(one.evaluations for one in (reference, *climbs))
    return Survey(
        num_starts=len(starts),
        spread=tuple(float(s * np.sqrt(power)) for s in _SPREADS),
        elsewhere=elsewhere,
        lost=len(starts) - sum(back) - home - elsewhere,
        home=anchor.theta,
        modes=found.modes[order],
        log_mass=found.log_mass[order],
        outskirts=outskirts,
        # Of a gradient's cost a value is a third.
        cost=(evaluations + probes // 3) * rows + passes.cost,
    )


class _Shape:
    """Log prior / power + log likelihood of some rows: the posterior's shape at their resolution, whitened there."""

    def __init__(
        self, target: Target, source: DataSource | None, anchor: Anchor, picked: np.ndarray | None, power: float
    ) -> None:
        passes = Passes(target, source, anchor.layout)
        self._target, self._layout = target, anchor.layout
        self._differentiate, self._power = passes.differentiate, power
        self._centre, self._root = anchor.theta, (np.sqrt(power) * anchor.root[0],)
        self._whitened = partial(_whitened, target, anchor.layout, anchor.theta, jax.device_put(self._root[0]), power)
        self._valued = partial(_values, target, anchor.layout, power)
        self._num_rows = 0 if picked is None else len(picked)
        # As many rows as in the passes over all the data, so that their program serves; those beyond do not count.
        self._batch = None
        if source is not None and picked is not None:
            filled = np.resize(picked, max(passes.chunk, len(picked)))
            self._batch = jax.tree.map(jax.device_put, source.take(filled))

    def theta(self, y: np.ndarray) -> np.ndarray:
        """Flat parameters at y, of shape (..., d)."""
        return self._centre + push(self._root, y)

    def y(self, theta: np.ndarray) -> np.ndarray:
        """The point that a flat theta, of shape (..., d), is at."""
        return np.linalg.solve(self._root[0], (theta - self._centre).T).T

    def at(self, y: np.ndarray) -> tuple[float, np.ndarray, Callable[[np.ndarray], np.ndarray]]:
        """Value, gradient, and the map v -> Hessian v."""
        checkpoint("looking for other modes")
        if len(y) > _WHOLE_HESSIAN_UP_TO:
            value, grad, _ = self._product(y, np.zeros_like(y))
            return float(value), grad, lambda v: self._product(y, v)[2]
        along = push(self._root, np.eye(len(y)))
        prior, likelihood = self._differentiate(self.theta(y), along, self._batch, 0, self._num_rows)
        parts = [np.asarray(part) / self._power for part in prior]
        value, grad, products = (p + np.asarray(q) for p, q in zip(parts, likelihood or [0.0] * 3, strict=True))
        return float(value), pull(self._root, grad), pull(self._root, products).__matmul__

    def _product(self, y: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
        checkpoint("looking for other modes")
        return [np.asarray(part) for part in self._whitened(y, v, self._batch, self._num_rows)]

    def values(self, points: np.ndarray) -> np.ndarray:
        """Values at many points, (k, d), without derivatives."""
        checkpoint("looking for other modes")
        return np.asarray(self._valued(self._num_rows, self.theta(points), self._batch))

    def doubt(self, y: np.ndarray, other: np.ndarray) -> float:
        """Standard error of the log likelihood of all rows at y over that at another point, from the rows used."""
        if self._batch is None:
            return 0.0
        each = jax.vmap(self._target.log_likelihood, (None, 0))
        batch = jax.tree.map(lambda leaf: leaf[: self._num_rows], self._batch)
        thetas = (self._layout.unravel(jnp.asarray(self.theta(point))) for point in (y, other))
        there, here = (np.asarray(each(theta, batch)) for theta in thetas)
        return float(self._power * np.sqrt(self._num_rows) * np.std(there - here))

    def log_mass(self, y: np.ndarray) -> float:
        """Laplace approximation to the log mass of a mode, up to a constant; -inf unless the curvature is positive."""
        value, _, times = self.at(y)
        curvatures = np.linalg.eigvalsh(-np.stack([times(unit) for unit in np.eye(len(y))]))
        if not curvatures[0] > 0:
            return -np.inf
        return self._power * value - 0.5 * float(np.sum(np.log(curvatures)))


@compiled(static_argnums=(0, 1), compiler_options=COMPILED_SOON)
def _whitened(
    target: Target, layout: Layout, centre: Any, root: Any, power: Any, y: Any, v: Any, batch: Any, num_rows: Any
) -> list:
    """Value, gradient, and the Hessian's product with v."""
    prior, likelihood = differentiate(target, layout, centre + root @ y, (root @ v)[None], batch, 0, num_rows)
    parts = [p / power + q for p, q in zip(prior, likelihood or [0.0] * 3, strict=True)]
    return [parts[0], parts[1] @ root, parts[2][0] @ root]


@compiled(static_argnums=(0, 1, 3), compiler_options=COMPILED_SOON)
def _values(target: Target, layout: Layout, power: Any, num_rows: int, points: Any, batch: Any) -> Any:
    """Log prior / power + log likelihood of the first rows at every point."""
    batch = jax.tree.map(lambda leaf: leaf[:num_rows], batch)

    def at(point: Any) -> Any:
        value = log_prior(target, layout)(point) / power
        return value if batch is None else value + log_likelihood(target, layout, batch, True)(point)

    return lax.map(at, points, batch_size=8)


def _swapped(anchor: Anchor) -> np.ndarray:
    """The anchor with the first axis of its arrays in another order, (starts, d): there exchangeable components meet.

    Arrays of one length go together. Turned around, and for few entries with each pair of neighbours swapped.
    """
    places = np.split(np.arange(anchor.layout.size), np.cumsum([prod(s) for s in anchor.layout.shapes])[:-1])
    lengths = [shape[0] if shape else 1 for shape in anchor.layout.shapes]
    found = []
    for length in sorted(set(lengths) - {0, 1}):
        orders = [np.arange(length)[::-1]]
        if 2 < length <= _MOST_SWAPPED:
            orders += [np.r_[np.arange(k), k + 1, k, np.arange(k + 2, length)] for k in range(length - 1)]
        for order in orders:
            moved = [
                p.reshape(n, -1)[order].ravel() if n == length else p for p, n in zip(places, lengths, strict=True)
            ]
            found.append(anchor.theta[np.concatenate(moved)])
    found = [theta for theta in found if not np.array_equal(theta, anchor.theta)]
    return np.reshape(found, (-1, anchor.layout.size))


def _probed(shape: _Shape, d: int, rng: np.random.Generator) -> np.ndarray:
    """In each shell the point, among many, whose density is the most above that of the Gaussian approximation."""
    found = []
    for inner in _SHELLS:
        y = rng.standard_normal((_PROBES, d))
        y *= inner * 2.0 ** rng.random((_PROBES, 1)) / np.linalg.norm(y, axis=1, keepdims=True)
        excess = shape.values(y) + 0.5 * np.sum(y**2, axis=1)
        found.append(y[np.argmax(np.where(np.isfinite(excess), excess, -np.inf))])
    return np.stack(found)


def _distinct(ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct points among these, and which of them each one is."""
    modes: list[np.ndarray] = []
    which = np.zeros(len(ends), int)
    for k, end in enumerate(ends):
        near = [i for i, mode in enumerate(modes) if np.linalg.norm(end - mode) < 1.0]
        if not near:
            modes.append(end)
        which[k] = near[0] if near else len(modes) - 1
    return np.reshape(modes, (-1, ends.shape[1])), which
