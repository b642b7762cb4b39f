"""What the pictures of a result show, as plain numbers: functions of the ledger and the kept draws."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from langevin.analysis.averages import estimate
from langevin.analysis.marginals import weighted_quantiles
from langevin.analysis.statuses import worst
from langevin.engine.ledger import Ledger
from langevin.sampling.accuracy import best

if TYPE_CHECKING:
    from langevin.sampling.result import Result

Array = np.ndarray
# Parameters that a picture shows where nobody names them.
MOST_ROWS, MOST_CURVES, MOST_PAIRED = 40, 12, 4
# A panel of the forest plot holds numbers of one size: those within this factor of its largest.
_ONE_SIZE, _MOST_PANELS = 15.0, 4
# Moments at which a running mean is worked out, and draws of a picture of pairs.
_MOMENTS, _POINTS = 30, 600
# Moments whose interval is longer than the last one by more than this factor know nothing yet, and are not shown: an
# axis that has room for them would show little of the later ones.
_MOST_LENGTH = 10.0
# Standard normal numbers at whose probabilities a density is read off the quantiles.
_GRID = np.linspace(-3.2, 3.2, 65)
_BINS = 40


def chosen(result: "Result", names: Sequence[str] | None, most: int) -> list[int]:
    """Places of the parameters with these names, or of the first ones."""
    known = list(result.names)
    if names is None:
        return list(range(min(len(known), most)))
    wanted = [names] if isinstance(names, str) else list(names)
    missing = [name for name in wanted if name not in known]
    if missing or not wanted:
        raise ValueError(f"names must be parameters of the result, got {missing or names!r}. Try {known[:3]}.")
    return [known.index(name) for name in wanted]


@dataclass(frozen=True)
class Forest:
    """Posterior intervals of 95% and 50%, means with the 95% interval of their Monte Carlo error, and panels by size.

    `ends` and `quartiles` are (2, parameters), `error` the interval of the mean, `panel` the number of each row's axis.
    """

    names: list[str]
    mean: Array
    ends: Array
    quartiles: Array
    error: Array
    statuses: list[str]
    panel: Array


def forest(result: "Result", names: Sequence[str] | None = None) -> Forest:
    """Intervals of some of the parameters."""
    at = chosen(result, names, MOST_ROWS)
    quantiles = result.quantiles((0.025, 0.25, 0.75, 0.975)).value[:, at]
    statuses = worst(result.mean.statuses, result.sd.statuses)
    mean = result.mean[np.array(at)]
    error = np.stack(mean.interval())
    # Without a bar there is no interval to draw.
    error = np.where(np.isfinite(error), error, mean.value)
    size = np.maximum(np.abs(quantiles[[0, 3]]).max(axis=0), np.abs(mean.value))
    return Forest(
        [result.names[k] for k in at],
        mean.value,
        quantiles[[0, 3]],
        quantiles[[1, 2]],
        error,
        [str(statuses[k]) for k in at],
        _panels(size),
    )


def _panels(size: Array) -> Array:
    """Numbers of panels such that each holds numbers of one size, the largest first, a few panels in all."""
    panel, top, number = np.zeros(len(size), int), np.inf, -1
    for k in np.argsort(-size, kind="stable"):
        if size[k] * _ONE_SIZE < top and number < _MOST_PANELS - 1:
            top, number = size[k], number + 1
        panel[k] = number
    return panel


@dataclass(frozen=True)
class Curve:
    """The density of one parameter, and that of its Laplace approximation at the same points."""

    name: str
    x: Array
    density: Array
    laplace: Array


def marginals(result: "Result", names: Sequence[str] | None = None) -> list[Curve]:
    """Densities of some of the parameters: from the distribution functions that the run has added up, else from draws.

    f = dp / dq between neighbouring quantiles q of probabilities p.
    """
    at = chosen(result, names, MOST_CURVES)
    anchor = result.plan.anchor
    if result.ledger.exact or not any(column.marginals for column in result.ledger.columns.values()):
        found = [_histogram(result, k) for k in at]
    else:
        from scipy.special import ndtr

        p = ndtr(_GRID)
        q = result.quantiles(p).value[:, at]
        with np.errstate(divide="ignore", invalid="ignore"):
            density = np.diff(p)[:, None] / np.diff(q, axis=0)
        middle = 0.5 * (q[1:] + q[:-1])
        good = np.isfinite(density) & (density > 0.0)
        found = [(middle[good[:, k], k], density[good[:, k], k]) for k in range(len(at))]
    return [
        Curve(result.names[k], x, density, _normal(x, anchor.theta[k], anchor.sd[k]))
        for k, (x, density) in zip(at, found, strict=True)
    ]


def _histogram(result: "Result", k: int) -> tuple[Array, Array]:
    draws = result.draws
    weight = np.tile(draws.weight, draws.theta.shape[0])
    values = draws.theta[..., k].ravel().astype(np.float64)
    # The farthest draw or two would leave the rest no room.
    ends = weighted_quantiles(values, weight, np.array([5e-4, 1.0 - 5e-4]))
    density, edges = np.histogram(values, _BINS, range=(float(ends[0]), float(ends[1])), weights=weight, density=True)
    return 0.5 * (edges[1:] + edges[:-1]), density


def _normal(x: Array, mean: float, sd: float) -> Array:
    return np.exp(-0.5 * ((x - mean) / sd) ** 2) / (sd * np.sqrt(2.0 * np.pi))


@dataclass(frozen=True)
class Running:
    """Estimates of means as they were at times T: corrected, with 95% intervals, and raw; (moments, parameters)."""

    names: list[str]
    time: Array
    value: Array
    low: Array
    high: Array
    raw: Array

    def range(self, k: int) -> tuple[float, float]:
        """Ends of an axis that has room for everything."""
        parts = np.concatenate([part[:, k] for part in (self.low, self.high, self.value, self.raw)])
        known = parts[np.isfinite(parts)]
        low, high = known.min(initial=np.inf), known.max(initial=-np.inf)
        if not low < high:
            low, high = self.value[-1, k] - 1.0, self.value[-1, k] + 1.0
        return float(low - 0.1 * (high - low)), float(high + 0.1 * (high - low))

    @property
    def marks(self) -> list[float]:
        """Marks of an axis of time in logarithms, where more would crowd: its ends and the middle."""
        first, last = float(np.ceil(self.time[0])), float(np.floor(self.time[-1]))
        return [first, float(np.round(np.sqrt(first * last))), last]


def running(result: "Result", names: Sequence[str] | None = None) -> Running:
    """Running means of some of the parameters against the time T_m that a chain has covered.

    Each moment is the estimate of the ledger's first rows, bars and all: what a shorter run would have said. Without
    names those that are known least.
    """
    if names is None:
        least = np.argsort(-result.mean.error / result.sd.value, kind="stable")
        at = [int(k) for k in least[:MOST_CURVES]]
    else:
        at = chosen(result, names, MOST_CURVES)
    ledger, where = result.ledger, np.array(at)
    rows = len(ledger.sum_delta)
    moments = np.unique(np.geomspace(min(8, rows), rows, _MOMENTS).astype(int))
    time, found = np.cumsum(ledger.sum_delta)[moments - 1], []
    for count in moments:
        part = until(ledger, int(count))
        mean = best(part)["theta.mean"][where]
        found.append([mean.value, *mean.interval(), estimate(part, "raw")["theta.mean"].value[where]])
    value, low, high, raw = np.moveaxis(np.array(found), 1, 0)
    # Until the first that is short enough, if the last has a length at all.
    long = ~(high - low <= _MOST_LENGTH * (high - low)[-1]) & np.isfinite(high - low)[-1]
    early = np.logical_and.accumulate(long, axis=0)
    value, low, high, raw = (np.where(early, np.nan, part) for part in (value, low, high, raw))
    return Running([result.names[k] for k in at], time, value, low, high, raw)


def until(ledger: Ledger, rows: int) -> Ledger:
    """The ledger of the first rows alone."""

    def first(part: Any, axis: int) -> Any:
        if part is None or isinstance(part, dict):
            return part if part is None else {name: first(one, axis) for name, one in part.items()}
        return part[(slice(None),) * axis + (slice(rows),)]

    by_row = {name: first(getattr(ledger, name), 0) for name in ("sum_delta", "sum_delta2", "sum_omega")}
    by_chain = ("values", "corrections", "outer", "acceptance", "divergences", "visits", "far")
    by_row |= {name: first(getattr(ledger, name), 1) for name in by_chain}
    return replace(ledger, num_steps=int(ledger.m_stop[rows - 1]), draws=None, checkpoint=None, **by_row)


def pairs(result: "Result", names: Sequence[str] | None = None, seed: int = 0) -> tuple[list[str], Array]:
    """Equally weighted draws (draws, parameters); without names those parameters that go together most."""
    draws = result.draws
    flat, weight = draws.theta.reshape(-1, draws.theta.shape[-1]), np.tile(draws.weight, draws.theta.shape[0])
    rng = np.random.default_rng(seed)
    points = flat[rng.choice(len(flat), min(_POINTS, len(flat)), p=weight / weight.sum())].astype(np.float64)
    if names is not None:
        at = chosen(result, names, MOST_PAIRED)
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            together = np.abs(np.atleast_2d(np.nan_to_num(np.corrcoef(points.T))))
        np.fill_diagonal(together, 0.0)
        strongest = np.argsort(-together.max(axis=0), kind="stable")[:MOST_PAIRED]
        at = sorted(int(k) for k in strongest)
    return [result.names[k] for k in at], points[:, at]
