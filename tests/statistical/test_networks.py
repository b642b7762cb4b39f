"""Predictions without a Gaussian model against exact answers; sabotaged twins must be caught.

False alarms: an honest run is refused where one of its twelve values is more than 7 standard errors off. Student's t
has about 70 degrees of freedom here: 1e-8 for all of them. Statuses are those of stored seeds.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.gradients import Minibatch
from langevin.kernels import BAOAB
from langevin.networks import levels, settle

pytestmark = pytest.mark.slow
MOST = 7.0


def posterior(num_data, noise):
    """A linear regression whose posterior is about half as wide as its prior, and its mean and covariance."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(num_data, 5)).astype(np.float32)
    spread = np.sqrt(num_data / 3.0)
    y = (x @ np.array([1.0, -0.5, 0.5, 0.2, 0.0]) + noise * spread * rng.normal(size=num_data)).astype(np.float32)
    target = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, row: -0.5 * ((row["y"] - row["x"] @ t) / spread) ** 2)
    covariance = np.linalg.inv(x.T.astype(float) @ x / spread**2 + np.eye(5))
    return target, {"x": x, "y": y}, covariance @ x.T @ y / spread**2, covariance


# All the data in every step; and, where the data are fitted well as networks fit them, minibatches.
CASES = {"full": (400, 1.0, 12_000), "minibatch": (2000, 0.0, 4000)}


def errors(case, seed=0):
    """Errors of E[(x.theta)^2] at twelve new points in standard errors, statuses, and the result."""
    num_data, noise, passes = CASES[case]
    target, data, mean, covariance = posterior(num_data, noise)
    result = lv.sample(target, data, np.zeros(5), passes=passes, seed=seed, method="sghmc", progress=False)
    new = np.random.default_rng(2).normal(size=(12, 5)).astype(np.float32)
    found = result.expectation(lambda theta, row: (row @ theta) ** 2, data=new)
    exact = (new @ mean) ** 2 + np.einsum("ri,ij,rj->r", new, covariance, new)
    return (found.value - exact) / found.error, found.statuses, result


@pytest.mark.parametrize("case", CASES)
def test_second_moments_are_right(case):
    scores, statuses, result = errors(case)
    assert result.walk.settled.pair.full == (case == "full")
    assert np.mean(statuses == "ok") >= 0.75 and result.status == "ok"
    assert np.abs(scores).max() < MOST


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TwiceTheNoise(BAOAB):
    def step(self, state, grad, eta, delta):
        return super().step(state, grad, jnp.sqrt(2.0) * eta, delta)


@dataclass(frozen=True)
class HalfTheData(Minibatch):
    """The likelihood counts half: N/n forgotten, in a small way."""

    def term(self, log_likelihood, theta):
        return jax.tree.map(lambda leaf: 0.5 * leaf, super().term(log_likelihood, theta))


def caught(case):
    scores, statuses, result = errors(case)
    ok = statuses == "ok"
    return result.status != "ok" or not ok.any() or np.abs(scores[ok]).max() > MOST


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("part, twin", [("BAOAB", TwiceTheNoise), ("Minibatch", HalfTheData)])
def test_twins_are_caught(case, part, twin, monkeypatch):
    monkeypatch.setattr(levels, part, twin)
    assert caught(case)


def test_steps_that_are_too_large_are_not_ok(monkeypatch):
    """Twice the longest stable step: the chains leave the finite numbers, and say so."""
    monkeypatch.setattr(settle, "_SAFE", 2.0)
    monkeypatch.setattr(settle, "_HALVINGS", 0)
    with pytest.raises(lv.Diverged):
        errors("full")


def test_minibatches_that_are_too_small_are_not_ok(monkeypatch):
    """Gradient noise that a line cannot take off has its own word."""
    monkeypatch.setattr(settle, "_FIRST_BATCH", 1)
    monkeypatch.setattr(settle, "_SMALLEST_BATCH", 1)
    monkeypatch.setattr(settle, "_WANTED_BIAS", 10.0)
    _, statuses, result = errors("minibatch")
    assert result.status == "gradient_noise" and not np.any(statuses == "ok")
