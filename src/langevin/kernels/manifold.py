"""MALA with a metric that changes from place to place."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from langevin.kernels.protocol import ExactKernel, LogDensity, accepted

Array = Any
# Curvature, in units of that where a chain began, below which eigenvalues no longer count by their size alone.
_SMALL = 0.2
# There, of the largest: what rounding leaves of an eigenvalue that vanishes says nothing about scale.
_VANISHING = 1e-4


class ManifoldState(NamedTuple):
    """An `ExactState` with the drift at unit step and the metric's lower root there.

    `unit` is the lower root of the metric where the chain began, or the identity with a metric of one's own.
    """

    theta: Array
    log_density: Array
    grad: Array
    acceptance: Array
    drift: Array
    root: Array
    unit: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ManifoldMALA(ExactKernel):
    """MALA in the units of a metric G(theta): propose from N(theta + delta b(theta), delta G(theta)^-1), with

        simplified:  b = G^-1 grad / 2,            full:  b_i = (G^-1 grad)_i / 2 + sum_j d (G^-1)_ij / d theta_j / 2,

    and accept by Metropolis-Hastings: exact with either, at any step and for any metric. The full drift is that of the
    diffusion with density pi and covariance G^-1. `metric` maps the flat vector in which the chain moves to a symmetric
    positive definite (d, d), such as the expected information plus the prior's precision; None is minus the Hessian of
    the log density, which for a logistic or Poisson regression is that matrix. Its eigenvalues count by their size, so
    that there is a metric where the density is not log-concave, and by (lambda^2 + c^2) / (2 c) where they are smaller
    than c, so that no proposal is without end where one vanishes: lambda is relative to the curvature where the chain
    began, which had best be near the mode, and c = 0.2. (A metric of one's own that fails to be positive somewhere
    keeps the chain out of there, and its law is not pi.) Cost: N datum visits a step, with second derivatives (third
    for the full drift), and O(d^3) beside: on posteriors of one shape `MALA` in `lv.Whitened` coordinates is as good
    and cheaper.

    Girolami and Calderhead, *Riemann manifold Langevin and Hamiltonian Monte Carlo methods* (2011); the drift is that
    of Xifara, Sherlock, Livingstone, Byrne and Girolami (2014), who found theirs to belong to another density. Sizes of
    eigenvalues, softened near zero, are Betancourt's, *A general metric for Riemannian manifold HMC* (2013).

    Example:
        >>> import langevin as lv
        >>> model = lv.models.Logistic.simulate(num_data=200, seed=1)
        >>> ledger = lv.run(model.target, model.data, model.theta_0, kernel=lv.ManifoldMALA(), num_steps=1000,
        ...                 schedule=lv.Constant(1.0), chains=4)
        >>> bool(ledger.acceptance.sum() / 4000 > 0.7)
        True
    """

    metric: Callable[[Array], Array] | None = field(default=None, metadata={"static": True})
    full: bool = field(default=False, metadata={"static": True})

    target_acceptance = 0.574

    def __post_init__(self) -> None:
        if self.metric is not None and not callable(self.metric):
            raise ValueError(f"metric must be a function of flat theta, or None, got {self.metric!r}.")
        if not isinstance(self.full, bool):
            raise ValueError(f"full must be True or False, got {self.full!r}.")

    def init(self, log_density: LogDensity, theta: Array) -> Any:
        """The state before the first step. Cost: N datum visits."""
        own = self.metric is not None
        unit = jnp.eye(theta.size, dtype=theta.dtype) if own else _root_of_sizes(_curvature(log_density, theta))
        return self._at(log_density, theta, jnp.zeros((), theta.dtype), unit)

    def _at(self, log_density: LogDensity, theta: Array, acceptance: Array, unit: Array) -> ManifoldState:
        value, grad = log_density(theta)
        eye = jnp.eye(theta.size, dtype=theta.dtype)

        def relative(at: Array) -> Array:
            if self.metric is not None:
                return self.metric(at)
            inverse = _below(unit, eye)
            return _sizes(inverse @ _curvature(log_density, at) @ inverse.T)

        # Not `symmetrize_input`: the triangle below the diagonal decides, here and in the density of the way back.
        root = unit @ jnp.linalg.cholesky(relative(theta), symmetrize_input=False)
        if not self.full:
            return ManifoldState(theta, value, grad, acceptance, 0.5 * _solved(root, grad), root, unit)
        inverse = _solved(root, eye)
        slope = jax.jacfwd(lambda at: unit @ relative(at) @ unit.T)(theta)
        drift = 0.5 * inverse @ (grad - jnp.einsum("abj,bj->a", slope, inverse))
        return ManifoldState(theta, value, grad, acceptance, drift, root, unit)

    def step(self, log_density: LogDensity, state: Any, eta: Array, log_uniform: Array, delta: Array) -> Any:
        """One transition."""
        noise = lax.linalg.triangular_solve(state.root, eta[:, None], left_side=True, lower=True, transpose_a=True)
        theta = state.theta + delta * state.drift + jnp.sqrt(delta) * noise[:, 0]
        there = self._at(log_density, theta, state.acceptance, state.unit)
        back = there.root.T @ (state.theta - theta - delta * there.drift)
        # log det of the roots, and -|eta|^2 / 2 for the way there.
        volume = jnp.sum(jnp.log(jnp.diagonal(there.root)) - jnp.log(jnp.diagonal(state.root)))
        log_ratio = there.log_density - state.log_density + volume
        log_ratio = log_ratio + 0.5 * jnp.dot(eta, eta) - 0.5 * jnp.dot(back, back) / delta
        return accepted(state, there, log_ratio, log_uniform)


def _curvature(log_density: LogDensity, theta: Array) -> Array:
    return -jax.jacfwd(lambda t: log_density(t)[1])(theta)


def _root_of_sizes(matrix: Array) -> Array:
    """Lower root of the matrix of the eigenvalues' sizes in units of the diagonal; where there are none, of one."""
    sizes = jnp.abs(jnp.diagonal(matrix))
    unit = jnp.sqrt(jnp.where(sizes > 0.0, sizes, 1.0))
    values, vectors = jnp.linalg.eigh(matrix / jnp.outer(unit, unit))
    largest = jnp.max(jnp.abs(values))
    sizes = jnp.where(largest > 0.0, jnp.maximum(jnp.abs(values), _VANISHING * largest), 1.0)
    return unit[:, None] * jnp.linalg.cholesky((vectors * sizes) @ vectors.T, symmetrize_input=False)


def _sizes(matrix: Array) -> Array:
    """The matrix itself where no eigenvalue is below `_SMALL`, else that of their softened sizes."""
    room = matrix - _SMALL * jnp.eye(len(matrix), dtype=matrix.dtype)
    large = jnp.all(jnp.isfinite(jnp.linalg.cholesky(room, symmetrize_input=False)))
    return lax.cond(large, lambda matrix: matrix, _softened, matrix)


@jax.custom_jvp
def _softened(matrix: Array) -> Array:
    values, vectors = jnp.linalg.eigh(matrix)
    return (vectors * _size(values)) @ vectors.T


@_softened.defjvp
def _softened_along(at: tuple[Array], along: tuple[Array]) -> tuple[Array, Array]:
    """Differences of sizes over differences of eigenvalues: those of eigenvectors have none where two are equal."""
    values, vectors = jnp.linalg.eigh(at[0])
    gap, middle = values[:, None] - values, 0.5 * (values[:, None] + values)
    near = jnp.abs(gap) < 1e-3 * (_SMALL + jnp.abs(middle))
    slope = jnp.clip(middle / _SMALL, -1.0, 1.0)
    ratio = jnp.where(near, slope, (_size(values)[:, None] - _size(values)) / jnp.where(near, 1.0, gap))
    turned = vectors @ (ratio * (vectors.T @ along[0] @ vectors)) @ vectors.T
    return (vectors * _size(values)) @ vectors.T, turned


def _size(value: Array) -> Array:
    size = jnp.abs(value)
    return jnp.where(size < _SMALL, 0.5 * (value**2 / _SMALL + _SMALL), size)


def _below(root: Array, right: Array) -> Array:
    return lax.linalg.triangular_solve(root, right, left_side=True, lower=True)


def _solved(root: Array, right: Array) -> Array:
    """(root root')^-1 right."""
    columns = right[:, None] if right.ndim == 1 else right
    solved = lax.linalg.triangular_solve(root, _below(root, columns), left_side=True, lower=True, transpose_a=True)
    return solved.reshape(right.shape)
