"""Covariances of latent effects from parameters without constraints."""

from typing import Any

import jax.numpy as jnp

Array = Any


def covariance_root(log_sd: Array, partial: Array) -> Array:
    """The lower root L of a covariance matrix, L L' = Sigma, from D log sds and D (D - 1)/2 free numbers.

    tanh(partial) are the canonical partial correlations c_ij, row by row below the diagonal (Lewandowski, Kurowicka and
    Joe, 2009): the rows of the correlation's root are

        c_i1,  c_i2 sqrt(1 - c_i1^2),  c_i3 sqrt((1 - c_i1^2)(1 - c_i2^2)), ...,  sqrt(prod_j (1 - c_ij^2))

    Any numbers give a proper covariance, and 0 none of correlation. With z ~ N(0, I) latent, L z are correlated effects
    (non-centred); since z is integrated out, the centred form has the same marginal likelihood. A prior on `partial` is
    the user's: the logistic density sech^2/2, of sd 0.9, makes the correlation of two effects uniform.

    Example:
        >>> import numpy as np, langevin as lv
        >>> root = lv.covariance_root(np.log([2.0, 1.0]), np.arctanh([0.5]))
        >>> np.round(np.asarray(root @ root.T), 4)
        array([[4., 1.],
               [1., 1.]], dtype=float32)
    """
    log_sd, partial = jnp.asarray(log_sd), jnp.atleast_1d(jnp.asarray(partial))
    size = len(log_sd) if log_sd.ndim == 1 else 0
    if not size or partial.shape != (size * (size - 1) // 2,):
        raise ValueError(
            f"log_sd must have shape (D,) and partial (D (D - 1)/2,), got {log_sd.shape} and {partial.shape}. "
            f"Two effects have one correlation, three have three."
        )
    rows, start = [], 0
    for i in range(size):
        left, row = jnp.ones_like(log_sd[0]), []
        for j in range(i):
            # 1 - tanh^2 as a square of its own: it keeps its digits, and its derivative, where tanh rounds to 1.
            share = 1.0 / jnp.cosh(jnp.clip(partial[start + j], -40.0, 40.0))
            row.append(jnp.tanh(partial[start + j]) * left)
            left = left * share
        start += i
        rows.append(jnp.stack([*row, left, *[jnp.zeros_like(left)] * (size - i - 1)]))
    return jnp.exp(log_sd)[:, None] * jnp.stack(rows)
