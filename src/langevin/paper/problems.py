"""The paper's two problems, each on one simulated data set that never changes."""

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import langevin as lv
from langevin.models import LinearGaussian, Logistic
from langevin.theory import LinearGaussianLaw

ALPHAS = (0.1, 0.2, 0.3, 0.33, 0.4, 0.5)


@cache
def gaussian() -> LinearGaussian:
    """Section 6.1: N = 100, sigma_theta = 1, sigma_x = 5."""
    return LinearGaussian.simulate(seed=1)


@cache
def logistic() -> Logistic:
    """Section 6.2: N = 1000, d = 3, prior N(0, I)."""
    return Logistic.simulate(seed=1)


@cache
def gaussian_h() -> Callable[[jax.Array], jax.Array]:
    """h(x) = sin(x - mu_p - sigma_p/2), the Poisson solution behind the test function of section 6.1."""
    shift = gaussian().mu_p + gaussian().sigma_p / 2
    return lambda theta: jnp.sin(theta - shift)


@cache
def gaussian_phi() -> Callable[[jax.Array], jax.Array]:
    """phi = A h in closed form, so that pi(phi) = 0: -1/2 {(x - mu_p) cos(.)/sigma_p^2 + sin(.)}."""
    mu, sd = gaussian().mu_p, gaussian().sigma_p

    def phi(theta: jax.Array) -> jax.Array:
        x = theta - mu
        return -0.5 * (x / sd**2 * jnp.cos(x - sd / 2) + jnp.sin(x - sd / 2))

    return phi


def gaussian_steps(alpha: float) -> lv.Power:
    """delta_m = (m_0 + m)^-alpha with the smallest m_0 for which delta_1 is below the posterior sd."""
    return lv.Power(scale=1.0, m_0=float(lv.schedules.m_0_for(alpha, gaussian().sigma_p)), alpha=alpha)


def rounded_steps(schedule: lv.schedules.Schedule, num_steps: int) -> NDArray[np.float64]:
    """delta_1 ... delta_m as the device uses them."""
    return schedule.delta(np.arange(1, num_steps + 1)).astype(np.float32).astype(np.float64)


def gaussian_law(batch_size: int, replacement: bool = False) -> LinearGaussianLaw:
    """The exact finite-m law of SGLD on the Gaussian problem."""
    model = gaussian()
    return LinearGaussianLaw(model.x, model.sigma_theta, model.sigma_x, batch_size, replacement)


def average(ledger: lv.Ledger, name: str) -> NDArray[np.float64]:
    """pi_m(phi) of every chain, shape (*settings, chains, *values), from the ledger's sums."""
    centred = ledger.values[name].sum(axis=-2) / ledger.sum_omega.sum(axis=-1)[..., None, None]
    column = ledger.columns[name]
    return (centred + column.reference).reshape(*centred.shape[:-1], *column.shape)
