"""Models with a known posterior: closed forms, drift inequalities, quadrature against other methods."""

import doctest

import jax
import numpy as np
import pytest
from scipy import stats

from langevin.models import LinearGaussian, Logistic
from langevin.models import linear_gaussian as linear_gaussian_module
from langevin.models import logistic as logistic_module
from langevin.models import quadrature as quadrature_module

GAUSSIANS = [
    LinearGaussian.simulate(100, 1.0, 5.0, seed=0),
    LinearGaussian.simulate(7, 3.0, 0.5, seed=1),
    LinearGaussian(np.array([2.0]), 0.1, 4.0),
]


@pytest.mark.parametrize("module", [linear_gaussian_module, logistic_module, quadrature_module])
def test_docstring_examples(module) -> None:
    assert doctest.testmod(module).failed == 0


# ---- linear Gaussian


@pytest.mark.parametrize("model", GAUSSIANS)
def test_gaussian_posterior_by_brute_force(model: LinearGaussian) -> None:
    # The trapezoidal rule on a Gaussian over +-12 sd at 0.01 sd is exact to rounding.
    theta = model.mu_p + model.sigma_p * np.linspace(-12.0, 12.0, 2401)
    log_pi = -0.5 * (theta / model.sigma_theta) ** 2
    for x in model.x:
        log_pi = log_pi - 0.5 * ((x - theta) / model.sigma_x) ** 2
    weights = np.exp(log_pi - log_pi.max())
    weights /= weights.sum()
    mean = weights @ theta
    np.testing.assert_allclose(mean, model.mu_p, rtol=0, atol=1e-12 * model.sigma_p)
    np.testing.assert_allclose(np.sqrt(weights @ (theta - mean) ** 2), model.sigma_p, rtol=1e-12)


@pytest.mark.parametrize("model", GAUSSIANS)
def test_gaussian_gradient_of_target(model: LinearGaussian) -> None:
    theta = model.mu_p + model.sigma_p * np.array([-50.0, -1.0, 0.3, 8.0])
    with jax.enable_x64(True):
        grad = jax.vmap(lambda t: model.target.grad(t, model.x))(theta)
    np.testing.assert_allclose(grad, model.grad(theta), rtol=1e-12)


@pytest.mark.parametrize("model", GAUSSIANS)
def test_gaussian_drift_is_an_equality(model: LinearGaussian) -> None:
    theta = model.mu_p + model.sigma_p * np.concatenate([np.linspace(-5, 5, 101), [-1e6, -1e3, 1e3, 1e6]])
    drift = 0.5 * model.lyapunov_grad(theta) * model.grad(theta)
    alpha, beta = model.drift_constants
    assert alpha == beta == model.sigma_p**-2
    V = model.lyapunov(theta)
    # The right side is a difference of two numbers of size alpha V: rounding is relative to that.
    assert np.all(np.abs(drift - (-alpha * V + beta)) <= 1e-13 * alpha * V)
    np.testing.assert_allclose(drift, (1 - V) / model.sigma_p**2, rtol=1e-11, atol=1e-13 * alpha)


def test_gaussian_lyapunov_gradient() -> None:
    model = GAUSSIANS[0]
    with jax.enable_x64(True):
        grad = jax.grad(model.lyapunov)(np.float64(1.7))
    np.testing.assert_allclose(grad, model.lyapunov_grad(np.float64(1.7)), rtol=1e-14)


def test_gaussian_simulate_and_data() -> None:
    model = LinearGaussian.simulate(50, 2.0, 3.0, seed=4)
    again = LinearGaussian.simulate(50, 2.0, 3.0, seed=4)
    assert np.array_equal(model.x, again.x) and model.theta_true == again.theta_true
    assert not np.array_equal(model.x, LinearGaussian.simulate(50, 2.0, 3.0, seed=5).x)
    assert model.x.dtype == np.float64 and model.data.dtype == np.float32 and model.data.shape == (50,)
    assert np.array_equal(model.data.astype(np.float64), model.x)
    assert model.theta_0.shape == () and model.theta_0 == np.float32(model.mu_p)
    model.target.check(model.theta_0, model.data)


def test_gaussian_simulate_law() -> None:
    # Sums of squares of standard normals over 2000 data sets against chi-square, false alarm 2e-8.
    models = [LinearGaussian.simulate(5, 2.0, 3.0, seed=s) for s in range(2000)]
    prior = sum((m.theta_true / 2.0) ** 2 for m in models)
    noise = sum(np.sum(((m.x - m.theta_true) / 3.0) ** 2) for m in models)
    for value, count in ((prior, 2000), (noise, 10_000)):
        assert 5e-9 < stats.chi2(count).cdf(value) < 1 - 5e-9


# ---- both


def test_targets_are_the_same_objects_for_equal_parameters() -> None:
    a, b = LinearGaussian(np.ones(3), 1, 5), LinearGaussian(np.zeros(9), 1.0, np.float32(5.0))
    assert a.target is b.target
    assert a.target.log_prior is b.target.log_prior and a.target.log_likelihood is b.target.log_likelihood
    assert a.target is not LinearGaussian(np.ones(3), 1.0, 4.0).target
    c, d = Logistic.simulate(20, 3, seed=0), Logistic.simulate(30, 2, seed=1)
    assert c.target is d.target
    assert c.target.log_prior is not Logistic(c.x, c.y, prior_sd=2.0).target.log_prior
    assert c.target.log_likelihood is Logistic(c.x, c.y, prior_sd=2.0).target.log_likelihood


def test_models_keep_their_own_data() -> None:
    x = np.ones((3, 1))
    model, gaussian = Logistic(x, [1, 1, -1]), LinearGaussian(x[:, 0])
    x[:] = 7.0
    assert np.all(model.x == 1.0) and np.all(gaussian.x == 1.0)
    for array in (model.x, model.y, gaussian.x):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: LinearGaussian([]), r"x must be a non-empty vector .* got shape \(0,\)"),
        (lambda: LinearGaussian(np.ones((2, 2))), r"x must be .* got shape \(2, 2\)"),
        (lambda: LinearGaussian([1.0, np.nan]), "1 non-finite"),
        (lambda: LinearGaussian([1.0], sigma_theta=0.0), "sigma_theta is a standard deviation .* got 0.0"),
        (lambda: LinearGaussian([1.0], sigma_x=np.inf), "sigma_x is a standard deviation .* got inf"),
        (lambda: LinearGaussian.simulate(0), "num_data must be at least 1, got 0"),
        (lambda: Logistic(np.ones(3), np.ones(3)), r"x must be a non-empty matrix .* got shape \(3,\)"),
        (lambda: Logistic(np.full((3, 1), np.inf), np.ones(3)), "3 non-finite"),
        (
            lambda: Logistic(np.ones((3, 1)), np.ones(2)),
            r"y must have one label per row of x, got shape \(2,\)",
        ),
        (lambda: Logistic(np.ones((3, 1)), np.ones((3, 1))), "Flatten y"),
        (lambda: Logistic(np.ones((3, 1)), np.ones(3), prior_sd=-1.0), "prior_sd is a standard .* got -1.0"),
        (lambda: Logistic(np.ones((3, 1)), np.ones(3), prior_sd=np.nan), "prior_sd is a standard .* got nan"),
        (lambda: Logistic.simulate(dimension=0), "dimension must be at least 1, got 0"),
        (lambda: Logistic.simulate(num_data=0), "num_data must be at least 1, got 0"),
    ],
)
def test_bad_inputs(build, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
