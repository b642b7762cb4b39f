"""Step sizes: for our kernels by their own theory, for those without a tuner by a search over a small grid."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langevin.anchor import Anchor
from langevin.compare.problem import Floats, Problem, log_density
from langevin.kernels import SGLD, Kernel

Array = Any
_FRACTIONS = 2.0 ** np.arange(-16.0, 1.25, 0.5)
_NEVER = 1e30
# Data from which the noise of gradients is measured, at most.
MOST_ROWS = 10_000


def balanced(kernel: Kernel, precision: Floats, noise: Floats, steps: float) -> float:
    """The constant step with the least mean squared relative error of variances after so many steps of all chains.

        mean_i (bias_ii / Sigma_ii)^2 + mean_k 4 / (lambda_k delta steps)

    on the Gaussian model, the bias from the kernel's own theory. The noise is that of the average of u^2 along the
    diffusion, whose square forgets at the rate lambda: 2 times 2/lambda. What `lv.tune` does, without its search for
    decreasing steps, which takes longer than a run of this table.
    """
    rates, covariance = np.linalg.eigvalsh(precision), np.linalg.inv(precision)
    best, chosen = np.inf, float(_FRACTIONS[0] / rates[-1])
    for delta in _FRACTIONS / rates[-1]:
        bias = kernel.bias(precision, noise, float(delta))
        if bias is None or not np.all(np.isfinite(bias)):
            continue
        relative = np.diagonal(bias) / np.diagonal(covariance)
        error = float(np.mean(relative**2) + np.mean(4.0 / (rates * delta * steps)))
        if error < best:
            best, chosen = error, float(delta)
    return chosen


def scores(problem: Problem, theta: Floats, root: Floats, most: int | None = None) -> Floats:
    """Gradients of the log likelihood of each datum, or of `most` evenly spaced ones, in the units of `root`."""
    count = problem.num_data if most is None else min(problem.num_data, most)
    rows = np.linspace(0, problem.num_data - 1, count).astype(int)
    some = jax.tree.map(lambda leaf: leaf[rows], problem.data)
    return np.asarray(_datum_grads(problem.target.log_likelihood, theta.astype(np.float32), some), np.float64) @ root


def gradient_noise(problem: Problem, theta: Floats, root: Floats, batch_size: int) -> Floats:
    """Covariance of the minibatch gradient at theta in the units of `root`, from at most 10^4 data."""
    spread = np.atleast_2d(np.cov(scores(problem, theta, root, MOST_ROWS).T, bias=True))
    return problem.num_data**2 / batch_size * spread


def balanced_sgld(problem: Problem, anchor: Anchor, steps: float) -> float:
    """The balanced step of SGLD on plain minibatches in the coordinates of the model; the paper's delta, eps = delta/2.

    For peers as well: their libraries have no tuner, and this is the best that theory offers their users.
    """
    noise = gradient_noise(problem, anchor.theta, np.eye(problem.dimension), problem.batch_size)
    return balanced(SGLD(), anchor.precision, noise, steps)


def _grads(likelihood: Any, theta: Array, some: Any) -> Array:
    return jax.vmap(jax.grad(likelihood), (None, 0))(theta, some)


_datum_grads = jax.jit(_grads, static_argnums=0)


def stein_discrepancies(problem: Problem) -> Callable[[Array, Any], Array]:
    """Kernel Stein discrepancies of point sets (settings, n, d) from the posterior, compiled; infinite if not finite.

    Inverse multiquadric kernel, with gradients on all the data: what Coullon, South and Nemeth, *Efficient and
    generalizable tuning strategies for stochastic gradient MCMC* (2023) choose step sizes by. Points are looked at in
    units of their common spread, so that all directions count. Cost: settings n full gradients.
    """
    value = log_density(problem)

    def one(points: Array, score: Array) -> Array:
        n, d = points.shape
        gap = points[:, None] - points[None]
        square = jnp.sum(gap**2, axis=-1)
        base = 1.0 + square / d
        k = base**-0.5
        slope = -(base**-1.5) / d  # dk/dx = slope * gap
        cross = jnp.einsum("nd,nmd->nm", score, gap)
        along = -slope * (cross + cross.T)
        bend = -slope * d - 3.0 * base**-2.5 * square / d**2
        return jnp.sum(k * (score @ score.T) + along + bend) / n**2

    @jax.jit
    def all_of(points: Array, data: Any) -> Array:
        grads = jax.lax.map(lambda t: jax.grad(value)(t, data), points.reshape(-1, points.shape[-1]))
        grads = grads.reshape(points.shape)
        good = jnp.isfinite(grads).all(axis=(1, 2)) & jnp.isfinite(points).all(axis=(1, 2))
        spread = jnp.std(jnp.where(good[:, None, None], points, jnp.nan), axis=1)
        unit = jnp.nanmedian(spread, axis=0)
        found = jax.vmap(one)(points / unit, grads * unit)
        return jnp.where(good & jnp.isfinite(found), found, _NEVER)

    return all_of
