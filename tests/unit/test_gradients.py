"""Gradient estimators over all subsets of a small data set: unbiased to rounding, with the stated variance."""

from itertools import combinations, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import langevin as lv

N, D = 6, 2
RNG = np.random.default_rng(3)
# Rounded to float32, so that the anchor, which reads float32 data, and NumPy see the same numbers.
X = RNG.standard_normal((N, D)).astype(np.float32).astype(np.float64)
Y = np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
THETA = np.array([0.7, -0.4])
# Sums of some twenty float64 terms of order one to ten.
ROUNDING = {"rtol": 1e-12, "atol": 1e-12}

LOGISTIC = lv.Target(
    lambda t: -0.5 * jnp.dot(t, t), lambda t, datum: -jnp.log1p(jnp.exp(-datum[1] * jnp.dot(datum[0], t)))
)
QUADRATIC = lv.Target(lambda t: -0.25 * jnp.sum(t**4), lambda t, datum: -0.5 * (datum[1] - jnp.dot(datum[0], t)) ** 2)


def datum_grads(theta):
    """Gradients of the logistic log likelihoods, by hand: y_i x_i / (1 + exp(y_i x_i.theta))."""
    return (Y / (1 + np.exp(Y * (X @ theta))))[:, None] * X


def datum_hessians(theta):
    s = 1 / (1 + np.exp(-(X @ theta)))
    return -(s * (1 - s))[:, None, None] * X[:, :, None] * X[:, None, :]


@pytest.fixture(scope="module")
def anchor():
    return lv.laplace(LOGISTIC, (X, Y), np.zeros(D))


@pytest.fixture(scope="module")
def estimators(anchor):
    return {
        "minibatch": lv.Minibatch(),
        "order 1": lv.ControlVariate(anchor, order=1),
        "order 2": lv.ControlVariate(anchor, order=2),
    }


def parts(target, estimator, theta=THETA):
    """base(theta) and term(theta, datum) of all data, float64."""
    with jax.enable_x64(True):
        terms = jax.vmap(lambda datum: estimator.term(lambda t: target.log_likelihood(t, datum), jnp.asarray(theta)))(
            (jnp.asarray(X), jnp.asarray(Y))
        )
        return np.asarray(estimator.base(target, jnp.asarray(theta))), np.asarray(terms)


def exact_gradient(theta=THETA):
    return -theta + datum_grads(theta).sum(axis=0)


NAMES = ["minibatch", "order 1", "order 2"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_unbiased_over_all_subsets_with_the_finite_population_variance(estimators, name, n):
    base, terms = parts(LOGISTIC, estimators[name])
    estimates = np.array([base + N / n * terms[list(s)].sum(axis=0) for s in combinations(range(N), n)])
    assert_allclose(estimates.mean(axis=0), exact_gradient(), **ROUNDING)
    # N^2/n (1 - n/N) S^2, S^2 with divisor N - 1
    stated = N**2 / n * (1 - n / N) * terms.var(axis=0, ddof=1)
    assert_allclose(estimates.var(axis=0), stated, **ROUNDING)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 3])
def test_unbiased_over_all_sequences_with_the_variance_of_independent_draws(estimators, name, n):
    base, terms = parts(LOGISTIC, estimators[name])
    estimates = np.array([base + N / n * terms[list(s)].sum(axis=0) for s in product(range(N), repeat=n)])
    assert_allclose(estimates.mean(axis=0), exact_gradient(), **ROUNDING)
    assert_allclose(estimates.var(axis=0), N**2 / n * terms.var(axis=0), **ROUNDING)


def test_terms_are_the_formulas_of_the_docstrings(estimators, anchor):
    a, step = anchor.theta, THETA - anchor.theta
    g, g_a, h_a = datum_grads(THETA), datum_grads(a), datum_hessians(a)
    base, terms = parts(LOGISTIC, estimators["minibatch"])
    assert_allclose(base, -THETA, **ROUNDING)
    assert_allclose(terms, g, **ROUNDING)
    base, terms = parts(LOGISTIC, estimators["order 1"])
    assert_allclose(base, -THETA + g_a.sum(axis=0), **ROUNDING)
    assert_allclose(terms, g - g_a, **ROUNDING)
    base, terms = parts(LOGISTIC, estimators["order 2"])
    assert_allclose(base, -THETA + (g_a + h_a @ step).sum(axis=0), **ROUNDING)
    assert_allclose(terms, g - g_a - h_a @ step, **ROUNDING)


@pytest.mark.parametrize("name", NAMES)
def test_terms_are_linear_in_the_log_likelihood(estimators, name):
    # The engine may hand over the log likelihood of one datum at a time or of a whole minibatch.
    _, terms = parts(LOGISTIC, estimators[name])
    with jax.enable_x64(True):
        data = (jnp.asarray(X[:4]), jnp.asarray(Y[:4]))

        def together(t):
            return jnp.sum(jax.vmap(LOGISTIC.log_likelihood, (None, 0))(t, data))

        assert_allclose(estimators[name].term(together, jnp.asarray(THETA)), terms[:4].sum(axis=0), **ROUNDING)


def test_the_anchor_holds_the_exact_derivatives(anchor):
    assert_allclose(anchor.likelihood_grad, datum_grads(anchor.theta).sum(axis=0), **ROUNDING)
    assert_allclose(anchor.likelihood_hessian, datum_hessians(anchor.theta).sum(axis=0), **ROUNDING)
    assert_allclose(anchor.precision, np.eye(D) - anchor.likelihood_hessian, **ROUNDING)
    assert_allclose(anchor.covariance @ anchor.precision, np.eye(D), **ROUNDING)
    # The mode, rounded once to float32: the gradient there is at most the precision times half a unit.
    assert np.array_equal(anchor.theta, anchor.theta.astype(np.float32))
    step = np.linalg.solve(anchor.precision, exact_gradient(anchor.theta))
    assert np.all(np.abs(step) <= 2**-24 * np.abs(anchor.theta) + 1e-7 * anchor.sd)


def test_order_1_has_no_noise_at_the_anchor(estimators, anchor):
    _, terms = parts(LOGISTIC, estimators["order 1"], anchor.theta)
    assert np.array_equal(terms, np.zeros((N, D)))


def test_order_2_has_no_noise_on_quadratic_likelihoods():
    estimator = lv.ControlVariate(lv.laplace(QUADRATIC, (X, Y), np.zeros(D)), order=2)
    base, terms = parts(QUADRATIC, estimator)
    assert_allclose(terms, np.zeros((N, D)), **ROUNDING)
    assert_allclose(base, -(THETA**3) + X.T @ (Y - X @ THETA), **ROUNDING)


def test_target_gradients_agree_with_the_formula():
    with jax.enable_x64(True):
        data = (jnp.asarray(X), jnp.asarray(Y))
        assert_allclose(LOGISTIC.grad(THETA, data), exact_gradient(), **ROUNDING)
        assert_allclose(LOGISTIC.datum_grads(THETA, data), datum_grads(THETA), **ROUNDING)
        some = jax.tree.map(lambda leaf: leaf[:2], data)
        expected = -THETA + N / 2 * datum_grads(THETA)[:2].sum(axis=0)
        assert_allclose(LOGISTIC.minibatch_grad(THETA, some, N), expected, **ROUNDING)


@pytest.mark.parametrize(("name", "layout"), [("minibatch", "wide"), ("order 2", "chain"), ("order 2", "wide")])
def test_the_engine_adds_up_what_the_estimator_states(estimators, name, layout):
    # One step of many chains from the same theta: every kept gradient is the estimate on one of the pairs of data.
    chains, theta = 100, THETA.astype(np.float32).astype(np.float64)
    ledger = lv.run(
        LOGISTIC, (X, Y), theta, gradient=estimators[name], subsample=lv.WithoutReplacement(2),
        schedule=lv.Constant(0.1), num_steps=1, chains=chains, layout=layout, keep=4,
    )  # fmt: skip
    base, terms = parts(LOGISTIC, estimators[name], theta)
    expected = np.array([base + N / 2 * terms[list(s)].sum(axis=0) for s in combinations(range(N), 2)])
    gaps = np.abs(ledger.draws.grad[:, 0, None, :] - expected)
    # float32: some 30 roundings of numbers no larger than the sum of all absolute parts.
    slack = 30 * 2.0**-24 * (np.abs(theta) + (N / 2 * 3 + N) * np.abs(X).max(axis=0))
    close = np.all(gaps <= slack, axis=-1)
    assert np.array_equal(close.sum(axis=1), np.ones(chains)), "every gradient is exactly one of the 15 estimates"
    # A pair that 100 chains never draw: 15 * (14/15)^100 = 0.015, so most but perhaps not all are there.
    assert close.any(axis=0).sum() >= 10
