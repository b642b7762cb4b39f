"""Stochastic gradient Langevin dynamics."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array


class SGLDState(NamedTuple):
    """The position."""

    theta: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SGLD:
    """theta_m = theta_{m-1} + delta_m / 2 * grad + sqrt(delta_m) * eta_m.

    `grad` is any unbiased estimate of grad log pi(theta_{m-1}), eta_m standard normal. With the full gradient it is the
    unadjusted Langevin algorithm (ULA). Cost: one gradient. Bias of averages: order delta.
    """

    def init(self, theta: Array, eta: Array) -> SGLDState:
        """The state before the first step; the noise of index 0 is not used."""
        return SGLDState(theta)

    def step(self, state: SGLDState, grad: Array, eta: Array, delta: Array) -> SGLDState:
        """One transition."""
        return SGLDState(state.theta + 0.5 * delta * grad + jnp.sqrt(delta) * eta)
