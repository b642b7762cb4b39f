"""A mixed logistic regression: random intercepts and slopes of 1000 groups, integrated out; seconds to minutes.

Run with `python examples/mixed_logistic.py`.
"""

import jax.numpy as jnp
import numpy as np

import langevin as lv


def simulated(num_groups=1000, seed=0):
    """A table of rows, 10 to 40 a group, with the label of its group in each."""
    rng = np.random.default_rng(seed)
    town = np.repeat(np.arange(num_groups), rng.integers(10, 41, num_groups))
    x = rng.normal(size=len(town))
    root = np.array([[1.0, 0.0], [0.2, 0.46]])  # sds 1 and 0.5, correlation 0.4
    intercept, slope = (rng.normal(size=(num_groups, 2)) @ root.T)[town].T
    probability = 1 / (1 + np.exp(-(-0.5 + intercept + (1.0 + slope) * x)))
    return {"x": x, "y": np.where(rng.random(len(x)) < probability, 1.0, -1.0), "town": town}


def log_joint(theta, z, group):
    """Log density of one group's data and of its effects, z ~ N(0, I), scaled and correlated by theta."""
    intercept, slope = lv.covariance_root(theta["log_sd"], theta["partial"]) @ z
    eta = theta["beta"][0] + intercept + (theta["beta"][1] + slope) * group["x"]
    rows = jnp.where(group["mask"], lv.log_sigmoid(group["y"] * eta), 0.0)
    return jnp.sum(rows) - 0.5 * jnp.sum(z**2) - jnp.log(2 * jnp.pi)


def log_prior(theta):
    """Normal priors of sd 2.5 on coefficients, 1 on the rest."""
    return -0.5 * (jnp.sum(theta["beta"] ** 2) / 6.25 + jnp.sum(theta["log_sd"] ** 2) + jnp.sum(theta["partial"] ** 2))


def main():
    """Fits the model and prints the globals and three towns' effects, in units of their sds."""
    data = lv.groups(simulated(), by="town")
    print(f"{data.num_data} groups, {data.sizes.sum()} rows, {data.padding:.0%} padding")
    target = lv.Target(log_prior, lv.marginal(log_joint, latent=2))
    theta_0 = {"beta": jnp.zeros(2), "log_sd": jnp.zeros(2), "partial": jnp.zeros(1)}
    result = lv.sample(target, data, theta_0, precision=0.02)
    print(result)
    effects = result.latent([0, 1, 2])
    for town, mean, sd in zip(effects.groups, effects.mean.value, effects.sd.value, strict=True):
        print(f"town {town}: z = {np.round(mean, 3)}, posterior sd {np.round(sd, 3)}")


if __name__ == "__main__":
    main()
