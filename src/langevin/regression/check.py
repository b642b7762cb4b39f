"""A predictive check: what the fitted model would have seen, beside what was seen."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from langevin.mixed.groups import Groups

if TYPE_CHECKING:
    from langevin.regression.fitting import Fit

Array = np.ndarray
# Rows (or groups) that are looked at, data sets that are drawn, and bins.
_ROWS, _GROUPS, _DRAWS, _BINS = 5000, 200, 200, 12


@dataclass(frozen=True)
class Check:
    """Shares of the data in bins, as observed and in 95% of the data sets that the model draws.

    `place` is where a bin lies, or the level; `what` and `share` say what the axes are. With `calibration` the bins are
    of predicted probabilities, and the observed shares should equal them.
    """

    place: list[Any]
    observed: Array
    low: Array
    high: Array
    what: str
    share: str
    calibration: bool = False


def predictive_check(fit: "Fit", seed: int = 0) -> Check:
    """Replicated data against the data, for rows chosen by chance; groups get effects that are drawn anew.

    A response of two values: the share of ones in bins of the predicted probability, which a calibrated model has on
    the diagonal. Levels: the share of each. Numbers: how they are spread over bins. Cost: 200 evaluations of at most
    5000 rows.
    """
    source = fit.session.source
    if source is None:
        raise ValueError("a predictive check needs the data: lv.load(path, data=table).")
    rng = np.random.default_rng(seed)
    grouped = isinstance(source, Groups)
    most = _GROUPS if grouped else _ROWS
    places = np.sort(rng.choice(source.num_data, min(most, source.num_data), replace=False))
    rows = {name: np.asarray(array) for name, array in source.take(places).items()}
    theta = fit._equal_draws(_DRAWS, seed)
    expected = _expected(fit, theta, rows, rng)
    y = rows["y"].astype(np.float64)
    if grouped:
        seen = rows["mask"].astype(bool)
        expected, y = expected[:, seen], y[seen]
    further = {name: np.asarray(value)[:, None] for name, value in theta.items() if np.ndim(value) == 1}
    family = fit.model.family
    response = fit.model.design.response
    if family.scaled and fit.asked.offset is not None:
        response = f"{response} less its offset"
    if family.name == "binomial":
        y, further["trials"] = y[..., 0], y[..., 1]
    new = family.draw(rng, expected, further)
    if family.levels:
        levels = fit.model.levels
        found = [np.mean(new == k, axis=1) for k in range(len(levels))]
        seen_shares = [float(np.mean(y == k)) for k in range(len(levels))]
        return _check([str(level) for level in levels], seen_shares, found, response, "share of the rows")
    if family.name == "bernoulli":
        return _calibration(expected.mean(axis=0), y, new, response)
    edges = _edges(y, counts=family.name != "gaussian" and family.name != "student")
    observed = np.histogram(np.clip(y, edges[0], edges[-1]), edges)[0] / len(y)
    clipped = np.clip(new, edges[0], edges[-1])
    shares = np.stack([np.histogram(one, edges)[0] / len(y) for one in clipped]).T
    return _check((0.5 * (edges[1:] + edges[:-1])).tolist(), observed, shares, response, "share of the rows")


def _expected(fit: "Fit", theta: Any, rows: dict[str, Array], rng: np.random.Generator) -> Array:
    model = fit.model
    if "mask" not in rows:
        return np.asarray(jax.vmap(lambda draw: model.family.mean(model.predictor(draw, rows), draw))(theta), float)
    effects = rng.standard_normal((_DRAWS, len(rows["mask"]), rows["z"].shape[-1])).astype(np.float32)

    def one(draw: Any, z: Any) -> Any:
        by_group = jax.vmap(lambda group, own: model.predictor(draw, group, model.new_effects(draw, own)))
        return model.family.mean(by_group({name: rows[name] for name in ("x", "z", "offset")}, z), draw)

    return np.asarray(jax.vmap(one)(theta, effects), float)


def _calibration(probability: Array, y: Array, new: Array, response: str) -> Check:
    order = np.array_split(np.argsort(probability, kind="stable"), min(_BINS, max(len(y) // 20, 1)))
    shares = [new[:, rows].mean(axis=1) for rows in order]
    place = [float(probability[rows].mean()) for rows in order]
    observed = [float(y[rows].mean()) for rows in order]
    found = _check(place, observed, shares, f"predicted probability of {response}", "observed share")
    return replace(found, calibration=True)


def _edges(y: Array, counts: bool) -> Array:
    low, high = np.quantile(y, (0.005, 0.995))
    if not counts:
        return np.linspace(low, high if high > low else low + 1.0, 2 * _BINS + 1)
    step = max(1, int(np.ceil((high - low + 1) / (2 * _BINS))))
    return np.arange(np.floor(low), np.ceil(high) + step + 1, step) - 0.5


def _check(place: list[Any], observed: Any, shares: Any, what: str, share: str) -> Check:
    low, high = np.quantile(np.asarray(shares), (0.025, 0.975), axis=1)
    return Check(place, np.asarray(observed), low, high, what, share)
