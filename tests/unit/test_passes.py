"""Sums over the data: every row once, however it is cut up, and the same bits on any number of cores."""

import hashlib
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import langevin as lv
from langevin.anchor import passes as module
from langevin.anchor.passes import Passes
from langevin.anchor.roots import product, pull, push
from langevin.data.source import as_source
from langevin.target import Layout

TARGET = lv.Target(lambda t: -jnp.sum(t**4), lambda t, x: -jnp.exp(0.1 * jnp.dot(x, t)))
LAYOUT = Layout.of(np.zeros(3))
FLAT = np.array([0.3, -0.2, 0.1])


@pytest.mark.parametrize("num_rows", [1, 255, 256, 257, 700, 1500])
def test_derivatives_are_those_of_the_formula(num_rows, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK_FLOATS", 3 * 600)  # chunks of 600 rows: two blocks and a part of one
    x = np.random.default_rng(num_rows).normal(size=(num_rows, 3)).astype(np.float32)
    with jax.enable_x64(True):
        passes = Passes(TARGET, as_source(x), LAYOUT)
        prior, likelihood = passes.parts(FLAT, 2)
        assert passes.cost == num_rows
        first = passes.parts(FLAT, 1)
    wide = x.astype(np.float64)
    weight = np.exp(0.1 * wide @ FLAT)
    expected = [-weight.sum(), -0.1 * weight @ wide, -0.01 * (wide.T * weight) @ wide]
    for found, formula in zip(likelihood, expected, strict=True):
        assert_allclose(found, formula, rtol=1e-12, atol=1e-12)
    for found, formula in zip(prior, [-np.sum(FLAT**4), -4 * FLAT**3, np.diag(-12 * FLAT**2)], strict=True):
        assert_allclose(found, formula, rtol=1e-12, atol=1e-15)
    assert_allclose(first[1][1], likelihood[1], rtol=1e-13)


def test_rows_beyond_the_end_do_not_count():
    x = np.random.default_rng(0).normal(size=(600, 3)).astype(np.float32)
    with jax.enable_x64(True):
        passes = Passes(TARGET, as_source(x), LAYOUT)
        few = passes.differentiate(FLAT, np.eye(3), x, 100, 300)[1]
        alone = Passes(TARGET, as_source(x[100:300]), LAYOUT).parts(FLAT, 2)[1]
    for one, other in zip(few, alone, strict=True):
        assert_allclose(one, other, rtol=1e-13)


def test_large_products_agree_with_small_ones():
    rng = np.random.default_rng(0)
    rows, matrix = rng.normal(size=(300, 80)), rng.normal(size=(80, 80))
    with jax.enable_x64(True):
        assert_allclose(product(rows, matrix), rows @ matrix, rtol=1e-12, atol=1e-12)
        assert_allclose(product(rows[0], matrix), rows[0] @ matrix, rtol=1e-12, atol=1e-12)


def test_a_root_is_the_matrix_of_its_blocks():
    triangle, diagonal = np.array([[2.0, 0.0], [1.0, 3.0]]), np.array([0.5])
    whole = np.block([[triangle, np.zeros((2, 1))], [np.zeros((1, 2)), np.diag(diagonal)]])
    vectors = np.random.default_rng(0).normal(size=(4, 3))
    assert_allclose(push((triangle, diagonal), vectors), vectors @ whole.T)
    assert_allclose(pull((triangle, diagonal), vectors), vectors @ whole)


BITS = """
import hashlib, os, sys
if len(sys.argv) > 1:
    os.sched_setaffinity(0, {int(sys.argv[1])})
import jax.numpy as jnp, numpy as np, langevin as lv
rng = np.random.default_rng(0)
x = rng.normal(size=(30_000, 10)).astype(np.float32)
y = np.sign(rng.normal(size=30_000) + x[:, 0]).astype(np.float32)
target = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, r: lv.log_sigmoid(r["y"] * jnp.dot(r["x"], t)))
plan = lv.plan(target, {"x": x, "y": y}, np.zeros(10), passes=1)
parts = (plan.anchor.precision, plan.anchor.likelihood_grad, plan.anchor.root[0], plan.pilot.spread)
print(hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest())
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity") or os.cpu_count() == 1, reason="needs cores to choose from")
def test_the_number_of_cores_leaves_no_trace():
    one = min(os.sched_getaffinity(0))
    found = [
        subprocess.run([sys.executable, "-c", BITS, *more], capture_output=True, text=True, check=True).stdout
        for more in ([], [str(one)])
    ]
    assert len(found[0]) == 2 * hashlib.sha256().digest_size + 1
    assert found[0] == found[1]
