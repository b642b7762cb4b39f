"""Densities that lose digits in float32 are seen before a run, and answered in float64 or named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln
from scipy import special, stats

import langevin as lv
from langevin.data.source import as_source
from langevin.regression.families import _gamma_excess
from langevin.rounding import rounding_error
from langevin.sampling import planning

SHAPE, N = 1e4, 400
Y = np.random.default_rng(0).gamma(SHAPE, 20.0 / SHAPE, size=N).astype(np.float32)


def log_likelihood(theta, y):
    """A gamma law of mean exp(theta[0]) and shape exp(theta[1]), as in textbooks: 1e5 - 1e5 for every datum."""
    shape = jnp.exp(theta[1])
    kernel = (shape - 1.0) * jnp.log(y) - shape * jnp.exp(-theta[0]) * y
    return shape * (theta[1] - theta[0]) - gammaln(shape) + kernel


TARGET = lv.Target(lambda theta: -0.125 * (theta[0] - 3.0) ** 2 - (theta[1] - 8.0) ** 2 / 18.0, log_likelihood)


def truth():
    """Mean and sd of the log shape by SciPy's density on a grid."""
    y = Y.astype(np.float64)
    means = np.log(y.mean()) + np.linspace(-0.004, 0.004, 81)[:, None, None]
    shapes = np.linspace(8.7, 9.8, 111)[:, None]
    log_density = stats.gamma.logpdf(y, np.exp(shapes), scale=np.exp(means - shapes)).sum(axis=-1)
    log_density -= 0.125 * (means[..., 0] - 3.0) ** 2 + (shapes[:, 0] - 8.0) ** 2 / 18.0
    weights = np.exp(log_density - log_density.max()).sum(axis=0)
    weights /= weights.sum()
    mean = weights @ shapes[:, 0]
    return mean, np.sqrt(weights @ (shapes[:, 0] - mean) ** 2)


def test_what_rounding_moves_is_what_it_has_moved():
    anchor = lv.laplace(TARGET, Y, np.array([3.0, 5.0]))
    found = rounding_error(TARGET, as_source(Y), anchor, 0)
    mean, sd = truth()
    result = lv.sample(TARGET, Y, np.array([3.0, 5.0]), passes=100, method="minibatch", progress=False)
    moved = abs(result.mean.value[1] - mean) / sd
    # A forecast from some rows and draws, of an effect of an eighth of an sd.
    assert 0.5 < found[0, 0, 1] / moved < 2.0
    assert result.status == "rounding"
    lower, upper = result.mean.interval(1.0 - 1e-9)
    assert lower[1] < mean < upper[1]


def test_such_a_density_is_answered_in_float64(monkeypatch):
    mean, _ = truth()
    result = lv.sample(TARGET, Y, np.array([3.0, 5.0]), progress=False)
    assert result.plan.method == "exact" and result.plan.wide and result.status == "ok"
    lower, upper = result.mean.interval(1.0 - 1e-9)
    assert lower[1] < mean < upper[1]
    # The control: without the measurement it is believed, and wrong.
    monkeypatch.setattr(planning, "rounding_error", lambda *a: np.zeros((2, 2, 2)))
    result = lv.sample(TARGET, Y, np.array([3.0, 5.0]), progress=False)
    lower, upper = result.mean.interval(1.0 - 1e-9)
    assert result.status == "ok" and not lower[1] < mean < upper[1]


def test_ordinary_densities_lose_nothing():
    model = lv.models.Logistic.simulate(seed=1)
    plan = lv.plan(model.target, model.data, model.theta_0, passes=20)
    assert plan.rounding.max() < 1e-5 and plan.method == "minibatch"
    target = lv.Target(lambda theta: -0.5 * jnp.sum(theta**2))
    assert lv.plan(target, None, jnp.ones(2), precision=0.1).rounding.max() < 1e-5


@pytest.mark.parametrize("x", [0.3, 5.0, 9.99, 10.01, 40.0, 1e4])
@pytest.mark.parametrize("a", [0.5, 1.0, 7.0, 300.0])
def test_differences_of_log_gamma_functions_keep_their_digits(x, a):
    exact = special.gammaln(x + a) - special.gammaln(x) - a * np.log(x)
    slope = x * (special.digamma(x + a) - special.digamma(x)) - a
    with jax.enable_x64(True):
        value, grad = jax.value_and_grad(lambda log_x: _gamma_excess(jnp.exp(log_x), a))(jnp.log(x))
    # The series leaves 1/(1680 x^7), and SciPy's difference has the digits of its terms.
    np.testing.assert_allclose([value, grad], [exact, slope], rtol=1e-8, atol=1e-9 + 4e-16 * x * special.gammaln(x + a))
    single = jax.grad(lambda log_x: _gamma_excess(jnp.exp(log_x), np.float32(a)))(jnp.log(np.float32(x)))
    # To the roundings of numbers of size a, where the functions themselves are of size x log x.
    assert abs(single - slope) < 4e-6 * max(a, 1.0)
