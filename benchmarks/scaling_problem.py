"""Logistic regressions of growing size, simulated with NumPy alone: importing this starts no JAX."""

import numpy as np

DIMENSION = 10


def simulate(num_data: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(x, y) in float32: standard normal covariates with a 1 in the last column, y = -1 or 1, logits of unit size.

    The model is P(y = 1) = 1/(1 + exp(-<x, theta>)) with theta ~ N(0, I).
    """
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal(DIMENSION) / np.sqrt(DIMENSION)
    x = rng.standard_normal((num_data, DIMENSION), dtype=np.float32)
    x[:, -1] = 1.0
    y = np.where(rng.random(num_data) < 1.0 / (1.0 + np.exp(-(x @ theta))), 1.0, -1.0)
    return x, y.astype(np.float32)
