"""Families of a regression: the log density of a response given its linear predictor, its mean, and draws of it.

`more` holds what a family has beside the coefficients, on scales without bounds, so that every number is a parameter.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from langevin.target import log_sigmoid, sigmoid

Array = Any
More = Mapping[str, Array]


@dataclass(frozen=True)
class Family:
    """One family. `rule` says in words what a response must be, `holds` whether it is.

    log_density(eta, y, more): of one row. mean(eta, more): the expected response, or the probabilities of its levels.
    draw(rng, mean, more): NumPy draws of the response around their means. `more`: names of further parameters, each
    with its log prior. `scaled`: whether eta has the response's units. `levels`: whether it is one of several.
    """

    name: str
    log_density: Callable[[Array, Array, More], Array]
    mean: Callable[[Array, More], Array]
    draw: Callable[[np.random.Generator, np.ndarray, More], np.ndarray]
    rule: str
    holds: Callable[[np.ndarray], bool]
    link: Callable[[float], float]
    more: Mapping[str, Callable[[Array], Array]] = field(default_factory=dict)
    scaled: bool = False
    levels: bool = False


def _exponential_of_log(log_value: Array) -> Array:
    """An exponential law of mean 1 for a positive number, as a density of its logarithm."""
    return log_value - jnp.exp(log_value)


def _degrees(log_nu: Array) -> Array:
    """A gamma law of shape 2 and mean 20, as a density of the logarithm."""
    return 2.0 * log_nu - 0.1 * jnp.exp(log_nu)


def _normal(eta: Array, y: Array, more: More) -> Array:
    return -0.5 * ((y - eta) * jnp.exp(-more["log sigma"])) ** 2 - more["log sigma"]


def _gamma_excess(x: Array, a: Array) -> Array:
    """log Gamma(x + a) - log Gamma(x) - a log x, by Stirling's series from x = 10 on: differences of log-gamma
    functions of large numbers have no digits in float32, and the same error in all rows."""
    large = jnp.maximum(x, 10.0)
    ends = [1.0 / (12.0 * end) - 1.0 / (360.0 * end**3) + 1.0 / (1260.0 * end**5) for end in (large + a, large)]
    series = (large + a - 0.5) * jnp.log1p(a / large) - a + ends[0] - ends[1]
    small = jnp.minimum(x, 10.0)
    return jnp.where(x < 10.0, gammaln(small + a) - gammaln(small) - a * jnp.log(small), series)


def _student(eta: Array, y: Array, more: More) -> Array:
    nu, z = jnp.exp(more["log nu"]), (y - eta) * jnp.exp(-more["log sigma"])
    constant = _gamma_excess(0.5 * nu, 0.5) - 0.5 * np.log(2.0) - more["log sigma"]
    return constant - 0.5 * (nu + 1.0) * jnp.log1p(z * z / nu)


def _student_draw(rng: np.random.Generator, mean: np.ndarray, more: More) -> np.ndarray:
    return mean + np.exp(more["log sigma"]) * rng.standard_t(np.exp(more["log nu"]), mean.shape)


def _binary_draw(rng: np.random.Generator, mean: np.ndarray, more: More) -> np.ndarray:
    return (rng.random(mean.shape) < mean).astype(np.float64)


def _negative_binomial(eta: Array, y: Array, more: More) -> Array:
    phi = jnp.exp(more["log phi"])
    # log(1 + mean/phi) through log_sigmoid.
    return _gamma_excess(phi, y) + y * eta + (y + phi) * log_sigmoid(more["log phi"] - eta)


def _with_zero(eta: Array) -> Array:
    return jnp.concatenate([jnp.zeros_like(eta[..., :1]), eta], axis=-1)


def _categorical(eta: Array, y: Array, more: More) -> Array:
    scores = _with_zero(eta)
    return jnp.sum(jnp.where(jnp.arange(scores.shape[-1]) == y, scores, 0.0)) - jax.nn.logsumexp(scores)


def cuts(more: More) -> Array:
    """Increasing thresholds from the first one and the logarithms of their distances."""
    return more["cuts"][..., :1] + jnp.concatenate(
        [jnp.zeros_like(more["cuts"][..., :1]), jnp.cumsum(jnp.exp(more["cuts"][..., 1:]), axis=-1)], axis=-1
    )


def _levels_below(eta: Array, more: More) -> Array:
    """P(y <= k) for every level, the last one 1."""
    below = sigmoid(cuts(more) - eta[..., None])
    return jnp.concatenate([below, jnp.ones_like(below[..., :1])], axis=-1)


def _ordinal_mean(eta: Array, more: More) -> Array:
    below = _levels_below(eta, more)
    return jnp.diff(below, axis=-1, prepend=jnp.zeros_like(below[..., :1]))


def _ordinal(eta: Array, y: Array, more: More) -> Array:
    """log(F(c_y - eta) - F(c_{y-1} - eta)), F the logistic function, without a difference of near numbers."""
    at = cuts(more)
    last = at.shape[-1]
    upper, lower = at[jnp.minimum(y, last - 1)] - eta, at[jnp.maximum(y - 1, 0)] - eta
    inside = (
        log_sigmoid(upper)
        + log_sigmoid(-lower)
        + jnp.log(-jnp.expm1(jnp.where((y > 0) & (y < last), lower - upper, -1.0)))
    )
    return jnp.where(y == 0, log_sigmoid(upper), jnp.where(y == last, log_sigmoid(-lower), inside))


def _of_levels(rng: np.random.Generator, probabilities: np.ndarray, more: More) -> np.ndarray:
    below = np.cumsum(probabilities, axis=-1)[..., :-1]
    return np.sum(rng.random((*below.shape[:-1], 1)) > below, axis=-1)


def _counts(y: np.ndarray) -> bool:
    return bool(np.all((y >= 0) & (y == np.round(y))))


def _logit(p: float) -> float:
    return float(np.log(p / (1.0 - p)))


def _identity(eta: Array, more: More) -> Array:
    return eta


FAMILIES = {
    family.name: family
    for family in (
        Family(
            "gaussian", _normal, _identity,
            lambda rng, mean, more: rng.normal(mean, np.exp(more["log sigma"])),
            "numbers", lambda y: True, float, {"log sigma": _exponential_of_log}, scaled=True,
        ),
        Family(
            "student", _student, _identity,
            _student_draw,
            "numbers", lambda y: True, float, {"log sigma": _exponential_of_log, "log nu": _degrees}, scaled=True,
        ),
        Family(
            "bernoulli", lambda eta, y, more: log_sigmoid((2.0 * y - 1.0) * eta), lambda eta, more: sigmoid(eta),
            _binary_draw,
            "0 or 1 (or two levels), and both must occur", lambda y: set(np.unique(y)) == {0.0, 1.0}, _logit,
        ),
        Family(
            "binomial",
            lambda eta, y, more: y[0] * log_sigmoid(eta) + (y[1] - y[0]) * log_sigmoid(-eta),
            lambda eta, more: sigmoid(eta),
            lambda rng, mean, more: rng.binomial(more["trials"].astype(int), mean),
            "numbers of successes, whole and at most the trials", _counts, _logit,
        ),
        Family(
            "poisson", lambda eta, y, more: y * eta - jnp.exp(eta), lambda eta, more: jnp.exp(eta),
            lambda rng, mean, more: rng.poisson(mean), "counts, 0, 1, 2, ...", _counts, lambda m: float(np.log(m)),
        ),
        Family(
            "negative-binomial", _negative_binomial, lambda eta, more: jnp.exp(eta),
            lambda rng, mean, more: rng.poisson(rng.gamma(np.exp(more["log phi"]), mean / np.exp(more["log phi"]))),
            "counts, 0, 1, 2, ...", _counts, lambda m: float(np.log(m)), {"log phi": _exponential_of_log},
        ),
        Family(
            "categorical", _categorical, lambda eta, more: jax.nn.softmax(_with_zero(eta), axis=-1), _of_levels,
            "one of three or more levels", lambda y: y.max() >= 2, lambda m: 0.0, levels=True,
        ),
        Family(
            "ordinal", _ordinal, _ordinal_mean, _of_levels,
            "one of three or more ordered levels", lambda y: y.max() >= 2, lambda m: 0.0, levels=True,
        ),
    )
}  # fmt: skip
