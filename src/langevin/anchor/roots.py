"""The block-diagonal root L of a Laplace covariance as a map, in float64."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

Root = tuple[np.ndarray, ...]
# Multiplications beyond which BLAS brings in threads, for a vector and for a matrix: on a busy machine threads wait for
# each other ten times as long as they work.
_ALONE_VECTOR, _ALONE_MATRIX = 2**13, 2**18


def push(root: Root, z: np.ndarray) -> np.ndarray:
    """L z, for z of shape (..., d)."""
    return _each(root, z, lambda block, part: product(part, block.T))


def pull(root: Root, grad: np.ndarray) -> np.ndarray:
    """L' grad, for gradients of shape (..., d)."""
    return _each(root, grad, lambda block, part: product(part, block))


def product(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """rows @ matrix, the same to the bit on any number of cores. Large ones need `jax.enable_x64`."""
    if rows.size * matrix.shape[-1] <= (_ALONE_VECTOR if rows.size == rows.shape[-1] else _ALONE_MATRIX):
        return rows @ matrix
    return np.asarray(_dot(rows, matrix))


_dot = jax.jit(jnp.dot, compiler_options={"xla_cpu_multi_thread_eigen": False})


def _each(root: Root, vectors: np.ndarray, dense: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    parts = np.split(vectors, np.cumsum([len(block) for block in root])[:-1], axis=-1)
    found = [dense(b, part) if b.ndim == 2 else part * b for b, part in zip(root, parts, strict=True)]
    return np.concatenate(found, axis=-1)
