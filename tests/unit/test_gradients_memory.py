"""Gradients that remember: several steps against NumPy, duplicates among the rows, and the datum visits they report."""

from itertools import combinations, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import langevin as lv
from langevin.gradients import Posterior, StatefulGradient
from langevin.target import Layout

N, D = 6, 2
RNG = np.random.default_rng(3)
X = RNG.standard_normal((N, D))
Y = np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
# A walk of the chain and the rows of its steps, some of them drawn twice or three times.
THETAS = RNG.standard_normal((8, D))
ROWS = np.array([[0, 1, 2], [3, 3, 4], [5, 0, 5], [2, 2, 2], [1, 4, 0], [3, 5, 1], [0, 0, 1], [4, 5, 4]])
# Sums of some twenty float64 terms of order one to ten.
ROUNDING = {"rtol": 1e-12, "atol": 1e-12}


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


def posterior():
    target = lv.Target(
        lambda t: -0.5 * jnp.dot(t, t), lambda t, datum: -jnp.log1p(jnp.exp(-datum[1] * jnp.dot(datum[0], t)))
    )
    return Posterior(target, Layout.of(np.zeros(D)), (jnp.asarray(X), jnp.asarray(Y)), N)


def datum_grads(theta):
    """y_i x_i / (1 + exp(y_i x_i.theta))."""
    return (Y / (1 + np.exp(Y * (X @ theta))))[:, None] * X


@jax.jit
def refresh(gradient, memory, theta, rows):
    return gradient.refresh(posterior(), memory, theta, rows)


def shapes(memory):
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), memory)


def walk(gradient, rows=ROWS):
    """Gradient, memory before and after, and visits of every step of the walk."""
    memory = gradient.remember(posterior(), jnp.asarray(THETAS[0]))
    for theta, batch in zip(THETAS, rows, strict=True):
        grad, new, visits = refresh(gradient, memory, jnp.asarray(theta), jnp.asarray(batch))
        assert shapes(new) == shapes(memory)
        yield theta, batch, memory, np.asarray(grad), new, int(visits)
        memory = new


def by_all_of(gradient, memory, theta, batches):
    found = [refresh(gradient, memory, jnp.asarray(theta), jnp.asarray(batch))[0] for batch in batches]
    return np.mean(found, axis=0)


@pytest.mark.parametrize("period", [1, 3, 100])
def test_svrg_is_its_formula(period):
    for m, (theta, batch, _, grad, memory, visits) in enumerate(walk(lv.SVRG(period))):
        if m % period == 0:
            reference, age = theta, 0
        age += 1
        change = datum_grads(theta) - datum_grads(reference)
        full = np.sum(datum_grads(reference), axis=0)
        assert_allclose(grad, -theta + full + N / 3 * np.sum(change[batch], axis=0), **ROUNDING)
        assert_allclose(memory.theta, reference)
        assert_allclose(memory.likelihood_grad, full, **ROUNDING)
        assert int(memory.age) == age and visits == (N if m % period == 0 else 3)


def test_saga_is_its_formula_and_its_sum_is_that_of_the_table():
    table = datum_grads(THETAS[0])
    for m, (theta, batch, _, grad, memory, visits) in enumerate(walk(lv.SAGA())):
        fresh = datum_grads(theta)
        expected = -theta + np.sum(table, axis=0) + N / 3 * np.sum(fresh[batch] - table[batch], axis=0)
        assert_allclose(grad, expected, **ROUNDING)
        for row in batch:
            table[row] = fresh[row]
        assert_allclose(memory.grads, table, **ROUNDING)
        assert_allclose(memory.total, np.sum(table, axis=0), **ROUNDING)
        assert visits == (3 + N if m == 0 else 3)


@pytest.mark.parametrize("gradient", [lv.SVRG(3), lv.SVRG(100), lv.SAGA()], ids=repr)
def test_unbiased_given_any_state_with_and_without_replacement(gradient):
    for theta, _, memory, *_ in walk(gradient):
        exact = -theta + np.sum(datum_grads(theta), axis=0)
        assert_allclose(by_all_of(gradient, memory, theta, combinations(range(N), 2)), exact, **ROUNDING)
        assert_allclose(by_all_of(gradient, memory, theta, product(range(N), repeat=2)), exact, **ROUNDING)


@pytest.mark.parametrize("gradient", [lv.SVRG(3), lv.SAGA()], ids=repr)
def test_all_rows_give_the_exact_gradient(gradient):
    for theta, _, _, grad, *_ in walk(gradient, rows=[np.arange(N)] * len(THETAS)):
        assert_allclose(grad, -theta + np.sum(datum_grads(theta), axis=0), **ROUNDING)


@pytest.mark.parametrize("gradient", [lv.SVRG(3), lv.SAGA()], ids=repr)
def test_noise_is_gone_where_the_memory_is(gradient):
    memory = gradient.remember(posterior(), jnp.asarray(THETAS[0]))
    exact = -THETAS[0] + np.sum(datum_grads(THETAS[0]), axis=0)
    for batch in ROWS:
        grad, memory, _ = refresh(gradient, memory, jnp.asarray(THETAS[0]), jnp.asarray(batch))
        assert_allclose(grad, exact, **ROUNDING)


def test_both_keep_the_protocol():
    assert isinstance(lv.SVRG(2), StatefulGradient) and isinstance(lv.SAGA(), StatefulGradient)


@pytest.mark.parametrize("bad", [0, -3, 2.0, 1.5, "10", True, np.int64(0)], ids=repr)
def test_bad_period_is_refused(bad):
    with pytest.raises(ValueError, match=r"period must be an integer of at least 1, got .*Try N/n"):
        lv.SVRG(bad)


def test_period_is_a_number_that_compiled_code_is_told():
    assert jax.jit(lambda gradient: gradient.period + 1)(lv.SVRG(4)) == 5
