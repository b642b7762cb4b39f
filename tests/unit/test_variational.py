"""The variational baseline: the Gaussian that its family can reach, and no more than that."""

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv

pytest.importorskip("optax", reason="needs the extra svi")

RNG = np.random.default_rng(3)
# Correlated predictors: mean field must see sds that are too small by 1 / sqrt(1 - rho^2).
X = (RNG.normal(size=(400, 2)) @ np.array([[1.0, 0.9], [0.0, np.sqrt(1 - 0.81)]])).astype(np.float32)
Y = (X @ np.array([0.5, -0.3]) + RNG.normal(size=400)).astype(np.float32)
TARGET = lv.Target(lambda t: -0.5 * jnp.dot(t, t), lambda t, d: -0.5 * (d["y"] - jnp.dot(d["x"], t)) ** 2)
DATA = {"x": X, "y": Y}
PRECISION = np.eye(2) + X.T.astype(float) @ X
MEAN = np.linalg.solve(PRECISION, X.T.astype(float) @ Y)
SD = np.sqrt(np.diagonal(np.linalg.inv(PRECISION)))


def fitted(family, **more):
    return lv.svi(TARGET, DATA, np.zeros(2), family=family, **{"batch_size": 100, "num_steps": 6000, **more})


@pytest.mark.slow
def test_full_rank_finds_the_posterior_and_mean_field_its_conditionals():
    # One seed each, so no rate: errors are a tenth of the allowance. Each is the other's control.
    full, field = fitted("full_rank"), fitted("mean_field")
    np.testing.assert_allclose(full.mean, MEAN, atol=0.1 * SD.min())
    np.testing.assert_allclose(full.sd, SD, rtol=0.05)
    np.testing.assert_allclose(full.covariance, np.linalg.inv(PRECISION), rtol=0.1)
    np.testing.assert_allclose(field.sd, 1 / np.sqrt(np.diagonal(PRECISION)), rtol=0.05)
    assert np.all(field.sd < 0.6 * SD) and np.count_nonzero(field.covariance) == 2
    assert full.elbo > field.elbo and full.visits == 600_000 and len(full.names) == 2


@pytest.mark.slow
def test_the_same_seed_gives_the_same_fit():
    one, two, other = (fitted("mean_field", num_steps=20, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.mean, two.mean) and not np.array_equal(one.mean, other.mean)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="family must be 'mean_field' or 'full_rank', got 'low_rank'"):
        fitted("low_rank")
    with pytest.raises(ValueError, match="batch_size must be an integer of at least 1"):
        fitted("mean_field", batch_size=0)
    with pytest.raises(ValueError, match="learning_rate must be a positive number, got -1"):
        fitted("mean_field", learning_rate=-1)
    with pytest.raises(ValueError, match="data must be given"):
        lv.svi(TARGET, None, np.zeros(2), batch_size=1)
