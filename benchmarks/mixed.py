"""Mixed regressions, random intercept and slope, ragged groups of 50 rows on average.

    python -m benchmarks.mixed large                              # 20,000 groups, a million rows: time, memory, status
    python -m benchmarks.mixed nuts --groups 300                  # against NUTS on the joint posterior, non-centred
    python -m benchmarks.mixed nuts --family poisson --groups 100 # another family: logistic, poisson or gaussian

`large` has the rule: every number `ok`, means, sds and quantiles within 0.02 posterior sds, 180 s, 3 GB; the exit code
is 1 otherwise. `nuts` compares the globals and 20 groups' effects in combined standard errors (NUTS's by batch means),
and the CPU seconds to equal error of the worst global mean: NUTS's times its squared error over ours. Wall clock stands
beside, but a busy machine stretches that.
"""

import argparse
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic, process_time
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

import langevin as lv

Array = Any
PyTree = Any
PRECISION, MOST_SECONDS, MOST_GIGABYTES = 0.02, 180.0, 3.0
# Disagreement beyond this many combined standard errors, among 48 numbers, comes by chance once in 3000.
MOST_SCORE = 4.5
# Batches a chain: few and long, because log sds mix slowly.
CHAINS, ADAPTATION, BATCHES = 4, 500, 5


@dataclass(frozen=True)
class Family:
    """How a response comes from the linear predictor eta: drawn, and its log density given theta."""

    drawn: Callable[[np.random.Generator, np.ndarray], np.ndarray]
    log_density: Callable[[PyTree, Array, Array], Array]
    beta: tuple[float, ...] = (-0.5, 1.0, 0.5, -0.3, 0.2)
    more: tuple[str, ...] = ()

    @property
    def theta_0(self) -> dict[str, Array]:
        """Zero, but for the log sd of a Gaussian response, which is at one."""
        start = {"beta": jnp.zeros(5), "log_sd": jnp.zeros(2), "partial": jnp.zeros(1)}
        # In the order of names, which is that of a flat pytree.
        return dict(sorted((start | {name: jnp.zeros(()) for name in self.more}).items()))


def _gaussian(theta: PyTree, eta: Array, y: Array) -> Array:
    return -0.5 * ((y - eta) * jnp.exp(-theta["log_sigma"])) ** 2 - theta["log_sigma"]


FAMILIES = {
    "logistic": Family(
        lambda rng, eta: np.where(rng.random(len(eta)) < 1 / (1 + np.exp(-eta)), 1, -1),
        lambda theta, eta, y: lv.log_sigmoid(y * eta),
    ),
    "poisson": Family(
        lambda rng, eta: rng.poisson(np.exp(eta)),
        lambda theta, eta, y: y * eta - jnp.exp(eta),
        beta=(0.2, 0.3, 0.2, -0.1, 0.1),
    ),
    "gaussian": Family(lambda rng, eta: eta + rng.normal(size=len(eta)), _gaussian, more=("log_sigma",)),
}


def simulate(num_groups: int, family: Family, seed: int = 0) -> dict[str, np.ndarray]:
    """A table of rows with 20 to 80 rows a group."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(num_groups), rng.integers(20, 81, num_groups))
    x = rng.normal(size=(len(group), 5))
    x[:, 0] = 1.0
    root = np.array([[1.0, 0.0], [0.2, np.sqrt(0.21)]])
    effects = (rng.normal(size=(num_groups, 2)) @ root.T)[group]
    eta = x @ family.beta + effects[:, 0] + effects[:, 1] * x[:, 1]
    return {"x": x, "y": family.drawn(rng, eta), "group": group}


def log_prior(theta: PyTree) -> Array:
    wide = jnp.sum(theta["beta"] ** 2) / 4
    return -0.5 * (wide + sum(jnp.sum(value**2) for name, value in theta.items() if name != "beta"))


def log_joint(family: Family, theta: PyTree, z: Array, group: PyTree) -> Array:
    b = lv.covariance_root(theta["log_sd"], theta["partial"]) @ z
    eta = group["x"] @ theta["beta"] + b[0] + b[1] * group["x"][:, 1]
    rows = family.log_density(theta, eta, group["y"])
    return jnp.sum(jnp.where(group["mask"], rows, 0.0)) - 0.5 * jnp.sum(z**2)


def sampled(table: dict[str, np.ndarray], family: Family, precision: float) -> tuple[lv.Result, float, float]:
    """The result, seconds and CPU seconds, grouping and compilation included."""
    began, cpu = monotonic(), process_time()
    target = lv.Target(log_prior, lv.marginal(partial(log_joint, family), latent=2))
    result = lv.sample(target, lv.groups(table, by="group"), family.theta_0, precision=precision)
    return result, monotonic() - began, process_time() - cpu


def large(num_groups: int, family: Family) -> bool:
    """The rule for many groups."""
    result, seconds, cpu = sampled(simulate(num_groups, family), family, PRECISION)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(result)
    print(f"quadrature: {result.plan.quadrature.max():.4f} posterior sds at most")
    print(f"{seconds:.0f} s, {cpu:.0f} CPU s, peak {memory:.2f} GB, within {result.session.reached:.4f} sds")
    good = result.status == "ok" and result.session.reached <= PRECISION
    return good and seconds <= MOST_SECONDS and memory <= MOST_GIGABYTES


def nuts(table: dict[str, np.ndarray], family: Family, num_draws: int) -> tuple[Array, float, float]:
    """Draws (chains, draws, d) of globals and all effects by NUTS, seconds and CPU seconds."""
    import blackjax

    began, cpu = monotonic(), process_time()
    num_groups = int(table["group"].max()) + 1
    start, unravel = jax.flatten_util.ravel_pytree((family.theta_0, jnp.zeros((num_groups, 2))))
    rows = {name: jnp.asarray(c, jnp.int32 if name == "group" else jnp.float32) for name, c in table.items()}

    def chain(key: Array, rows: PyTree) -> Array:
        def log_density(flat: Array) -> Array:
            theta, z = unravel(flat)
            b = (z @ lv.covariance_root(theta["log_sd"], theta["partial"]).T)[rows["group"]]
            eta = rows["x"] @ theta["beta"] + b[:, 0] + b[:, 1] * rows["x"][:, 1]
            return log_prior(theta) + jnp.sum(family.log_density(theta, eta, rows["y"])) - 0.5 * jnp.sum(z**2)

        warm, key = jax.random.split(key)
        (state, parameters), _ = blackjax.window_adaptation(blackjax.nuts, log_density).run(warm, start, ADAPTATION)
        step = blackjax.nuts(log_density, **parameters).step
        _, draws = jax.lax.scan(
            lambda s, k: (lambda new: (new, new.position))(step(k, s)[0]), state, jax.random.split(key, num_draws)
        )
        return draws

    compiled = jax.jit(chain)
    keys = jax.random.split(jax.random.key(1), CHAINS)
    draws = np.stack([np.asarray(compiled(key, rows), np.float64) for key in keys])
    return draws, monotonic() - began, process_time() - cpu


def against_nuts(num_groups: int, family: Family, num_draws: int) -> bool:
    """Agreement of globals and of 20 groups' effects, and the ratio of seconds to equal error."""
    table = simulate(num_groups, family)
    result, seconds, cpu = sampled(table, family, PRECISION)
    print(result)
    chosen = np.linspace(0, num_groups - 1, 20).astype(int)
    found = result.latent(chosen)
    draws, nuts_seconds, nuts_cpu = nuts(table, family, num_draws)
    means = draws.reshape(CHAINS * BATCHES, -1, draws.shape[-1]).mean(axis=1)
    mean, error = means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(len(means))
    size = len(result.mean.value)
    effects = size + 2 * chosen[:, None] + np.arange(2)
    globals_ = np.abs(result.mean.value - mean[:size]) / np.hypot(result.mean.error, error[:size])
    groups = np.abs(found.mean.value - mean[effects]) / np.hypot(found.mean.error, error[effects])
    # NUTS's own sds are known to some percent only; the largest difference is printed, not judged.
    wide = np.max(np.abs(found.sd.value / draws.reshape(-1, draws.shape[-1]).std(axis=0)[effects] - 1))
    ours, theirs = (np.max(one / result.sd.value) for one in (result.mean.error, error[:size]))
    print(f"largest score: globals {globals_.max():.2f}, effects {groups.max():.2f}; sds of effects within {wide:.1%}")
    print(f"langevin {seconds:.0f} s ({cpu:.0f} CPU), worst mean to {ours:.4f} sds")
    print(f"NUTS     {nuts_seconds:.0f} s ({nuts_cpu:.0f} CPU), {CHAINS} x {num_draws} draws, to {theirs:.4f} sds")
    print(f"CPU seconds to equal error: NUTS takes {nuts_cpu / cpu * (theirs / ours) ** 2:.1f} times as long")
    return result.status == "ok" and max(globals_.max(), groups.max()) < MOST_SCORE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["large", "nuts"])
    parser.add_argument("--groups", type=int)
    parser.add_argument("--family", choices=FAMILIES, default="logistic")
    parser.add_argument("--draws", type=int, default=1000)
    given = parser.parse_args()
    family = FAMILIES[given.family]
    if given.what == "large":
        return 0 if large(given.groups if given.groups is not None else 20_000, family) else 1
    return 0 if against_nuts(given.groups if given.groups is not None else 300, family, given.draws) else 1


if __name__ == "__main__":
    sys.exit(main())
