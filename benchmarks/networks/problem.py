"""The network and the data sets that its predictions are measured on."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import langevin as lv

PyTree = Any
# Rows that are held back, by data set; every choice of the library was made on the first two.
TEST_ROWS = {"breast_cancer": 169, "wine": 58, "digits": 200}
WIDTHS = {"breast_cancer": 50, "wine": 50, "digits": 150}
# Prior sd of a weight times the root of its fan-in.
_WEIGHT = 2.0


@dataclass(frozen=True, eq=False)
class Problem:
    """A network with one hidden layer of tanh units, normal priors, and categories as outcomes."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    sizes: tuple[int, int, int]

    @classmethod
    def of(cls, name: str) -> "Problem":
        """A data set of scikit-learn, shuffled, centred and scaled by its training rows."""
        from sklearn import datasets

        found = getattr(datasets, f"load_{name}")()
        order = np.random.default_rng(12345).permutation(len(found.data))
        x, y, held = found.data[order], found.target[order].astype(np.int32), TEST_ROWS[name]
        train = x[held:]
        # Pixels share one scale: those at the border hardly vary.
        scale = train.std() if name == "digits" else train.std(axis=0)
        x = ((x - train.mean(axis=0)) / scale).astype(np.float32)
        sizes = (x.shape[1], WIDTHS[name], int(y.max()) + 1)
        return cls(x[held:], y[held:], x[:held], y[:held], sizes)

    @property
    def data(self) -> PyTree:
        return {"x": self.x, "y": self.y}

    @property
    def theta_0(self) -> PyTree:
        a, b, c = self.sizes
        return {"w1": np.zeros((a, b)), "b1": np.zeros(b), "w2": np.zeros((b, c)), "b2": np.zeros(c)}

    @property
    def prior_sd(self) -> PyTree:
        """Standard deviation of every parameter, a number a leaf."""
        a, b, _ = self.sizes
        return {"w1": _WEIGHT / np.sqrt(a), "b1": 1.0, "w2": _WEIGHT / np.sqrt(b), "b2": 1.0}

    @property
    def target(self) -> lv.Target:
        return lv.Target(self.log_prior, log_likelihood)

    def log_prior(self, theta: PyTree) -> Any:
        squares = jax.tree.map(lambda t, sd: jnp.sum((t / sd) ** 2), theta, self.prior_sd)
        return -0.5 * sum(jax.tree.leaves(squares))


def logits(theta: PyTree, x: Any) -> Any:
    return jnp.tanh(x @ theta["w1"] + theta["b1"]) @ theta["w2"] + theta["b2"]


def log_likelihood(theta: PyTree, datum: PyTree) -> Any:
    return jax.nn.log_softmax(logits(theta, datum["x"]))[datum["y"]]


def predict(theta: PyTree, x: Any) -> Any:
    """Probabilities of the categories."""
    return jax.nn.softmax(logits(theta, x))
