"""The steps that `python -m benchmarks.systems robust` compares are their formulas, and its funnel's truth is right."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import expit

from benchmarks.robust import Barker, Corrected, Tamed, schools

DELTA = 0.3


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


def moved(kernel, grad, eta):
    """One step from 0 for each entry of grad."""
    eta, zero = jnp.asarray(eta), jnp.zeros(np.shape(grad))
    return np.asarray(kernel.step(kernel.init(zero, eta), jnp.asarray(grad), eta, DELTA).theta)


@pytest.mark.parametrize("narrow", [False, True])
def test_barker_goes_uphill_as_often_as_it_says(narrow):
    rng = np.random.default_rng(1)
    grad, eta = 3.0 * rng.standard_normal(1000), rng.standard_normal((2, 1000))
    size = np.sqrt(DELTA) * (np.sqrt(0.99) + 0.1 * eta[0] if narrow else eta[0])
    by_hand = np.where(stats.norm.cdf(eta[1]) < 1.0 / (1.0 + np.exp(-size * grad)), size, -size)
    assert_allclose(moved(Barker(narrow), grad, eta), by_hand, rtol=1e-12)
    assert {-1.0, 1.0} == set(np.sign(by_hand * size))


def test_noise_that_is_known_is_taken_off_on_average():
    # Of normal noise: the logistic function is a normal one to 0.0095, on both sides of the average.
    nodes, weights = hermegauss(60)
    places, size = stats.norm.ppf((np.arange(2000) + 0.5) / 2000), np.sqrt(0.99 * DELTA)
    eta = np.stack([np.zeros((60, 2000)), np.broadcast_to(places, (60, 2000))])
    for grad, noise in ((1.0, 1.0), (-2.0, 2.0), (0.5, 2.5)):
        noisy = np.broadcast_to((grad + noise * nodes)[:, None], (60, 2000))
        uphill = np.mean(moved(Barker(True, np.float64(noise)), noisy, eta) > 0.0, axis=1)
        assert abs(weights @ uphill / weights.sum() - expit(size * grad)) < 2 * 0.0095 + 1 / 2000


def test_tamed_and_corrected_steps_are_their_formulas():
    grad, eta = np.array([0.5, -300.0]), np.array([0.2, -1.0])
    drift = 0.5 * DELTA * grad
    assert_allclose(moved(Tamed(), grad, eta), drift / (1 + np.abs(drift)) + np.sqrt(DELTA) * eta, rtol=1e-12)
    by_hand = drift + np.sqrt(DELTA - DELTA**2 * 4.0 / 4.0) * eta
    assert_allclose(moved(Corrected(2.0), grad, eta), by_hand, rtol=1e-12)


def test_the_funnel_is_known():
    """A sum over mu, tau and one effect with the other seven integrated out, beside the sum over tau alone."""
    case = schools()
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    s = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    tau, mu = np.exp(np.linspace(-12.0, 8.0, 801)), np.linspace(-25.0, 35.0, 601)
    width = np.sqrt(s**2 + tau[:, None, None] ** 2)
    weight = stats.norm.logpdf(y, mu[None, :, None], width).sum(axis=2) + stats.norm.logpdf(mu, 0.0, 5.0)
    weight = np.exp(weight + 50.0) * (tau / (1.0 + (tau / 5.0) ** 2))[:, None]
    weight /= weight.sum()
    log_tau = np.log(tau)
    mean = np.array([weight.sum(axis=0) @ mu, weight.sum(axis=1) @ log_tau])
    square = np.array([weight.sum(axis=0) @ mu**2, weight.sum(axis=1) @ log_tau**2])
    kept = (tau**2 / (s[0] ** 2 + tau**2))[:, None]
    effect = np.sum(weight * (kept * y[0] + (1 - kept) * mu))
    assert_allclose(case.mean[:3], [*mean, effect], rtol=1e-5)
    assert_allclose(case.sd[:2], np.sqrt(square - mean**2), rtol=1e-5)
