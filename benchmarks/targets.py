"""Posteriors on which the intervals are judged: ordinary regressions, awkward ones, each on data that never change.

Every data set is the first that was drawn from its model, none discarded for what came of it, and rounded to float32
as it is drawn, so that a run and its reference see the same numbers. `references.py` holds what is true of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from numpy.typing import NDArray
from scipy.special import expit

import langevin as lv
from langevin.data.source import as_source
from langevin.models import Logistic
from langevin.paper import problems as paper
from langevin.target import Layout

Floats = NDArray[np.float64]
Rng = np.random.Generator
PyTree = Any


@dataclass(frozen=True, eq=False)
class Problem:
    """A posterior and what a run on it needs; `steps`: recorded steps a chain at which its intervals should cover.

    A `hard` one is beyond the method, and should be flagged rather than answered.
    """

    target: lv.Target
    data: PyTree
    theta_0: PyTree
    steps: int
    note: str
    hard: bool = False

    @property
    def num_data(self) -> int:
        """N, the number of data."""
        return as_source(self.data).num_data

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the flat parameters, d of them."""
        return Layout.of(self.theta_0).names


BUILDERS: dict[str, Callable[[], Problem]] = {}


def listed(build: Callable[[], Problem]) -> Callable[[], Problem]:
    """Enters a builder in the catalogue under its name; its problem is made once, so that compiled code is reused."""
    BUILDERS[build.__name__] = cache(build)
    return BUILDERS[build.__name__]


def catalogue(real: bool = False) -> list[str]:
    """Names of the simulated problems, or of the real ones."""
    simulated = [name for name, build in BUILDERS.items() if build.__module__ == __name__]
    if not real:
        return simulated
    import benchmarks.real_data  # noqa: F401

    return [name for name in BUILDERS if name not in simulated]


def problem(name: str) -> Problem:
    """The problem of that name; the same object every time."""
    if name not in BUILDERS:
        # Their packages are installed with the bench extra only.
        import benchmarks.real_data  # noqa: F401
    if name not in BUILDERS:
        raise ValueError(f"name must be one of {', '.join(BUILDERS)}, got {name!r}.")
    return BUILDERS[name]()


def _normal(x: PyTree, sd: Any) -> jax.Array:
    """Log density of independent N(0, sd^2) up to a constant."""
    return -0.5 * jnp.sum((x / sd) ** 2)


def _single(x: Any) -> NDArray[np.float32]:
    return np.asarray(x, np.float32)


def _design(rng: Rng, num_data: int, columns: int) -> NDArray[np.float32]:
    """Standard normal covariates with a 1 in the last column."""
    x = _single(rng.standard_normal((num_data, columns)))
    x[:, -1] = 1.0
    return x


def _labels(rng: Rng, x: NDArray, beta: Any) -> Floats:
    return np.where(rng.random(len(x)) < expit(x.astype(np.float64) @ np.asarray(beta)), 1.0, -1.0)


def _logistic(x: NDArray, y: Floats, note: str, steps: int = 1000) -> Problem:
    """Logistic regression with theta ~ N(0, 2.5^2 I)."""
    model = Logistic(x.astype(np.float64), y, 2.5)
    return Problem(model.target, model.data, np.zeros(model.dimension, np.float32), steps, note)


@listed
def logistic_paper() -> Problem:
    model = paper.logistic()
    return Problem(model.target, model.data, np.zeros(3, np.float32), 1000, "the paper's problem, prior N(0, 1)")


@listed
def logistic_20() -> Problem:
    rng = np.random.default_rng(20)
    x = _design(rng, 1000, 20)
    y = _labels(rng, x, 0.5 * rng.standard_normal(20))
    return _logistic(x, y, "50 data a parameter")


@listed
def logistic_large() -> Problem:
    rng = np.random.default_rng(21)
    x = _design(rng, 100_000, 10)
    y = _labels(rng, x, 0.5 * rng.standard_normal(10))
    return _logistic(x, y, "many data")


def _rare(num_data: int, intercept: float, seed: int, steps: int) -> Problem:
    rng = np.random.default_rng(seed)
    x = _design(rng, num_data, 3)
    y = _labels(rng, x, [1.0, -0.5, intercept])
    return _logistic(x, y, f"{int(np.sum(y > 0))} positives in {num_data}", steps)


@listed
def rare_100() -> Problem:
    return _rare(100, -2.5, seed=22, steps=4000)


@listed
def rare_300() -> Problem:
    return _rare(300, -3.5, seed=23, steps=4000)


@listed
def bad_scales() -> Problem:
    """A logistic regression in units from 1e-4 to 1e4, the prior in the same units; the third column is constant."""
    rng = np.random.default_rng(24)
    units = 10.0 ** np.array([-4, -2, 0, 2, 4])
    standard = rng.standard_normal((1000, 5))
    standard[:, 2] = 1.0
    x = _single(standard * units)
    y = _labels(rng, x, 0.7 * rng.standard_normal(5) / units)
    prior_sd = _single(2.5 / units)

    def log_likelihood(theta: jax.Array, datum: tuple) -> jax.Array:
        return lv.log_sigmoid(datum[1] * jnp.dot(datum[0], theta))

    target = lv.Target(lambda theta: _normal(theta, prior_sd), log_likelihood)
    return Problem(target, (x, _single(y)), np.zeros(5, np.float32), 1000, "columns of size 1e-4 to 1e4")


@listed
def poisson() -> Problem:
    """y ~ Poisson(exp(<x, beta>)), beta ~ N(0, 2.5^2)."""
    rng = np.random.default_rng(25)
    x = _design(rng, 1000, 5)
    y = rng.poisson(np.exp(x @ np.append(0.3 * rng.standard_normal(4), 0.5)))

    def log_likelihood(theta: jax.Array, datum: tuple) -> jax.Array:
        eta = jnp.dot(datum[0], theta)
        return datum[1] * eta - jnp.exp(eta)

    target = lv.Target(lambda theta: _normal(theta, 2.5), log_likelihood)
    return Problem(target, (x, _single(y)), np.zeros(5, np.float32), 1000, "counts with mean near 2")


@listed
def linear() -> Problem:
    """y ~ N(<x, beta>, sigma^2), beta ~ N(0, 5^2), log sigma ~ N(0, 2^2)."""
    rng = np.random.default_rng(26)
    x = _design(rng, 500, 5)
    y = x @ rng.standard_normal(5) + 1.5 * rng.standard_normal(500)

    def log_prior(theta: dict) -> jax.Array:
        return _normal(theta["beta"], 5.0) + _normal(theta["log_sigma"], 2.0)

    def log_likelihood(theta: dict, datum: tuple) -> jax.Array:
        standardised = (datum[1] - jnp.dot(datum[0], theta["beta"])) * jnp.exp(-theta["log_sigma"])
        return -theta["log_sigma"] - 0.5 * standardised**2

    theta_0 = {"beta": np.zeros(5, np.float32), "log_sigma": np.float32(0.0)}
    return Problem(lv.Target(log_prior, log_likelihood), (x, _single(y)), theta_0, 1000, "unknown noise level")


@listed
def student_t() -> Problem:
    """y = <x, beta> + scale t_4, beta ~ N(0, 5^2), log scale ~ N(0, 2^2)."""
    rng = np.random.default_rng(27)
    x = _design(rng, 500, 4)
    y = x @ rng.standard_normal(4) + 0.8 * rng.standard_t(4, 500)

    def log_prior(theta: dict) -> jax.Array:
        return _normal(theta["beta"], 5.0) + _normal(theta["log_scale"], 2.0)

    def log_likelihood(theta: dict, datum: tuple) -> jax.Array:
        standardised = (datum[1] - jnp.dot(datum[0], theta["beta"])) * jnp.exp(-theta["log_scale"])
        return -theta["log_scale"] - 2.5 * jnp.log1p(standardised**2 / 4.0)

    theta_0 = {"beta": np.zeros(4, np.float32), "log_scale": np.float32(0.0)}
    return Problem(lv.Target(log_prior, log_likelihood), (x, _single(y)), theta_0, 1000, "outliers; t with 4 df")


@listed
def softmax() -> Problem:
    """Four classes, the first of them the baseline: three contrasts of 4 weights and a bias, all N(0, 2.5^2)."""
    rng = np.random.default_rng(28)
    x = _single(rng.standard_normal((1000, 4)))
    logits = np.pad(x @ (0.7 * rng.standard_normal((4, 3))) + 0.5 * rng.standard_normal(3), ((0, 0), (1, 0)))
    y = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1).astype(np.int32)

    def log_prior(theta: dict) -> jax.Array:
        return _normal(theta["bias"], 2.5) + _normal(theta["weights"], 2.5)

    def log_likelihood(theta: dict, datum: tuple) -> jax.Array:
        contrasts = datum[0] @ theta["weights"] + theta["bias"]
        logits = jnp.concatenate([jnp.zeros_like(contrasts[:1]), contrasts])
        return jnp.sum(jnp.where(jnp.arange(4) == datum[1], logits, 0.0)) - logsumexp(logits)

    theta_0 = {"bias": np.zeros(3, np.float32), "weights": np.zeros((4, 3), np.float32)}
    return Problem(lv.Target(log_prior, log_likelihood), (x, y), theta_0, 1000, "four classes")


@listed
def negative_binomial() -> Problem:
    """y ~ NB with mean mu = exp(<x, beta>) and variance mu + mu^2 exp(log_dispersion); N(0, 2.5^2), N(0, 2^2)."""
    rng = np.random.default_rng(29)
    x = _design(rng, 1000, 4)
    y = rng.poisson(np.exp(x @ np.append(0.3 * rng.standard_normal(3), 1.0)) * rng.gamma(2.0, 0.5, 1000))

    def log_prior(theta: dict) -> jax.Array:
        return _normal(theta["beta"], 2.5) + _normal(theta["log_dispersion"], 2.0)

    def log_likelihood(theta: dict, datum: tuple) -> jax.Array:
        eta, size = jnp.dot(datum[0], theta["beta"]), jnp.exp(-theta["log_dispersion"])
        excess = jnp.logaddexp(eta, -theta["log_dispersion"])
        counts = gammaln(datum[1] + size) - gammaln(size) + datum[1] * (eta - excess)
        return counts - size * (theta["log_dispersion"] + excess)

    theta_0 = {"beta": np.zeros(4, np.float32), "log_dispersion": np.float32(0.0)}
    return Problem(lv.Target(log_prior, log_likelihood), (x, _single(y)), theta_0, 1000, "overdispersed counts")


def _hierarchical(tau: float, smallest: float, largest: float, seed: int, note: str) -> Problem:
    """Group means y_j ~ N(mu, s_j^2 + tau^2), group effects integrated out; mu ~ N(0, 5^2), log tau ~ N(0, 1)."""
    rng = np.random.default_rng(seed)
    s = _single(rng.uniform(smallest, largest, 36))
    y = 1.0 + np.sqrt(s.astype(np.float64) ** 2 + tau**2) * rng.standard_normal(36)

    def log_prior(theta: dict) -> jax.Array:
        return _normal(theta["mu"], 5.0) + _normal(theta["log_tau"], 1.0)

    def log_likelihood(theta: dict, datum: tuple) -> jax.Array:
        variance = datum[1] ** 2 + jnp.exp(2.0 * theta["log_tau"])
        return -0.5 * jnp.log(variance) - 0.5 * (datum[0] - theta["mu"]) ** 2 / variance

    theta_0 = {"log_tau": np.float32(0.0), "mu": np.float32(0.0)}
    return Problem(lv.Target(log_prior, log_likelihood), (_single(y), s), theta_0, 4000, note)


@listed
def hierarchical() -> Problem:
    return _hierarchical(0.6, 0.3, 1.2, seed=30, note="36 groups, tau = 0.6 as large as their errors")


@listed
def hierarchical_weak() -> Problem:
    one = _hierarchical(0.5, 0.5, 1.5, seed=30, note="36 groups, tau = 0.5 half their errors: a long left tail")
    return replace(one, hard=True)
