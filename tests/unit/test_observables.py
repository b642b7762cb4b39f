"""Test functions and their corrections: two ways to the same formula, exact constants, and a replay by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import langevin as lv
from langevin import random
from langevin.observables import Function, named
from langevin.random import Clock
from langevin.target import Layout

D = 3
RNG = np.random.default_rng(8)
ROOT = RNG.standard_normal((D, D))
PRECISION, MODE = ROOT @ ROOT.T + np.eye(D), np.array([0.5, -1.0, 2.0])


def log_gaussian(theta):
    # Lists become arrays of whatever precision JAX is set to: float32 in a run, float64 in the anchor.
    u = theta - jnp.array(MODE.tolist())
    return -0.5 * jnp.dot(u, jnp.dot(jnp.array(PRECISION.tolist()), u))


GAUSSIAN = lv.Target(log_gaussian)
LAYOUT = Layout.of(np.zeros(D))
FIRST, SECOND = np.triu_indices(D)
ROUNDING = {"rtol": 1e-12, "atol": 1e-12}


@pytest.fixture(scope="module")
def anchor():
    return lv.laplace(GAUSSIAN, None, np.zeros(D))


def features(observable, anchor, theta, grad, centre):
    """Value and correction of an observable, in float64: what the engine sums, without the engine."""
    trace = np.einsum("kij,ij->k", observable.hessian(anchor), anchor.covariance)
    with jax.enable_x64(True):
        reference = observable.reference(LAYOUT, jnp.asarray(centre), anchor)
        value = observable.value(LAYOUT, jnp.asarray(theta), reference)
        s = jnp.asarray(anchor.covariance @ grad)
        correction = observable.correction(LAYOUT, jnp.asarray(theta), s, jnp.asarray(anchor.theta), jnp.asarray(trace))
    return np.asarray(value), np.asarray(correction)


def monomials(theta, centre):
    u = theta - centre
    return jnp.concatenate([u, u[FIRST] * u[SECOND]])


def test_moments_correction_is_that_of_the_generic_function_for_the_same_monomials(anchor):
    generic = Function(lambda t: monomials(t, anchor.theta))
    for _ in range(2):
        theta, grad = RNG.standard_normal((2, D))
        expected = features(generic, anchor, theta, grad, anchor.theta)
        found = features(lv.Moments(), anchor, theta, grad, anchor.theta)
        assert_allclose(found[0], expected[0], **ROUNDING)
        assert_allclose(found[1], expected[1], **ROUNDING)


def test_moments_corrected_is_the_formula_of_its_docstring(anchor):
    theta, grad = RNG.standard_normal((2, D))
    u, s = theta - anchor.theta, anchor.covariance @ grad
    value, correction = features(lv.Moments(), anchor, theta, grad, anchor.theta)
    second = u[FIRST] * u[SECOND] + (u[FIRST] * s[SECOND] + u[SECOND] * s[FIRST]) / 2 + anchor.covariance[FIRST, SECOND]
    assert_allclose(value + correction, np.concatenate([u + s, second]), **ROUNDING)


def test_hessian_of_moments_is_that_of_the_generic_function(anchor):
    generic = Function(lambda t: monomials(t, anchor.theta))
    assert_allclose(lv.Moments().hessian(anchor), generic.hessian(anchor), **ROUNDING)


@pytest.mark.parametrize("centre", [MODE, np.zeros(D)], ids=["anchor", "elsewhere"])
def test_corrected_features_are_constant_on_a_gaussian(anchor, centre):
    # With the exact gradient s = -u exactly, so phi - A h is the posterior mean of phi at every theta.
    quadratic = Function(lambda t: jnp.array([jnp.dot(t, t), t[0] * t[1] - 3 * t[2]]))
    for observable in (lv.Moments(), quadratic):
        points = 3 * RNG.standard_normal((4, D))
        corrected = [sum(features(observable, anchor, t, -PRECISION @ (t - MODE), anchor.theta)) for t in points]
        # Terms of order 100 cancel; the anchor is the mode rounded to float32, and MODE is exact in float32.
        assert np.array_equal(anchor.theta, MODE)
        assert_allclose(corrected, np.broadcast_to(corrected[0], np.shape(corrected)), rtol=0, atol=1e-11)
    mean = sum(features(lv.Moments(), anchor, points[0], -PRECISION @ (points[0] - MODE), anchor.theta))
    assert_allclose(mean, np.concatenate([np.zeros(D), np.linalg.inv(PRECISION)[FIRST, SECOND]]), rtol=0, atol=1e-11)
    # The centre moves values and reference together.
    value, _ = features(quadratic, anchor, points[0], np.zeros(D), centre)
    with jax.enable_x64(True):
        assert_allclose(value + quadratic.phi(jnp.asarray(centre)), quadratic.phi(jnp.asarray(points[0])), **ROUNDING)


def test_moments_keeps_the_diagonal_only_in_high_dimension():
    assert len(lv.Moments().pairs(32)[0]) == 32 * 33 // 2
    for observable, d in ((lv.Moments(), 33), (lv.Moments(covariance=False), 3)):
        i, j = observable.pairs(d)
        assert np.array_equal(i, np.arange(d)) and np.array_equal(j, np.arange(d))
    assert len(lv.Moments(covariance=True).pairs(40)[0]) == 40 * 41 // 2


def test_named_wraps_plain_functions_and_keeps_observables():
    pairs = dict(named({"m": lv.Moments(), "f": jnp.sin}))
    assert pairs == {"m": lv.Moments(), "f": Function(jnp.sin, "f")}


def test_shapes_and_names_of_a_pytree_survive():
    layout = Layout.of({"beta": np.zeros((2, 2)), "tau": 1.0})
    assert layout.names == ("beta[0,0]", "beta[0,1]", "beta[1,0]", "beta[1,1]", "tau")
    assert layout.size == 5 and Layout.of(1.0).names == ("theta",)
    tree = {"beta": jnp.arange(4.0).reshape(2, 2), "tau": jnp.float32(9.0)}
    flat = layout.ravel(tree)
    assert flat.tolist() == [0, 1, 2, 3, 9]
    assert jax.tree.all(jax.tree.map(np.array_equal, layout.unravel(flat), tree))
    assert Function(lambda t: t["beta"] * t["tau"]).shape(layout) == (2, 2)


# --- a whole run by hand ---


def words(seed, m_last, d, subsample, num_data):
    """eta_1 ... and the indices of every step from the library's streams: the only thing the replay borrows."""
    keys = {s: [jnp.asarray(k[0]) for k in random.stream_keys(seed, np.array([0]), s)] for s in (0, 1)}

    @jax.jit
    def draw(noise_key, subsample_key):
        page = subsample.draw(subsample_key, Clock.at(1), jnp.int32(0), (), m_last, num_data)
        rows = jax.vmap(lambda k: subsample.batch(jnp.arange(num_data), page, k, m_last, num_data))(jnp.arange(m_last))
        return random.normals(noise_key, Clock.at(1), m_last, d), rows

    eta, rows = draw(keys[random.NOISE], keys[random.SUBSAMPLE])
    return np.asarray(eta, np.float64).reshape(m_last, d), np.asarray(rows)


def replay(theta, prior_precision, datum_grads, schedule, num_steps, eta, indices, num_data):
    """SGLD in NumPy float64; yields theta_{m-1}, delta_m and a bound on the rounding error of a float32 run so far.

    A float32 step makes at most n + 6 roundings, each of 2^-24 of the sum of the absolute parts it adds; errors made
    before are carried on by I + delta/2 Hessian, which here is a contraction (concave log density, small delta). So
    the Euclidean norms of the steps' errors add up.
    """
    bound = 0.0
    for m in range(1, num_steps + 1):
        delta = float(np.float32(schedule.delta(m)))
        each = datum_grads(theta, indices[m - 1])
        scale = num_data / len(each)
        grad = -prior_precision * theta + scale * each.sum(axis=0)
        yield theta, delta, bound
        parts = delta / 2 * (np.abs(prior_precision * theta) + scale * np.abs(each).sum(axis=0))
        parts = parts + np.abs(theta) + np.sqrt(delta) * np.abs(eta[m - 1])
        bound += (len(each) + 6) * 2.0**-24 * np.linalg.norm(parts)
        theta = theta + delta / 2 * grad + np.sqrt(delta) * eta[m - 1]


def linear_gaussian():
    model = lv.models.LinearGaussian.simulate(num_data=40, seed=2)

    def grads(theta, i):
        return (model.x[i][:, None] - theta) / model.sigma_x**2

    return model.target, model.data, np.array([0.3]), 1.0, grads, jnp.float32(0.3)


def logistic():
    model = lv.models.Logistic.simulate(num_data=40, dimension=3, seed=2)
    x, y = model.x, model.y

    def grads(theta, i):
        return (y[i] / (1 + np.exp(y[i] * (x[i] @ theta))))[:, None] * x[i]

    start = np.array([0.25, -0.5, 1.0])
    return model.target, model.data, start, 1.0, grads, jnp.asarray(start, jnp.float32)


@pytest.mark.parametrize("model", [linear_gaussian, logistic])
def test_ledger_sums_are_those_of_a_replay_in_numpy(model):
    target, data, start, precision, grads, theta_0 = model()
    n, num_steps, num_data, schedule = 4, 50, 40, lv.Polynomial(a=1.0, b=2000.0, alpha=0.4)
    subsample = lv.WithoutReplacement(n)
    ledger = lv.run(target, data, theta_0, subsample=subsample, schedule=schedule, num_steps=num_steps, seed=4, keep=64)
    eta, indices = words(4, num_steps, len(start), subsample, num_data)
    i, j = np.triu_indices(len(start))
    rows = np.zeros((4, len(start) + len(i)))
    slack, states = np.zeros_like(rows), []
    sums = np.zeros((3, 4))
    for m, (theta, delta, bound) in enumerate(
        replay(start, precision, grads, schedule, num_steps, eta, indices, num_data)
    ):
        row, u = m // 16, theta - theta_0
        rows[row] += delta * np.concatenate([u, u[i] * u[j]])
        # d(u_i u_j) <= |u_i| e_j + |u_j| e_i + e_i e_j, and 20 roundings of each sum inside a row.
        e, size = bound + 2.0**-23 * np.abs(theta), np.abs(u) + np.abs(theta)
        error = np.concatenate([e, size[i] * e[j] + size[j] * e[i] + e[i] * e[j]])
        slack[row] += delta * (error + 20 * 2.0**-24 * np.concatenate([size, size[i] * size[j]]))
        sums[:, row] += delta, delta**2, delta
        states.append((theta, bound))
    assert ledger.row_steps == 16 and ledger.m_stop.tolist() == [16, 32, 48, 50]
    assert np.all(np.abs(ledger.values["theta"][0] - rows) <= slack)
    assert np.all(slack < 2e-3 * np.abs(rows).max()), "the bound must be sharp enough to see a wrong formula"
    for name, expected in zip(("sum_delta", "sum_delta2", "sum_omega"), sums, strict=True):
        assert_allclose(getattr(ledger, name), expected, rtol=1e-14)
    assert np.array_equal(ledger.draws.m, np.arange(1, 51))
    for k, (theta, bound) in enumerate(states):
        assert np.all(np.abs(ledger.draws.theta[0, k] - theta) <= bound + 2.0**-24 * np.abs(theta))
