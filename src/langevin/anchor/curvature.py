"""A dense precision matrix seen in its own units: Newton directions, what is flat, and the root of its inverse."""

from dataclasses import dataclass

import numpy as np

from langevin.target import Layout

# Sums over 10^6 rows are exact to about 1e-13: a smaller eigenvalue, next to a unit diagonal, is rounding.
_SINGULAR = 1e-13
# Below this an eigenvalue is negative beyond doubt.
_NEGATIVE = -1e-10
# Directions without positive curvature count as at least this curved, so that a step there stays within reach.
_LEAST_CURVED = 1e-3
# Parameters up to which a triangle is inverted without SciPy.
_BY_HAND = 500
# Squared posterior standard deviations that rounding to float32 may move a point: 1e-4 of one.
_HARMLESS = 1e-8


def unit_diagonal(precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """S P S with a diagonal of ones, minus ones and zeros, and S; not finite where P is out of float64's range."""
    with np.errstate(all="ignore"):
        diagonal = np.abs(np.diag(precision))
        scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
        return precision * scale * scale[:, None], scale


@dataclass(frozen=True)
class Curvature:
    """P = S^-1 U diag(values) U' S^-1, with S making the diagonal of S P S one: all thresholds are free of units."""

    scale: np.ndarray
    values: np.ndarray
    vectors: np.ndarray

    @classmethod
    def of(cls, precision: np.ndarray) -> "Curvature":
        """Cost: O(d^3)."""
        scaled, scale = unit_diagonal(precision)
        values, vectors = np.linalg.eigh(scaled)
        return cls(scale, values, vectors)

    @property
    def _size(self) -> float:
        size = float(np.max(np.abs(self.values)))
        return size if size > 0.0 else 1.0

    @property
    def _curved(self) -> np.ndarray:
        return self.values > _SINGULAR * self._size

    @property
    def positive(self) -> bool:
        """Whether every direction is curved as at a maximum, beyond rounding."""
        return bool(np.all(self._curved))

    @property
    def saddle(self) -> bool:
        """Whether some direction is curved as at a minimum, beyond rounding."""
        return bool(self.values[0] < _NEGATIVE * self._size)

    @property
    def _damped(self) -> np.ndarray:
        return np.where(self._curved, self.values, np.maximum(np.abs(self.values), _LEAST_CURVED * self._size))

    @property
    def lowest(self) -> np.ndarray:
        """The direction of the least curvature, as long as a standard deviation of that curvature."""
        value = abs(self.values[0])
        length = 1.0 / np.sqrt(value) if value > _SINGULAR * self._size else 1.0
        return length * self.scale * self.vectors[:, 0]

    def newton(self, grad: np.ndarray) -> tuple[np.ndarray, float]:
        """The step S U (U' S grad / |values|) and its decrement grad . step: a squared distance in sds to the mode."""
        along = self.vectors.T @ (self.scale * grad)
        return self.scale * (self.vectors @ (along / self._damped)), float(np.sum(along**2 / self._damped))

    def tamed(self) -> np.ndarray:
        """The matrix with the directions that are not curved as at a maximum made so: positive definite."""
        half = self.vectors * np.sqrt(self._damped) / self.scale[:, None]
        return half @ half.T

    def rounded(self, flat: np.ndarray) -> tuple[np.ndarray, float]:
        """The nearest float32 point and the squared distance to it in sds; the point itself where that would harm."""
        with np.errstate(over="ignore"):
            near = flat.astype(np.float32).astype(np.float64)
        if not np.all(np.isfinite(near)):
            return flat, 0.0
        moved = float(np.sum(self._damped * (self.vectors.T @ ((near - flat) / self.scale)) ** 2))
        return (near, moved) if moved < _HARMLESS else (flat, 0.0)

    @property
    def flat(self) -> tuple[np.ndarray, int]:
        """How far each parameter takes part in the directions without curvature, and how many there are."""
        null = self.vectors[:, ~self._curved]
        return np.sqrt(np.sum(null**2, axis=1)), null.shape[1]


def positive_root(precision: np.ndarray) -> np.ndarray | None:
    """`inverse_root` where the matrix is positive definite beyond rounding, else None; no eigenvectors are needed."""
    try:
        root = inverse_root(precision)
    except np.linalg.LinAlgError:
        return None
    # In units of the diagonal the least eigenvalue is at least one over the sum of all variances, at most d times that.
    variances = float(np.sum(root**2 * np.diag(precision)[:, None]))
    return root if variances < 1.0 / _SINGULAR else None


def largest(weight: np.ndarray) -> np.ndarray:
    """The parameters whose weight is within a factor of 3 of the largest."""
    weight = np.abs(weight)
    return np.flatnonzero(weight >= np.max(weight) / 3.0)


def named(chosen: np.ndarray, layout: Layout) -> str:
    """Parameters as a list in words: x[2] and x[5]."""
    names = [layout.names[j] for j in chosen[:4]]
    if len(chosen) > 4:
        names.append(f"{len(chosen) - 4} more")
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def inverse_root(precision: np.ndarray) -> np.ndarray:
    """Lower triangle L with L L' = precision^-1, from the Cholesky factor of the reversed matrix.

    precision = U U' with U upper triangular gives L = U^-T: no inverse is formed, so nearly singular matrices keep
    their digits. Cost: O(d^3).
    """
    scaled, scale = unit_diagonal(precision)
    lower = np.linalg.cholesky(scaled[::-1, ::-1])[::-1, ::-1].T
    if len(lower) > _BY_HAND:
        from scipy.linalg import solve_triangular

        return np.tril(scale[:, None] * solve_triangular(lower, np.eye(len(lower)), lower=True))
    root = np.eye(len(lower))
    # Forward substitution by hand: up to some hundred parameters SciPy takes longer to import than this does.
    for j in range(len(lower)):
        root[j] = (root[j] - lower[j, :j] @ root[:j]) / lower[j, j]
    return np.tril(scale[:, None] * root)
