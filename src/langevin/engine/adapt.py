"""Finds the step size at which an exact kernel accepts at its target rate."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from langevin.coordinates import Coordinates
from langevin.data.prefetch import on_device
from langevin.data.source import as_source
from langevin.engine.checks import require, whole_number
from langevin.kernels import ExactKernel
from langevin.kernels.pytrees import kinds
from langevin.precision import for_float32
from langevin.schedules import Constant
from langevin.startup import compiled
from langevin.target import Layout, Target

PyTree = Any


def adapt_step(
    target: Target,
    data: PyTree,
    theta_0: PyTree,
    *,
    kernel: Any,
    coordinates: Coordinates | None = None,
    target_acceptance: float | None = None,
    num_steps: int = 1000,
    seed: int = 0,
) -> Constant:
    """A constant schedule at which `kernel` accepts with the target probability, found by stochastic approximation.

    log delta_{m+1} = log delta_m + 2 m^-0.6 (acceptance_m - target), averaged over the second half, in the coordinates
    that `lv.run` is to have. The chain that finds it is thrown away, so the run that follows is exact. Cost: num_steps
    transitions of one chain.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.LinearGaussian.simulate(seed=1)
        >>> schedule = lv.adapt_step(model.target, model.data, model.theta_0, kernel=lv.MALA())
        >>> ledger = lv.run(
        ...     model.target, model.data, model.theta_0, kernel=lv.MALA(), schedule=schedule, num_steps=1000)
    """
    require(
        isinstance(kernel, ExactKernel),
        "kernel",
        kernel,
        "an exact kernel: lv.MALA(), lv.HMC() or lv.RWM()",
        "lv.MALA()",
    )
    own = Coordinates() if coordinates is None else coordinates
    require(isinstance(own, Coordinates), "coordinates", own, "lv.Coordinates or None", "lv.Whitened.by(anchor)")
    require(isinstance(target, Target), "target", target, "an lv.Target", "lv.Target(log_prior, log_likelihood)")
    num_steps, seed = whole_number("num_steps", num_steps, 10, try_this=1000), whole_number("seed", seed, 0)
    goal = kernel.target_acceptance if target_acceptance is None else target_acceptance
    if not 0.0 < goal < 1.0:
        raise ValueError(f"target_acceptance must lie in (0, 1), got {goal!r}. Try {kernel.target_acceptance}.")
    layout, narrow = Layout.of(theta_0), for_float32(target)
    arrays = None if data is None else jax.tree.map(on_device, as_source(data).aligned())
    z = np.asarray(own.z(layout.flat(theta_0)), np.float32)
    with jax.enable_x64(False):
        narrow.check(theta_0, arrays)
        parts = (kernel, jax.tree.map(np.float32, own))
        key = jax.random.key(seed)
        log_delta = _adapt(narrow, layout, num_steps, kinds(parts), parts, arrays, z, np.float32(goal), key)
    return Constant(float(np.exp(np.float64(log_delta))))


@compiled(static_argnums=(0, 1, 2, 3))
def _adapt(target, layout, num_steps, _, parts, data, z, goal, key):
    kernel, coordinates = parts
    log_density = jax.value_and_grad(lambda z: target.log_density(layout.unravel(coordinates.theta(z)), data))

    def move(carry, m):
        state, log_delta, total = carry
        noise, decision = jax.random.split(jax.random.fold_in(key, m))
        eta = jax.random.normal(noise, z.shape)
        log_uniform = jnp.log(jax.random.uniform(decision, minval=1e-30))
        state = kernel.step(log_density, state, eta, log_uniform, jnp.exp(log_delta))
        log_delta = log_delta + 2.0 * (m + 1.0) ** -0.6 * (state.acceptance - goal)
        return (state, log_delta, total + jnp.where(m >= num_steps // 2, log_delta, 0.0)), None

    # A step of (1 / gradient scale)^2 has the right unit whatever the scale of z.
    state = kernel.init(log_density, z)
    scale = jnp.sum(jax.grad(lambda at: log_density(at)[0])(z + 1e-3) ** 2) + 1.0
    start = (state, -jnp.log(scale), jnp.float32(0.0))
    (_, _, total), _ = lax.scan(move, start, jnp.arange(num_steps))
    return total / (num_steps - num_steps // 2)
