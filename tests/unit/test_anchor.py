"""The anchor on targets written as users write them: closed-over NumPy arrays, before and after a run."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit

import langevin as lv
from langevin.paper.problems import logistic

MODE = np.array([0.5, -1.0, 2.0])  # float64, as NumPy makes it
SCALE = np.array([1.0, 2.0, 4.0])


def gaussian():
    """A fresh target each time: compiled code is found by the identity of the function."""
    return lv.Target(lambda theta: -0.5 * jnp.sum(SCALE * (theta - MODE) ** 2))


def test_laplace_accepts_a_target_that_closes_over_float64_arrays():
    anchor = lv.laplace(gaussian(), None, np.zeros(3))
    assert_allclose(anchor.theta, MODE, rtol=1e-7)
    assert_allclose(anchor.precision, np.diag(SCALE), rtol=1e-12, atol=1e-12)


def test_laplace_and_run_share_a_target_in_either_order():
    parts = {"schedule": lv.Constant(0.1), "num_steps": 20}
    first = gaussian()
    before = lv.run(first, None, jnp.zeros(3), **parts)
    lv.laplace(first, None, np.zeros(3))
    second = gaussian()
    lv.laplace(second, None, np.zeros(3))
    after = lv.run(second, None, jnp.zeros(3), **parts)
    assert np.array_equal(before.values["theta"], after.values["theta"])


def test_laplace_on_data_closing_over_float64_arrays():
    target = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, x: -0.5 * jnp.sum(SCALE * (x - t) ** 2))
    data = np.tile(MODE, (4, 1))
    anchor = lv.laplace(target, data, np.zeros(3))
    assert_allclose(anchor.theta, 4 * SCALE * MODE / (1 + 4 * SCALE), rtol=1e-7)
    assert_allclose(anchor.likelihood_hessian, -4 * np.diag(SCALE), rtol=1e-12, atol=1e-12)


class Model:
    """A model as users write them: arrays as attributes, densities as methods."""

    def __init__(self):
        self.mode = MODE.copy()

    def log_prior(self, theta):
        return -0.5 * jnp.sum((theta - self.mode) ** 2)

    __call__ = log_prior


def shifted(mode, theta):
    return -0.5 * jnp.sum((theta - mode) ** 2)


@pytest.mark.parametrize(
    "log_prior", [Model().log_prior, Model(), partial(shifted, MODE.copy())], ids=["method", "object", "partial"]
)
def test_arrays_held_by_methods_objects_and_partials_serve_both_precisions(log_prior):
    target = lv.Target(log_prior)
    anchor = lv.laplace(target, None, np.zeros(3))
    assert_allclose(anchor.theta, MODE, rtol=1e-7)
    assert lv.run(target, None, anchor.mode, schedule=lv.Constant(0.1), num_steps=20, anchor=anchor).num_steps == 20


CENTRE = 1.0


def centred(theta):
    return -0.5 * jnp.sum((theta - centre()) ** 2)


def centre():
    return CENTRE


def test_laplace_sees_a_helper_that_was_defined_anew(monkeypatch):
    target = lv.Target(centred)
    assert_allclose(lv.laplace(target, None, np.zeros(1)).theta, 1.0)
    monkeypatch.setitem(globals(), "centre", lambda: 7.0)
    assert_allclose(lv.laplace(target, None, np.zeros(1)).theta, 7.0)


def test_a_second_laplace_of_the_same_target_compiles_nothing():
    traced = []

    def log_prior(theta):
        traced.append(1)
        return -0.5 * jnp.sum((theta - MODE) ** 2)

    target = lv.Target(log_prior)
    lv.laplace(target, None, np.zeros(3))
    first = len(traced)
    lv.laplace(target, None, np.zeros(3))
    # One shape check; no new compilation.
    assert len(traced) <= first + 1


RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 3)).astype(np.float32)
BETA = np.array([1.0, -1.0, 0.5])
Y = np.where(RNG.random(200) < expit(X @ BETA), 1.0, -1.0).astype(np.float32)
COUNTS = RNG.poisson(np.exp(X @ BETA)).astype(np.float32)


def bernoulli(theta, datum):
    x, y = datum
    return lv.log_sigmoid(y * jnp.dot(x, theta))


def poisson(theta, datum):
    x, y = datum
    return y * jnp.dot(x, theta) - jnp.exp(jnp.dot(x, theta))


FLAT = lv.Target(lambda t: 0.0 * jnp.sum(t), bernoulli)
PROPER = lv.Target(lambda t: -0.5 * jnp.sum(t**2), bernoulli)
POISSON = lv.Target(lambda t: -0.5 * jnp.sum(t**2), poisson)


def exact_newton(derivatives, d):
    """Textbook Newton steps; derivatives: theta -> (gradient, minus the Hessian)."""
    theta = np.zeros(d)
    for _ in range(30):
        grad, precision = derivatives(theta)
        theta = theta + np.linalg.solve(precision, grad)
    return theta


def bernoulli_derivatives(theta):
    x, mean = X.astype(float), expit(X @ theta)
    return ((Y + 1) / 2 - mean) @ x - theta, (x * (mean * (1 - mean))[:, None]).T @ x + np.eye(3)


def poisson_derivatives(theta):
    x, mean = X.astype(float), np.exp(X @ theta)
    return (COUNTS - mean) @ x - theta, (x * mean[:, None]).T @ x + np.eye(3)


@pytest.mark.parametrize(
    ("target", "data", "derivatives"),
    [(PROPER, (X, Y), bernoulli_derivatives), (POISSON, (X, COUNTS), poisson_derivatives)],
    ids=["logistic", "poisson"],
)
def test_newton_against_the_formulas(target, data, derivatives):
    anchor = lv.laplace(target, data, np.zeros(3))
    mode = exact_newton(derivatives, 3)
    apart = anchor.theta - mode
    assert np.all(np.abs(apart) <= 2.0**-24 * np.abs(mode) + 1e-7 * anchor.sd)
    grad, here = derivatives(anchor.theta)
    assert_allclose(anchor.precision, here, rtol=1e-12)
    assert_allclose(anchor.covariance, np.linalg.inv(here), rtol=1e-10)
    assert_allclose(anchor.root[0] @ anchor.root[0].T, anchor.covariance, rtol=1e-12)
    assert_allclose(anchor.root[0], np.linalg.cholesky(anchor.covariance), rtol=1e-9, atol=1e-12)
    assert_allclose(anchor.likelihood_grad - anchor.theta, grad, atol=1e-10)
    assert_allclose(anchor.gradient_norm, np.sqrt(grad @ np.linalg.solve(here, grad)), rtol=1e-3)
    assert anchor.dense and anchor.converged and anchor.theta.tolist() == anchor.theta.astype(np.float32).tolist()


def test_a_pass_gives_value_gradient_and_hessian_at_once():
    model = logistic()
    anchor = lv.laplace(model.target, model.data, np.zeros(3))
    assert anchor.cost <= 5 * model.num_data
    assert np.max(np.abs(anchor.theta - model.map) / anchor.sd) < 1e-6


@pytest.mark.parametrize("decades", [4, 8])
def test_columns_of_any_scale_give_the_same_anchor(decades):
    # Powers of two: the scaled data hold the same digits.
    scale = (2.0 ** np.round(np.log2(10.0 ** np.linspace(-decades, decades, 3)))).astype(np.float32)
    plain = lv.laplace(FLAT, (X, Y), np.zeros(3))
    scaled = lv.laplace(FLAT, (X * scale, Y), np.zeros(3))
    assert_allclose(scaled.theta * scale, plain.theta, rtol=1e-6)
    assert_allclose(scaled.sd * scale, plain.sd, rtol=1e-6)
    assert_allclose(scaled.root[0] * scale[:, None], plain.root[0], rtol=1e-6, atol=1e-9)


def test_five_data_are_enough():
    assert lv.laplace(PROPER, (X[:5], Y[:5]), np.zeros(3)).converged


def test_chunks_of_every_length_are_summed_once(monkeypatch):
    whole = lv.laplace(PROPER, (X, Y), np.zeros(3))
    monkeypatch.setattr("langevin.anchor.passes._CHUNK_FLOATS", 3 * 64)
    pieces = lv.laplace(PROPER, (X, Y), np.zeros(3))
    assert_allclose(pieces.precision, whole.precision, rtol=1e-13)
    assert_allclose(pieces.theta, whole.theta, rtol=1e-6)


def refused(target, data, theta_0, match):
    with pytest.raises(lv.AnchorError, match=match):
        lv.laplace(target, data, theta_0)


def test_separable_data_under_a_flat_prior():
    data = (X, np.sign(X @ BETA).astype(np.float32))
    refused(FLAT, data, np.zeros(3), r"no posterior mode: .* keeps rising.*separable.*proper prior")
    # A wide prior is a proper one, however far away it puts the mode.
    wide = lv.Target(lambda t: -0.5 * jnp.sum((t / 1e3) ** 2), bernoulli)
    anchor = lv.laplace(wide, data, np.zeros(3))
    assert anchor.converged and np.linalg.norm(anchor.theta) > 100


def test_collinear_columns_are_named():
    extra = RNG.standard_normal((200, 3)).astype(np.float32)
    extra[:, 2] = 3.0 * X[:, 2]  # rounded to float32, so not quite collinear
    data = (np.concatenate([X, extra], axis=1), Y)
    refused(FLAT, data, np.zeros(6), r"^theta\[2\] and theta\[5\] cannot be told apart")
    assert lv.laplace(PROPER, data, np.zeros(6)).converged
    data[0][:, 5] = 0.0
    refused(FLAT, data, np.zeros(6), r"not determined: theta\[5\]")


@pytest.mark.parametrize("start", [(0.0, 0.0, 0.0), (0.01, 0.0, 0.0), (1.0, 1.0, 1.0)])
def test_a_mode_without_curvature(start):
    quartic = lv.Target(lambda t: -(t[0] ** 4) - jnp.sum(t[1:] ** 2))
    refused(quartic, None, np.array(start), r"curvature vanishes at the posterior mode along theta\[0\]: ")


def line(theta, datum):
    x, y = datum
    return -theta["ls"] - 0.5 * ((y - jnp.dot(x, theta["b"])) * jnp.exp(-theta["ls"])) ** 2


def test_constant_observations_make_the_density_unbounded():
    x = np.concatenate([X[:, :1], np.ones((200, 1), np.float32)], axis=1)
    theta_0 = {"b": np.zeros(2), "ls": np.array(0.0)}
    target = lv.Target(lambda t: 0.0 * t["ls"], line)
    for level in (0.0, 3.0):
        refused(target, (x, np.full(200, level, np.float32)), theta_0, "without bound")


def test_a_funnel_ends():
    funnel = lv.Target(lambda t: -4.5 * t["v"] - 0.5 * jnp.sum(t["x"] ** 2) * jnp.exp(-t["v"]))
    refused(funnel, None, {"v": np.array(0.0), "x": np.ones(9)}, "without bound")


DENSITIES = {
    "two modes, from the saddle between": (lambda t: -((t[0] ** 2 - 1) ** 2) - t[1] ** 2, [0.0, 0.0], [1.0, 0.0]),
    "a saddle with no diagonal": (lambda t: t[0] * t[1] - 0.25 * jnp.sum(t**4), [0.0, 0.0], [1.0, 1.0]),
    "the tail of a Cauchy law": (lambda t: -jnp.sum(jnp.log1p(t**2)), [1e4, -1e4], [0.0, 0.0]),
    "the edge of the domain": (lambda t: jnp.sum(3.0 * jnp.log(t) - t), [0.01, 50.0], [3.0, 3.0]),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_hard_starts(name):
    log_prior, start, mode = DENSITIES[name]
    anchor = lv.laplace(lv.Target(log_prior), None, np.array(start))
    assert anchor.converged
    assert np.max(np.abs(np.abs(anchor.theta) - mode) / anchor.sd) < 2e-3


def test_a_start_at_the_mode_costs_one_pass():
    anchor = lv.laplace(gaussian(), None, MODE)
    assert anchor.cost == 1 and anchor.gradient_norm == 0.0


def test_max_steps_is_a_bound():
    uphill = lv.Target(lambda t: jnp.sum(t))
    with pytest.raises(lv.AnchorError, match="max_steps=3"):
        lv.laplace(uphill, None, np.ones(2), max_steps=3)
    with pytest.raises(ValueError, match="max_steps must be at least 1, got 0"):
        lv.laplace(uphill, None, np.ones(2), max_steps=0)


def test_the_books_stay_out_of_compiled_code():
    first, second = (lv.laplace(PROPER, (X, Y), start) for start in (np.zeros(3), np.full(3, 5.0)))
    assert first.cost != second.cost
    assert jax.tree.structure(first) == jax.tree.structure(second)


def test_the_climb_begins_where_the_user_said_whatever_the_order_of_names():
    """Keys that are not in the order of the alphabet: a start at one of two modes must not become one at the other."""

    def log_prior(theta):
        squares = [(theta["b"] - side) ** 2 + (theta["a"] + side) ** 2 for side in (5.0, -5.0)]
        return jnp.logaddexp(-0.5 * squares[0], -0.5 * squares[1])

    anchor = lv.laplace(lv.Target(log_prior), None, {"b": np.array(4.0), "a": np.array(-4.0)})
    np.testing.assert_allclose(anchor.theta, [5.0, -5.0], atol=1e-5)
