"""The pilot against formulas: its draws are those of NumPy's generator, so most values are known to rounding."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose

import langevin as lv
from langevin.data.source import as_source
from langevin.pilot import _GROUPS, _STREAM, _weighed, pilot

N = 80  # fewer than the rows of a draw: every group has all of them


def halves(seed, groups, pairs, dimension):
    return np.random.default_rng([seed, _STREAM]).standard_normal((groups, pairs, dimension))


def draws(seed, dimension):
    half = halves(seed, _GROUPS, 5, dimension)
    return np.concatenate([half, -half], axis=1).reshape(-1, dimension)


def gaussian_data():
    source = as_source(np.random.default_rng(1).normal(size=(N, 2)).astype(np.float32))
    target = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, x: -0.5 * jnp.sum((x - t) ** 2))
    return target, source, lv.laplace(target, source, np.zeros(2))


def test_a_gaussian_posterior_has_equal_weights_and_no_spread():
    target, source, anchor = gaussian_data()
    found = pilot(target, source, anchor, 0)
    assert_allclose(found.ess, 1.0, atol=1e-12)
    assert_allclose(found.spread, np.zeros((2, 2)), atol=1e-20)
    assert_allclose([found.noise["cv1"], found.noise["cv2"], found.curvature_spread], 0.0, atol=1e-18)
    assert found.cost == 11 * _GROUPS * N


def test_plain_noise_is_the_whitened_variance_over_the_data():
    target, source, anchor = gaussian_data()
    variance = np.var(np.asarray(source.arrays, np.float64), axis=0, ddof=1)
    assert_allclose(pilot(target, source, anchor, 0).noise["plain"], N**2 * max(variance) / (N + 1), rtol=1e-9)


def test_curvature_spread_and_first_order_noise_of_weighted_data():
    weight = np.random.default_rng(2).random(N).astype(np.float32)
    source = as_source(weight)
    target = lv.Target(lambda t: -0.5 * t**2, lambda t, w: -0.5 * w * (1.0 - t) ** 2)
    anchor = lv.laplace(target, source, np.zeros(()))
    found = pilot(target, source, anchor, 3)
    expected = N**2 * np.var(weight.astype(np.float64), ddof=1) * anchor.covariance[0, 0] ** 2
    square = halves(3, _GROUPS, 5, 1) ** 2
    assert_allclose(found.curvature_spread, expected * square.mean(), rtol=1e-9)
    assert_allclose(found.noise["cv1"], expected * max(square[::2].mean(), square[1::2].mean()), rtol=1e-9)
    assert_allclose(found.noise["cv2"], 0.0, atol=1e-18)


def test_weights_and_spread_of_a_quartic():
    target = lv.Target(lambda t: jnp.sum(-0.5 * t**2 - 0.05 * t**4))
    found = pilot(target, None, lv.laplace(target, None, np.zeros(2)), 5)
    z = draws(5, 2)
    weights = np.exp(-0.05 * np.sum(z**4, axis=1))
    assert_allclose(found.ess, weights.sum() ** 2 / np.sum(weights**2) / len(weights), rtol=1e-12)
    # z and -z side by side: the mean's values cancel in a pair, the second moment's are the same.
    assert_allclose(found.spread[0], 0.0, atol=1e-20)
    assert_allclose(found.spread[1], np.var(-0.2 * z[::2] ** 4, axis=0, ddof=1), rtol=1e-12)
    assert found.noise == {"plain": 0.0, "cv1": 0.0, "cv2": 0.0}
    assert (found.curvature_spread, found.cost) == (0.0, 11 * _GROUPS)


def logistic(num_data):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_data, 3)).astype(np.float32)
    y = (rng.random(num_data) < 1 / (1 + np.exp(-x[:, 0]))).astype(np.float32)

    def log_likelihood(theta, datum):
        return lv.log_sigmoid((2 * datum["y"] - 1) * jnp.dot(datum["x"], theta))

    target = lv.Target(lambda theta: -0.005 * jnp.sum(theta**2), log_likelihood)
    source = as_source({"x": x, "y": y})
    return target, source, lv.laplace(target, source, np.zeros(3))


def test_few_rows_of_many_give_the_weights_and_noise_of_a_good_posterior():
    small, large = (pilot(*logistic(num_data), 0) for num_data in (1000, 100_000))
    assert 0.99 < small.ess < large.ess <= 1.0
    # The draws cost the same; beside them a pass, and the chunks in which the heaviest row is looked for: all of them.
    assert small.cost - 2 * 1000 == large.cost - 100_000 - 7 * 16_384 == 22_000
    # V is about N, d and 1/N for the three estimates.
    for name, power in (("plain", 1), ("cv1", 0), ("cv2", -1)):
        assert 100.0**power / 4 < large.noise[name] / small.noise[name] < 4 * 100.0**power


def test_a_funnel_has_a_small_effective_sample_size():
    target = lv.Target(lambda t: -0.5 * t[0] ** 2 / 9 - 0.5 * jnp.sum(t[1:] ** 2) * jnp.exp(-t[0]) - 2.0 * t[0])
    assert pilot(target, None, lv.laplace(target, None, np.zeros(5)), 0).ess < 0.1


def test_draws_beyond_the_support_have_no_weight_and_spoil_nothing():
    target = lv.Target(lambda t: jnp.sum(jnp.log(t) - t))
    found = pilot(target, None, lv.laplace(target, None, np.ones(1)), 0)
    assert 0 < found.ess < np.mean(draws(0, 1) > -1)
    assert np.all(np.isfinite(found.spread))


def test_without_a_dense_anchor_weights_see_the_correlations():
    factor = np.array([[1.0, 0.0], [0.6, 0.8]])
    target = lv.Target(lambda t: -0.5 * jnp.sum((factor @ t) ** 2))
    anchor = lv.laplace(target, None, np.zeros(2))
    sd = 1 / np.sqrt(np.diag(anchor.precision))
    bare = dataclasses.replace(anchor, root=(sd,), covariance=None, precision=None)
    found = pilot(target, None, bare, 0)
    assert found.curvature_spread is None and set(found.noise) == {"plain", "cv1"}
    # The off-diagonal precision r / (sd_1 sd_2) leaves log weights -r z_1 z_2 and corrected values -r z_2.
    half = halves(0, 8, 4, 2)
    z = np.concatenate([half, -half], axis=1).reshape(-1, 2)
    r = anchor.precision[0, 1] * sd[0] * sd[1]
    weights = np.exp(-r * z[:, 0] * z[:, 1])
    assert_allclose(found.ess, weights.sum() ** 2 / np.sum(weights**2) / len(weights), rtol=1e-9)
    # odd, so that they cancel in a pair
    assert_allclose(found.spread[0], 0.0, atol=1e-20)


def test_the_noise_of_few_rows_is_taken_off_the_log_weights():
    truth = np.sqrt(2) * np.tile([1.0, -1.0], 50)
    noise = np.repeat([1.0, -1.0], 50)
    found, exact = _weighed(truth + noise, np.full(100, 100 / 99)), _weighed(truth, np.zeros(100))
    assert abs(np.log(found[0] / exact[0])) < abs(np.log(_weighed(truth + noise, np.zeros(100))[0] / exact[0]))


def test_draws_do_not_repeat_the_rows_of_data_simulated_with_the_same_seed():
    assert not np.isin(draws(0, 3), np.random.default_rng(0).normal(size=(1000, 3))).any()


def test_a_second_pilot_compiles_nothing():
    traced = []

    def log_prior(theta):
        traced.append(1)
        return -0.5 * jnp.sum((theta - 1.0) ** 2)

    target = lv.Target(log_prior)
    anchor = lv.laplace(target, None, np.zeros(3))
    pilot(target, None, anchor, 0)
    first = len(traced)
    pilot(target, None, anchor, 1)
    assert len(traced) == first


def test_one_datum_has_no_noise():
    target = lv.Target(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
    source = as_source(np.ones(1, np.float32))
    found = pilot(target, source, lv.laplace(target, source, np.zeros(())), 0)
    assert found.noise == {"plain": 0.0, "cv1": 0.0, "cv2": 0.0}
    assert_allclose(found.ess, 1.0, atol=1e-12)
