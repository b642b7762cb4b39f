"""Batched factorisations are taken apart in what langevin compiles, and nowhere else, to the same bits."""

import subprocess
import sys
from threading import Thread

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from langevin.factorisations import one_by_one

RNG = np.random.default_rng(0)
CALLS = {
    "cholesky": lambda a, s, v: jnp.linalg.cholesky(s),
    "eig": lambda a, s, v: jnp.linalg.eig(a),
    "eigh": lambda a, s, v: jnp.linalg.eigh(s),
    "qr": lambda a, s, v: jnp.linalg.qr(a),
    "pivoted qr": lambda a, s, v: jax.scipy.linalg.qr(a, pivoting=True),
    "lu": lambda a, s, v: jax.scipy.linalg.lu_factor(a),
    "schur": lambda a, s, v: jax.lax.linalg.schur(s),
    "solve": lambda a, s, v: jnp.linalg.solve(a, v[..., None]),
    "triangular_solve": lambda a, s, v: jax.lax.linalg.triangular_solve(s, a, left_side=True),
    "tridiagonal": lambda a, s, v: jax.lax.linalg.tridiagonal(s),
    "tridiagonal_solve": lambda a, s, v: jax.lax.linalg.tridiagonal_solve(v, v + 5, v, a),
}


def loops(call, *arrays):
    return jax.jit(lambda *given: call(*given)).lower(*arrays).as_text().count("stablehlo.while")


@pytest.mark.parametrize("size, batch", [(3, (900,)), (20, (3, 4))])
@pytest.mark.parametrize("name", CALLS)
def test_large_batches_are_taken_apart_to_the_same_bits(name, size, batch):
    a = RNG.normal(size=(*batch, size, size)).astype(np.float32)
    arrays = a, a @ np.swapaxes(a, -1, -2) + size * np.eye(size, dtype=np.float32), a[..., 0]
    call = CALLS[name]
    plain = jax.jit(lambda *given: call(*given))(*arrays)
    with one_by_one():
        apart = jax.jit(lambda *given: call(*given))(*arrays)
        inside = loops(call, *arrays)
    jax.tree.map(assert_array_equal, apart, plain)
    assert inside > loops(call, *arrays)


@pytest.mark.parametrize("size, batch", [(200, ()), (200, (1,)), (3, (200,))])
def test_single_matrices_and_small_batches_are_left_whole(size, batch):
    matrices = np.broadcast_to(np.eye(size, dtype=np.float32), (*batch, size, size))
    with one_by_one():
        assert loops(jnp.linalg.cholesky, matrices) == 0


def test_other_threads_are_left_alone():
    matrices = np.broadcast_to(np.eye(20, dtype=np.float32), (50, 20, 20))
    found = []
    with one_by_one():
        other = Thread(target=lambda: found.append(loops(jnp.linalg.cholesky, matrices)))
        other.start()
        other.join(60.0)
        assert found == [0] and loops(jnp.linalg.cholesky, matrices) == 1


FACTORISATIONS = """
import jax, jax.numpy as jnp, numpy as np
import langevin as lv
roots = [np.random.default_rng(k).normal(size=(30, 30)).astype(np.float32) for k in range(4)]
x = np.random.default_rng(9).normal(size=(64, 3)).astype(np.float32)

def log_density(theta, root):
    "Of a Gaussian process at 30 places."
    half = jnp.linalg.cholesky(root @ root.T * jnp.exp(theta[0]) + 10.0 * jnp.exp(theta[1]) * jnp.eye(30))
    return -jnp.sum(jnp.log(jnp.diagonal(half))) - theta[2] * jnp.sum(half[-1])

target = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, row: -0.5 * jnp.sum((t - row) ** 2))
result = lv.sample(target, x, np.zeros(3), passes=200, progress=False)

def phi(theta):
    return jnp.concatenate([jax.grad(log_density)(theta, root) for root in roots])

for _ in range(60):
    found = result.expectation(phi)
assert np.isfinite(found.value).all()
"""


def test_batched_factorisations_do_not_wait_for_each_other():
    """With two cores XLA's own order of operations ends in a deadlock here, in plain JAX within forty calls."""
    subprocess.run([sys.executable, "-c", FACTORISATIONS], check=True, timeout=120)
