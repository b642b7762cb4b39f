"""The BAOAB splitting of underdamped Langevin dynamics."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from langevin.kernels.momentum import MomentumKernel, MomentumState

Array = jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BAOAB(MomentumKernel):
    """Kick, drift, refresh, drift, kick: with c = exp(-friction) and h = sqrt(delta_m tanh(friction / 2)),

        p = p_{m-1} + h grad,    p_m = c p + sqrt(1 - c^2) eta_m,    theta_m = theta_{m-1} + h (p + p_m) / 2.

    The half kicks that end one step and begin the next share the gradient at theta_{m-1}, so the state carries the
    momentum before both, and theta runs through BAOAB's own positions. As friction grows the step becomes that of
    `LeimkuhlerMatthews`. With exact gradients the variance is exact on Gaussian targets, v = 1 - delta lambda
    tanh(friction / 2) / 4 (see `momentum`); gradient noise adds a bias of order delta. Cost: one gradient. Assumes
    delta lambda < 4 / tanh(friction / 2).

    Leimkuhler and Matthews, *Rational construction of stochastic numerical methods for molecular sampling* (2013).

    Example:
        >>> import langevin as lv, numpy as np
        >>> H, C = np.eye(1), np.eye(1)  # a standard normal target, gradients with noise of variance 1
        >>> [round(abs(lv.BAOAB(friction=0.5).bias(H, noise, delta=0.8).item()), 3) for noise in (0 * C, C)]
        [0.0, 0.21]
    """

    def step(self, state: MomentumState, grad: Array, eta: Array, delta: Array) -> MomentumState:
        """One transition."""
        size = jnp.sqrt(delta * jnp.tanh(0.5 * self.friction))
        kicked = state.momentum + size * grad
        fresh = jnp.sqrt(-jnp.expm1(-2.0 * self.friction))
        momentum = jnp.exp(-self.friction) * kicked + fresh * eta
        return MomentumState(state.theta + 0.5 * size * (kicked + momentum), momentum)
