"""What the exact kernels share: their state and the accept-reject step."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array
# theta -> (log density, gradient) on all the data.
LogDensity = Callable[[Array], tuple[Array, Array]]


class ExactState(NamedTuple):
    """The position with its log density and gradient, and the acceptance probability of the last proposal."""

    theta: Array
    log_density: Array
    grad: Array
    acceptance: Array


def init(log_density: LogDensity, theta: Array) -> ExactState:
    """The state before the first step. Cost: N datum visits."""
    value, grad = log_density(theta)
    return ExactState(theta, value, grad, jnp.zeros_like(value))


def accept(state: ExactState, proposal: ExactState, log_ratio: Array, log_uniform: Array) -> ExactState:
    """The proposal if log_uniform < log_ratio, else the old state; a proposal of undefined density is refused."""
    log_ratio = jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)
    acceptance = jnp.exp(jnp.minimum(log_ratio, 0.0))
    chosen = jax.tree.map(lambda new, old: jnp.where(log_uniform < log_ratio, new, old), proposal, state)
    return chosen._replace(acceptance=acceptance)
