"""Saved runs that several files of tests share."""

import jax.numpy as jnp
import pytest

import langevin as lv
from tests.unit.saved import Problem, sampled


@pytest.fixture(scope="module")
def flat() -> Problem:
    model = lv.models.Logistic.simulate(seed=1)
    return sampled(model.target, model.data, model.theta_0)


@pytest.fixture(scope="module")
def nested() -> Problem:
    """Without data, in all the containers that a file can hold."""
    target = lv.Target(lambda theta: -jnp.sum(jnp.cosh(theta["b"][0])) - 0.5 * theta["a"]["x"][0] ** 2)
    return sampled(target, None, {"b": [jnp.ones(2), None], "a": {"x": (jnp.float32(0.3),)}})
