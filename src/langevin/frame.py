"""The whitened frame: coordinates z in which the posterior is nearly N(0, I), theta = anchor + L z."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langevin.anchor import Anchor

# A jax.Array or a tracer of one.
Array = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Frame:
    """theta = centre + L z with L L' the Laplace covariance, float32; arrays, so that compiled code fits any anchor.

    `blocks` lie on the diagonal of L in order, each a lower triangle (b, b) or a diagonal (b,). Cost of
    a map: sum of b^2.
    """

    centre: Array
    blocks: tuple[Array, ...]

    @classmethod
    def of(cls, anchor: Anchor) -> "Frame":
        """The frame of a Laplace approximation."""
        centre, *blocks = (jnp.asarray(part, jnp.float32) for part in (anchor.theta, *anchor.root))
        return cls(centre, tuple(blocks))

    def theta(self, z: Array) -> Array:
        """The flat parameter at z."""
        return self.centre + self.push(z)

    def push(self, v: Array) -> Array:
        """L v: a displacement in z as one in theta."""
        return self._each(v, lambda block, part: jnp.dot(block, part))

    def pull(self, grad: Array) -> Array:
        """L' grad: a gradient in theta as one in z."""
        return self._each(grad, lambda block, part: jnp.dot(part, block))

    def _each(self, vector: Array, dense: Any) -> Array:
        found, start = [], 0
        for block in self.blocks:
            part = vector[start : start + block.shape[0]]
            found.append(dense(block, part) if block.ndim == 2 else block * part)
            start += block.shape[0]
        return found[0] if len(found) == 1 else jnp.concatenate(found)


def theta_of(anchor: Anchor, z: np.ndarray) -> np.ndarray:
    """anchor + L z in float64 for the books, for z of shape (..., d)."""
    return anchor.theta + _each_block(anchor, z, lambda block, part: part @ block.T, lambda block, part: part * block)


def grad_of(anchor: Anchor, grad: np.ndarray) -> np.ndarray:
    """L'^-1 grad: a gradient in z as one in theta, in float64, for shape (..., d)."""

    # SciPy's linear algebra takes a third of a second to import.
    from scipy.linalg import solve_triangular

    def solved(block: np.ndarray, part: np.ndarray) -> np.ndarray:
        flat = part.reshape(-1, part.shape[-1])
        return solve_triangular(block, flat.T, lower=True, trans="T").T.reshape(part.shape)

    return _each_block(anchor, grad, solved, lambda block, part: part / block)


def sigma_times(anchor: Anchor, grad: np.ndarray) -> np.ndarray:
    """Sigma grad = L L' grad in float64, for gradients in theta of shape (..., d)."""
    whitened = _each_block(anchor, grad, lambda block, part: part @ block, lambda block, part: part * block)
    return theta_of(anchor, whitened) - anchor.theta


def _each_block(anchor: Anchor, vectors: np.ndarray, dense: Any, diagonal: Any) -> np.ndarray:
    edges = np.cumsum([len(block) for block in anchor.root])[:-1]
    parts = np.split(vectors.astype(np.float64), edges, axis=-1)
    return np.concatenate(
        [(dense if b.ndim == 2 else diagonal)(b, part) for b, part in zip(anchor.root, parts, strict=True)], axis=-1
    )
