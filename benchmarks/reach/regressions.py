"""Linear regressions with an unknown log sd: kidiq, earnings, mesquite, nes, kilpisjarvi, and the autoregression arK.

Coefficients start at zero, the log sd at that of the response. Columns keep the units of posteriordb.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

import langevin as lv
from benchmarks.reach.database import Draws, Floats, Table, table, vector
from benchmarks.reach.posteriors import Posterior, half_cauchy, listed, normal

Columns = Callable[[Table], Sequence[Floats]]


def _coefficients(found: Draws) -> Floats:
    return vector(found, "beta")


def regression(
    y: Floats,
    columns: Sequence[Floats],
    draws: str | None,
    *,
    scale: float = np.inf,
    mean: Any = 0.0,
    sd: Any = np.inf,
    coefficients: Callable[[Draws], Floats] = _coefficients,
) -> Posterior:
    """y = beta_0 + columns beta + N(0, sigma^2), beta ~ N(mean, sd^2), sigma ~ half-Cauchy(scale): flat where inf."""

    def log_prior(theta: Any) -> Any:
        return normal(theta["beta"], mean, sd) + half_cauchy(theta["log_sigma"], scale)

    def log_likelihood(theta: Any, row: Any) -> Any:
        z = (row["y"] - jnp.dot(row["x"], theta["beta"])) * jnp.exp(-theta["log_sigma"])
        return -0.5 * z * z - theta["log_sigma"]

    def unconstrained(found: Draws) -> Any:
        return {"beta": coefficients(found), "log_sigma": np.log(found["sigma"])}

    x = np.stack([np.ones_like(y), *columns], axis=1)
    theta_0 = {"beta": np.zeros(x.shape[1]), "log_sigma": np.log(y.std())}
    return Posterior(lv.Target(log_prior, log_likelihood), {"x": x, "y": y}, theta_0, unconstrained, draws)


def _named(*names: str) -> Columns:
    return lambda data: [data[name] for name in names]


def _logs(*names: str) -> Columns:
    return lambda data: [np.log(data[name]) for name in names]


def _levels(name: str, *levels: int) -> Columns:
    """A category as indicators of all levels but the first."""
    return lambda data: [(data[name] == level).astype(np.float64) for level in levels]


def _joined(*parts: Columns) -> Columns:
    return lambda data: [column for part in parts for column in part(data)]


def _crossed(first: Columns, second: Columns) -> Columns:
    """Two columns and their product."""

    def columns(data: Table) -> Sequence[Floats]:
        (a,), (b,) = first(data), second(data)
        return [a, b, a * b]

    return columns


def _centred(name: str) -> Columns:
    return lambda data: [data[name] - data[name].mean()]


def _standard(name: str, spread: float) -> Columns:
    """A column less its mean, in units of `spread` sample sds."""
    return lambda data: [(data[name] - data[name].mean()) / (spread * data[name].std(ddof=1))]


def _from(name: str, origin: float) -> Columns:
    return lambda data: [data[name] - origin]


def _enter(name: str, response: str, transform: Callable[[Floats], Floats], columns: Columns, **prior: Any) -> None:
    """A regression on the data set that the first half of its name says."""

    @listed(name)
    def build() -> Posterior:
        data = table(name.split("-")[0])
        return regression(transform(data[response]), columns(data), name, **prior)


_HEIGHT, _MALE, _HS, _IQ = _named("height"), _named("male"), _named("mom_hs"), _named("mom_iq")

for _name, _columns in {
    "kidiq-kidscore_momhs": _HS,
    "kidiq-kidscore_momiq": _IQ,
    "kidiq-kidscore_momhsiq": _joined(_HS, _IQ),
    "kidiq-kidscore_interaction": _crossed(_HS, _IQ),
}.items():
    _enter(_name, "kid_score", np.asarray, _columns, scale=2.5)

for _name, _columns in {
    "kidiq_with_mom_work-kidscore_interaction_c": _crossed(_centred("mom_hs"), _centred("mom_iq")),
    "kidiq_with_mom_work-kidscore_interaction_c2": _crossed(_from("mom_hs", 0.5), _from("mom_iq", 100.0)),
    "kidiq_with_mom_work-kidscore_interaction_z": _crossed(_standard("mom_hs", 2.0), _standard("mom_iq", 2.0)),
    "kidiq_with_mom_work-kidscore_mom_work": _levels("mom_work", 2, 3, 4),
}.items():
    _enter(_name, "kid_score", np.asarray, _columns)

_enter("earnings-earn_height", "earn", np.asarray, _HEIGHT)
_enter("earnings-log10earn_height", "earn", np.log10, _HEIGHT)
_enter("earnings-logearn_height", "earn", np.log, _HEIGHT)
_enter("earnings-logearn_height_male", "earn", np.log, _joined(_HEIGHT, _MALE))
_enter("earnings-logearn_logheight_male", "earn", np.log, _joined(_logs("height"), _MALE))
_enter("earnings-logearn_interaction", "earn", np.log, _crossed(_HEIGHT, _MALE))
_enter("earnings-logearn_interaction_z", "earn", np.log, _crossed(_standard("height", 1.0), _MALE))


def _volume(data: Table) -> Sequence[Floats]:
    return [np.log(data["diam1"] * data["diam2"] * data["canopy_height"])]


def _area(data: Table) -> Sequence[Floats]:
    return [np.log(data["diam1"] * data["diam2"])]


def _shape(data: Table) -> Sequence[Floats]:
    return [np.log(data["diam1"] / data["diam2"])]


_MEASURED, _GROUP = ("diam1", "diam2", "canopy_height", "total_height", "density"), _named("group")
_enter("mesquite-mesquite", "weight", np.asarray, _named(*_MEASURED, "group"))
for _name, _columns in {
    "mesquite-logmesquite": _joined(_logs(*_MEASURED), _GROUP),
    "mesquite-logmesquite_logvolume": _volume,
    "mesquite-logmesquite_logva": _joined(_volume, _area, _GROUP),
    "mesquite-logmesquite_logvash": _joined(_volume, _area, _shape, _logs("total_height"), _GROUP),
    "mesquite-logmesquite_logvas": _joined(_volume, _area, _shape, _logs("total_height", "density"), _GROUP),
}.items():
    _enter(_name, "weight", np.log, _columns)

_ELECTION = _joined(
    _named("real_ideo", "race_adj"), _levels("age_discrete", 2, 3, 4), _named("educ1", "gender", "income")
)
for _year in (1972, 1976, 1980, 1984):
    _enter(f"nes{_year}-nes", "partyid7", np.asarray, _ELECTION)


@listed("kilpisjarvi_mod-kilpisjarvi")
def kilpisjarvi() -> Posterior:
    """Summer temperatures on the year: intercept and slope correlate at 0.9999 and more."""
    data = table("kilpisjarvi_mod")
    return regression(
        data["y"],
        [data["x"]],
        "kilpisjarvi_mod-kilpisjarvi",
        mean=np.array([data["pmualpha"], data["pmubeta"]]),
        sd=np.array([data["psalpha"], data["psbeta"]]),
        coefficients=lambda found: np.stack([found["alpha"], found["beta"]], axis=-1),
    )


@listed("arK-arK")
def autoregression() -> Posterior:
    """Five lags: every row holds the values before its own."""
    data = table("arK")
    y, lags = data["y"], data["K"]
    return regression(
        y[lags:],
        [y[lags - k : -k] for k in range(1, lags + 1)],
        "arK-arK",
        scale=2.5,
        sd=10.0,
        coefficients=lambda found: np.concatenate([found["alpha"][..., None], vector(found, "beta")], axis=-1),
    )
