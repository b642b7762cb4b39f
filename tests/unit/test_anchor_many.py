"""Dense curvature in many dimensions: the Hessian of any likelihood in blocks, and few of them on the way to a mode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import langevin as lv
from langevin.anchor import large, passes, search
from langevin.anchor.curvature import Curvature, inverse_root, positive_root
from langevin.anchor.passes import Passes
from langevin.data.source import as_source
from langevin.target import Layout

RNG = np.random.default_rng(0)
ROWS = 300
X = RNG.normal(size=(ROWS, 6)).astype(np.float32)
LABEL = RNG.integers(0, 4, ROWS)
GROUP = RNG.integers(0, 9, ROWS)


def softmax(theta, row):
    return jax.nn.log_softmax(theta["w"] @ row["x"])[row["label"]]


def network(theta, row):
    hidden = jnp.tanh(theta["in"] @ row["x"] + theta["shift"])
    return -0.5 * (row["x"][0] - jnp.dot(theta["out"], hidden)) ** 2


def groups(theta, row):
    rate = theta["mean"] + jnp.exp(theta["log_sd"]) * theta["effect"][row["group"]]
    return row["label"] * rate - jnp.exp(rate)


def poisson(theta, row):
    return row["label"] * jnp.dot(theta, row["x"]) - jnp.exp(jnp.dot(theta, row["x"]))


def student(theta, row):
    return -2.5 * jnp.log1p((row["x"][0] - theta["a"]) ** 2 * jnp.exp(theta["b"])) + 0.5 * theta["b"]


CASES = {
    "glm": (poisson, np.zeros(6)),
    "softmax": (softmax, {"w": np.zeros((4, 6))}),
    "network": (network, {"in": np.zeros((3, 6)), "shift": np.zeros(3), "out": np.zeros(3)}),
    "groups": (groups, {"effect": np.zeros(9), "mean": np.zeros(()), "log_sd": np.zeros(())}),
    "student": (student, {"a": np.zeros(()), "b": np.zeros(())}),
}
DATA = {"x": X, "label": LABEL, "group": GROUP}


@pytest.mark.parametrize("name", CASES)
def test_blocks_of_directions_make_the_hessian_of_any_likelihood(name, monkeypatch):
    monkeypatch.setattr(passes, "_DIRECTIONS", 5)
    likelihood, like = CASES[name]
    layout = Layout.of(like)
    flat = 0.3 * np.random.default_rng(1).standard_normal(layout.size)
    target = lv.Target(lambda t: -sum(jnp.sum(leaf**4) for leaf in jax.tree.leaves(t)), likelihood)

    def total(t):
        return jnp.sum(jax.vmap(likelihood, (None, 0))(layout.unravel(t), DATA))

    with jax.enable_x64(True):
        both = Passes(target, as_source(DATA), layout)
        prior, found = both.parts(flat, 2)
        value, grad = jax.value_and_grad(total)(jnp.asarray(flat))
        expected = jax.hessian(total)(jnp.asarray(flat))
    assert both.cost == ROWS
    assert_allclose(found[0], value, rtol=1e-12)
    assert_allclose(found[1], grad, rtol=1e-10, atol=1e-10)
    assert_allclose(found[2], expected, rtol=1e-10, atol=1e-10)
    assert_allclose(prior[2], np.diag(-12.0 * flat**2), rtol=1e-12, atol=1e-15)


def logistic(num_data, dimension, seed=0):
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((num_data, dimension)) + rng.standard_normal((num_data, 1))).astype(np.float32)
    y = np.where(rng.random(num_data) < 1 / (1 + np.exp(-x @ rng.normal(size=dimension) / dimension**0.5)), 1, -1)
    return {"x": x, "y": y}


TARGET = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, row: lv.log_sigmoid(row["y"] * jnp.dot(row["x"], t)))


@pytest.fixture
def hessians(monkeypatch):
    """Rows of every Hessian that is taken."""
    taken = []
    parts = Passes.parts

    def counted(self, flat, order):
        if order == 2:
            taken.append(self.num_rows)
        return parts(self, flat, order)

    monkeypatch.setattr(Passes, "parts", counted)
    return taken


def test_one_hessian_of_all_the_data_does_where_parameters_are_many(hessians, monkeypatch):
    data = logistic(4000, 40)
    by_newton = lv.laplace(TARGET, data, np.zeros(40))
    assert hessians.count(4000) > 2
    hessians.clear()
    monkeypatch.setattr(search, "_MOST_NEWTON", 20)
    monkeypatch.setattr(passes, "_CHUNK_FLOATS", 256 * 40)
    found = lv.laplace(TARGET, data, np.zeros(40))
    assert hessians.count(4000) == 1 and len(hessians) == 2 and hessians[0] < 1000
    assert found.dense and found.converged
    apart = found.theta - by_newton.theta
    assert apart @ by_newton.precision @ apart < 1e-5
    assert_allclose(found.sd, by_newton.sd, rtol=1e-4)
    assert_allclose(found.root[0] @ found.root[0].T @ found.precision, np.eye(40), atol=1e-8)


def test_one_hessian_of_all_the_data_does_where_these_are_very_many(hessians, monkeypatch):
    data = logistic(70_000, 3)
    by_newton = lv.laplace(TARGET, data, np.zeros(3))
    assert hessians.count(70_000) > 2
    hessians.clear()
    monkeypatch.setattr(search, "_NEWTON_PRODUCTS", 1e5)
    found = lv.laplace(TARGET, data, np.zeros(3))
    assert hessians.count(70_000) == 1
    assert found.converged and np.array_equal(found.theta, found.theta.astype(np.float32))
    apart = found.theta - by_newton.theta
    assert apart @ by_newton.precision @ apart < 1e-5
    assert_allclose(found.sd, by_newton.sd, rtol=1e-4)


@pytest.mark.parametrize("gain", [0.0, 1e-9])
def test_where_the_curvature_of_some_rows_misleads_newton_steps_go_on(gain, hessians, monkeypatch):
    data = logistic(70_000, 3)
    by_newton = lv.laplace(TARGET, data, np.zeros(3))
    hessians.clear()
    monkeypatch.setattr(search, "_NEWTON_PRODUCTS", 1e5)
    monkeypatch.setattr(large, "_LEAST_GAIN", gain)
    found = lv.laplace(TARGET, data, np.zeros(3))
    assert hessians.count(70_000) > 1
    assert_allclose(found.theta, by_newton.theta, rtol=0, atol=2e-3 * by_newton.sd.min())


def test_where_the_hessian_is_not_positive_the_curvature_is_kept_in_blocks(monkeypatch):
    monkeypatch.setattr(search, "_MOST_NEWTON", 2)
    # At the symmetric start, a saddle, the gradient vanishes: no climb leaves it.
    target = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, y: -0.5 * (y - t[0] * t[1]) ** 2 - 0.1 * t[2] ** 2)
    anchor = lv.laplace(target, np.ones(50, np.float32), np.zeros(3))
    assert not anchor.dense and not anchor.converged


def test_separable_data_have_no_mode_in_many_dimensions_either(monkeypatch):
    monkeypatch.setattr(search, "_MOST_NEWTON", 10)
    x = RNG.normal(size=(15, 30)).astype(np.float32)
    target = lv.Target(lambda t: 0.0 * jnp.sum(t), TARGET.log_likelihood)
    with pytest.raises(lv.AnchorError, match="no posterior mode"):
        lv.laplace(target, {"x": x, "y": np.ones(15)}, np.zeros(30))


def test_a_triangle_inverted_by_scipy_is_the_one_inverted_by_hand(monkeypatch):
    from langevin.anchor import curvature

    matrix = RNG.normal(size=(30, 40))
    by_hand = inverse_root(matrix @ matrix.T)
    monkeypatch.setattr(curvature, "_BY_HAND", 0)
    assert_allclose(inverse_root(matrix @ matrix.T), by_hand, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("least", [1.0, 1e-8, 1e-15, 0.0, -1e-6, -1.0])
def test_what_cholesky_calls_positive_eigenvalues_do_too(least):
    vectors = np.linalg.qr(RNG.normal(size=(20, 20)))[0]
    matrix = (vectors * np.r_[least, np.ones(19)]) @ vectors.T
    assert (positive_root(matrix) is not None) == (least > 1e-14) == Curvature.of(matrix).positive


def test_rows_for_a_first_curvature_are_a_share_of_the_data():
    data = logistic(4000, 40)
    with jax.enable_x64(True):
        every = Passes(TARGET, as_source(data), Layout.of(np.zeros(40)))
        assert large._subsample(every, as_source(data), RNG) is every  # one chunk holds all of them
