"""The survey on targets whose modes are known. One seed each: a half-space beyond b sds is missed with probability
prod over the pairs of P(|normal| < b / spread), below 1e-6 for b = 5, so the examples make no statistical claim."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import langevin as lv
from langevin.data.source import as_source
from langevin.survey import survey


def two_modes(dimension, log_odds=0.0):
    centre = np.zeros(dimension)
    centre[0] = 5.0

    def log_prior(theta):
        return jnp.logaddexp(-0.5 * jnp.sum((theta - centre) ** 2), log_odds - 0.5 * jnp.sum((theta + centre) ** 2))

    target = lv.Target(log_prior)
    return target, lv.laplace(target, None, centre)


@pytest.mark.parametrize("dimension", [1, 2, 10])
def test_the_other_of_two_modes_is_found(dimension):
    target, anchor = two_modes(dimension)
    found = survey(target, None, anchor, 0)
    assert found.elsewhere > 0
    assert_allclose(found.modes, -anchor.theta[None], atol=1e-4)


def exchangeable(num_data=400):
    """Two normal components whose names mean nothing, and a start at one of the two modes."""
    rng = np.random.default_rng(3)
    y = (np.where(rng.random(num_data) < 0.4, -1.5, 1.5) + rng.normal(size=num_data)).astype(np.float32)

    def log_likelihood(theta, y):
        z = (y - theta["mean"]) * jnp.exp(-theta["log_sd"])
        weights = jnp.array([-1.0, 1.0]) * theta["odds"]
        return jnp.logaddexp(*(weights - jnp.logaddexp(*weights) - 0.5 * z**2 - theta["log_sd"]))

    def log_prior(theta):
        return -0.5 * (jnp.sum(theta["mean"] ** 2) / 25 + jnp.sum(theta["log_sd"] ** 2) + theta["odds"] ** 2)

    theta_0 = {"log_sd": np.zeros(2), "mean": np.array([-1.0, 1.0]), "odds": np.zeros(())}
    return lv.Target(log_prior, log_likelihood), y, theta_0


def test_components_that_can_change_places_do(monkeypatch):
    target, y, theta_0 = exchangeable()
    anchor = lv.laplace(target, y, theta_0)
    found = survey(target, as_source(y), anchor, 0)
    # Some rows only: modes are where these put them, a few sds off.
    assert np.min(np.abs(found.modes[:, [3, 2]] - anchor.theta[2:4]).max(axis=1)) < 0.5
    assert found.num_starts == 12 + 5 + 1
    # Of an array that swapping leaves as it is there is nothing to learn.
    gaussian = lv.Target(lambda t: -0.5 * jnp.sum(t**2))
    assert survey(gaussian, None, lv.laplace(gaussian, None, np.ones(3)), 0).num_starts == 12 + 5


def narrow(dimension):
    """N(0, I), and 9 sds away nine times as much mass with half its sds; the anchor of the wide one."""
    centre = jnp.full(dimension, 9.0 / np.sqrt(dimension))

    def log_density(theta):
        peak = jnp.log(9.0) + dimension * jnp.log(2.0) - 2.0 * jnp.sum((theta - centre) ** 2)
        return jnp.logaddexp(-0.5 * jnp.sum(theta**2), peak)

    target = lv.Target(log_density)
    return target, lv.laplace(target, None, np.zeros(dimension))


@pytest.mark.parametrize("dimension", [1, 3])
def test_a_narrow_mode_that_few_points_see_is_found(dimension):
    target, anchor = narrow(dimension)
    for seed in range(5):
        found = survey(target, None, anchor, seed)
        assert_allclose(found.modes, 9.0 / np.sqrt(dimension), atol=1e-3)
        assert_allclose(found.log_mass, np.log(9.0), atol=1e-3)


def test_dispersed_starts_alone_miss_the_narrow_mode(monkeypatch):
    monkeypatch.setattr("langevin.survey._FEW_PARAMETERS", 0)
    target, anchor = narrow(3)
    assert not any(survey(target, None, anchor, seed).elsewhere for seed in range(5))


def test_a_mode_that_is_known_is_not_lost():
    target, anchor = two_modes(1, -1.0)
    narrow = lv.Target(lambda t: jnp.logaddexp(target.log_prior(t), -0.5 * jnp.sum(((t - 300.0) / 1e-3) ** 2)))
    assert not np.any(survey(narrow, None, anchor, 0).modes > 200.0)
    assert np.any(survey(narrow, None, anchor, 0, [np.array([300.0])]).modes > 200.0)


def test_a_second_mode_without_mass_does_not_count():
    assert survey(*_with_odds(-10.0), 0).elsewhere > 0
    without = survey(*_with_odds(-20.0), 0)
    assert without.elsewhere == 0 and without.lost > 0 and without.modes.shape == (0, 2)


def _with_odds(log_odds):
    target, anchor = two_modes(2, log_odds)
    return target, None, anchor


def test_everything_flows_back_on_a_gaussian():
    target = lv.Target(lambda theta: -0.5 * jnp.sum((theta - 3.0) ** 2))
    found = survey(target, None, lv.laplace(target, None, np.zeros(4)), 1)
    assert (found.num_starts, found.elsewhere, found.lost) == (12 + 5, 0, 0)
    assert found.spread == (20.0, 40.0, 80.0)
    # One evaluation at the anchor; a start and its Newton step each; 1000 values; four scouts a parameter, the mode
    # and the best of each shell, to both sides.
    assert found.cost == 1 + (12 + 5) * 2 + 1000 // 3 + 4 * 4 + 1 + 2 * 5


def test_everything_flows_back_on_a_concave_posterior_with_data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 3)).astype(np.float32)
    y = (rng.random(1000) < 1 / (1 + np.exp(-x[:, 0]))).astype(np.float32)

    def log_likelihood(theta, datum):
        return lv.log_sigmoid((2 * datum["y"] - 1) * jnp.dot(datum["x"], theta))

    target = lv.Target(lambda theta: -0.005 * jnp.sum(theta**2), log_likelihood)
    source = as_source({"x": x, "y": y})
    found = survey(target, source, lv.laplace(target, source, np.zeros(3)), 0)
    assert (found.elsewhere, found.lost) == (0, 0)
    assert_allclose(found.spread, np.sqrt(1000 / 115) * np.array([20.0, 40.0, 80.0]))
    assert 0 < found.cost < 90 * 1000


def test_labels_that_can_be_swapped_are_seen():
    rng = np.random.default_rng(0)
    source = as_source((np.where(rng.random(500) < 0.5, -1.5, 1.5) + rng.normal(size=500)).astype(np.float32))

    def log_likelihood(theta, y):
        return jnp.logaddexp(-0.5 * (y - theta[0]) ** 2, -0.5 * (y - theta[1]) ** 2)

    target = lv.Target(lambda theta: -0.005 * jnp.sum(theta**2), log_likelihood)
    found = survey(target, source, lv.laplace(target, source, np.array([-1.5, 1.5])), 0)
    assert found.elsewhere > 0
    assert np.all(found.modes[:, 0] > found.modes[:, 1])


def test_parameters_that_rows_look_up_are_weighed_too():
    """The second mode is weighed by rows whose likelihood indexes theta by a column."""
    rng = np.random.default_rng(0)
    data = {"y": np.repeat([-2.0, 2.0], 200) + rng.normal(size=400), "k": np.zeros(400, np.int32)}

    def log_likelihood(theta, datum):
        away = [datum["y"] - theta["mu"][datum["k"] + shift] for shift in (0, 1)]
        return jnp.logaddexp(-0.5 * away[0] ** 2, -0.5 * away[1] ** 2)

    target, source = lv.Target(lambda theta: -0.5 * jnp.sum(theta["mu"] ** 2) / 9.0, log_likelihood), as_source(data)
    found = survey(target, source, lv.laplace(target, source, {"mu": np.array([-1.0, 1.0])}), 0)
    assert found.elsewhere > 0 and found.modes.shape == (1, 2)


def test_starts_beyond_the_support_are_pulled_in():
    target = lv.Target(lambda theta: jnp.sum(3.0 * jnp.log(theta) - theta))
    found = survey(target, None, lv.laplace(target, None, np.ones(2)), 0)
    # From beside the border at 80 sds a climb takes more steps than it gets.
    assert found.elsewhere == 0 and found.lost <= 1


def test_without_a_dense_anchor_nothing_is_surveyed():
    target, anchor = two_modes(2)
    bare = dataclasses.replace(anchor, root=(np.ones(2),), covariance=None, precision=None)
    assert survey(target, None, bare, 0).num_starts == 0


def test_a_second_survey_compiles_nothing():
    traced = []

    def log_prior(theta):
        traced.append(1)
        return -0.5 * jnp.sum((theta - 1.0) ** 2)

    target = lv.Target(log_prior)
    anchor = lv.laplace(target, None, np.zeros(3))
    survey(target, None, anchor, 0)
    first = len(traced)
    survey(target, None, anchor, 1)
    assert len(traced) == first


@pytest.mark.parametrize("odds", [0.5, -20.0])
def test_products_with_the_hessian_find_what_the_whole_of_it_finds(odds, monkeypatch):
    target, anchor = two_modes(3, odds)
    whole = survey(target, None, anchor, 0)
    monkeypatch.setattr("langevin.survey._WHOLE_HESSIAN_UP_TO", 0)
    products = survey(target, None, anchor, 0)
    assert_allclose(products.modes, whole.modes, atol=1e-12)
    assert (products.elsewhere, products.lost, products.cost) == (whole.elsewhere, whole.lost, whole.cost)
