"""Mistakes that JAX lets pass are refused with the fix named; what looks like one and is not is left alone."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv

RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 3)).astype(np.float32)
DATA = {"x": X, "y": (X @ [1.0, -0.5, 0.2]).astype(np.float32), "group": RNG.integers(0, 5, 200)}
DATA["group"][:5] = np.arange(5)


def log_prior(theta):
    return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(theta))


def fit(row):
    """The log likelihood of a regression whose line is row(theta, datum)."""
    return lambda theta, datum: -0.5 * (datum["y"] - row(theta, datum)) ** 2


def check(log_likelihood, theta_0, prior=log_prior):
    lv.Target(prior, log_likelihood).check(theta_0, DATA)


@pytest.mark.parametrize(
    ("row", "size", "index"),
    [
        (lambda t, d: t[7] * d["x"][0], 3, "index 7 on an axis of 3"),
        (lambda t, d: t[-4] * d["x"][0], 3, "axis of 3"),
        (lambda t, d: t[0] * d["x"][3], 1, "index 3 on an axis of 3"),
        (lambda t, d: jnp.sum(t[jnp.array([0, 9])]), 3, "index 9 on an axis of 3"),
        (lambda t, d: t[d["group"]], 3, "index 4 on an axis of 3"),
        (lambda t, d: t[d["group"] + 1], 5, "index 5 on an axis of 5"),
        (jax.jit(lambda t, d: t[7] * d["x"][0]), 3, "index 7 on an axis of 3"),
    ],
)
def test_an_index_beyond_its_array_is_named(row, size, index):
    with pytest.raises(ValueError, match=re.escape(index)):
        check(fit(row), np.zeros(size))


@pytest.mark.parametrize(
    ("row", "size"),
    [
        (lambda t, d: t[2] * d["x"][-3], 3),
        (lambda t, d: t[d["group"]], 5),
        (lambda t, d: t[jnp.minimum(d["group"], 2)], 3),
        (lambda t, d: t[d["group"] % 3], 3),
        (lambda t, d: jnp.take(t, jnp.array([0, 2]))[1], 3),
        (lambda t, d: jax.lax.dynamic_slice(t, (1,), (2,))[0], 3),
        (jax.jit(lambda t, d: t[d["group"]] + d["x"] @ t[:3]), 5),
    ],
)
def test_indices_within_their_arrays_pass(row, size):
    check(fit(row), np.zeros(size))


def test_functions_that_jax_cannot_follow_get_the_right_advice():
    with pytest.raises(ValueError, match=r"jax\.numpy"):
        check(fit(lambda t, d: np.exp(t[0])), np.zeros(3))
    with pytest.raises(ValueError, match=r"or `math`, or float\(\), .* jax\.numpy"):
        check(fit(lambda t, d: math.exp(t[0])), np.zeros(3))
    with pytest.raises(ValueError, match=r"jnp\.where"):
        check(fit(lambda t, d: t[0] if t[0] > 0 else 0.0), np.zeros(3))


def test_a_likelihood_that_ignores_its_datum_or_a_parameter_is_refused():
    with pytest.raises(ValueError, match="must depend on its datum"):
        check(lambda t, d: -0.5 * (DATA["y"][0] - t[0]) ** 2, np.zeros(3))
    with pytest.raises(ValueError, match=r"theta_0\['b'\] must be used"):
        check(fit(lambda t, d: t["a"]), {"a": 0.0, "b": 0.0}, prior=lambda t: -(t["a"] ** 2))
    # A hyperparameter is in the prior alone, and a column may be left out.
    check(fit(lambda t, d: t["a"]), {"a": 0.0, "b": 0.0})


def test_labels_that_silence_half_of_the_rows_are_refused():
    labels = {"x": X, "y": (DATA["y"] > 0).astype(np.float32)}
    target = lv.Target(log_prior, lambda t, d: lv.log_sigmoid(d["y"] * jnp.dot(d["x"], t)))
    with pytest.raises(ValueError, match="2 \\* label - 1"):
        lv.plan(target, labels, np.zeros(3), passes=1)
    assert lv.plan(target, {**labels, "y": 2 * labels["y"] - 1}, np.zeros(3), passes=1).batch_size > 0


def test_rows_before_a_threshold_have_no_gradient_and_are_taken():
    t = np.random.default_rng(0).uniform(size=500).astype(np.float32)
    data = {"t": t, "y": np.maximum(t - 0.5, 0.0) + 0.1 * DATA["y"][0] * np.sin(40.0 * t).astype(np.float32)}
    target = lv.Target(
        lambda theta: -0.5 * jnp.sum(theta**2),
        lambda theta, d: -50.0 * (d["y"] - theta[1] * jnp.maximum(d["t"] - theta[0], 0.0)) ** 2,
    )
    assert lv.plan(target, data, np.array([0.5, 1.0]), passes=1).pilot.cost > 0


@pytest.mark.parametrize("value", [jnp.nan, -jnp.inf])
def test_labels_outside_the_support_are_named_by_their_rows(value):
    data = {"y": np.where(np.arange(200) % 50 == 7, -1.0, 1.0).astype(np.float32)}
    target = lv.Target(log_prior, lambda t, d: jnp.where(d["y"] < 0, value, -0.5 * (d["y"] - t) ** 2))
    with pytest.raises(lv.AnchorError, match=f"4 of 200 rows have a log likelihood of {value} there, row 7 first"):
        lv.laplace(target, data, 0.0)
    with pytest.raises(lv.AnchorError, match=r"nan\. Start from another theta_0"):
        lv.laplace(lv.Target(lambda t: jnp.sqrt(t), lambda t, d: -((d["y"] - t) ** 2)), data, -1.0)
