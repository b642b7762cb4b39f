"""Stochastic gradient Langevin dynamics."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from langevin.kernels.protocol import Kernel, in_modes

Array = jax.Array


class SGLDState(NamedTuple):
    """The position."""

    theta: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SGLD(Kernel):
    """theta_m = theta_{m-1} + delta_m / 2 * grad + sqrt(delta_m) * eta_m.

    `grad` is any unbiased estimate of grad log pi(theta_{m-1}), eta_m standard normal. With the full gradient it is the
    unadjusted Langevin algorithm (ULA). Cost: one gradient. Bias of averages: order delta.

    Example:
        >>> import langevin as lv
        >>> target = lv.Target(lambda t: -0.5 * t**2)
        >>> ledger = lv.run(target, None, 0.0, kernel=lv.SGLD(), schedule=lv.Constant(0.5), num_steps=4000, chains=4)
        >>> abs(float(lv.estimate(ledger)["theta.mean"].value[0])) < 0.3
        True
    """

    def init(self, theta: Array, eta: Array) -> SGLDState:
        """The state before the first step; the noise of index 0 is not used."""
        return SGLDState(theta)

    def step(self, state: SGLDState, grad: Array, eta: Array, delta: Array) -> SGLDState:
        """One transition."""
        return SGLDState(state.theta + 0.5 * delta * grad + jnp.sqrt(delta) * eta)

    def relaxation(self, precision: np.ndarray, delta: float) -> float:
        """-log max |1 - delta lambda / 2| over the eigenvalues of H."""
        return overdamped_relaxation(precision, delta)

    def bias(self, precision: np.ndarray, noise: np.ndarray, delta: float) -> np.ndarray:
        """S - H^-1 with S = A S A' + delta I + delta^2 C / 4, A = I - delta H / 2; between two modes of H

        S_ij = (delta I + delta^2 C / 4)_ij / (1 - a_i a_j).
        """
        own = delta * np.eye(len(precision)) + 0.25 * delta**2 * noise
        return overdamped_covariance(precision, own, delta) - np.linalg.inv(precision)

    def affine(self, dimension: int, delta: float) -> tuple[np.ndarray, ...]:
        """F = P = I, G = delta/2, E = sqrt(delta)."""
        one = np.eye(dimension)
        return one, 0.5 * delta * one, np.sqrt(delta) * one, one


def overdamped_relaxation(precision: np.ndarray, delta: float) -> float:
    """-log of the largest |1 - delta lambda / 2|, 0 where steps overshoot."""
    slowest = np.max(np.abs(1.0 - 0.5 * delta * np.linalg.eigvalsh(precision)))
    return float(max(-np.log(max(slowest, 1e-300)), 0.0))


def overdamped_covariance(precision: np.ndarray, source: np.ndarray, delta: float) -> np.ndarray:
    """The solution of S = A S A' + source for A = I - delta H / 2; infinite where A does not contract."""

    def solved(rates: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        kept = 1.0 - 0.5 * delta * rates
        return (vectors.T @ source @ vectors) / (1.0 - np.outer(kept, kept))

    if overdamped_relaxation(precision, delta) == 0.0:
        return np.full_like(precision, np.inf)
    return in_modes(precision, solved)
