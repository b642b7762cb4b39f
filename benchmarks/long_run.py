"""A long Hamiltonian Monte Carlo of predictions, written apart from the library: many chains from draws of the prior.

For posteriors whose parameters are not identified, as a network's. All the data in every step, and nothing is tuned
but the units: 1/sqrt of the curvature, Fisher's and the prior's, averaged over where chains are after a first warm-up.
"""

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from langevin.compare.problem import Problem, log_density

Floats = NDArray[np.float64]
Array = Any
CHAINS, LEVELS = 16, (0.025, 0.975)
# In units of the curvature nine in ten are accepted; steps are drawn within a fifth, their number within a third.
STEP, LEAPFROGS, WARM_UP, PORTION = 0.3, 40, 500, 500


@dataclass(frozen=True, eq=False)
class LongRun:
    """Moments of every prediction, their Monte Carlo errors by ArviZ, the largest split R-hat, the share accepted."""

    mean: Floats
    sd: Floats
    points: Floats
    mean_stderr: Floats
    sd_stderr: Floats
    points_stderr: Floats
    r_hat: float
    chains: int
    draws: int
    accepted: float


def long_run(one: Problem, transitions: int, seed: int = 1, chains: int = CHAINS, warm_up: int = WARM_UP) -> LongRun:
    """Chains that start far apart; what they say is worth as much as their R-hat. Cost: 40 passes a transition."""
    assert one.prior_sd is not None
    move, key = mover(one), jax.random.key(seed)
    units = jnp.asarray(one.prior_sd)
    theta = units * jax.random.normal(jax.random.fold_in(key, 0), (chains, one.dimension))
    # Far from the posterior the density is steeper.
    for shorter in (0.02, 0.05, 0.1):
        theta, _, _ = move(jax.random.fold_in(key, 1), theta, units, shorter * STEP, warm_up)
    units = curvature(one, theta) ** -0.5
    theta, _, _ = move(jax.random.fold_in(key, 2), theta, units, STEP, warm_up)
    units = curvature(one, theta) ** -0.5
    seen, accepted = [], []
    for k in range(-(-transitions // PORTION)):
        theta, values, rate = move(jax.random.fold_in(key, 3 + k), theta, units, STEP, min(PORTION, transitions))
        seen.append(np.asarray(values, np.float64))
        accepted.append(float(rate))
    draws = np.concatenate(seen).swapaxes(0, 1)
    stats = import_module("arviz_stats.base").array_stats
    r_hat = float(np.max(stats.rhat(draws, chain_axis=0, draw_axis=1)))

    def error(method: str, prob: float | None = None) -> Floats:
        return np.asarray(stats.mcse(draws, chain_axis=0, draw_axis=1, method=method, prob=prob))

    flat = draws.reshape(-1, draws.shape[-1])
    return LongRun(
        flat.mean(axis=0), flat.std(axis=0), np.quantile(flat, LEVELS, axis=0), error("mean"), error("sd"),
        np.stack([error("quantile", level) for level in LEVELS]), r_hat, chains, len(flat), float(np.mean(accepted)),
    )  # fmt: skip


def mover(one: Problem) -> Any:
    """(key, theta (chains, d), units, step, transitions) -> theta, predictions (transitions, chains, rows), rate."""
    value_and_grad, predict = jax.value_and_grad(log_density(one)), one.predict
    assert predict is not None

    def transition(
        key: Array, theta: Array, units: Array, step: Array, leapfrogs: Array, data: Any
    ) -> tuple[Array, Array]:
        velocity, choice, stride = jax.random.split(key, 3)
        p = jax.random.normal(velocity, theta.shape)
        h = step * jax.random.uniform(stride, minval=0.8, maxval=1.2)

        def leap(_: Array, state: Any) -> Any:
            q, p, _, g = state
            p = p + 0.5 * h * units * g
            q = q + h * units * p
            value, g = value_and_grad(q, data)
            return q, p + 0.5 * h * units * g, value, g

        before, g = value_and_grad(theta, data)
        q, last, after, _ = jax.lax.fori_loop(0, leapfrogs, leap, (theta, p, before, g))
        ratio = after - before + 0.5 * jnp.sum(p**2) - 0.5 * jnp.sum(last**2)
        ratio = jnp.where(jnp.isnan(ratio), -jnp.inf, ratio)
        accepted = jnp.log(jax.random.uniform(choice)) < ratio
        return jnp.where(accepted, q, theta), jnp.exp(jnp.minimum(ratio, 0.0))

    @partial(jax.jit, static_argnums=4)
    def compiled(key: Array, theta: Array, units: Array, step: Array, transitions: int, data: Any, rows: Any) -> Any:
        def all_chains(theta: Array, key: Array) -> Any:
            length, *keys = jax.random.split(key, len(theta) + 1)
            # One number for all chains: loops side by side last as long as the longest.
            leapfrogs = jax.random.randint(length, (), LEAPFROGS * 2 // 3, LEAPFROGS * 4 // 3 + 1)
            parts = (jnp.stack(keys), theta, units, step, leapfrogs, data)
            theta, rate = jax.vmap(transition, (0, 0, None, None, None, None))(*parts)
            seen = jax.vmap(lambda t: jax.vmap(predict, (None, 0))(t, rows))(theta)
            return theta, (seen, rate)

        theta, (seen, rate) = jax.lax.scan(all_chains, theta, jax.random.split(key, transitions))
        return theta, seen, jnp.mean(rate)

    data = jax.tree.map(jnp.asarray, one.data)
    return lambda key, theta, units, step, transitions: compiled(
        key, theta, units, step, transitions, data, one.rows
    )  # fmt: skip


def curvature(one: Problem, theta: Array) -> Array:
    """The prior's 1/sd^2 and the squares of the scores of all data, averaged over places."""
    likelihood: Any = one.target.log_likelihood

    def squares(t: Array, data: Any) -> Array:
        return jnp.sum(jax.vmap(lambda datum: jax.grad(likelihood)(t, datum) ** 2)(data), axis=0)

    found = jax.jit(jax.vmap(squares, (0, None)))(theta, jax.tree.map(jnp.asarray, one.data))
    return jnp.mean(found, axis=0) + 1.0 / jnp.asarray(one.prior_sd) ** 2
