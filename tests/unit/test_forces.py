"""Posteriors of many parameters, judged parameter by parameter: against formulas, and against what must be refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import langevin as lv
from langevin import pilot as module
from langevin.anchor.passes import Passes
from langevin.data.source import as_source
from langevin.forces import forces
from langevin.pilot import _spread_of_many, pilot
from langevin.sampling.rules import Rules, least_ess

D = 12


def measured(log_prior, log_likelihood=None, data=None, dimension=D):
    target = lv.Target(log_prior, log_likelihood)
    source = None if data is None else as_source(data)
    anchor = lv.laplace(target, source, np.zeros(dimension))
    with jax.enable_x64(True):
        return forces(Passes(target, source, anchor.layout), anchor, np.random.default_rng(1)), anchor


def skewed(t, skewness):
    """A density exp(-u^2/2 + c u^3/6 - c^2 u^4/24) for each entry: a mode at 0 with unit curvature."""
    return jnp.sum(-0.5 * t**2 + skewness * t**3 / 6.0 - skewness**2 * t**4 / 24.0)


def test_a_gaussian_has_no_force_beyond_its_own():
    (ess, spread, outside, passes), _ = measured(lambda t: -0.5 * jnp.sum((t * jnp.arange(1.0, D + 1)) ** 2))
    assert_allclose(ess, 1.0, atol=1e-12)
    assert_allclose(spread, 0.0, atol=1e-20)
    assert outside == 0.0 and passes == 41


def test_a_posterior_away_from_its_mode_by_a_shift_alone_is_not_called_less_gaussian():
    # log pi = -u^2/2 + h u has its mode at h: nothing is left. A force that is the same at every draw counts nothing.
    (ess, _, _, _), _ = measured(lambda t: -0.5 * jnp.sum(t**2) + 3.0 * jnp.sum(t))
    assert_allclose(ess, 1.0, atol=1e-12)


def test_forces_are_those_of_the_formula():
    c = 0.3
    (ess, spread, _, _), anchor = measured(lambda t: skewed(t, c))
    assert_allclose(anchor.theta, 0.0, atol=1e-6)
    half = np.random.default_rng(1).standard_normal((20, D))
    u = np.concatenate([half, -half])
    f = 0.5 * c * u**2 - c**2 * u**3 / 6.0
    even, odd = (np.concatenate([f[k:20:2], f[20 + k :: 2]]).var(axis=0, ddof=1) for k in (0, 1))
    assert_allclose(ess, np.exp(-0.5 * max(even[np.argmax(odd)], odd[np.argmax(even)])), rtol=1e-6)
    assert_allclose(spread[0], (0.5 * c * half**2).var(axis=0, ddof=1), rtol=1e-5)
    assert_allclose(spread[1], (c**2 * half**4 / 6.0).var(axis=0, ddof=1), rtol=1e-5)


def test_data_count_every_row_once():
    rows = np.random.default_rng(3).normal(size=(70, D)).astype(np.float32)

    def likelihood(t, row):
        return -jnp.sum(jnp.cosh(0.3 * (t - row)))

    with_data = measured(lambda t: -0.5 * jnp.sum(t**2), likelihood, rows)[0]
    summed = measured(lambda t: -0.5 * jnp.sum(t**2) + jnp.sum(jax.vmap(likelihood, (None, 0))(t, jnp.asarray(rows))))[
        0
    ]
    assert_allclose(with_data[0], summed[0], rtol=1e-6)
    assert_allclose(with_data[1], summed[1], rtol=1e-3)


def test_draws_beyond_the_support_are_counted():
    (_, spread, outside, _), _ = measured(lambda t: jnp.where(t[0] < 1.0, -0.5 * jnp.sum(t**2), -jnp.inf))
    half = np.random.default_rng(1).standard_normal((20, D))
    assert outside == np.mean(np.abs(half[:, 0]) >= 1.0) / 2.0
    assert np.all(np.isfinite(spread))


@pytest.fixture
def many(monkeypatch):
    """Ten parameters count as many."""
    monkeypatch.setattr(module, "_ALL_ROWS_FROM", 9)


def verdict(log_prior, dimension):
    target = lv.Target(log_prior)
    anchor = lv.laplace(target, None, np.zeros(dimension))
    found = pilot(target, None, anchor, 0)
    return found, found.ess >= least_ess(found), Rules.of(anchor, found, 0).near_gaussian


def test_many_slightly_skewed_parameters_are_near_a_gaussian_although_their_weights_degenerate(many):
    c, d = 0.15, 1000
    found, accepted, near = verdict(lambda t: skewed(t, c), d)
    assert found.by_parameter and accepted and near
    # The weights of the whole say the opposite: 0.417 c^2 d is a log variance of 9.
    u = np.random.default_rng(0).standard_normal((200, d))
    weight = np.exp(np.sum(c * u**3 / 6.0 - c**2 * u**4 / 24.0, axis=1))
    assert np.sum(weight) ** 2 / np.sum(weight**2) / 200 < 0.05


@pytest.mark.parametrize("skewness, accepted", [(0.1, True), (3.0, False)])
def test_one_bad_parameter_among_many_is_enough(many, skewness, accepted):
    found, answered, near = verdict(lambda t: -0.5 * jnp.sum(t[1:] ** 2) + skewed(t[:1], skewness), 200)
    assert found.by_parameter and answered == accepted == near


def test_a_funnel_of_many_parameters_is_refused(many):
    def funnel(t):
        return -0.5 * t[0] ** 2 / 9.0 - 0.5 * jnp.sum(t[1:] ** 2) * jnp.exp(-t[0])

    found, accepted, _ = verdict(funnel, 100)
    assert found.by_parameter and not accepted


def test_the_spread_of_many_is_not_that_of_the_sample():
    rng = np.random.default_rng(0)
    d, rows = 400, 1000
    for wide, least, most in ((1.0, 1.0, 2.3), (30.0, 20.0, 40.0)):
        scale = np.r_[np.sqrt(wide), np.ones(d - 1)]
        halves = [(s.T @ s) / rows for s in (scale * rng.standard_normal((2, rows, d)))]
        found = _spread_of_many(*halves, 2 * rows)
        assert least < found < most
    # What the sample itself would say of a round covariance.
    halves = [(s.T @ s) / rows for s in rng.standard_normal((2, rows, d)) * rng.standard_normal((2, rows, 1))]
    assert np.linalg.eigvalsh(0.5 * (halves[0] + halves[1]))[-1] > 2.5 > _spread_of_many(*halves, 2 * rows)
