"""The problems that every contestant solves: data, model, step sizes, chains and length of a run."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import numpy as np

Array = Any
LogSigmoid = Callable[[Array], Array]


@dataclass(frozen=True)
class Workload:
    """One problem.

    `data` is a tuple (x, y) for the logistic model and an array y for the Gaussian one. `derivatives(u)` are
    the first three of the log likelihood in the linear predictor u: for `truth.py`, no contestant sees them.
    """

    name: str
    title: str
    data: Any
    log_prior: Callable[[Array], Array]
    log_likelihood: Callable[[Array, Any], Array]
    with_log_sigmoid: Callable[[LogSigmoid], Callable[[Array, Any], Array]] | None
    prior_precision: float
    derivatives: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
    theta_start: np.ndarray
    batch_size: int
    chains: int
    steps: int
    delta_1: float
    knee: int

    @property
    def num_data(self) -> int:
        return len(jax.tree.leaves(self.data)[0])

    @property
    def logistic(self) -> bool:
        return self.with_log_sigmoid is not None

    @property
    def design(self) -> np.ndarray:
        """The rows x_i of the linear predictor; a column of ones for the Gaussian mean."""
        return self.data[0] if self.logistic else np.ones((self.num_data, 1), np.float32)

    @property
    def step_law(self) -> dict[str, float]:
        """a, b, alpha of delta_m = (a m + b)^-alpha: delta_1 at the start, half of it after 7 knees."""
        alpha = 1 / 3
        b = self.delta_1 ** (-1 / alpha)
        return {"a": b / self.knee, "b": b, "alpha": alpha}

    def deltas(self, steps: int) -> np.ndarray:
        """delta_1 .. delta_steps, worked out in float64 and rounded once."""
        law = self.step_law
        m = np.arange(1, steps + 1, dtype=np.float64)
        return ((law["a"] * m + law["b"]) ** -law["alpha"]).astype(np.float32)


def _aligned(array: np.ndarray) -> np.ndarray:
    """A float32 copy on a page border: JAX takes it over as it is, so contestants read equal memory."""
    page, size = 4096, array.size * 4
    raw = np.empty(size + page, np.uint8)
    start = -raw.ctypes.data % page
    out = raw[start : start + size].view(np.float32).reshape(array.shape)
    out[...] = array
    return out


def _logistic(name: str, title: str, num_data: int, dim: int, **rest: Any) -> Workload:
    """Bernoulli labels y = +-1, standard normal rows, standard normal prior."""
    rng = np.random.default_rng(20)
    theta = rng.standard_normal(dim) / np.sqrt(dim)
    x = _aligned(rng.standard_normal((num_data, dim), dtype=np.float32))
    y = _aligned(np.where(rng.random(num_data) < 1 / (1 + np.exp(-x @ theta)), 1.0, -1.0))

    def with_log_sigmoid(log_sigmoid: LogSigmoid) -> Callable[[Array, Any], Array]:
        def log_likelihood(theta: Array, datum: Any) -> Array:
            x, y = datum
            return log_sigmoid(y * (x @ theta))

        return log_likelihood

    def derivatives(u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        p = 1 / (1 + np.exp(-u))
        return (y > 0) - p, -p * (1 - p), -p * (1 - p) * (1 - 2 * p)

    return Workload(
        name=name,
        title=title,
        data=(x, y),
        log_prior=lambda theta: -0.5 * (theta @ theta),
        log_likelihood=with_log_sigmoid(jax.nn.log_sigmoid),
        with_log_sigmoid=with_log_sigmoid,
        prior_precision=1.0,
        derivatives=derivatives,
        theta_start=theta.astype(np.float32),
        **rest,
    )


def _gaussian(name: str, title: str, num_data: int, **rest: Any) -> Workload:
    """y_i ~ N(theta, 1) with a standard normal prior, theta a scalar: the posterior is known exactly."""
    rng = np.random.default_rng(20)
    y = _aligned(0.5 + rng.standard_normal(num_data))

    def derivatives(u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return y - u, -np.ones_like(u), np.zeros_like(u)

    return Workload(
        name=name,
        title=title,
        data=y,
        log_prior=lambda theta: -0.5 * theta**2,
        log_likelihood=lambda theta, y: -0.5 * (y - theta) ** 2,
        with_log_sigmoid=None,
        prior_precision=1.0,
        derivatives=derivatives,
        theta_start=np.float32(0.5),
        **rest,
    )


NAMES = ("W1a", "W1b", "W2a", "W3")


@cache
def load(name: str) -> Workload:
    """The workload of that name. Steps are set for one to two seconds of blackjax."""
    small = dict(num_data=1000, dim=3, batch_size=30, delta_1=3e-4, knee=5_000)
    match name:
        case "W1a":
            return _logistic(name, "logistic, N=1000, d=3, n=30, 1 chain", chains=1, steps=200_000, **small)
        case "W1b":
            return _logistic(name, "logistic, N=1000, d=3, n=30, 512 chains", chains=512, steps=2_000, **small)
        case "W2a":
            return _logistic(
                name, "logistic, N=1e6, d=50, n=100, 1 chain", 1_000_000, 50,
                batch_size=100, chains=1, steps=50_000, delta_1=2e-9, knee=50_000,
            )  # fmt: skip
        case "W3":
            return _gaussian(
                name, "Gaussian mean, N=100, n=10, 1000 chains", 100,
                batch_size=10, chains=1000, steps=3_000, delta_1=5e-3, knee=1_000,
            )  # fmt: skip
    raise ValueError(f"workload must be one of {', '.join(NAMES)}, got {name!r}")
