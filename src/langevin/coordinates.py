"""Coordinates in which chains move: linear maps theta = centre + L z, the same for NumPy and for compiled code."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from langevin.anchor import Anchor

# A jax.Array, a tracer of one, or on the host a NumPy array; vectors lie on the last axis.
Array = Any
Blocks = tuple[Array, ...]


def times(blocks: Blocks, v: Array) -> Array:
    """L v for L with these blocks on its diagonal, each a matrix (b, b) or a diagonal (b,). Cost: sum of b^2."""
    return _each(blocks, v, lambda block, part: part @ block.T)


def transposed_times(blocks: Blocks, v: Array) -> Array:
    """L' v."""
    return _each(blocks, v, lambda block, part: part @ block)


def _each(blocks: Blocks, vectors: Array, dense: Any) -> Array:
    found, start = [], 0
    for block in blocks:
        part = vectors[..., start : start + block.shape[0]]
        found.append(dense(block, part) if block.ndim == 2 else block * part)
        start += block.shape[0]
    if len(found) == 1:
        return found[0]
    return (jnp if isinstance(vectors, jax.Array) else np).concatenate(found, axis=-1)


def _solved(blocks: Blocks, vectors: np.ndarray, transposed: bool) -> np.ndarray:
    """L^-1 v or L'^-1 v for vectors on the last axis; L lower triangular, in float64."""
    # SciPy's linear algebra takes a third of a second to import.
    from scipy.linalg import solve_triangular

    def dense(block: np.ndarray, part: np.ndarray) -> np.ndarray:
        flat = part.reshape(-1, part.shape[-1])
        solved = solve_triangular(block, flat.T, lower=True, trans="T" if transposed else "N")
        return solved.T.reshape(part.shape)

    inverse = tuple(block if block.ndim == 2 else 1.0 / block for block in blocks)
    return _each(inverse, np.asarray(vectors, np.float64), dense)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Coordinates:
    """The parameters themselves, z = theta: what a run moves in unless it is told otherwise.

    `paired`: chains 2k and 2k + 1 are an antithetic pair, and all of them start at draws of N(0, I) in z.

    Example:
        >>> import langevin as lv, numpy as np
        >>> lv.Coordinates().theta(np.ones(2)), lv.Preconditioned.by([4.0, 9.0]).theta(np.ones(2))
        (array([1., 1.]), array([2., 3.]))
    """

    paired: ClassVar[bool] = False

    def theta(self, z: Array) -> Array:
        """The flat parameter at z."""
        return z

    def pull(self, grad: Array) -> Array:
        """L' grad: a gradient in theta as one in z."""
        return grad

    def z(self, theta: np.ndarray) -> np.ndarray:
        """L^-1 (theta - centre), on the host."""
        return theta

    def unpulled(self, grad: np.ndarray) -> np.ndarray:
        """L'^-1 grad, on the host: a gradient in z as one in theta."""
        return grad

    def curvature(self, matrices: np.ndarray) -> np.ndarray:
        """L'QL of second derivatives Q in theta, (..., d, d)."""
        return matrices

    def precision(self, anchor: Anchor) -> np.ndarray:
        """The precision L'HL of the Laplace approximation in z, where the anchor's curvature is dense."""
        return self.curvature(anchor.precision)

    def newton(self, anchor: Anchor) -> Blocks:
        """Blocks of Sigma L'^-1, which takes a gradient in z to the Newton step s = Sigma grad in theta."""
        return (anchor.covariance,)

    def on_device(self) -> "Coordinates":
        """The same in float32."""
        return jax.tree.map(lambda part: np.asarray(part, np.float32), self)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Linear(Coordinates):
    """theta = centre + L z with L lower triangular by blocks; arrays, so that compiled code fits any of them."""

    centre: Array
    blocks: Blocks

    def theta(self, z: Array) -> Array:
        """See `Coordinates`."""
        return self.centre + times(self.blocks, z)

    def pull(self, grad: Array) -> Array:
        """See `Coordinates`."""
        return transposed_times(self.blocks, grad)

    def z(self, theta: np.ndarray) -> np.ndarray:
        """See `Coordinates`."""
        return _solved(self.blocks, theta - self.centre, transposed=False)

    def unpulled(self, grad: np.ndarray) -> np.ndarray:
        """See `Coordinates`."""
        return _solved(self.blocks, grad, transposed=True)

    def curvature(self, matrices: np.ndarray) -> np.ndarray:
        """See `Coordinates`."""
        half = transposed_times(self.blocks, matrices)
        return np.ascontiguousarray(transposed_times(self.blocks, np.swapaxes(half, -1, -2)))

    def newton(self, anchor: Anchor) -> Blocks:
        """See `Coordinates`; solving for the rows of Sigma gives L^-1 Sigma transposed."""
        return (_solved(self.blocks, anchor.covariance, transposed=False),)

    def __eq__(self, other: object) -> bool:
        pairs = zip(jax.tree.leaves(self), jax.tree.leaves(other), strict=False)
        return type(self) is type(other) and all(np.array_equal(a, b) for a, b in pairs)

    def __hash__(self) -> int:
        return hash((type(self), self.centre.tobytes()))


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Preconditioned(Linear):
    """theta = L z with L L' a constant matrix: any kernel of the library, preconditioned by it.

    SGLD in these coordinates is  theta_m = theta_{m-1} + delta_m / 2 M grad + sqrt(delta_m) L eta_m,  M = L L'. Cost:
    two products with L a step.

    Example:
        >>> import jax.numpy as jnp, numpy as np, langevin as lv
        >>> target = lv.Target(lambda t: -0.5 * jnp.sum((t / jnp.array([1.0, 100.0])) ** 2))
        >>> ledger = lv.run(target, None, np.zeros(2), coordinates=lv.Preconditioned.by([1.0, 1e4]),
        ...                 schedule=lv.Constant(0.5), num_steps=1000, chains=4)
    """

    @classmethod
    def by(cls, matrix: ArrayLike) -> "Preconditioned":
        """For a symmetric positive definite matrix (d, d), or the diagonal (d,) of one."""
        matrix = np.asarray(matrix, np.float64)
        good = matrix.ndim == 1 or (matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1])
        good = good and matrix.size and np.all(np.isfinite(matrix)) and np.allclose(matrix, matrix.T)
        if not good or np.min(matrix if matrix.ndim == 1 else np.linalg.eigvalsh(matrix)) <= 0.0:
            raise ValueError(
                f"matrix must be symmetric positive definite (d, d), or a positive diagonal (d,), got {matrix!r}. "
                f"Try anchor.covariance, with anchor = lv.laplace(target, data, theta_0)."
            )
        return cls(np.zeros(len(matrix)), (np.sqrt(matrix) if matrix.ndim == 1 else np.linalg.cholesky(matrix),))


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Whitened(Linear):
    """theta = anchor + L z with L L' the Laplace covariance: the posterior is nearly N(0, I) in z.

    Steps are in units of the posterior's width. Chains start at draws of the Laplace approximation and go in antithetic
    pairs: 2k and 2k + 1 see the same minibatches, with noise and start turned around. Each has the right law by itself,
    and odd errors cancel in their mean.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.Logistic.simulate(seed=1)
        >>> anchor = lv.laplace(model.target, model.data, model.theta_0)
        >>> ledger = lv.run(model.target, model.data, model.theta_0, coordinates=lv.Whitened.by(anchor), anchor=anchor,
        ...                 subsample=lv.WithReplacement(8), gradient=lv.ControlVariate(anchor, order=2),
        ...                 schedule=lv.Constant(0.5), num_steps=1000, chains=4)
    """

    paired: ClassVar[bool] = True

    @classmethod
    def by(cls, anchor: Anchor) -> "Whitened":
        """Those of a Laplace approximation."""
        return cls(anchor.theta, anchor.root)

    def precision(self, anchor: Anchor) -> np.ndarray:
        """The identity, exactly."""
        return np.eye(len(anchor.theta))

    def newton(self, anchor: Anchor) -> Blocks:
        """L itself: Sigma L'^-1 = L."""
        return self.blocks


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Unpaired(Whitened):
    """The same units for chains that go alone, each from a start of its own: exact kernels gain nothing from pairs."""

    paired: ClassVar[bool] = False


def chi_square_beyond(tail: float, dimension: int) -> float:
    """The x that |z|^2 passes with probability `tail` under N(0, I) in `dimension` dimensions; by bisection.

    With a = dimension/2 and y = x/2 the probability is the finite sum of y^(a-k) exp(-y) / Gamma(a-k+1), k = 1, 2 ...
    while a >= k, and of erfc(sqrt y) where a is not whole. SciPy's inverse takes a third of a second to import, a tenth
    of a short call.
    """
    power = dimension / 2 - np.arange(1, dimension // 2 + 1)
    scale = np.array([math.lgamma(p + 1.0) for p in power])

    def beyond(y: float) -> float:
        end = math.erfc(math.sqrt(y)) if dimension % 2 else 0.0
        return end + float(np.sum(np.exp(power * math.log(y) - y - scale)))

    low, high = 0.0, dimension / 2 - math.log(tail) + math.sqrt(-2.0 * dimension * math.log(tail))
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (middle, high) if beyond(middle) > tail else (low, middle)
    return 2.0 * high
