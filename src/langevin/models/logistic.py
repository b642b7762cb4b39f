"""Bayesian logistic regression with a Gaussian prior; its posterior by quadrature in up to 4 dimensions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, lambertw

from langevin.models.quadrature import PosteriorQuadrature, Truth
from langevin.target import Target, log_sigmoid

Floats = NDArray[np.float64]
Datum = tuple[jax.Array, jax.Array]

# max over u of u/(1 + e^u): the maximum is at u = 1 + W, its value e^-u = W, with W e^W = 1/e. About 0.278.
LAMBERT = float(lambertw(np.exp(-1.0)).real)


def log_likelihood(theta: jax.Array, datum: Datum) -> jax.Array:
    """log P(y | x, theta) of one datum (x, y), y = -1 or +1."""
    x, y = datum
    return log_sigmoid(y * jnp.dot(x, theta))


# Never emptied: compiled code is found by the identity of this function; an evicted one would compile again.
@cache
def _target(prior_sd: float) -> Target:
    """The target for this prior; the same function objects every time."""
    half_precision = 0.5 / prior_sd**2

    def log_prior(theta: jax.Array) -> jax.Array:
        return -half_precision * jnp.dot(theta, theta)

    return Target(log_prior, log_likelihood)


@dataclass(frozen=True, eq=False)
class Logistic:
    """P(y_i = 1 | x_i, theta) = 1/(1 + exp(-<x_i, theta>)), theta ~ N(0, prior_sd^2 I); theta is a vector.

        log pi(theta) = -|theta|^2 / (2 prior_sd^2) + sum_i log_sigmoid(y_i <x_i, theta>) + constant

    y holds -1 and +1; 0 and 1, or booleans, are read as -1 and +1. No intercept is added: put a column of
    ones in x. The NumPy methods work in float64 on `x`; `data` is rounded to float32. Cost: N datum visits a
    log density.

    Example:
        >>> model = Logistic.simulate(num_data=50, dimension=2, seed=1)
        >>> truth = model.truth()
        >>> truth.mean.shape, truth.error < 1e-9
        ((2,), True)
    """

    x: Floats = field(repr=False)
    y: Floats = field(repr=False)
    prior_sd: float = 1.0
    theta_true: Floats | None = None
    _truths: dict[float, Truth] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        x = np.array(self.x, dtype=np.float64)
        if x.ndim != 2 or x.size == 0 or not np.all(np.isfinite(x)):
            raise ValueError(
                f"x must be a non-empty matrix of finite numbers, a row per datum, got shape {x.shape} with "
                f"{np.count_nonzero(~np.isfinite(x))} non-finite entries. Write x[:, None] for one covariate."
            )
        y = _signs(self.y)
        if y.shape != x.shape[:1]:
            raise ValueError(
                f"y must have one label per row of x, got shape {y.shape} for x of shape {x.shape}. "
                f"Flatten y, or check which rows belong together."
            )
        prior_sd = float(self.prior_sd)
        if not 0.0 < prior_sd < np.inf:
            raise ValueError(
                f"prior_sd is a standard deviation and must be positive and finite, got {prior_sd}. Try 1.0."
            )
        for name, array in (("x", x), ("y", y)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        object.__setattr__(self, "prior_sd", prior_sd)

    @classmethod
    def simulate(cls, num_data: int = 1000, dimension: int = 3, seed: int = 0) -> Logistic:
        """theta_true ~ N(0, I), standard normal covariates with a 1 in the last column, y from the model.

        The defaults are those of section 6.2. Covariates are rounded to float32 as they are drawn, so that
        `data` holds exactly the numbers in `x`.
        """
        for name, value in (("num_data", num_data), ("dimension", dimension)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}. Try {name}=3.")
        rng = np.random.default_rng(seed)
        theta = rng.standard_normal(dimension)
        x = rng.standard_normal((num_data, dimension)).astype(np.float32).astype(np.float64)
        x[:, -1] = 1.0
        y = np.where(rng.random(num_data) < expit(x @ theta), 1.0, -1.0)
        return cls(x, y, 1.0, theta)

    @property
    def num_data(self) -> int:
        """N, the number of data."""
        return self.x.shape[0]

    @property
    def dimension(self) -> int:
        """Length of theta."""
        return self.x.shape[1]

    @property
    def target(self) -> Target:
        """The posterior as a Target; equal prior standard deviations give the same object."""
        return _target(self.prior_sd)

    @property
    def data(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The observations (x, y) in float32, shapes (N, d) and (N,)."""
        return self.x.astype(np.float32), self.y.astype(np.float32)

    @property
    def theta_0(self) -> jax.Array:
        """The posterior mode in float32: where the paper's runs start."""
        return jnp.asarray(self.map, dtype=jnp.float32)

    def log_density(self, theta: Floats) -> Floats:
        """log pi up to a constant for parameters of shape (..., d), result of shape (...)."""
        theta = np.asarray(theta, dtype=np.float64)
        flat = theta.reshape(-1, self.dimension)
        signed = self._signed
        # 2^16 products at a time stay in a core's cache, which halves the time.
        rows = max(1, 2**16 // self.num_data)
        total = np.concatenate([_sum_log_sigmoid(flat[i : i + rows] @ signed.T) for i in range(0, len(flat), rows)])
        return (total - 0.5 * np.sum(flat**2, axis=1) / self.prior_sd**2).reshape(theta.shape[:-1])

    def grad(self, theta: Floats) -> Floats:
        """Gradient of log pi, shape (..., d): -theta/prior_sd^2 + sum_i expit(-y_i <x_i, theta>) y_i x_i."""
        theta = np.asarray(theta, dtype=np.float64)
        return expit(-(theta @ self._signed.T)) @ self._signed - theta / self.prior_sd**2

    def hessian(self, theta: Floats) -> Floats:
        """Hessian of log pi at one theta: -I/prior_sd^2 - sum_i s_i (1 - s_i) x_i x_i^T, s = expit(x @ t)."""
        s = expit(self.x @ theta)
        return -(self.x * (s * (1.0 - s))[:, None]).T @ self.x - np.eye(self.dimension) / self.prior_sd**2

    @cached_property
    def _signed(self) -> Floats:
        """y_i x_i, all that the likelihood needs."""
        return self.x * self.y[:, None]

    @cached_property
    def map(self) -> Floats:
        """Posterior mode in float64 by damped Newton steps; unique, because log pi is strictly concave."""
        theta = np.zeros(self.dimension)
        for _ in range(200):
            grad = self.grad(theta)
            step = np.linalg.solve(-self.hessian(theta), grad)
            decrement = grad @ step  # squared distance to the mode in local standard deviations
            # Near the mode a step gains less than rounding and is safe; further out, halve it until it gains.
            scale = 1.0
            while (
                decrement > 1e-6
                and self.log_density(theta + scale * step) < self.log_density(theta) + 0.1 * scale * decrement
            ):
                scale *= 0.5
            theta = theta + scale * step
            if decrement < 1e-18:
                return theta
        raise RuntimeError(
            f"Newton's method did not find the mode in 200 steps, squared distance {decrement:.1e}. "
            f"Scale the columns of x to a common size."
        )

    @cached_property
    def laplace_covariance(self) -> Floats:
        """Inverse of minus the Hessian at the mode."""
        covariance = np.linalg.inv(-self.hessian(self.map))
        return 0.5 * (covariance + covariance.T)

    @cached_property
    def quadrature(self) -> PosteriorQuadrature:
        """The quadrature rules of this posterior, d <= 4."""
        if self.dimension > 4:
            raise ValueError(
                f"x must have at most 4 columns for quadrature, got {self.dimension}: nodes grow as order^d. "
                f"In more dimensions use a long run of an exact sampler such as HMC."
            )
        return PosteriorQuadrature(self.log_density, self.map, self.laplace_covariance)

    def truth(self, rtol: float = 1e-9) -> Truth:
        """Posterior mean and covariance to a relative error below rtol; computed once.

        Cost: order^d log densities, order mostly 32: a second at N = 1000, d = 3, half a minute at d = 4.
        """
        if rtol not in self._truths:
            self._truths[rtol] = self.quadrature.moments(rtol)
        return self._truths[rtol]

    def expectation(self, phi: Callable[[Floats], Floats], rtol: float = 1e-9) -> Floats:
        """E_pi[phi] for a smooth NumPy phi: (K, d) -> (K,) or (K, ...), to rtol of its root mean square."""
        # From order 16 on, so that a phi with a few turns is not judged by rules that miss them.
        return self.quadrature.expectation(phi, rtol, first_order=16)[0]

    def lyapunov(self, theta: Floats) -> Floats:
        """V(theta) = 1 + |theta|^2 for parameters of shape (..., d)."""
        return 1.0 + (theta * theta).sum(axis=-1)

    def lyapunov_grad(self, theta: Floats) -> Floats:
        """grad V = 2 theta."""
        return 2.0 * theta

    @property
    def drift_constants(self) -> tuple[float, float]:
        """(alpha, beta) with <grad V, 1/2 grad log pi> <= -alpha V + beta.

        With u_i = y_i <x_i, theta> and W = 0.278 the maximum of u/(1 + e^u),

            <theta, grad log pi> = -|theta|^2/prior_sd^2 + sum_i u_i/(1 + e^u_i) <= -(V - 1)/prior_sd^2 + N W,

        so alpha = 1/prior_sd^2 and beta = 1/prior_sd^2 + N W, whatever the covariates.
        """
        alpha = self.prior_sd**-2
        return alpha, alpha + self.num_data * LAMBERT


def _sum_log_sigmoid(u: Floats) -> Floats:
    """Sum of log_sigmoid over the last axis: min(u, 0) - log(1 + e^-|u|).

    The factors 1 + e^-|u| lie in [1, 2], so 512 of them multiply without overflow: one logarithm per 512 data
    is three times faster than one per datum, at an absolute error of a few N rounding units.
    """
    factors = 1.0 + np.exp(-np.abs(u))
    products = np.multiply.reduceat(factors, np.arange(0, u.shape[-1], 512), axis=-1)
    return np.minimum(u, 0.0).sum(axis=-1) - np.log(products).sum(axis=-1)


def _signs(y: NDArray) -> Floats:
    """Labels as -1.0 and +1.0, from {-1, +1}, {0, 1} or booleans."""
    y = np.asarray(y)
    numeric = y.dtype == bool or np.issubdtype(y.dtype, np.number)
    if not numeric or not (np.all(np.isin(y, (-1, 1))) or np.all(np.isin(y, (0, 1)))):
        seen = list(dict.fromkeys(y.ravel().tolist()))
        raise ValueError(
            f"y must hold only -1 and +1, or only 0 and 1, got the values {seen[:5]}"
            f"{' and more' if len(seen) > 5 else ''}. Recode it, e.g. y = np.where(labels == 'yes', 1, -1)."
        )
    return np.where(y == 1, 1.0, -1.0)
