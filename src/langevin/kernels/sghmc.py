"""Stochastic gradient Hamiltonian Monte Carlo."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from langevin.kernels.momentum import MomentumKernel, MomentumState

Array = jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SGHMC(MomentumKernel):
    """Momentum with friction: with a = 1 - exp(-friction) and h = sqrt(a delta_m / 2),

        p_m = (1 - a) p_{m-1} + h grad + sqrt(2 a) eta_m,        theta_m = theta_{m-1} + h p_m.

    The move h p_m is an average of SGLD's moves: a times delta_m / 2 grad + sqrt(delta_m) eta_m, and 1 - a times the
    move before. As friction grows it becomes SGLD. Bias of averages: order delta. With v = 1 (see `momentum`) that of
    the injected noise is below SGLD's by tanh(friction / 2), that of gradient noise is SGLD's: nothing is taken off the
    injected noise for it. Cost: one gradient. Assumes delta lambda < 4 / tanh(friction / 2).

    Chen, Fox and Guestrin, *Stochastic gradient Hamiltonian Monte Carlo* (2014): their equation 15 with learning rate
    a delta / 2, momentum decay a, and no estimate of the gradient noise.

    Example:
        >>> import langevin as lv, numpy as np
        >>> H, C = np.eye(1), np.zeros((1, 1))  # a standard normal target, exact gradients
        >>> [round(kernel.bias(H, C, delta=0.8).item(), 3) for kernel in (lv.SGLD(), lv.SGHMC(friction=0.5))]
        [0.25, 0.052]
    """

    def step(self, state: MomentumState, grad: Array, eta: Array, delta: Array) -> MomentumState:
        """One transition."""
        forgotten = -jnp.expm1(-self.friction)
        size = jnp.sqrt(0.5 * forgotten * delta)
        momentum = (1.0 - forgotten) * state.momentum + size * grad + jnp.sqrt(2.0 * forgotten) * eta
        return MomentumState(state.theta + size * momentum, momentum)
