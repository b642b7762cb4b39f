"""Posterior expectations in a few dimensions by Gauss-Hermite quadrature, with an error known to be tiny."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.polynomial.hermite import hermgauss
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FIRST_ORDER = 8  # nodes per axis; doubled until two rules agree
LAST_ORDER = 128  # beyond this the outermost Hermite weights come near the smallest float64
MAX_NODES = 2**20  # nodes of the whole tensor rule: order 64 in d = 3, 32 in d = 4
MAX_DIMENSION = 4


@dataclass(frozen=True, eq=False)
class Truth:
    """Posterior moments and the numerical error they carry.

    error: largest change of a first or second moment of the whitened parameter between the last two rules,
    relative to the root mean square of what is averaged. It measures the coarser rule; the moments are those
    of the finer one, which is better.
    order: nodes per axis of the finer rule.

    Example:
        >>> truth = posterior_moments(lambda t: -2.0 * t[:, 0] ** 2, np.zeros(1), np.eye(1))
        >>> truth.sd.round(6), truth.error < 1e-6
        (array([0.5]), True)
    """

    mean: Floats
    covariance: Floats
    map: Floats
    laplace_covariance: Floats
    error: float
    order: int

    @property
    def variance(self) -> Floats:
        """Marginal posterior variances."""
        return np.diag(self.covariance).copy()

    @property
    def sd(self) -> Floats:
        """Marginal posterior standard deviations."""
        return np.sqrt(self.variance)


@dataclass(frozen=True, eq=False)
class PosteriorQuadrature:
    """Tensor Gauss-Hermite rules laid over the Laplace approximation N(map, L L^T), re-weighted to pi.

        theta_k = map + sqrt(2) L z_k,  W_k proportional to w_k exp(log pi(theta_k) + |z_k|^2),  sum_k W_k = 1

    log_density: (K, d) -> (K,), the log posterior up to a constant, in float64. Converges fast if pi is
    smooth and its tails are not much wider than those of the Laplace approximation. Cost: order^d log
    densities a rule; rules are kept.

    Example:
        >>> rules = PosteriorQuadrature(lambda t: -0.5 * np.sum(t**2, axis=1), np.zeros(1), np.eye(1))
        >>> value, error, order = rules.expectation(lambda t: t[:, 0] ** 4)
        >>> round(float(value), 9), error < 1e-9
        (3.0, True)
    """

    log_density: Callable[[Floats], Floats]
    map: Floats
    laplace_covariance: Floats
    _rules: dict[int, tuple[Floats, Floats]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        centre, covariance = np.array(self.map, np.float64), np.array(self.laplace_covariance, np.float64)
        if centre.ndim != 1 or not 1 <= centre.size <= MAX_DIMENSION:
            raise ValueError(
                f"map must be a vector of length 1 to {MAX_DIMENSION}, got shape {centre.shape}: a tensor "
                f"rule has order^d nodes. In more dimensions use a long run of an exact sampler such as HMC."
            )
        if covariance.shape != (centre.size, centre.size):
            raise ValueError(
                f"laplace_covariance must be d x d with d = {centre.size} as for map, got shape "
                f"{covariance.shape}. It is the inverse of minus the Hessian of the log density at map."
            )
        object.__setattr__(self, "map", centre)
        object.__setattr__(self, "laplace_covariance", covariance)

    def rule(self, order: int) -> tuple[Floats, Floats]:
        """Nodes (K, d) and weights (K,) that sum to one, K = order^d."""
        if order not in self._rules:
            d = self.map.size
            z, w = hermgauss(order)
            # The logarithm of w exp(z^2), because exp(z^2) alone overflows at the corners of the grid.
            log_w = np.log(w) + z**2
            grid = np.stack(np.meshgrid(*[z] * d, indexing="ij"), axis=-1).reshape(-1, d)
            log_weights = np.sum(np.meshgrid(*[log_w] * d, indexing="ij"), axis=0).ravel()
            nodes = self.map + np.sqrt(2.0) * grid @ np.linalg.cholesky(self.laplace_covariance).T
            log_weights = log_weights + self.log_density(nodes)
            weights = np.exp(log_weights - log_weights.max())
            self._rules[order] = nodes, weights / weights.sum()
        return self._rules[order]

    def expectation(
        self, phi: Callable[[Floats], Floats], rtol: float = 1e-9, first_order: int = FIRST_ORDER
    ) -> tuple[Floats, float, int]:
        """E_pi[phi], its error and the order used; phi: (K, d) -> (K,) or (K, ...).

        The order doubles until two rules agree to rtol, relative to the root mean square of phi (its mean can
        be zero). phi must be smooth on the scale of the posterior. An indicator is not: RuntimeError.
        """
        coarse, error = self._average(phi, first_order)[0], np.inf
        order = 2 * first_order
        while order <= LAST_ORDER and order**self.map.size <= MAX_NODES:
            fine, size = self._average(phi, order)
            # 0/0 is a phi that vanishes at every node: no error. A NaN stays and fails the comparison below.
            error = float(np.max(np.abs(fine - coarse) / np.where(size == 0.0, 1.0, size)))
            if error <= rtol:
                return fine, error, order
            coarse, order = fine, 2 * order
        raise RuntimeError(
            f"quadrature did not reach rtol={rtol:g}: the last change, at {order // 2} nodes per axis, was "
            f"{error:.1e}. Check that phi is smooth and finite, or accept less with a larger rtol."
        )

    def _average(self, phi: Callable[[Floats], Floats], order: int) -> tuple[Floats, Floats]:
        """Mean and root mean square of phi under one rule."""
        nodes, weights = self.rule(order)
        values = np.asarray(phi(nodes), dtype=np.float64)
        if values.ndim == 0 or len(values) != len(nodes):
            raise ValueError(
                f"phi must return one value per row of its argument, got shape {values.shape} for "
                f"{nodes.shape}. Write it for an array of shape (K, d), e.g. lambda t: t[:, 0]."
            )
        return np.tensordot(weights, values, 1)[()], np.sqrt(np.tensordot(weights, values**2, 1))

    def moments(self, rtol: float = 1e-9) -> Truth:
        """Mean and covariance; RuntimeError if two rules differ by more than rtol posterior widths."""
        d = self.map.size
        L = np.linalg.cholesky(self.laplace_covariance)

        # Whitened, so that "relative" means relative to the posterior's width in every direction.
        def phi(theta: Floats) -> Floats:
            z = np.linalg.solve(L, (theta - self.map).T).T
            return np.concatenate([z, (z[:, :, None] * z[:, None, :]).reshape(-1, d * d)], axis=1)

        value, error, order = self.expectation(phi, rtol)
        first, second = value[:d], value[d:].reshape(d, d)
        covariance = L @ (second - np.outer(first, first)) @ L.T
        return Truth(self.map + L @ first, covariance, self.map, self.laplace_covariance, error, order)


def posterior_moments(
    log_density: Callable[[Floats], Floats], map: Floats, laplace_covariance: Floats, rtol: float = 1e-9
) -> Truth:
    """Mean and covariance of exp(log_density) by quadrature around its mode, d <= 4; see PosteriorQuadrature.

    Example:
        >>> truth = posterior_moments(lambda t: -0.5 * np.sum((t - 1.0) ** 2, axis=1), np.ones(2), np.eye(2))
        >>> np.allclose(truth.mean, 1.0), np.allclose(truth.covariance, np.eye(2))
        (True, True)
    """
    return PosteriorQuadrature(log_density, map, laplace_covariance).moments(rtol)
