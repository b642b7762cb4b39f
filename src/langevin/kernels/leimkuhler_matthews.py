"""The Leimkuhler-Matthews integrator of Langevin dynamics."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from langevin.kernels.protocol import Kernel
from langevin.kernels.sgld import overdamped_covariance, overdamped_relaxation

Array = jax.Array


class LeimkuhlerMatthewsState(NamedTuple):
    """The position and the noise that the next step shares with the last one."""

    theta: Array
    eta: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LeimkuhlerMatthews(Kernel):
    """theta_m = theta_{m-1} + delta_m / 2 * grad + sqrt(delta_m) * (eta_{m-1} + eta_m) / 2.

    Averaging neighbouring noises makes the stationary variance exact on Gaussian targets and the bias of order delta^2
    for exact gradients at a constant step; gradient noise adds its own bias of order delta. Cost: one gradient.

    Example:
        >>> import langevin as lv
        >>> target = lv.Target(lambda t: -0.5 * t**2)
        >>> kernel = lv.LeimkuhlerMatthews()
        >>> ledger = lv.run(target, None, 0.0, kernel=kernel, schedule=lv.Constant(1.0), num_steps=4000, chains=4)
        >>> abs(float(lv.estimate(ledger)["theta.mean"].value[0])) < 0.3
        True
    """

    def init(self, theta: Array, eta: Array) -> LeimkuhlerMatthewsState:
        """The state before the first step, with the noise of index 0."""
        return LeimkuhlerMatthewsState(theta, eta)

    def step(self, state: LeimkuhlerMatthewsState, grad: Array, eta: Array, delta: Array) -> LeimkuhlerMatthewsState:
        """One transition."""
        theta = state.theta + 0.5 * delta * grad + jnp.sqrt(delta) * (0.5 * (state.eta + eta))
        return LeimkuhlerMatthewsState(theta, eta)

    def relaxation(self, precision: np.ndarray, delta: float) -> float:
        """-log max |1 - delta lambda / 2| over the eigenvalues of H."""
        return overdamped_relaxation(precision, delta)

    def bias(self, precision: np.ndarray, noise: np.ndarray, delta: float) -> np.ndarray:
        """Of gradient noise alone: X = A X A' + delta^2 C / 4, A = I - delta H / 2."""
        return overdamped_covariance(precision, 0.25 * delta**2 * noise, delta)

    def affine(self, dimension: int, delta: float) -> tuple[np.ndarray, ...]:
        """Of the state (theta, eta): the noise of the last step comes in with sqrt(delta)/2, and goes."""
        one, none, half = np.eye(dimension), np.zeros((dimension, dimension)), 0.5 * np.sqrt(delta)
        state = np.block([[one, half * one], [none, none]])
        pull, kick = np.concatenate([0.5 * delta * one, none]), np.concatenate([half * one, one])
        return state, pull, kick, np.concatenate([one, none], axis=1)

    def shape_error(self, precision: np.ndarray, delta: float) -> float:
        """(x^2/48) / (1 - x/2 + x^2/12) for x = delta lambda, the largest: the third cumulant is too small by so much.

        To first order in a cubic part the chain's is (1 - x/2 + x^2/16) / (1 - x/2 + x^2/12) of the law's.
        """
        x = delta * np.linalg.eigvalsh(precision)
        return float(np.max(x**2 / 48.0 / (1.0 - x / 2.0 + x**2 / 12.0)))
