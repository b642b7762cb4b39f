"""Deep ensembles: what else one would do with the same number of gradients."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.networks.problem import Problem, log_likelihood, predict

PyTree = Any
BATCH, MEMBERS, RATE = 128, 20, 2e-3


def deep_ensemble(problem: Problem, passes: float, seed: int) -> np.ndarray:
    """Test probabilities averaged over networks trained by Adam on the log posterior from draws of the prior."""
    steps = int(passes * len(problem.x) / BATCH / MEMBERS)
    starts = [_start(problem, seed, k) for k in range(MEMBERS)]
    members = [_trained(problem.log_prior, steps, start, problem.x, problem.y) for start in starts]
    return np.mean([np.asarray(jax.vmap(predict, (None, 0))(theta, problem.x_test)) for theta in members], axis=0)


def _start(problem: Problem, seed: int, member: int) -> tuple[PyTree, Any]:
    rng = np.random.default_rng([seed, member])
    theta = jax.tree.map(lambda leaf, sd: sd * rng.standard_normal(leaf.shape), problem.theta_0, problem.prior_sd)
    return jax.tree.map(jnp.float32, theta), jax.random.key(1000 * seed + member)


@partial(jax.jit, static_argnums=(0, 1))
def _trained(log_prior, steps, start, x, y):
    theta, key = start

    def loss(theta, rows):
        terms = jax.vmap(log_likelihood, (None, 0))(theta, {"x": x[rows], "y": y[rows]})
        return -(log_prior(theta) / len(x) + jnp.mean(terms))

    def step(m, state):
        theta, first, second = state
        grad = jax.grad(loss)(theta, jax.random.randint(jax.random.fold_in(key, m), (BATCH,), 0, len(x)))
        first = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, first, grad)
        second = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * g**2, second, grad)
        # A cosine from the full rate to zero.
        rate = RATE * 0.5 * (1.0 + jnp.cos(jnp.pi * m / steps))
        c1, c2 = 1.0 - 0.9 ** (m + 1.0), 1.0 - 0.999 ** (m + 1.0)
        move = jax.tree.map(lambda a, b: rate * (a / c1) / (jnp.sqrt(b / c2) + 1e-8), first, second)
        return jax.tree.map(jnp.subtract, theta, move), first, second

    blank = jax.tree.map(jnp.zeros_like, theta)
    return jax.lax.fori_loop(0, steps, step, (theta, blank, blank))[0]
