"""The peer: blackjax SGLD as an expert would write it, one compiled scan over steps, data passed as an argument.

"scan + vmap" is the form to compare with: `jax.random.randint` in the scan, `vmap` over chains. "hand-tuned" goes on
to what we found to be faster still (on a busy machine, so only differences beyond a fifth are to be believed):

- indices: `randint` spends two words and three remainders on an index; one word and one remainder is up to twice as
  fast and biased by up to N / 2^32, which langevin's own draws are not;
- indices drawn a page of 100 steps at a time (x1.7 for W1a without the flag, within noise for W2a, slower for W3);
- one kernel on the array of all chains instead of `vmap` (SGLD moves coordinates one by one, so one key serves all
  chains): within noise for W1b, x1.1 to 1.3 for W3.

Keys in the carry or split before the scan are alike; `fold_in` and `unroll` gave no clear gain.
"""

from collections.abc import Callable
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.sgmcmc.gradients import grad_estimator

from benchmarks import truth, worker
from benchmarks.workloads import Workload

Array = Any


SIMPLE, TUNED = "scan + vmap", "hand-tuned"
# Steps whose indices the hand-tuned form draws together; a run's steps must be a multiple.
PAGES = {"W1a": 100, "W1b": 1, "W2a": 100, "W3": 1}

# step(theta, key of the noise, rows, delta, data) -> theta, on one chain or on the array of all
Step = Callable[..., Array]


def step_of(kernel: Any) -> Step:
    def step(theta: Array, key: Array, rows: Array, delta: Array, data: Any) -> Array:
        minibatch = jax.tree.map(lambda column: column[rows], data)
        # blackjax moves by eps grad + sqrt(2 eps) noise, so its eps is delta / 2
        return kernel.step(key, theta, minibatch, delta / 2)

    return step


def build_simple(workload: Workload) -> Callable[..., Array]:
    """run(key, data, theta_0, deltas) -> sum of delta_m (theta_{m-1} - theta_0), one row a chain."""
    step = step_of(blackjax.sgld(grad_estimator(workload.log_prior, workload.log_likelihood, workload.num_data)))

    def one(key: Array, theta: Array, delta: Array, data: Any) -> Array:
        key_rows, key_noise = jax.random.split(key)
        rows = jax.random.randint(key_rows, (workload.batch_size,), 0, workload.num_data)
        return step(theta, key_noise, rows, delta, data)

    many = workload.chains > 1
    move_all = jax.vmap(one, (0, 0, None, None)) if many else one
    shape = (workload.chains,) if many else ()

    @jax.jit
    def run(key: Array, data: Any, theta_0: Array, deltas: Array) -> Array:
        def move(carry: Any, step: Any) -> tuple[Any, None]:
            (theta, total), (delta, key) = carry, step
            new = move_all(jax.random.split(key, shape) if many else key, theta, delta, data)
            return (new, total + delta * (theta - theta_0)), None

        start = (theta_0, jnp.zeros_like(theta_0))
        return jax.lax.scan(move, start, (deltas, jax.random.split(key, len(deltas))))[0][1]

    return run


def build_tuned(workload: Workload) -> Callable[..., Array]:
    """The same in the fastest form we found."""
    many, page = workload.chains > 1, PAGES[workload.name]
    gradient = grad_estimator(workload.log_prior, workload.log_likelihood, workload.num_data)
    step = step_of(blackjax.sgld(jax.vmap(gradient) if many else gradient))
    batch = (workload.chains, workload.batch_size) if many else (workload.batch_size,)

    @jax.jit
    def run(key: Array, data: Any, theta_0: Array, deltas: Array) -> Array:
        def move(carry: Any, given: Any) -> tuple[Any, None]:
            (theta, total), (delta, key, rows) = carry, given
            return (step(theta, key, rows, delta, data), total + delta * (theta - theta_0)), None

        def move_page(carry: Any, given: Any) -> tuple[Any, None]:
            deltas, (key_rows, key_noise) = given
            rows = jax.random.bits(key_rows, (page, *batch)) % np.uint32(workload.num_data)
            steps = (deltas, jax.random.split(key_noise, page), rows.astype(jnp.int32))
            return jax.lax.scan(move, carry, steps, unroll=page == 1)

        steps = deltas.reshape(-1, page)
        start = (theta_0, jnp.zeros_like(theta_0))
        return jax.lax.scan(move_page, start, (steps, jax.random.split(key, (len(steps), 2))))[0][1]

    return run


def prepare(workload: Workload, steps: int, variant: str) -> worker.Run:
    theta_0 = truth.mode(workload.name)
    if steps % PAGES[workload.name]:
        raise ValueError(f"steps must be a multiple of {PAGES[workload.name]} for {workload.name}, got {steps}")
    compiled = build_simple(workload) if variant == SIMPLE else build_tuned(workload)
    data = jax.tree.map(jnp.asarray, workload.data)
    deltas = workload.deltas(steps)
    total_time = deltas.sum(dtype=np.float64)
    shape = (workload.chains, *theta_0.shape) if workload.chains > 1 else theta_0.shape
    start = jnp.broadcast_to(jnp.asarray(theta_0), shape)

    def run(seed: int) -> np.ndarray:
        sums = np.asarray(compiled(jax.random.key(seed), data, start, deltas), np.float64)
        return theta_0 + sums.reshape(workload.chains, -1).mean(0) / total_time

    return run


if __name__ == "__main__":
    worker.main(prepare, lambda workload: [SIMPLE, TUNED], packages=["blackjax", "jax", "jaxlib"])
