"""The mode in many dimensions: L-BFGS in units of the curvature, after Adam on minibatches when passes are dear."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langevin.anchor.passes import Passes, log_likelihood, log_prior
from langevin.anchor.roots import pull, push
from langevin.limits import checkpoint
from langevin.startup import compiled
from langevin.target import Layout, Target

PyTree = Any
# Products of rows and parameters that all passes of one climb may take: about a minute on two cores.
_MOST_PRODUCTS = 2e10
_FEWEST_PASSES, _MOST_PASSES = 10, 1000
# With fewer passes than this a climb from theta_0 would end short: minibatches go first.
_ENOUGH_PASSES = 200
_ADAM_STEPS, _ADAM_RATE, _ADAM_FLOATS = 2000, 0.05, 2**20
_BEYOND = 1e100


def num_passes(passes: Passes) -> int:
    """Passes over the data that a climb may take."""
    products = max(passes.num_rows, 1) * passes.layout.size
    return int(np.clip(_MOST_PRODUCTS / products, _FEWEST_PASSES, _MOST_PASSES))


def needs_minibatches(passes: Passes) -> bool:
    """Whether full passes are too dear to start with."""
    return num_passes(passes) < _ENOUGH_PASSES


def lbfgs(passes: Passes, flat: np.ndarray, root: tuple[np.ndarray, ...], most: int, near: float = 0.05) -> np.ndarray:
    """The mode in coordinates theta = flat + L z, to a gradient of norm `near` in z or `most` passes."""
    # SciPy takes long to import, and few anchors are so large that they need it.
    from scipy.optimize import minimize

    def downhill(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, grad = passes.total(flat + push(root, z), 1)
        if not (np.isfinite(value) and np.all(np.isfinite(grad))):
            # Out of the domain: high and level, so that the line search turns back.
            return _BEYOND, np.zeros_like(z)
        return -float(value), -pull(root, grad)

    options = {"maxiter": most, "maxfun": most, "maxcor": 20, "ftol": 1e-15, "gtol": near / np.sqrt(len(flat))}
    found = minimize(downhill, np.zeros_like(flat), jac=True, method="L-BFGS-B", options=options)
    return flat + push(root, found.x)


def adam(passes: Passes, flat: np.ndarray, sd: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Near the mode by Adam on minibatches, with a rate that falls to 0 as a cosine. Cost: 2000 n datum visits.

    Steps are in units of sd sqrt(N), the width that the posterior of a single datum would have: a mode is then a few
    units away whatever the columns' scales.
    """
    size = int(np.clip(_ADAM_FLOATS // passes.layout.size, 32, 1024))
    unit, state = sd * np.sqrt(passes.num_rows), (flat, np.zeros_like(flat), np.zeros_like(flat))
    for m in range(1, _ADAM_STEPS + 1):
        checkpoint("looking for the posterior mode")
        rows = rng.integers(passes.num_rows, size=size)
        batch = passes.source.take(rows)
        rate = 0.5 * _ADAM_RATE * (1.0 + np.cos(np.pi * m / _ADAM_STEPS))
        state = _adam_step(passes.target, passes.layout, state, unit, batch, passes.num_rows / size, float(m), rate)
    passes.cost += _ADAM_STEPS * size
    return np.asarray(state[0])


@compiled(static_argnums=(0, 1))
def _adam_step(
    target: Target, layout: Layout, state: Any, unit: Any, batch: PyTree, scale: Any, m: Any, rate: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    theta, mean, square = state
    kept = jnp.ones(jax.tree.leaves(batch)[0].shape[0], bool)
    likelihood, prior = log_likelihood(target, layout, batch, kept), log_prior(target, layout)
    grad = unit * jax.grad(lambda t: prior(t) + scale * likelihood(t))(theta)
    # A batch without a finite gradient moves nothing.
    grad = jnp.where(jnp.all(jnp.isfinite(grad)), grad, 0.0)
    mean, square = 0.9 * mean + 0.1 * grad, 0.999 * square + 0.001 * grad**2
    step = mean / (1.0 - 0.9**m) / (jnp.sqrt(square / (1.0 - 0.999**m)) + 1e-30)
    return theta + rate * unit * step, mean, square
