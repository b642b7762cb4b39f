"""`langevin compare` on predictions: what is pushed through is what was meant, and the long run finds what is true."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import langevin as lv
from benchmarks.long_run import long_run
from langevin.compare.found import LEVELS, NORMAL, from_draws, gaussian
from langevin.compare.planned import _squared, predicted
from langevin.compare.problem import Problem
from langevin.compare.samplers import SAMPLERS
from langevin.compare.targets import UNITS, problem

ROWS = np.array([[1.0, 0.0], [1.0, 2.0], [0.5, -1.0]], np.float32)


def linear(prior_sd=1.0):
    """Two parameters, three predictions that are linear in them, and 40 data of variance 1."""
    x = np.random.default_rng(0).standard_normal((40, 2)).astype(np.float32)
    y = (x @ [1.0, -1.0] + np.random.default_rng(1).standard_normal(40)).astype(np.float32)
    target = lv.Target(lambda t: -0.5 * jnp.sum(t**2) / prior_sd**2, lambda t, d: -0.5 * (d[1] - jnp.dot(d[0], t)) ** 2)
    covariance = np.linalg.inv(x.T @ x + np.eye(2) / prior_sd**2)
    one = Problem(
        "linear", target, (x, y), 2, prior_sd=np.full(2, prior_sd, np.float32),
        predict=lambda t, row: jnp.dot(row, t), rows=ROWS,
    )  # fmt: skip
    return one, ROWS @ covariance @ x.T @ y, np.sqrt(np.einsum("ri,ij,rj->r", ROWS, covariance, ROWS)), covariance


def test_draws_become_predictions_of_every_row():
    one, *_ = linear()
    draws = np.random.default_rng(2).standard_normal((4, 500, 2))
    assert_allclose(one.compared(draws), draws @ ROWS.T, atol=1e-5)
    found = from_draws(one, draws)
    assert_allclose(found.mean, (draws @ ROWS.T).mean(axis=(0, 1)), atol=1e-5)
    assert found.points.shape == (2, 3) and found.points_interval[0].shape == (2, 3)
    # Without predictions theta itself is compared, to the bit.
    assert replace(one, predict=None).compared(draws) is draws
    broken = draws.copy()
    broken[0, 0] = np.inf
    with pytest.raises(ArithmeticError, match="left the finite numbers"):
        from_draws(one, broken)


def test_a_normal_law_is_pushed_through_with_its_correlations():
    one, _, sd, covariance = linear()
    centre, root = np.array([1.0, -1.0]), np.linalg.cholesky(covariance)
    found = gaussian(one, centre, root)
    # 10^5 draws: five errors of the mean, of the sd, and of a 2.5% point.
    assert np.all(np.abs(found.mean - ROWS @ centre) < 5.0 * sd / 1e5**0.5)
    assert np.all(np.abs(found.sd / sd - 1.0) < 5.0 / 2e5**0.5)
    points = ROWS @ centre + sd * NORMAL * np.array([[-1.0], [1.0]])
    assert np.all(np.abs(found.points - points) < 5.0 * 2.67 * sd / 1e5**0.5)
    # Sabotage: sds alone lose the correlation.
    alone = gaussian(one, centre, np.sqrt(np.diag(covariance)))
    assert not np.all(np.abs(alone.sd / sd - 1.0) < 5.0 / 2e5**0.5)
    theta = gaussian(replace(one, predict=None), centre, root)
    assert_allclose(theta.sd, np.sqrt(np.diag(covariance)))


def test_the_response_of_the_network_is_its_formula_and_units_can_be_exchanged():
    one = problem("network")
    theta = np.random.default_rng(3).standard_normal(one.dimension).astype(np.float32)
    w, b = theta[: 10 * UNITS].reshape(10, UNITS), theta[10 * UNITS : 11 * UNITS]
    v, c = theta[11 * UNITS : 12 * UNITS], theta[12 * UNITS]
    assert one.dimension == 12 * UNITS + 2 and len(one.rows) + one.num_data == 442
    expected = np.tanh(one.rows @ w + b) @ v + c
    assert_allclose(one.compared(theta), expected, rtol=1e-4, atol=1e-5)
    order, sign = np.arange(UNITS)[::-1], np.array([1.0, -1.0, 1.0])
    twin = np.concatenate([(w * sign)[:, order].ravel(), (b * sign)[order], (v * sign)[order], theta[12 * UNITS :]])
    assert_allclose(one.compared(twin), expected, rtol=1e-4, atol=1e-5)
    row = (one.data[0][0], one.data[1][0])
    fitted = np.tanh(row[0] @ w + b) @ v + c
    assert_allclose(
        one.target.log_likelihood(jnp.asarray(theta), row),
        -0.5 * ((row[1] - fitted) / np.exp(theta[-1])) ** 2 - theta[-1],
        rtol=1e-4,
    )


def test_what_cannot_be_had_of_predictions_says_why():
    reasons = {name: one.refuses(problem("network")) for name, one in SAMPLERS.items()}
    assert "predictions" in reasons["sgld-corrected"] and "predictions" in reasons["romberg"]
    assert "not_mixed" in reasons["sample-exact"] and reasons["sample"] is reasons["laplace"] is None
    assert SAMPLERS["sgld-corrected"].refuses(problem("logistic")) is None


class Told:
    """A result whose expectations are exact, of draws from the posterior."""

    def __init__(self, draws):
        self.draws = draws

    def expectation(self, phi, data):
        flat = self.draws.reshape(-1, self.draws.shape[-1])
        found = jax.vmap(lambda t: jax.vmap(phi, (None, 0))(t, data))(jnp.asarray(flat))
        value = np.asarray(found, np.float64).mean(axis=0)
        fields = {name: np.zeros_like(value) for name in ("bias", "skewness", "kurtosis", "sigma2", "T_m", "B_m")}
        statuses = np.full(value.shape, "ok")
        stderr, df = np.full_like(value, 0.01), np.full_like(value, 1e6)
        return lv.Estimate(
            value=value, stderr=stderr, df=df, statuses=statuses, num_batches=np.array(20), **fields
        )  # fmt: skip


def test_predictions_of_a_result_have_the_sd_of_its_draws_and_no_bars_for_points():
    one, *_ = linear()
    draws = np.random.default_rng(4).standard_normal((4, 500, 2)).astype(np.float32)
    found = predicted(one, Told(draws), _squared(one))
    seen = (draws @ ROWS.T).reshape(-1, 3)
    assert_allclose(found.mean, seen.mean(axis=0), atol=1e-5)
    assert_allclose(found.sd, seen.std(axis=0), rtol=1e-4)
    assert_allclose(found.points, np.quantile(seen, LEVELS, axis=0), atol=1e-4)
    # d sqrt(v) = dv / (2 sqrt(v)).
    assert_allclose(found.sd_interval[1] - found.sd_interval[0], NORMAL * 0.01 / found.sd, rtol=1e-2)
    assert found.points_interval is None and found.status == "ok"


@pytest.mark.slow
def test_the_long_run_is_right_on_a_posterior_that_is_known():
    one, mean, sd, _ = linear()
    found = long_run(one, 1000, chains=8, warm_up=100)
    assert found.r_hat < 1.01 and found.draws == 8000
    # Six predictions and their sds within six errors each: a false alarm in 10^7 or so.
    assert np.all(np.abs(found.mean - mean) < 6.0 * found.mean_stderr)
    assert np.all(np.abs(found.sd - sd) < 6.0 * found.sd_stderr)
    # Sabotage: the truth of a prior that is half as wide.
    _, other, narrow, _ = linear(0.1)
    assert not np.all(np.abs(found.mean - other) < 6.0 * found.mean_stderr)
    assert not np.all(np.abs(found.sd - narrow) < 6.0 * found.sd_stderr)
