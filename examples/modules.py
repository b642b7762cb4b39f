"""A network written in Equinox or in Flax, its posterior, and predictions with error bars. Takes under a minute.

Which tumours are malignant? 569 of them with 30 measurements each, as scikit-learn brings them.

pip install '.[networks]'
python examples/modules.py            # Equinox
python examples/modules.py --flax     # the same network in Flax
"""

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_breast_cancer

import langevin as lv

INPUTS, WIDTH = 30, 64


def in_equinox() -> tuple[Any, Callable]:
    """theta_0, the arrays of a module, and the log odds as a function of such arrays; the rest of it is static."""
    import equinox as eqx

    model = eqx.nn.MLP(INPUTS, "scalar", WIDTH, depth=2, activation=jnp.tanh, key=jax.random.key(0))
    theta_0, static = eqx.partition(model, eqx.is_inexact_array)
    return theta_0, lambda theta, x: eqx.combine(theta, static)(x)


def in_flax() -> tuple[Any, Callable]:
    """The same in Flax NNX, which calls the static part a graph."""
    from flax import nnx

    rngs = nnx.Rngs(0)
    first, second, last = (nnx.Linear(*sizes, rngs=rngs) for sizes in ((INPUTS, WIDTH), (WIDTH, WIDTH), (WIDTH, 1)))
    graph, theta_0 = nnx.split(nnx.Sequential(first, jnp.tanh, second, jnp.tanh, last))
    return theta_0, lambda theta, x: nnx.merge(graph, theta)(x)[0]


def log_prior(theta: Any) -> jnp.ndarray:
    """Biases are N(0, 1), weights N(0, 1 / inputs): columns of a matrix in Equinox, its rows in Flax."""

    def precision(leaf: jnp.ndarray) -> int:
        return 1 if leaf.ndim == 1 else INPUTS if INPUTS in leaf.shape else WIDTH

    return -0.5 * sum(precision(leaf) * jnp.sum(leaf**2) for leaf in jax.tree.leaves(theta))


def tumours() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standardised measurements, 1 for malignant and -1 for benign, and which hundred are held out."""
    table = load_breast_cancer()
    x = (table.data - table.data.mean(axis=0)) / table.data.std(axis=0)
    held_out = np.random.default_rng(0).permutation(len(x)) < 100
    return x.astype(np.float32), np.where(table.target == 0, 1.0, -1.0).astype(np.float32), held_out


def predicted(theta_0: Any, log_odds: Callable, passes: float = 10_000) -> tuple[lv.NetworkResult, lv.Estimate]:
    """The posterior, and the probabilities that the tumours held out are malignant."""
    x, y, held_out = tumours()
    target = lv.Target(log_prior, lambda theta, d: lv.log_sigmoid(d["y"] * log_odds(theta, d["x"])))
    result = lv.sample(target, {"x": x[~held_out], "y": y[~held_out]}, theta_0, passes=passes)
    return result, result.expectation(lambda theta, row: lv.sigmoid(log_odds(theta, row)), data=x[held_out])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flax", action="store_true", help="take the network that is written in Flax")
    result, found = predicted(*(in_flax() if parser.parse_args().flax else in_equinox()))
    print(result)

    _, y, held_out = tumours()
    malignant, (lower, upper) = y[held_out] > 0, found.interval(0.95)
    right = np.mean((found.value > 0.5) == malignant)
    print(f"\n{right:.0%} of the tumours held out are told right. The most doubtful ones:")
    print("P(malignant), the 95% interval of that number, and what it was")
    for k in np.argsort(np.abs(found.value - 0.5))[:8]:
        ends = f"[{lower[k]:.3f}, {upper[k]:.3f}]"
        print(f"  {found.value[k]:.3f}  {ends}  {found.statuses[k]:16s} {'malignant' if malignant[k] else 'benign'}")
