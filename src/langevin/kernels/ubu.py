"""The UBU splitting of underdamped Langevin dynamics."""

from dataclasses import dataclass
from math import factorial
from typing import ClassVar

import jax
import jax.numpy as jnp

from langevin.kernels.momentum import MomentumKernel, MomentumState

Array = jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class UBU(MomentumKernel):
    """Kick, then everything but the gradient solved exactly: with c = exp(-friction), h = sqrt(friction delta_m / 2),

        p = p_{m-1} + h grad,
        p_m = c p + sqrt(1 - c^2) eta_1,
        theta_m = theta_{m-1} + (h / friction) ((1 - c) p + (1 - c) sqrt(t) eta_1 + sqrt(2 (friction - 2 t)) eta_2),

    t = tanh(friction / 2): the joint law of position and momentum after a time h without force. UBU moves by half of
    that (U), kicks (B), and moves by the other half. Here the halves on both sides of a step's end are one, and theta
    is the point between U and B, where the gradient is taken: averages look there, not at the ends of UBU's steps.
    With v = 1 - delta lambda (1 / friction - 1 / sinh(friction)) / 2 (see `momentum`) the variance on a Gaussian is
    too large there by the fraction h^2 lambda / 12 for small friction; at the ends it is too small by h^2 lambda / 6.
    That is of order delta at a given friction, and of order delta^2 at a given friction rate, friction proportional
    to delta. As friction grows the step becomes SGLD. Gradient noise adds a bias of order delta. Cost: one gradient.
    Assumes delta lambda < 4 / t.

    Sanz-Serna and Zygalakis, *Wasserstein distance estimates for the distributions of numerical approximations to
    ergodic stochastic differential equations* (2021).

    Example:
        >>> import langevin as lv, numpy as np
        >>> H, C = np.eye(1), np.zeros((1, 1))  # a standard normal target, exact gradients
        >>> [round(lv.UBU(friction=0.5).bias(H, C, delta).item(), 4) for delta in (0.4, 0.8)]
        [0.0085, 0.0175]
    """

    noises: ClassVar[int] = 2

    def step(self, state: MomentumState, grad: Array, eta: Array, delta: Array) -> MomentumState:
        """One transition."""
        size = jnp.sqrt(0.5 * self.friction * delta)
        forgotten, half = -jnp.expm1(-self.friction), 0.5 * self.friction
        kicked = state.momentum + size * grad
        momentum = (1.0 - forgotten) * kicked + jnp.sqrt(-jnp.expm1(-2.0 * self.friction)) * eta[0]
        moved = forgotten * (kicked + jnp.sqrt(jnp.tanh(half)) * eta[0]) + 2.0 * jnp.sqrt(_beyond_tanh(half)) * eta[1]
        return MomentumState(state.theta + size / self.friction * moved, momentum)


def _beyond_tanh(x: float) -> Array:
    """x - tanh x; below 1/2, where float32 would leave nothing of it, by (x cosh x - sinh x) / cosh x.

    The numerator is the sum of 2k x^(2k+1) / (2k+1)! from k = 1 on; the first term left out is below 1e-14 of it.
    """
    below = jnp.minimum(x, 0.5)
    series = sum(2 * k / factorial(2 * k + 1) * below ** (2 * k + 1) for k in range(1, 7))
    return jnp.where(x < 0.5, series / jnp.cosh(below), x - jnp.tanh(x))
