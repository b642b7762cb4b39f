"""The anchor on targets written as users write them: closed-over NumPy arrays, before and after a run."""

import jax.numpy as jnp
import numpy as np
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
