"""The location model with a Gaussian prior: one parameter, posterior in closed form."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from langevin.target import Target

Floats = NDArray[np.float64]


# Never emptied: compiled code is found by the identity of these functions; evicted ones would compile again.
@cache
def _target(sigma_theta: float, sigma_x: float) -> Target:
    """The target for these standard deviations; the same function objects every time."""
    half_prior_precision, half_datum_precision = 0.5 / sigma_theta**2, 0.5 / sigma_x**2

    def log_prior(theta: jax.Array) -> jax.Array:
        return -half_prior_precision * theta**2

    def log_likelihood(theta: jax.Array, datum: jax.Array) -> jax.Array:
        return -half_datum_precision * (datum - theta) ** 2

    return Target(log_prior, log_likelihood)


@dataclass(frozen=True, eq=False)
class LinearGaussian:
    """x_i | theta ~ N(theta, sigma_x^2), theta ~ N(0, sigma_theta^2); theta is a scalar.

        pi = N(mu_p, sigma_p^2), 1/sigma_p^2 = 1/sigma_theta^2 + N/sigma_x^2,
        mu_p = sigma_p^2 sum(x)/sigma_x^2

    Both standard deviations are known. The closed forms use `x` in float64; `data` is `x` rounded to float32.
    Cost of the closed forms: N additions.

    Example:
        >>> model = LinearGaussian([1.0, 3.0], sigma_theta=1.0, sigma_x=1.0)
        >>> round(model.mu_p, 6), round(model.sigma_p**2, 6)
        (1.333333, 0.333333)
    """

    x: Floats = field(repr=False)
    sigma_theta: float = 1.0
    sigma_x: float = 5.0
    theta_true: float | None = None

    def __post_init__(self) -> None:
        x = np.array(self.x, dtype=np.float64)
        if x.ndim != 1 or x.size == 0 or not np.all(np.isfinite(x)):
            raise ValueError(
                f"x must be a non-empty vector of finite numbers, got shape {x.shape} with "
                f"{np.count_nonzero(~np.isfinite(x))} non-finite entries. Flatten it and drop missing values."
            )
        x.setflags(write=False)
        object.__setattr__(self, "x", x)
        for name in ("sigma_theta", "sigma_x"):
            value = float(getattr(self, name))
            if not 0.0 < value < np.inf:
                raise ValueError(
                    f"{name} is a standard deviation and must be positive and finite, got {value}. Try 1.0."
                )
            object.__setattr__(self, name, value)

    @classmethod
    def simulate(
        cls, num_data: int = 100, sigma_theta: float = 1.0, sigma_x: float = 5.0, seed: int = 0
    ) -> LinearGaussian:
        """theta_true from the prior, then N data from the model; the defaults are those of section 6.1.

        The data are rounded to float32 as they are drawn, so that `data` holds exactly the numbers in `x`.
        """
        if num_data < 1:
            raise ValueError(f"num_data must be at least 1, got {num_data}. Try num_data=100.")
        rng = np.random.default_rng(seed)
        theta = sigma_theta * rng.standard_normal()
        x = (theta + sigma_x * rng.standard_normal(num_data)).astype(np.float32)
        return cls(x.astype(np.float64), sigma_theta, sigma_x, float(theta))

    @property
    def num_data(self) -> int:
        """N, the number of data."""
        return self.x.size

    @property
    def target(self) -> Target:
        """The posterior as a Target; equal standard deviations give the same object."""
        return _target(self.sigma_theta, self.sigma_x)

    @property
    def data(self) -> NDArray[np.float32]:
        """The observations in float32, shape (N,)."""
        return self.x.astype(np.float32)

    @property
    def theta_0(self) -> jax.Array:
        """The posterior mode, which is mu_p, as a float32 scalar: where the paper's runs start."""
        return jnp.float32(self.mu_p)

    @property
    def mu_p(self) -> float:
        """Posterior mean."""
        return float(self.x.sum() / self.sigma_x**2 * self.sigma_p**2)

    @property
    def sigma_p(self) -> float:
        """Posterior standard deviation."""
        return float((1.0 / self.sigma_theta**2 + self.num_data / self.sigma_x**2) ** -0.5)

    def grad(self, theta: Floats) -> Floats:
        """Gradient of log pi, -(theta - mu_p)/sigma_p^2, for an array of parameters."""
        return -(theta - self.mu_p) / self.sigma_p**2

    def lyapunov(self, theta: Floats) -> Floats:
        """V(theta) = 1 + (theta - mu_p)^2 / (2 sigma_p^2), elementwise."""
        return 1.0 + (theta - self.mu_p) ** 2 / (2.0 * self.sigma_p**2)

    def lyapunov_grad(self, theta: Floats) -> Floats:
        """V'(theta) = (theta - mu_p) / sigma_p^2, elementwise."""
        return (theta - self.mu_p) / self.sigma_p**2

    @property
    def drift_constants(self) -> tuple[float, float]:
        """(alpha, beta) with <V', 1/2 grad log pi> <= -alpha V + beta.

        Both sides are equal here: -(theta - mu_p)^2 / (2 sigma_p^4) = (1 - V)/sigma_p^2 gives
        alpha = beta = 1/sigma_p^2.
        """
        return self.sigma_p**-2, self.sigma_p**-2
