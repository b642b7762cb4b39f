"""The stochastic gradient Nose-Hoover thermostat."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from langevin.kernels.protocol import Kernel, in_modes, must_be_positive

Array = Any
# Gradient noise over injected noise, delta C / 4, up to which the theory is given. SGLD's sd is half as large again
# there, where its estimates are called `gradient_noise`: noise that is no longer small changes with theta, and no
# Gaussian model says how.
_MOST_NOISE = 1.25


class ThermostatState(NamedTuple):
    """The position, the momentum that arrives there, and the rate at which the next step forgets it."""

    theta: Array
    momentum: Array
    rate: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SGNHT(Kernel):
    """SGHMC whose friction is steered until momentum has its temperature: with a = 1 - exp(-friction), h^2 = a delta/2,

        p_m = c p_{m-1} + h grad + sqrt(2 a) eta_m,    theta_m = theta_{m-1} + h p_m,    c = exp(-r_{m-1}),
        r_m = r_{m-1} + coupling * ((1 + exp(-r_m)) / 2 |p_m|^2 / d - 1),    r_0 = friction,

    where two rounds put r_m on the right. Gradient noise of variance C heats the chain as injected noise does; 1 - c
    settles near a + h^2 C / 2, so that the level of the noise is learnt and its mean effect taken off. One rate serves
    all directions: where C / H differs between them, variances are right on average only. `coupling` is d times the
    variance of r where r is small. Cost: one gradient. Assumes noise whose covariance hardly changes with theta, and
    a (1 + delta C / 4) < 1.

    Theory: for many parameters, or a weak coupling, c is a number, the one for which (the mean over the modes of H)

        mean_i (1 + c) q_i / ((1 - c) (2 (1 + c) - h^2 lambda_i)) = 1,    q_i = 2 a + h^2 C_ii.

    The term i is lambda_i times the variance of theta along mode i: with equal lambda and C it is right at every step.
    The fluctuations of r add to variances a share of coupling / d times 0.15 to 0.4 (measured for d = 1 and 4,
    frictions 0.3 and 0.7, delta lambda 0.2 to 0.8, couplings up to 0.1): `bias` allows for 1/2 coupling / d. Where
    delta C / 4 > 1.25 nothing is claimed.

    Ding, Fang, Babbush, Chen, Skeel and Neven, *Bayesian sampling using stochastic gradient thermostats* (2014): there
    coupling = h^2, c = 1 - r, and 1 stands for (1 + c) / 2, which matters where one step forgets much: the variance of
    theta would be too small by the factor a / (1 - c) with 1 - c^2 = 2 a, however small the steps.

    Example:
        >>> import langevin as lv, numpy as np
        >>> H, C = np.eye(2), 2.0 * np.eye(2)  # gradients twice as noisy as the posterior is narrow
        >>> [round(float(kernel.bias(H, C, delta=0.5)[0, 0]), 3) for kernel in (lv.SGHMC(0.3), lv.SGNHT(0.3))]
        [0.274, 0.002]
    """

    friction: float = 0.3
    coupling: float = 0.01

    def __post_init__(self) -> None:
        must_be_positive(self, "friction", "without gradient noise a step keeps exp(-friction) of the momentum", "0.3")
        must_be_positive(self, "coupling", "how fast the thermostat answers", "0.01")

    def init(self, theta: Array, eta: Array) -> ThermostatState:
        """The state before the first step: a momentum from N(0, I), the friction of exact gradients."""
        return ThermostatState(theta, eta, jnp.asarray(self.friction, theta.dtype))

    def step(self, state: ThermostatState, grad: Array, eta: Array, delta: Array) -> ThermostatState:
        """One transition."""
        injected, kept = -jnp.expm1(-self.friction), jnp.exp(-state.rate)
        size = jnp.sqrt(0.5 * injected * delta)
        momentum = kept * state.momentum + size * grad + jnp.sqrt(2.0 * injected) * eta
        energy, rate = jnp.mean(momentum**2), state.rate
        for _ in range(2):
            rate = state.rate + self.coupling * (0.5 * (1.0 + jnp.exp(-rate)) * energy - 1.0)
        return ThermostatState(state.theta + size * momentum, momentum, rate)

    def learnt(self, precision: np.ndarray, noise: np.ndarray, delta: float) -> float:
        """The kept share c at which the thermostat settles for H and C; NaN where there is none."""
        rates, vectors = np.linalg.eigh(precision)
        injected = -np.expm1(-self.friction)
        square = 0.5 * injected * delta
        push = 2.0 * injected + square * np.einsum("ia,ij,ja->a", vectors, noise, vectors)

        def heat(kept: np.ndarray) -> np.ndarray:
            more = 1.0 + np.asarray(kept)[..., None]
            return np.mean(more * push / ((2.0 - more) * (2.0 * more - square * rates)), axis=-1) - 1.0

        # From stiff to loose: the temperature rises with c, but near the border of stability.
        grid = np.arange(1000) / 1000
        stable = 2.0 * (1.0 + grid) > square * rates[-1]
        cold = np.flatnonzero(stable & (heat(grid) <= 0.0))
        if not cold.size:
            return np.nan
        low, high = grid[cold[-1]], grid[cold[-1]] + grid[1]
        while low < (middle := 0.5 * (low + high)) < high:
            low, high = (low, middle) if heat(middle) > 0.0 else (middle, high)
        return float(low)

    def relaxation(self, precision: np.ndarray, delta: float) -> float:
        """-log of the spectral radius at the friction that exact gradients settle at."""
        kept = self.learnt(precision, np.zeros_like(precision), delta)
        if np.isnan(kept):
            return 0.0
        maps = self._maps(np.linalg.eigvalsh(precision), kept, delta)
        return float(max(-np.log(np.max(np.abs(np.linalg.eigvals(maps)))), 0.0))

    def bias(self, precision: np.ndarray, noise: np.ndarray, delta: float) -> np.ndarray:
        """Covariance of theta at the friction learnt, and room for its fluctuations, minus H^-1; or infinite.

        Between modes i and j of H the covariance of (theta, p) obeys S_ij = A_i S_ij A_j' + (2 a I + h^2 C)_ij b b',
        b = (h, 1).
        """
        kept = self.learnt(precision, noise, delta)
        if np.isnan(kept) or 0.25 * delta * np.max(np.abs(np.linalg.eigvalsh(noise))) > _MOST_NOISE:
            return np.full_like(precision, np.inf)
        injected = -np.expm1(-self.friction)
        size = np.sqrt(0.5 * injected * delta)

        def covariance(rates: np.ndarray, vectors: np.ndarray) -> np.ndarray:
            push = 2.0 * injected * np.eye(len(rates)) + size**2 * vectors.T @ noise @ vectors
            total = push[:, :, None, None] * np.outer([size, 1.0], [size, 1.0])
            maps = self._maps(rates, kept, delta)
            if np.max(np.abs(np.linalg.eigvals(maps))) >= 1.0:
                return np.full_like(precision, np.inf)
            # Doubling: after k rounds the first 2^k terms of the sum of A_i^k Q A_j'^k.
            while np.max(np.abs(maps)) > 1e-20:
                total = total + np.einsum("iab,ijbc,jdc->ijad", maps, total, maps)
                maps = maps @ maps
            return total[:, :, 0, 0]

        room = 0.5 * self.coupling / len(precision)
        return in_modes(precision, covariance) - (1.0 - room) * np.linalg.inv(precision)

    def _maps(self, rates: np.ndarray, kept: float, delta: float) -> np.ndarray:
        """A_i of (theta, p) along every mode, (d, 2, 2)."""
        size = np.sqrt(-0.5 * np.expm1(-self.friction) * delta)
        ones = np.ones_like(rates)
        return np.array([[1.0 - size**2 * rates, size * kept * ones], [-size * rates, kept * ones]]).transpose(2, 0, 1)
