"""The peer: blackjax SGLD as an expert would write it, one compiled scan, in the fastest form we found.

What was tried, on a busy machine, so only differences well beyond a fifth are to be believed:

- random numbers: keys in the carry or split before the scan (alike); `fold_in` (no clear gain); indices drawn
  a page of steps at a time (x1.7 for W1a without the flag, within noise for W2a, slower for W3);
- indices: `random.randint` spends two words and three remainders on an index; one word and one remainder is
  biased by less than N / 2^32 and up to twice as fast: "fastest" does that, "randint" is the other variant;
- chains: `vmap` of the kernel, or one kernel on the array of all chains (SGLD moves coordinates one by one,
  so one key serves all chains): within noise for W1b, x1.1 to 1.3 for W3;
- `unroll` of 2 or 4, in some of these forms only: no clear gain.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.sgmcmc.gradients import grad_estimator

from benchmarks import truth, worker
from benchmarks.workloads import Workload

Array = Any
Draw = Callable[[Array, tuple[int, ...]], Array]


@dataclass(frozen=True)
class Form:
    """`page`: steps whose indices are drawn together, 1 for step by step. Steps must be a multiple of it."""

    page: int = 1


FASTEST = {"W1a": Form(page=100), "W1b": Form(), "W2a": Form(page=100), "W3": Form()}


def draw_indices(variant: str, num_data: int) -> Draw:
    if variant == "randint":
        return lambda key, shape: jax.random.randint(key, shape, 0, num_data)
    return lambda key, shape: (jax.random.bits(key, shape) % np.uint32(num_data)).astype(jnp.int32)


def build(workload: Workload, form: Form, draw: Draw) -> Callable[..., Array]:
    """run(key, data, theta_0, deltas) -> sum of delta_m (theta_{m-1} - theta_0), one row a chain."""
    many = workload.chains > 1
    gradient = grad_estimator(workload.log_prior, workload.log_likelihood, workload.num_data)
    kernel = blackjax.sgld(jax.vmap(gradient) if many else gradient)
    batch = (workload.chains, workload.batch_size) if many else (workload.batch_size,)

    @jax.jit
    def run(key: Array, data: Any, theta_0: Array, deltas: Array) -> Array:
        def move(
            carry: tuple[Array, Array], step: tuple[Array, Array, Array]
        ) -> tuple[tuple[Array, Array], None]:
            theta, total = carry
            delta, key, rows = step
            minibatch = jax.tree.map(lambda column: column[rows], data)
            total = total + delta * (theta - theta_0)
            # blackjax moves by eps grad + sqrt(2 eps) noise, so its eps is delta / 2
            return (kernel.step(key, theta, minibatch, delta / 2), total), None

        def move_drawing(carry: Any, step: Any) -> tuple[Any, None]:
            delta, (key_rows, key_noise) = step
            return move(carry, (delta, key_noise, draw(key_rows, batch)))

        def move_page(carry: Any, step: Any) -> tuple[Any, None]:
            deltas, (key_rows, key_noise) = step
            rows = draw(key_rows, (form.page, *batch))
            return jax.lax.scan(move, carry, (deltas, jax.random.split(key_noise, form.page), rows))

        start = (theta_0, jnp.zeros_like(theta_0))
        if form.page == 1:
            body, steps = move_drawing, deltas
        else:
            body, steps = move_page, deltas.reshape(-1, form.page)
        (_, total), _ = jax.lax.scan(body, start, (steps, jax.random.split(key, (len(steps), 2))))
        return total

    return run


def prepare(workload: Workload, steps: int, variant: str) -> worker.Run:
    theta_0 = truth.mode(workload.name)
    form = FASTEST[workload.name]
    if steps % form.page:
        raise ValueError(f"steps must be a multiple of {form.page} for {workload.name}, got {steps}")
    compiled = build(workload, form, draw_indices(variant, workload.num_data))
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
    worker.main(prepare, lambda workload: ["fastest", "randint"], packages=["blackjax", "jax", "jaxlib"])
