"""The set-up in float64 gives the same bits whether JAX's own precision is single or double, whatever a model holds."""

import json
import os
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.data.source import as_source
from langevin.pilot import pilot
from langevin.precision import apart, isolated
from langevin.survey import survey

ROWS = np.random.default_rng(0).normal(size=(40, 3))
PICK = np.arange(3)
SCALES = {"list": [np.full(3, 1.5), np.ones(3)], "number": 2.0}


class Model:
    def __init__(self):
        self.mean = np.linspace(0.0, 1.0, 3)

    def log_prior(self, theta):
        return -0.5 * jnp.sum((theta - self.mean) ** 2)


def with_default(theta, scale=SCALES["list"][1]):
    return -0.5 * jnp.sum(scale * theta**2)


def by_rows(theta, i):
    """Float64 and int64 arrays of NumPy, in a container, as an index and indexed."""
    return -0.5 * jnp.sum((jnp.asarray(ROWS)[i] - SCALES["list"][0] * theta[PICK]) ** 2)


PRIORS = {
    "method": Model().log_prior,
    "default": with_default,
    "partial": partial(with_default, scale=np.full(3, 0.7)),
    "jit": jax.jit(with_default),
}


def bits(target, source):
    anchor = lv.laplace(target, source, np.zeros(3))
    measured, modes = pilot(target, source, anchor, 0), survey(target, source, anchor, 0)
    parts = (
        anchor.theta,
        anchor.precision,
        anchor.likelihood_grad,
        measured.spread,
        np.array(measured.ess),
        modes.modes,
    )
    assert anchor.precision.dtype == np.float64
    return [part.tobytes() for part in parts]


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_the_set_up_does_not_depend_on_jax_s_precision(prior):
    source = as_source(np.arange(40))
    # JAX has met the arrays in single precision.
    jax.jit(jax.grad(lambda t: prior(t) + by_rows(t, 0)))(jnp.zeros(3))
    found = []
    for precision in (False, True, False):
        with jax.enable_x64(precision):
            target = lv.Target(lambda t: prior(t), lambda t, i: by_rows(t, i))
            found.append(bits(target, source))
    assert found[0] == found[1] == found[2]


def test_a_model_may_hold_wide_jax_arrays():
    with jax.enable_x64(True):
        wide, pick = jnp.linspace(0.0, 1.0, 3), jnp.arange(3)
    assert wide.dtype == np.float64 and pick.dtype == np.int64
    target = lv.Target(lambda t: -0.5 * jnp.sum((t[pick] - wide) ** 2), by_rows)
    source = as_source(np.arange(40))
    found = []
    for precision in (False, True):
        with jax.enable_x64(precision):
            found.append(bits(target, source))
    assert found[0] == found[1]


def test_a_twin_for_float32_holds_nothing_wide():
    with jax.enable_x64(True):
        wide, pick = jnp.linspace(0.0, 1.0, 3), jnp.arange(3)

    def log_prior(theta):
        return -0.5 * jnp.sum((theta[pick] - wide - ROWS[0]) ** 2)

    twin = apart(lv.Target(log_prior), bits=32)
    with jax.enable_x64(False):
        # Warnings are errors: JAX warns where it has to cut a wide array.
        grad = jax.jit(jax.grad(twin.log_prior))(np.zeros(3, np.float32))
    assert grad.dtype == np.float32
    np.testing.assert_allclose(grad, np.linspace(0.0, 1.0, 3) + ROWS[0], rtol=1e-6)


def test_the_same_function_has_the_same_twins():
    assert isolated(by_rows) is isolated(by_rows) and isolated(by_rows, 32) is isolated(by_rows, 32)
    assert isolated(by_rows) is not isolated(by_rows, 32)


def test_a_derivative_of_the_user_s_own_is_kept():
    @jax.custom_jvp
    def f(x):
        return x

    f.defjvp(lambda primals, tangents: (primals[0], 5.0 * tangents[0]))
    assert jax.grad(isolated(lambda x: f(x)))(1.0) == 5.0


def test_a_container_that_holds_itself_is_left_alone():
    loop = [np.ones(3)]
    loop.append(loop)
    assert isolated(lambda t: jnp.sum(loop[0] * t))(np.ones(3)) == 3.0


WHOLE = """
import hashlib, json, numpy as np, jax, jax.numpy as jnp, langevin as lv
rows = np.random.default_rng(0).normal(size=(500, 3))
mean, pick = np.linspace(0, 1, 3), np.arange(3)
def log_likelihood(theta, i):
    return -0.5 * jnp.sum((jnp.asarray(rows)[i] - theta[pick]) ** 2)
target = lv.Target(lambda t: -0.5 * jnp.sum((t - mean) ** 2), log_likelihood)
plan = lv.plan(target, np.arange(500), np.zeros(3), passes=5)
parts = (plan.anchor.theta, plan.anchor.precision, plan.pilot.spread, np.array(plan.pilot.ess))
print(json.dumps([jax.config.jax_enable_x64, hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()]))
"""


def test_a_process_in_double_precision_plans_the_same():
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, "-W", "error", "-c", WHOLE],
                env={**os.environ, "JAX_ENABLE_X64": flag},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for flag in ("0", "1")
    ]
    assert [precision for precision, _ in found] == [False, True]
    assert found[0][1] == found[1][1]
