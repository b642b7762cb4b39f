"""Minibatches of unequal data: unbiased by enumeration, drawn with the law they state, quieter where they should be."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import langevin as lv
from langevin.gradients import CustomGradient

N = 6
DATA = {"x": np.linspace(-1, 2, N).astype(np.float32), "y": np.array([0, 2, 1, 3, 1, 9], np.float32)}
TARGET = lv.Target(
    lambda t: -0.5 * jnp.dot(t, t), lambda t, d: d["y"] * (t[0] + t[1] * d["x"]) - jnp.exp(t[0] + t[1] * d["x"])
)
WEIGHTS = np.array([1.0, 3.0, 0.1, 2.0, 7.0, 0.5])
LABELS = np.array(["b", "a", "b", "b", "a", "c"])
IMPORTANCE = lv.ImportanceSampled.by(TARGET, WEIGHTS, batch_size=2)
STRATIFIED = lv.Stratified.by(TARGET, LABELS, batch_size=4)
THETA = np.array([0.3, -0.4])


def exact():
    return np.asarray(TARGET.grad(jnp.asarray(THETA), jax.tree.map(jnp.asarray, DATA)))


def estimated(gradient, rows, weights):
    """Estimates for every row of `rows`, (k, n) in float64."""
    data = jax.tree.map(jnp.asarray, DATA)
    one = jax.vmap(lambda rows, weights: gradient.estimate(jnp.asarray(THETA), data, (rows, weights)))
    return np.asarray(one(np.asarray(rows), np.broadcast_to(weights, np.shape(rows))))


def drawn_with(gradient):
    """The probabilities with which the table really draws."""
    keep = np.asarray(gradient.keep, np.float64)
    return (keep + np.bincount(gradient.other, 1 - keep, minlength=len(keep))) / len(keep)


def importance_mean(weight):
    """The mean over all pairs of rows, each with its probability."""
    p, pairs = drawn_with(IMPORTANCE), np.array(list(product(range(N), repeat=2)))
    return np.prod(p[pairs], axis=1) @ estimated(IMPORTANCE, pairs, weight[pairs])


def test_importance_sampling_is_unbiased_over_all_it_can_draw():
    with jax.enable_x64(True):
        np.testing.assert_allclose(importance_mean(np.asarray(IMPORTANCE.weight)), exact(), rtol=1e-12)
        # The control: as if all were equally likely.
        assert not np.allclose(importance_mean(np.full(N, N / 2)), exact(), rtol=0.1)


def test_the_table_has_the_probabilities_asked_for_to_its_last_digit():
    np.testing.assert_allclose(drawn_with(IMPORTANCE), WEIGHTS / WEIGHTS.sum(), atol=2**-24)


def test_strata_are_unbiased_over_all_they_can_draw():
    with jax.enable_x64(True):
        members = [np.flatnonzero(np.sort(np.unique(LABELS))[s] == LABELS) for s in range(3)]
        # Sizes 2, 3 and 1 of 6 at four a step: 1, 2 and 1 draws.
        assert STRATIFIED.batch_size == 4 and STRATIFIED.weight.tolist() == [2.0, 1.5, 1.5, 1.0]
        places = list(product(members[0], members[1], members[1], members[2]))
        mean = estimated(STRATIFIED, places, STRATIFIED.weight).mean(axis=0)
        np.testing.assert_allclose(mean, exact(), rtol=1e-12)
        wrong = estimated(STRATIFIED, places, np.full(4, N / 4)).mean(axis=0)
        assert not np.allclose(wrong, exact(), rtol=0.05)


def test_rows_are_drawn_with_these_laws():
    keys = jax.random.split(jax.random.key(3), 20_000)
    rows = np.asarray(jax.vmap(lambda key: IMPORTANCE.draw(key)[0])(keys))
    assert stats.chisquare(np.bincount(rows.ravel(), minlength=N), drawn_with(IMPORTANCE) * rows.size).pvalue > 1e-9
    assert stats.chisquare(np.bincount(rows.ravel(), minlength=N), np.full(N, rows.size / N)).pvalue < 1e-20
    rows = np.asarray(jax.vmap(lambda key: STRATIFIED.draw(key)[0])(keys))
    assert np.all(LABELS[rows] == ["a", "b", "b", "c"])
    assert stats.chisquare(np.bincount(rows[:, 1], minlength=N)[LABELS == "b"]).pvalue > 1e-9


@pytest.mark.parametrize("gradient", [IMPORTANCE, STRATIFIED], ids=["importance", "strata"])
def test_is_a_custom_gradient_and_a_value_and_runs(gradient):
    assert isinstance(gradient, CustomGradient)
    leaves, treedef = jax.tree.flatten(gradient)
    assert treedef.unflatten(leaves) == gradient and gradient != object()
    ledger = lv.run(TARGET, DATA, THETA, gradient=gradient, schedule=lv.Constant(0.01), num_steps=20, chains=2)
    assert ledger.cost == 20 * 2 * gradient.batch_size and ledger.finite.all()


def noise(gradient, data, theta):
    keys = jax.random.split(jax.random.key(1), 2000)
    one = jax.jit(jax.vmap(lambda key: gradient.estimate(theta, data, gradient.draw(key))))
    return float(np.var(one(keys)))


def test_they_are_quieter_than_equal_chances_where_data_differ():
    # Heavy-tailed leverage: gradients proportional to x^2, of which a few make up the sum.
    rng = np.random.default_rng(2)
    data = {"x": jnp.asarray(rng.standard_t(3, 500), jnp.float32)}
    target = lv.Target(lambda t: -0.5 * t**2, lambda t, d: -0.5 * d["x"] ** 2 * t)
    equal = noise(lv.ImportanceSampled.by(target, np.ones(500), 10), data, jnp.float32(1.0))
    assert noise(lv.ImportanceSampled.by(target, 0.1 + data["x"] ** 2, 10), data, jnp.float32(1.0)) < 0.1 * equal
    by_size = np.digitize(data["x"] ** 2, np.quantile(data["x"] ** 2, np.arange(0.1, 1, 0.1)))
    assert noise(lv.Stratified.by(target, by_size, 10), data, jnp.float32(1.0)) < 0.9 * equal


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lv.ImportanceSampled.by(TARGET, [1.0, 0.0], 2), "weights must be positive finite numbers"),
        (lambda: lv.ImportanceSampled.by(TARGET, [1e-9, 1.0], 2), r"weights must not differ by more than 2\^23"),
        (lambda: lv.ImportanceSampled.by(TARGET, [1.0], 0), "batch_size must be an integer of at least 1, got 0"),
        (lambda: lv.Stratified.by(TARGET, np.arange(5), 3), "at most batch_size=3 strata"),
        (lambda: lv.Stratified.by(TARGET, np.zeros((2, 2)), 3), r"labels must be one for every datum, a vector"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
