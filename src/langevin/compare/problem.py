"""A posterior on which samplers are compared, and what the different samplers need to know of it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from numpy.typing import NDArray

import langevin as lv
from langevin.data.source import as_source

Array = Any
Floats = NDArray[np.float64]
Singles = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Problem:
    """A target on a flat vector theta, its data, and its name in the table.

    `prior_sd` is given where the prior is N(0, prior_sd^2), which the samplers of Crank and Nicolson need. `family`
    and `data = (x, y)` let PyTorch and TensorFlow write the likelihood anew, and bound it where it is logistic.
    Where theta itself says nothing, `predict(theta, row)` for each of `rows` is what is compared; `start` is where a
    search for a mode begins that would not leave zero.
    """

    name: str
    target: lv.Target
    data: Any
    dimension: int
    prior_sd: Singles | None = None
    family: str | None = None
    predict: Callable[[Array, Any], Array] | None = None
    rows: Any = None
    start: Singles | None = None

    @property
    def theta_0(self) -> Singles:
        """Where everything starts: zero, the centre of the priors, unless told otherwise."""
        return np.zeros(self.dimension, np.float32) if self.start is None else self.start

    def compared(self, draws: Floats) -> Floats:
        """Draws of theta (..., d) as draws of what is compared: theta itself, or the predictions of all rows."""
        if self.predict is None:
            return draws
        flat = jnp.asarray(draws.reshape(-1, self.dimension), jnp.float32)
        return np.asarray(_predicted(self.predict, flat, self.rows), np.float64).reshape(*draws.shape[:-1], -1)

    @property
    def num_data(self) -> int:
        """N, the number of data."""
        return as_source(self.data).num_data

    @property
    def batch_size(self) -> int:
        """Rows of a minibatch, for all who ask: N/100, which is what `lv.tune` takes, but at least 10 of 20 or more."""
        return int(np.clip(self.num_data // 100, min(10, self.num_data // 2), 1000))


@partial(jax.jit, static_argnums=0)
def _predicted(predict: Callable[[Array, Any], Array], draws: Array, rows: Any) -> Array:
    return jax.lax.map(lambda theta: jax.vmap(predict, (None, 0))(theta, rows), draws, batch_size=1024)


def gaussian_prior(sd: Singles) -> Callable[[Array], Array]:
    """Log density of N(0, sd^2) up to a constant."""
    half = (0.5 / np.asarray(sd, np.float64) ** 2).astype(np.float32)

    def log_prior(theta: Array) -> Array:
        return -jnp.sum(half * theta**2)

    return log_prior


def _logistic(eta: Array, y: Array) -> Array:
    return lv.log_sigmoid(y * eta)


def _poisson(eta: Array, y: Array) -> Array:
    return y * eta - jnp.exp(eta) - gammaln(y + 1.0)


LINKS = {"logistic": _logistic, "poisson": _poisson}


def regression(name: str, family: str, x: Singles, y: Singles, prior_sd: Singles) -> Problem:
    """A generalised linear model with coefficients theta; y is -1 or 1 for the logistic family."""
    link = LINKS[family]

    def log_likelihood(theta: Array, datum: tuple[Array, Array]) -> Array:
        return link(jnp.dot(datum[0], theta), datum[1])

    target = lv.Target(gaussian_prior(prior_sd), log_likelihood)
    return Problem(name, target, (x, y), x.shape[1], prior_sd=prior_sd, family=family)


def standardised(columns: Floats) -> tuple[Singles, Singles]:
    """An intercept and columns of mean 0 and sd 1, and the prior sds: 10 of the intercept, 2.5 of the slopes."""
    x = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    x = np.column_stack([np.ones(len(x)), x]).astype(np.float32)
    return x, np.where(np.arange(x.shape[1]) == 0, 10.0, 2.5).astype(np.float32)


def log_density(problem: Problem) -> Callable[[Array, Any], Array]:
    """log pi(theta) from all the data, up to a constant; data are an argument, so that no program holds them."""
    likelihood: Any = problem.target.log_likelihood

    def value(theta: Array, data: Any) -> Array:
        return problem.target.log_prior(theta) + jnp.sum(jax.vmap(likelihood, (None, 0))(theta, data))

    return value
