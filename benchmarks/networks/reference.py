"""A long Hamiltonian Monte Carlo on all the data, written apart from the library: what predictions are held against.

    python -m benchmarks.networks.reference digits --minutes 10

goes on with the chains in build/networks and writes benchmarks/networks/<name>.npz: the posterior mean of every test
probability, its standard error, its posterior sd, split R-hat, draws and mean acceptance.
"""

import argparse
from functools import partial
from pathlib import Path
from time import monotonic

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

from benchmarks.networks.problem import Problem, logits, predict

FOLDER, BUILD = Path(__file__).parent, Path("build/networks")
# Step and leapfrogs in units of the prior's sds: paths of 1.3 to 1.6, of which nine in ten are accepted.
STEPS = {"breast_cancer": (0.08, 20), "wine": (0.08, 20), "digits": (0.07, 18)}
BURN_IN, CHAINS = 60, 4


def scaled_density(problem: Problem):
    """Log posterior as a function of parameters in units of their prior sds."""

    def log_density(z, x, y):
        theta = jax.tree.map(lambda leaf, sd: sd * leaf, z, problem.prior_sd)
        terms = jnp.take_along_axis(jax.nn.log_softmax(logits(theta, x)), y[:, None], axis=1)
        return jnp.sum(terms) - 0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(z))

    return jax.value_and_grad(log_density)


@partial(jax.jit, static_argnums=(0, 1))
def transition(value_and_grad, leapfrogs, step, key, z, x, y):
    """One proposal of HMC, its step drawn within a fifth of `step`."""
    velocity, choice, length = jax.random.split(key, 3)
    flat, unravel = jax.flatten_util.ravel_pytree(z)
    p = jax.random.normal(velocity, flat.shape)
    h = step * jax.random.uniform(length, minval=0.8, maxval=1.2)

    def force(q):
        value, grad = value_and_grad(unravel(q), x, y)
        return value, jax.flatten_util.ravel_pytree(grad)[0]

    def leap(_, state):
        q, p, _, g = state
        p = p + 0.5 * h * g
        q = q + h * p
        value, g = force(q)
        return q, p + 0.5 * h * g, value, g

    before, g = force(flat)
    q, last, after, _ = jax.lax.fori_loop(0, leapfrogs, leap, (flat, p, before, g))
    ratio = after - before + 0.5 * jnp.sum(p**2) - 0.5 * jnp.sum(last**2)
    accepted = jnp.log(jax.random.uniform(choice)) < ratio
    return unravel(jnp.where(accepted, q, flat)), jnp.exp(jnp.minimum(ratio, 0.0))


def walk(name: str, chain: int, seconds: float) -> None:
    """Goes on with one chain, saving as it goes."""
    problem, path = Problem.of(name), BUILD / f"{name}-{chain}.npz"
    value_and_grad = scaled_density(problem)
    step, leapfrogs = STEPS[name]
    look = jax.jit(lambda z: predict(jax.tree.map(lambda t, sd: sd * t, z, problem.prior_sd), problem.x_test))
    leaves, tree = jax.tree.flatten(problem.theta_0)
    if path.exists():
        found = np.load(path)
        z, draws, rates = [found[f"z{k}"] for k in range(len(leaves))], list(found["draws"]), list(found["rates"])
    else:
        rng = np.random.default_rng([77, chain])
        z, draws, rates = [rng.standard_normal(leaf.shape).astype(np.float32) for leaf in leaves], [], []
    z, began, saved = tree.unflatten([jnp.asarray(leaf) for leaf in z]), monotonic(), monotonic()
    key = jax.random.key(1000 + chain)
    while monotonic() - began < seconds:
        m = len(rates)
        # Far from the posterior the density is steeper.
        small = min(1.0, 0.2 + m / BURN_IN)
        z, rate = transition(
            value_and_grad, leapfrogs, step * small, jax.random.fold_in(key, m), z, problem.x, problem.y
        )
        rates.append(float(rate))
        if m >= BURN_IN:
            draws.append(np.asarray(look(z)))
        if monotonic() - saved > 20.0 or monotonic() - began >= seconds:
            BUILD.mkdir(parents=True, exist_ok=True)
            arrays = {f"z{k}": np.asarray(leaf) for k, leaf in enumerate(jax.tree.leaves(z))}
            np.savez(path.with_suffix(".partial.npz"), draws=np.array(draws), rates=np.array(rates), **arrays)
            path.with_suffix(".partial.npz").replace(path)
            saved = monotonic()
            print(f"chain {chain}: {len(draws)} draws, accepted {np.mean(rates[-200:]):.3f}", flush=True)


def collect(name: str) -> None:
    """Means and their errors over all chains that there are, batch by batch."""
    chains = [np.load(path) for path in sorted(BUILD.glob(f"{name}-?.npz"))]
    draws = [chain["draws"].astype(np.float64) for chain in chains]
    batches = np.stack([part.mean(axis=0) for one in draws for part in np.array_split(one, 20)])
    length = np.array([len(part) for one in draws for part in np.array_split(one, 20)])
    weight = (length / length.sum())[:, None, None]
    mean = np.sum(weight * batches, axis=0)
    stderr = np.sqrt(len(length) / (len(length) - 1.0) * np.sum((weight * (batches - mean)) ** 2, axis=0))
    pooled = np.concatenate(draws)
    halves = np.stack([part.mean(axis=0) for one in draws for part in np.array_split(one, 2)])
    r_hat = np.sqrt(1.0 + halves.var(axis=0, ddof=1) / pooled.var(axis=0))
    rate = np.mean([chain["rates"][BURN_IN:].mean() for chain in chains])
    np.savez(
        FOLDER / f"{name}.npz", mean=mean, stderr=stderr, sd=pooled.std(axis=0), r_hat=r_hat,
        draws=[len(one) for one in draws], acceptance=rate,
    )  # fmt: skip
    print(f"{name}: {[len(one) for one in draws]} draws, accepted {rate:.3f}, largest R-hat {r_hat.max():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=STEPS)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--chain", type=int, default=None)
    given = parser.parse_args()
    if given.minutes:
        for chain in range(CHAINS) if given.chain is None else [given.chain]:
            walk(given.name, chain, 60.0 * given.minutes)
    collect(given.name)
