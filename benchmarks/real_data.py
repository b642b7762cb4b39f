"""Posteriors on real data that no rule was tuned on: five families, most with columns in their raw units.

The data come with scikit-learn and statsmodels (the `bench` extra). Priors are N(0, 2.5^2) for coefficients in units of
one standard deviation of their column, N(0, 10^2) for intercepts, so that raw units change nothing but the numbers.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from numpy.typing import NDArray

import langevin as lv
from benchmarks.targets import Problem, listed

Floats = NDArray[np.float32]
_SLOPE, _INTERCEPT = 2.5, 10.0


def _columns(table: Any, names: list[str] | None = None) -> tuple[Floats, Floats]:
    """An intercept and these columns, or all, as they are, and the prior sds of their coefficients."""
    columns = [np.asarray(table[name], np.float64) for name in (table if names is None else names)]
    x = np.stack([np.ones_like(columns[0]), *columns], axis=1)
    spread = np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    prior = np.where(np.arange(x.shape[1]) == 0, _INTERCEPT, _SLOPE) / spread
    return x.astype(np.float32), prior.astype(np.float32)


def _normal(theta: jax.Array, sd: Any) -> jax.Array:
    return -0.5 * jnp.sum((theta / sd) ** 2)


def _regression(x: Floats, prior: Floats, y: Any, log_likelihood: Any, steps: int, note: str) -> Problem:
    """A generalised linear model with coefficients theta."""
    target = lv.Target(
        lambda theta: _normal(theta, prior), lambda theta, row: log_likelihood(jnp.dot(row["x"], theta), row["y"])
    )
    return Problem(target, {"x": x, "y": np.asarray(y, np.float32)}, np.zeros(x.shape[1]), steps, note)


def _logistic(eta: jax.Array, y: jax.Array) -> jax.Array:
    return lv.log_sigmoid((2.0 * y - 1.0) * eta)


def _poisson(eta: jax.Array, y: jax.Array) -> jax.Array:
    return y * eta - jnp.exp(eta) - gammaln(y + 1.0)


@listed
def doctor_visits() -> Problem:
    """Visits to a doctor in the RAND health insurance experiment: counts, raw columns."""
    from statsmodels.datasets import randhie

    table = randhie.load_pandas().data
    x, prior = _columns(table, ["lncoins", "idp", "lpi", "fmde", "physlm", "disea", "hlthg", "hlthf", "hlthp"])
    return _regression(x, prior, table["mdvis"], _poisson, 1000, "Poisson, 20,190 rows, raw columns")


@listed
def affairs() -> Problem:
    """Whether a woman had an affair (Fair 1978): raw columns."""
    from statsmodels.datasets import fair

    table = fair.load_pandas().data
    names = [name for name in table.columns if name != "affairs"]
    x, prior = _columns(table, names)
    return _regression(x, prior, table["affairs"] > 0, _logistic, 1000, "logistic, 6,366 rows, raw columns")


@listed
def vote() -> Problem:
    """Expected vote in the American national election study of 1996: raw columns."""
    from statsmodels.datasets import anes96

    table = anes96.load_pandas().data
    x, prior = _columns(table, ["logpopul", "TVnews", "selfLR", "age", "educ", "income"])
    return _regression(x, prior, table["vote"], _logistic, 1000, "logistic, 944 rows, raw columns")


@listed
def diabetes() -> Problem:
    """Progression of diabetes on ten measurements, with an unknown log sd: raw response."""
    from sklearn.datasets import load_diabetes

    data = load_diabetes(as_frame=True, scaled=False)
    x, prior = _columns(data.data)
    y = np.asarray(data.target, np.float64)
    # The response has an sd of 77: coefficients are in its units.
    size = float(y.std())

    def log_prior(theta: Any) -> jax.Array:
        return _normal(theta["beta"], size * prior) + _normal(theta["log_sd"] - np.float32(np.log(size)), 1.0)

    def log_likelihood(theta: Any, row: Any) -> jax.Array:
        z = (row["y"] - jnp.dot(row["x"], theta["beta"])) * jnp.exp(-theta["log_sd"])
        return -0.5 * z * z - theta["log_sd"]

    start = {"beta": np.zeros(x.shape[1]), "log_sd": np.float64(np.log(size))}
    data_arrays = {"x": x, "y": y.astype(np.float32)}
    return Problem(lv.Target(log_prior, log_likelihood), data_arrays, start, 1000, "linear, log sd, 442 rows, raw")


@listed
def food() -> Problem:
    """Food expenditure on income (Engel), Student t errors: raw Belgian francs."""
    from statsmodels.datasets import engel

    table = engel.load_pandas().data
    x, prior = _columns(table, ["income"])
    y = np.asarray(table["foodexp"], np.float64)
    size, df = float(y.std()), 5.0

    def log_prior(theta: Any) -> jax.Array:
        return _normal(theta["beta"], size * prior) + _normal(theta["log_scale"] - np.float32(np.log(size)), 1.0)

    def log_likelihood(theta: Any, row: Any) -> jax.Array:
        z = (row["y"] - jnp.dot(row["x"], theta["beta"])) * jnp.exp(-theta["log_scale"])
        return -0.5 * (df + 1.0) * jnp.log1p(z * z / df) - theta["log_scale"]

    start = {"beta": np.zeros(2), "log_scale": np.float64(np.log(size))}
    data = {"x": x, "y": y.astype(np.float32)}
    return Problem(lv.Target(log_prior, log_likelihood), data, start, 1000, "Student t, 235 rows, raw")


@listed
def digits() -> Problem:
    """Handwritten 3, 8 and 9 told apart by the ink in eight rows of pixels: softmax regression."""
    from sklearn.datasets import load_digits

    data = load_digits()
    chosen = np.isin(data.target, (3, 8, 9))
    ink = data.images[chosen].sum(axis=2)
    x, prior = _columns({str(k): column for k, column in enumerate(ink.T)})
    y = np.searchsorted((3, 8, 9), data.target[chosen])

    def log_likelihood(theta: Any, row: Any) -> jax.Array:
        eta = jnp.concatenate([jnp.zeros(1, theta.dtype), theta @ row["x"]])
        return eta[row["y"]] - jax.scipy.special.logsumexp(eta)

    target = lv.Target(lambda theta: _normal(theta, prior), log_likelihood)
    return Problem(target, {"x": x, "y": y.astype(np.int32)}, np.zeros((2, 9)), 1000, "softmax, 3 classes, raw counts")
