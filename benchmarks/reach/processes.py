"""Gaussian processes with a squared exponential kernel, from a start at zero: gp_regr and the latent gp_pois_regr."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

import langevin as lv
from benchmarks.reach.database import Draws, Floats, table, vector
from benchmarks.reach.posteriors import Posterior, half_normal, listed, normal

_JITTER = 1e-10


def _kernel(x: Floats, log_rho: Any, log_alpha: Any) -> Any:
    """alpha^2 exp(-(x - x')^2 / (2 rho^2))."""
    squares = (x[:, None] - x[None, :]) ** 2
    return jnp.exp(2.0 * log_alpha - 0.5 * squares * jnp.exp(-2.0 * log_rho))


def _hyper_prior(theta: Any) -> Any:
    """rho ~ Gamma(25, rate 4), alpha ~ half-normal(2), as densities of their logs."""
    rho = 25.0 * theta["log_rho"] - 4.0 * jnp.exp(theta["log_rho"])
    return rho + half_normal(theta["log_alpha"], 2.0)


def _logs(found: Draws, *names: str) -> dict[str, Any]:
    return {f"log_{name}": np.log(found[name]) for name in names}


@listed("gp_pois_regr-gp_regr")
def marginal() -> Posterior:
    """y ~ N(0, K + sigma I): posteriordb's sigma is a variance."""
    data = table("gp_pois_regr")
    x, y = data["x"], data["y"]

    def log_density(theta: Any) -> Any:
        noise = jnp.exp(theta["log_sigma"]) * np.eye(len(y))
        root = jnp.linalg.cholesky(_kernel(x, theta["log_rho"], theta["log_alpha"]) + noise)
        likelihood = normal(solve_triangular(root, y.astype(root.dtype), lower=True), 0.0, 1.0)
        likelihood -= jnp.sum(jnp.log(jnp.diag(root)))
        return likelihood + _hyper_prior(theta) + half_normal(theta["log_sigma"], 1.0)

    def unconstrained(found: Draws) -> Any:
        return _logs(found, "rho", "alpha", "sigma")

    theta_0 = {name: np.float64(0.0) for name in ("log_rho", "log_alpha", "log_sigma")}
    return Posterior(lv.Target(log_density), None, theta_0, unconstrained, "gp_pois_regr-gp_regr")


@listed("gp_pois_regr-gp_pois_regr")
def counts() -> Posterior:
    """k ~ Poisson(exp f), f = L z with L L' = K + 1e-10 I and z ~ N(0, I). K is singular to float32's eyes."""
    data = table("gp_pois_regr")
    x, k = data["x"], data["k"]

    def root(log_rho: Any, log_alpha: Any) -> Any:
        return jnp.linalg.cholesky(_kernel(x, log_rho, log_alpha) + _JITTER * np.eye(len(x)))

    def log_density(theta: Any) -> Any:
        f = root(theta["log_rho"], theta["log_alpha"]) @ theta["z"]
        return jnp.sum(k * f - jnp.exp(f)) + _hyper_prior(theta) + normal(theta["z"], 0.0, 1.0)

    def unconstrained(found: Draws) -> Any:
        logs = _logs(found, "rho", "alpha")
        squares = (x[:, None] - x[None, :]) ** 2
        rho, alpha = found["rho"][..., None, None], found["alpha"][..., None, None]
        roots = np.linalg.cholesky(alpha**2 * np.exp(-0.5 * squares / rho**2) + _JITTER * np.eye(len(x)))
        return logs | {"z": np.linalg.solve(roots, vector(found, "f")[..., None])[..., 0]}

    theta_0 = {"log_rho": np.float64(0.0), "log_alpha": np.float64(0.0), "z": np.zeros(len(x))}
    return Posterior(lv.Target(log_density), None, theta_0, unconstrained, "gp_pois_regr-gp_pois_regr", double=True)
