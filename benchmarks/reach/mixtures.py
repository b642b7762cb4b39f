"""Two normal components with unknown means, sds and weight: low_dim_gauss_mix, in order, and _collapse, in none.

Means start at the quartiles of the data, everything else at zero on the unconstrained scale: a start in the middle
would be a saddle, where no component knows which side is its own.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import langevin as lv
from benchmarks.reach.database import Draws, table, vector
from benchmarks.reach.posteriors import Posterior, beta, half_normal, listed, logit, normal


def _prior(mu: Any, theta: Any) -> Any:
    weight = beta(theta["logit_weight"], 5.0, 5.0)
    return normal(mu, 0.0, 2.0) + half_normal(theta["log_sigma"], 2.0) + weight


def _mixed(mu: Any, theta: Any, y: Any) -> Any:
    log_weights = jax.nn.log_sigmoid(theta["logit_weight"] * np.array([1.0, -1.0]))
    z = (y - mu) * jnp.exp(-theta["log_sigma"])
    return jax.scipy.special.logsumexp(log_weights - 0.5 * z * z - theta["log_sigma"])


def _start(**means: Any) -> dict[str, Any]:
    return means | {"log_sigma": np.zeros(2), "logit_weight": np.float64(0.0)}


def _common(found: Draws) -> dict[str, Any]:
    return {"log_sigma": np.log(vector(found, "sigma")), "logit_weight": logit(found["theta"])}


@listed("low_dim_gauss_mix-low_dim_gauss_mix")
def ordered() -> Posterior:
    """The first mean is the lower one."""
    y = table("low_dim_gauss_mix")["y"]

    def means(theta: Any) -> Any:
        return jnp.stack([theta["low"], theta["low"] + jnp.exp(theta["log_gap"])])

    target = lv.Target(
        lambda theta: _prior(means(theta), theta) + theta["log_gap"], lambda theta, y: _mixed(means(theta), theta, y)
    )

    def unconstrained(found: Draws) -> Any:
        gap = found["mu[2]"] - found["mu[1]"]
        return _common(found) | {"low": found["mu[1]"], "log_gap": np.log(gap)}

    low, high = np.quantile(y, [0.25, 0.75])
    name = "low_dim_gauss_mix-low_dim_gauss_mix"
    return Posterior(target, y, _start(low=low, log_gap=np.log(high - low)), unconstrained, name)


@listed("low_dim_gauss_mix_collapse-low_dim_gauss_mix_collapse")
def collapse() -> Posterior:
    """Components may change places, and the posterior has a mirror image of every mode."""
    y = table("low_dim_gauss_mix_collapse")["y"]
    target = lv.Target(lambda theta: _prior(theta["mu"], theta), lambda theta, y: _mixed(theta["mu"], theta, y))

    def unconstrained(found: Draws) -> Any:
        return _common(found) | {"mu": vector(found, "mu")}

    def swap(theta: Any) -> Any:
        turned = {name: theta[name][..., ::-1] for name in ("mu", "log_sigma")}
        return turned | {"logit_weight": -theta["logit_weight"]}

    return Posterior(target, y, _start(mu=np.quantile(y, [0.25, 0.75])), unconstrained, None, swap=swap)
