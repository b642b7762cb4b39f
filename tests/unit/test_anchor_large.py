"""The anchor beyond the dense Hessian: block curvature, climbs in many dimensions, and large N."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit

import langevin as lv
from langevin.anchor import climb, search, wide
from langevin.anchor.passes import Passes
from langevin.coordinates import times
from langevin.models import Logistic
from langevin.target import Layout


def log_likelihood(theta, datum):
    x, y = datum
    return lv.log_sigmoid(y * (jnp.dot(x, theta["b"]) + theta["a"][0] * x[0] + theta["a"][1]))


LOGISTIC = lv.Target(lambda t: -0.5 * jnp.sum(t["b"] ** 2) - 0.125 * jnp.sum(t["a"] ** 2), log_likelihood)


def logistic_data(num_data, dimension, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num_data, dimension)).astype(np.float32)
    beta = 2.0 * rng.standard_normal(dimension) / np.sqrt(dimension)
    y = np.where(rng.random(num_data) < expit(x @ beta), 1.0, -1.0).astype(np.float32)
    return (x * scale).astype(np.float32), y


def hessian(data, theta):
    """Minus the Hessian of LOGISTIC written out, in the order of the flat vector: a[0], a[1], b."""
    x, _ = (np.asarray(part, np.float64) for part in data)
    design = np.concatenate([x[:, :1], np.ones((len(x), 1)), x], axis=1)
    mean = expit(design @ theta)
    return (design * (mean * (1.0 - mean))[:, None]).T @ design + np.diag(np.r_[0.25, 0.25, np.ones(x.shape[1])])


def gradient(data, theta):
    x, y = (np.asarray(part, np.float64) for part in data)
    design = np.concatenate([x[:, :1], np.ones((len(x), 1)), x], axis=1)
    return (y * expit(-y * (design @ theta))) @ design - np.r_[0.25 * theta[:2], theta[2:]]


D, N = 40, 400
START = {"a": np.zeros(2), "b": np.zeros(D)}
DATA = logistic_data(N, D)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    """Forty parameters count as many, so that the tests are quick; a block holds up to four."""
    monkeypatch.setattr(search, "_MOST_DENSE", 20)
    monkeypatch.setattr(wide, "_MOST_IN_A_BLOCK", 4)


@pytest.fixture
def fitted():
    return DATA, lv.laplace(LOGISTIC, DATA, START)


def test_blocks_are_those_of_the_hessian():
    theta = 0.3 * np.random.default_rng(8).standard_normal(D + 2)
    source, layout = lv.DataSource.of(DATA), Layout.of(START)
    with jax.enable_x64(True):
        root, positive = wide._root(Passes(LOGISTIC, source, layout), source, theta, np.random.default_rng(0))
    true = hessian(DATA, theta)
    assert positive
    assert_allclose(root[0].T @ true[:2, :2] @ root[0], np.eye(2), atol=1e-12)
    assert_allclose(root[1] ** -2.0, np.diag(true)[2:], rtol=1e-12)


def test_an_anchor_of_blocks(fitted):
    data, anchor = fitted
    assert not anchor.dense and anchor.covariance is None and anchor.precision is None
    assert anchor.likelihood_hessian is None and anchor.likelihood_grad.shape == (D + 2,)
    true = hessian(data, anchor.theta)
    conditional = np.r_[np.sqrt(np.diag(np.linalg.inv(true[:2, :2]))), np.diag(true)[2:] ** -0.5]
    # The blocks are taken where the first climb ended, up to 0.05 standard deviations from the anchor.
    assert_allclose(anchor.sd, conditional, rtol=1e-2)
    assert anchor == lv.laplace(LOGISTIC, data, START)


def test_many_parameters_reach_the_mode(fitted):
    data, anchor = fitted
    grad, true = gradient(data, anchor.theta), hessian(data, anchor.theta)
    assert anchor.converged and anchor.positive and anchor.gradient_norm < 0.06
    assert np.sqrt(grad @ np.linalg.solve(true, grad)) < 0.2
    prior = np.r_[0.25 * anchor.theta[:2], anchor.theta[2:]]
    assert_allclose(anchor.likelihood_grad - prior, grad, atol=1e-9)
    whitened = np.concatenate([anchor.root[0].T @ grad[:2], anchor.root[1] * grad[2:]])
    assert_allclose(anchor.gradient_norm, np.linalg.norm(whitened), rtol=1e-6)


def test_a_frame_stands_on_the_blocks(fitted):
    _, anchor = fitted
    z = np.random.default_rng(1).standard_normal(D + 2).astype(np.float32)
    moved = np.concatenate([anchor.root[0] @ z[:2], anchor.root[1] * z[2:]])
    assert_allclose(times(anchor.root, jnp.asarray(z)), moved, rtol=1e-4, atol=1e-6)


def test_effects_of_groups_that_some_rows_would_miss_are_as_wide_as_their_data_say(monkeypatch):
    # 30 groups of 10 rows each: the curvature of 60 rows would know nothing of a tenth of them.
    monkeypatch.setattr(wide, "_MOST_PRODUCTS", 60 * 30 * 32)
    rng = np.random.default_rng(3)
    effect = rng.normal(size=30)
    group = np.repeat(np.arange(30), 10)
    rows = {"group": group, "y": (effect[group] + rng.normal(size=300)).astype(np.float32)}
    target = lv.Target(
        lambda t: -0.005 * jnp.sum(t["effect"] ** 2) - 0.5 * jnp.sum(t["shift"] ** 2),
        lambda t, row: -0.5 * (row["y"] - t["effect"][row["group"]] - t["shift"][0]) ** 2,
    )
    anchor = lv.laplace(target, rows, {"effect": np.zeros(30), "shift": np.zeros(2)})
    residual = rows["y"] - anchor.theta[:30][group] - anchor.theta[30]
    squares = np.add.reduceat(residual**2, np.arange(0, 300, 10))
    assert_allclose(anchor.root[0] ** -2.0, squares + 0.01, rtol=1e-3)


def test_squared_gradients_stand_in_when_second_derivatives_are_dear(fitted, monkeypatch):
    data, _ = fitted
    monkeypatch.setattr(wide, "_MOST_PRODUCTS", 0.0)
    anchor = lv.laplace(LOGISTIC, data, START)
    x, y = data
    residual = expit(-y * (x @ anchor.theta[2:] + x[:, 0] * anchor.theta[0] + anchor.theta[1]))
    assert_allclose(anchor.root[1] ** -2.0, (residual**2) @ x.astype(np.float64) ** 2 + 1.0, rtol=2e-2)


def test_minibatches_first_end_at_the_same_mode(fitted, monkeypatch):
    data, full = fitted
    monkeypatch.setattr(climb, "_ENOUGH_PASSES", 1e9)
    monkeypatch.setattr(climb, "_ADAM_STEPS", 500)
    anchor = lv.laplace(LOGISTIC, data, START)
    assert anchor.converged
    apart = anchor.theta - full.theta
    assert np.sqrt(apart @ hessian(data, full.theta) @ apart) < 0.2


def test_badly_scaled_columns_in_many_dimensions(fitted):
    plain, full = fitted
    scale = np.logspace(-4, 4, D).astype(np.float32)
    x, y = plain
    target = lv.Target(
        lambda t: -0.5 * jnp.sum((t["b"] * scale) ** 2) - 0.125 * jnp.sum(t["a"] ** 2), LOGISTIC.log_likelihood
    )
    anchor = lv.laplace(target, ((x * scale).astype(np.float32), y), START)
    assert anchor.converged
    # Column 0 also carries a[0], so that parameter changes with the scale; the others are the same model.
    assert_allclose(anchor.root[1][1:] * scale[1:], full.root[1][1:], rtol=0.05)


def test_a_network_of_ten_thousand_weights_gives_an_anchor_that_says_it_is_no_mode(monkeypatch):
    monkeypatch.setattr(wide, "_MOST_IN_A_BLOCK", 256)
    monkeypatch.setattr(climb, "_MOST_PASSES", 20)
    rng = np.random.default_rng(3)
    x = rng.standard_normal((50, 100)).astype(np.float32)
    data = (x, np.sin(2.0 * x[:, 0]).astype(np.float32))
    theta = {"first": rng.standard_normal((100, 100)) / 10.0, "last": rng.standard_normal(100) / 10.0}

    def likelihood(t, datum):
        row, value = datum
        return -5000.0 * (value - jnp.dot(jnp.tanh(row @ t["first"]), t["last"])) ** 2

    target = lv.Target(lambda t: -0.5 * (jnp.sum(t["first"] ** 2) + jnp.sum(t["last"] ** 2)), likelihood)
    anchor = lv.laplace(target, data, theta, max_steps=2)
    assert not anchor.dense and not anchor.converged
    assert [block.shape for block in anchor.root] == [(10_000,), (100, 100)]
    assert all(np.all(np.isfinite(block)) for block in anchor.root) and np.all(anchor.sd > 0.0)


def test_a_hessian_that_is_not_positive_is_marked():
    target = lv.Target(lambda t: -0.5 * jnp.sum(t["wide"] ** 2) - (t["few"][0] * t["few"][1] - 1.0) ** 2)
    layout = Layout.of({"few": np.zeros(2), "wide": np.zeros(30)})
    with jax.enable_x64(True):
        # At the origin the Hessian of (x y - 1)^2 has the eigenvalues 2 and -2.
        root, positive = wide._root(Passes(target, None, layout), None, np.zeros(32), np.random.default_rng(0))
    assert not positive
    assert_allclose(root[0] @ root[0].T, 0.5 * np.eye(2), rtol=1e-12, atol=1e-12)
    assert_allclose(root[1], 1.0)


def test_a_density_without_data_in_many_dimensions():
    precision = np.linspace(1.0, 100.0, 70)
    target = lv.Target(lambda t: -0.5 * jnp.sum(precision * (t - 3.0) ** 2))
    anchor = lv.laplace(target, None, np.zeros(70))
    assert anchor.converged and anchor.likelihood_grad is None
    assert_allclose(anchor.sd, precision**-0.5, rtol=1e-10)
    assert np.max(np.abs(anchor.theta - 3.0) / anchor.sd) < 0.1


def test_random_signs_see_an_independent_prior_exactly(monkeypatch):
    precision = np.linspace(1.0, 100.0, 70)
    target = lv.Target(lambda t: -0.5 * jnp.sum(precision * (t - 3.0) ** 2), lambda t, x: -0.5 * (x - t[0]) ** 2)
    monkeypatch.setattr(wide, "_MOST_BASIS", 0)
    monkeypatch.setattr(wide, "_MOST_PRODUCTS", 0.0)
    anchor = lv.laplace(target, np.ones(5, np.float32), np.zeros(70))
    assert_allclose(anchor.root[0][1:] ** -2.0, precision[1:], rtol=1e-10)


def test_separable_data_in_many_dimensions_have_no_mode():
    flat = lv.Target(lambda t: 0.0 * jnp.sum(t["b"]) + 0.0 * jnp.sum(t["a"]), LOGISTIC.log_likelihood)
    with pytest.raises(lv.AnchorError, match=r"keeps rising.*proper prior"):
        lv.laplace(flat, logistic_data(20, D), START)


def test_a_parameter_that_nothing_depends_on_is_named():
    target = lv.Target(lambda t: -0.5 * jnp.sum(t[:59] ** 2))
    with pytest.raises(lv.AnchorError, match=r"not determined: theta\[59\]"):
        lv.laplace(target, None, np.ones(60))


def test_a_start_outside_the_domain_in_many_dimensions():
    target = lv.Target(lambda t: jnp.sum(jnp.log(t) - t))
    with pytest.raises(lv.AnchorError, match="theta_0 must have a finite"):
        lv.laplace(target, None, -np.ones(60))


def test_large_data_start_from_a_subsample():
    model = Logistic.simulate(num_data=150_000, dimension=3, seed=4)
    anchor = lv.laplace(model.target, model.data, np.zeros(3))
    assert np.max(np.abs(anchor.theta - model.map) / anchor.sd) < 2e-3
    assert_allclose(anchor.precision, -model.hessian(anchor.theta), rtol=1e-12)
    assert_allclose(anchor.likelihood_grad - anchor.theta, model.grad(anchor.theta), atol=1e-8)
    # Six passes from theta_0 at full size; the subsample takes 7 steps of a ninth of the data.
    assert anchor.cost < 5.5 * model.num_data


def test_the_subsample_changes_the_anchor_by_less_than_a_thousandth_of_an_sd():
    model = Logistic.simulate(num_data=150_000, dimension=3, seed=4)
    anchors = [lv.laplace(model.target, model.data, np.zeros(3), seed=seed) for seed in range(2)]
    assert np.max(np.abs(anchors[0].theta - anchors[1].theta) / anchors[0].sd) < 2e-3


def test_a_subsample_without_a_mode_leaves_it_to_all_the_data(monkeypatch):
    monkeypatch.setattr(search, "_SUBSAMPLE", 1)
    num_data = 70_000
    x = np.zeros((num_data, 2), np.float32)
    x[:, 0] = np.random.default_rng(5).standard_normal(num_data)
    # The second column is there in 6 rows, of which a subsample of 16 384 will not hold all; a flat prior.
    x[:6, 1] = 1.0
    y = np.where(np.arange(num_data) % 3 == 0, 1.0, -1.0).astype(np.float32)
    target = lv.Target(lambda t: 0.0 * jnp.sum(t), lambda t, d: lv.log_sigmoid(d[1] * jnp.dot(d[0], t)))
    anchor = lv.laplace(target, (x, y), np.zeros(2))
    assert anchor.gradient_norm < 1e-3
