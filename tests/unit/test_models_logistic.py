"""The logistic model: derivatives, mode, drift constants, simulation and labels."""

import jax
import numpy as np
import pytest
from scipy.special import expit, log_expit

from langevin.models import Logistic
from langevin.models import logistic as logistic_module

LOGISTICS = [
    Logistic.simulate(1000, 3, seed=0),
    Logistic.simulate(10, 2, seed=1),
    Logistic(np.array([[0.1]]), np.array([1.0]), prior_sd=2.0),
    Logistic(10.0 * np.eye(4), np.array([1, -1, 1, 1]), prior_sd=0.3),
]


def points(model: Logistic) -> np.ndarray:
    """Many directions, the covariates' own among them, at radii from 0 to far tails."""
    rng = np.random.default_rng(0)
    directions = np.concatenate([rng.standard_normal((60, model.dimension)), model.x[:10], -model.x[:10], [model.map]])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    radii = np.concatenate([[0.0], np.logspace(-4, 5, 46)])
    return (radii[:, None, None] * directions).reshape(-1, model.dimension)


def drift(model: Logistic, theta: np.ndarray) -> np.ndarray:
    return 0.5 * np.sum(model.lyapunov_grad(theta) * model.grad(theta), axis=-1)


def holds(model: Logistic, theta: np.ndarray, alpha: float, beta: float) -> bool:
    V = model.lyapunov(theta)
    return bool(np.all(drift(model, theta) <= -alpha * V + beta + 1e-12 * alpha * V))


@pytest.mark.parametrize("model", LOGISTICS)
def test_logistic_drift_inequality(model: Logistic) -> None:
    theta = points(model)
    alpha, beta = model.drift_constants
    assert alpha > 0
    assert holds(model, theta, alpha, beta)
    np.testing.assert_allclose(model.lyapunov(theta), 1 + np.linalg.norm(theta, axis=1) ** 2, rtol=1e-14)


def test_logistic_drift_constants_are_sharp() -> None:
    # Orthogonal large covariates: every u_i can sit at the maximum of u/(1+e^u) while theta is almost 0.
    model = Logistic(1e6 * np.eye(3), np.ones(3))
    alpha, beta = model.drift_constants
    u = 1 + logistic_module.LAMBERT
    theta = np.full(3, u / 1e6)
    np.testing.assert_allclose(drift(model, theta), -alpha * model.lyapunov(theta) + beta, rtol=1e-12)
    assert not holds(model, theta, alpha, beta - 1e-6)
    # alpha cannot be larger either: far out the drift is that of the prior.
    assert not holds(model, np.array([[0.0, 0.0, 1e5]]), alpha * 1.001, beta)


def printed_constants(model: Logistic) -> tuple[float, float]:
    """The paper's lambda/4 and the maximum of -lambda/4 r^2 + sum|x_i|/2 r, as printed."""
    precision = model.prior_sd**-2
    return precision / 4, np.linalg.norm(model.x, axis=1).sum() ** 2 / (4 * precision)


def test_printed_drift_constants_fail_when_the_prior_dominates() -> None:
    # beta as printed forgets the 1 of V = 1 + |theta|^2: at theta = 0 it asks for 0 <= -lambda/4 + beta.
    weak = Logistic(np.array([[0.1]]), np.array([1.0]))
    assert not holds(weak, np.zeros((1, 1)), *printed_constants(weak))
    # With much data the printed beta, quadratic in the data, is so large that the inequality happens to hold.
    strong = LOGISTICS[0]
    assert holds(strong, points(strong), *printed_constants(strong))
    assert printed_constants(strong)[1] > 1000 * strong.drift_constants[1]


def test_printed_drift_display_is_half_the_drift() -> None:
    model, theta = LOGISTICS[1], np.array([0.7, -1.3])
    u = model.y * (model.x @ theta)
    printed = -0.5 * theta @ theta / model.prior_sd**2 + 0.5 * np.sum(expit(-u) * u)
    np.testing.assert_allclose(drift(model, theta), 2 * printed, rtol=1e-13)


@pytest.mark.parametrize("model", [LOGISTICS[0], LOGISTICS[3]])
def test_logistic_derivatives(model: Logistic) -> None:
    theta = np.random.default_rng(1).standard_normal((20, model.dimension)) * 3

    @jax.jit
    def derivatives(t, data):
        def log_density(t):
            return model.target.log_density(t, data)

        return log_density(t), model.target.grad(t, data), jax.hessian(log_density)(t)

    with jax.enable_x64(True):
        value, grad, hessian = jax.vmap(derivatives, (0, None))(theta, (model.x, model.y))
        value, grad, hessian = np.asarray(value), np.asarray(grad), np.asarray(hessian)
    np.testing.assert_allclose(model.log_density(theta), value, rtol=1e-12)
    # Components cancel between data, so rounding is relative to the largest.
    np.testing.assert_allclose(model.grad(theta), grad, rtol=1e-11, atol=1e-12 * np.abs(grad).max())
    ours = np.array([model.hessian(t) for t in theta])
    np.testing.assert_allclose(ours, hessian, rtol=1e-11, atol=1e-12 * np.abs(hessian).max())


def test_log_density_sum_by_products() -> None:
    # Lengths on both sides of the block of 512 factors, and arguments at which exp under- and overflows.
    rng = np.random.default_rng(0)
    for length in (1, 511, 512, 513, 2000):
        u = np.concatenate(
            [rng.standard_normal((4, length)), 1000 * rng.standard_normal((4, length)), np.zeros((1, length))]
        )
        np.testing.assert_allclose(
            logistic_module._sum_log_sigmoid(u), log_expit(u).sum(axis=1), rtol=1e-14, atol=4e-16 * length
        )


def test_log_density_keeps_leading_axes() -> None:
    model = LOGISTICS[0]
    theta = np.random.default_rng(0).standard_normal((20, 7, 3))
    value = model.log_density(theta)
    assert value.shape == (20, 7) and model.grad(theta).shape == (20, 7, 3)
    assert model.log_density(theta[3, 4]).shape == ()
    np.testing.assert_allclose(model.log_density(theta[3, 4]), value[3, 4], rtol=1e-13)


@pytest.mark.parametrize("model", [*LOGISTICS, Logistic.simulate(200, 12, seed=3)])
def test_map_is_the_mode(model: Logistic) -> None:
    sd = np.sqrt(np.diag(model.laplace_covariance))
    assert np.all(np.abs(model.grad(model.map)) * sd < 1e-11)
    np.testing.assert_allclose(
        model.laplace_covariance @ -model.hessian(model.map), np.eye(model.dimension), atol=1e-11
    )


def test_map_where_plain_newton_fails() -> None:
    # Rows of very different size and a flat prior: undamped steps from 0 never settle.
    x = np.array([[29.2, 91.2], [-79.1, -35.3], [3.8, -0.5], [0.3, -0.3]])
    model = Logistic(x, np.array([1, 1, -1, -1]), prior_sd=10.0)
    assert np.all(np.abs(model.grad(model.map)) * np.sqrt(np.diag(model.laplace_covariance)) < 1e-11)
    theta = np.zeros(2)
    for _ in range(200):
        theta = theta - np.linalg.solve(model.hessian(theta), model.grad(theta))
    assert np.linalg.norm(theta - model.map) > 1.0


def test_logistic_simulate_and_data() -> None:
    model, again = Logistic.simulate(seed=3), Logistic.simulate(seed=3)
    assert model.x.shape == (1000, 3) and set(model.y) == {-1.0, 1.0} and model.prior_sd == 1.0
    assert np.array_equal(model.x, again.x) and np.array_equal(model.y, again.y)
    assert np.all(model.x[:, -1] == 1.0)
    x, y = model.data
    assert x.dtype == y.dtype == np.float32
    assert np.array_equal(x.astype(np.float64), model.x) and np.array_equal(y, model.y)
    assert model.theta_0.dtype == np.float32 and np.array_equal(model.theta_0, model.map.astype(np.float32))
    model.target.check(model.theta_0, model.data)


def test_logistic_simulate_law() -> None:
    # Score statistic: sum (y - E y)/sd over 200 data sets is standard normal within 5.8 (false alarm 1e-8).
    score, variance = 0.0, 0.0
    for seed in range(200):
        model = Logistic.simulate(100, 3, seed=seed)
        u = model.x @ model.theta_true
        p = expit(u)
        score += np.sum(u * ((model.y + 1) / 2 - p))
        variance += np.sum(u**2 * p * (1 - p))
    assert abs(score) < 5.8 * np.sqrt(variance)


@pytest.mark.parametrize(
    "y", [[0, 1, 1], [False, True, True], [-1, 1, 1], [0.0, 1.0, 1.0], np.array([0, 1, 1], dtype=np.uint8)]
)
def test_logistic_labels(y) -> None:
    assert Logistic(np.ones((3, 1)), y).y.tolist() == [-1.0, 1.0, 1.0]
    assert Logistic(np.ones((3, 1)), np.ones(3)).y.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("y", [[-1, 0, 1], [1, 2, 1], [0.5, 1, 0], [np.nan, 1, 1], ["a", "b", "a"], [1, 1, None]])
def test_logistic_bad_labels(y) -> None:
    with pytest.raises(ValueError, match=r"y must hold only -1 and \+1, or only 0 and 1, got the values .*Recode"):
        Logistic(np.ones((3, 1)), y)
