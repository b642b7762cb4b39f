"""The anchor on targets written as users write them: closed-over NumPy arrays, before and after a run."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import langevin as lv

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
