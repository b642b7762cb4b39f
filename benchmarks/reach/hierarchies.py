"""The eight schools, twice: effects as they are, and effects in units of their own spread. Both start at zero."""

from typing import Any

import jax.numpy as jnp
import numpy as np

import langevin as lv
from benchmarks.reach.database import Draws, table, vector
from benchmarks.reach.posteriors import Posterior, half_cauchy, listed, normal

# posteriordb has one set of draws for both: theta, mu and tau have the same law.
_DRAWS = "eight_schools-eight_schools_noncentered"
_HYPER = 5.0


def _schools() -> dict[str, Any]:
    data = table("eight_schools")
    return {"y": data["y"], "sigma": data["sigma"], "school": np.arange(len(data["y"]), dtype=np.int32)}


def _hyper_prior(theta: Any) -> Any:
    return normal(theta["mu"], 0.0, _HYPER) + half_cauchy(theta["log_tau"], _HYPER)


def _start(data: dict[str, Any], effects: str) -> dict[str, Any]:
    return {"mu": np.float64(0.0), "log_tau": np.float64(0.0), effects: np.zeros(len(data["y"]))}


@listed("eight_schools-eight_schools_centered")
def centered() -> Posterior:
    """effect ~ N(mu, tau^2): a funnel."""
    data = _schools()

    def log_prior(theta: Any) -> Any:
        effects = normal(theta["effect"], theta["mu"], jnp.exp(theta["log_tau"]))
        return _hyper_prior(theta) + effects - theta["effect"].size * theta["log_tau"]

    def log_likelihood(theta: Any, row: Any) -> Any:
        return normal(row["y"], theta["effect"][row["school"]], row["sigma"])

    def unconstrained(found: Draws) -> Any:
        return {"mu": found["mu"], "log_tau": np.log(found["tau"]), "effect": vector(found, "theta")}

    target = lv.Target(log_prior, log_likelihood)
    return Posterior(target, data, _start(data, "effect"), unconstrained, _DRAWS)


@listed("eight_schools-eight_schools_noncentered")
def noncentered() -> Posterior:
    """effect = mu + tau z with z ~ N(0, 1)."""
    data = _schools()

    def log_prior(theta: Any) -> Any:
        return _hyper_prior(theta) + normal(theta["z"], 0.0, 1.0)

    def log_likelihood(theta: Any, row: Any) -> Any:
        effect = theta["mu"] + jnp.exp(theta["log_tau"]) * theta["z"][row["school"]]
        return normal(row["y"], effect, row["sigma"])

    def unconstrained(found: Draws) -> Any:
        mu, tau = found["mu"], found["tau"]
        z = (vector(found, "theta") - mu[..., None]) / tau[..., None]
        return {"mu": mu, "log_tau": np.log(tau), "z": z}

    return Posterior(lv.Target(log_prior, log_likelihood), data, _start(data, "z"), unconstrained, _DRAWS)
