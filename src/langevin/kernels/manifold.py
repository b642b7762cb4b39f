"""MALA with a metric that changes from place to place."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from langevin.kernels.protocol import ExactKernel, LogDensity, accepted

Array = Any
# Of the largest eigenvalue of a metric that was not positive.
_LEAST = 1e-2


class ManifoldState(NamedTuple):
    """An `ExactState` with the drift at unit step and the metric's lower root there."""

    theta: Array
    log_density: Array
    grad: Array
    acceptance: Array
    drift: Array
    root: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ManifoldMALA(ExactKernel):
    """MALA in the units of a metric G(theta): propose from N(theta + delta b(theta), delta G(theta)^-1), with

        simplified:  b = G^-1 grad / 2,            full:  b_i = (G^-1 grad)_i / 2 + sum_j d (G^-1)_ij / d theta_j / 2,

    and accept by Metropolis-Hastings: exact with either, at any step and for any metric. The full drift is that of the
    diffusion with density pi and covariance G^-1. `metric` maps the flat vector in which the chain moves to a symmetric
    positive definite (d, d), such as the expected information plus the prior's precision; None is minus the Hessian of
    the log density, which for a logistic or Poisson regression is that matrix; where it is not positive definite, its
    eigenvalues count by their size. (A metric of one's own that fails to be positive somewhere keeps the chain out of
    there, and its law is not pi.) Cost: N datum visits a step, with second derivatives (third for the full drift), and
    O(d^3) beside: on posteriors of one shape `MALA` in `lv.Whitened` coordinates is as good and cheaper.

    Girolami and Calderhead, *Riemann manifold Langevin and Hamiltonian Monte Carlo methods* (2011); the drift is that
    of Xifara, Sherlock, Livingstone, Byrne and Girolami (2014), who found theirs to belong to another density.

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
        return self._at(log_density, theta, jnp.zeros((), theta.dtype))

    def _at(self, log_density: LogDensity, theta: Array, acceptance: Array) -> ManifoldState:
        value, grad = log_density(theta)

        def metric(at: Array) -> Array:
            if self.metric is not None:
                return self.metric(at)
            return _positive(-jax.jacfwd(lambda t: log_density(t)[1])(at))

        # Not `symmetrize_input`: the triangle below the diagonal decides, here and in the density of the way back.
        root = jnp.linalg.cholesky(metric(theta), symmetrize_input=False)
        if not self.full:
            return ManifoldState(theta, value, grad, acceptance, 0.5 * _solved(root, grad), root)
        inverse = _solved(root, jnp.eye(theta.size, dtype=theta.dtype))
        turned = jnp.einsum("abj,bj->a", jax.jacfwd(metric)(theta), inverse)
        return ManifoldState(theta, value, grad, acceptance, 0.5 * inverse @ (grad - turned), root)

    def step(self, log_density: LogDensity, state: Any, eta: Array, log_uniform: Array, delta: Array) -> Any:
        """One transition."""
        noise = lax.linalg.triangular_solve(state.root, eta[:, None], left_side=True, lower=True, transpose_a=True)
        theta = state.theta + delta * state.drift + jnp.sqrt(delta) * noise[:, 0]
        there = self._at(log_density, theta, state.acceptance)
        back = there.root.T @ (state.theta - theta - delta * there.drift)
        # log det of the roots, and -|eta|^2 / 2 for the way there.
        volume = jnp.sum(jnp.log(jnp.diagonal(there.root)) - jnp.log(jnp.diagonal(state.root)))
        log_ratio = there.log_density - state.log_density + volume
        log_ratio = log_ratio + 0.5 * jnp.dot(eta, eta) - 0.5 * jnp.dot(back, back) / delta
        return accepted(state, there, log_ratio, log_uniform)


def _positive(matrix: Array) -> Array:
    """The matrix itself where it is positive definite, else that of the sizes of its eigenvalues."""

    def turned(matrix: Array) -> Array:
        values, vectors = jnp.linalg.eigh(matrix)
        sizes = jnp.abs(values)
        # Where one vanishes proposals would have no end along its vector.
        return (vectors * jnp.maximum(sizes, _LEAST * jnp.max(sizes))) @ vectors.T

    found = jnp.all(jnp.isfinite(jnp.linalg.cholesky(matrix, symmetrize_input=False)))
    return lax.cond(found, lambda matrix: matrix, turned, matrix)


def _solved(root: Array, right: Array) -> Array:
    """(root root')^-1 right."""
    columns = right[:, None] if right.ndim == 1 else right
    half = lax.linalg.triangular_solve(root, columns, left_side=True, lower=True)
    return lax.linalg.triangular_solve(root, half, left_side=True, lower=True, transpose_a=True).reshape(right.shape)
