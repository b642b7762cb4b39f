"""The anchor: the posterior mode with the curvature there, found by Newton's method in float64."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langevin.data.source import as_source
from langevin.errors import AnchorError
from langevin.precision import isolated
from langevin.target import Layout, Target

PyTree = Any
_CHUNK_FLOATS = 2_000_000


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Anchor:
    """Laplace approximation N(theta, covariance) and the full-data derivatives that control variates need.

    `theta` is the mode rounded to float32 so that the device holds the same point as the books; all derivatives are
    float64 values at that rounded point. The likelihood parts are None for a target without data. `root` holds the
    blocks on the diagonal of L, L L' = covariance, each a lower triangle (b, b) or a diagonal (b,).
    """

    theta: np.ndarray
    root: tuple[np.ndarray, ...]
    covariance: np.ndarray
    precision: np.ndarray
    likelihood_grad: Any
    likelihood_hessian: Any
    layout: Layout = field(metadata={"static": True})
    cost: int = field(metadata={"static": True})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Anchor) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def _content(self) -> tuple:
        arrays = (self.theta, self.precision, self.likelihood_grad, self.likelihood_hessian)
        return (self.layout, *(None if a is None else np.asarray(a).tobytes() for a in arrays))

    @property
    def mode(self) -> PyTree:
        """The mode as a pytree of float32 arrays: a good theta_0."""
        return self.layout.unravel(np.asarray(self.theta, np.float32))

    @property
    def sd(self) -> np.ndarray:
        """Laplace standard deviations of the flat parameters."""
        return np.sqrt(np.diag(self.covariance))


class _Derivatives:
    """Value, gradient and Hessian of the log density at a flat float64 point, summed over chunks of the data."""

    def __init__(self, target: Target, source: Any, layout: Layout) -> None:
        self.target, self.source, self.layout = target, source, layout
        self.cost = 0
        floats = max(1, layout.size**2)
        self.chunk = int(np.clip(_CHUNK_FLOATS // floats, 256, 65536))

    def prior(self, flat: np.ndarray) -> list[np.ndarray]:
        return [np.asarray(part) for part in _prior_parts(self.target, self.layout, flat)]

    def likelihood(self, flat: np.ndarray, order: int) -> list[np.ndarray]:
        if self.source is None:
            self.cost += 1
            shapes = [(), (self.layout.size,), (self.layout.size, self.layout.size)]
            return [np.zeros(shape) for shape in shapes[: order + 1]]
        parts: list[np.ndarray] = []
        for start in range(0, self.source.num_data, self.chunk):
            batch = self.source.rows(start, min(start + self.chunk, self.source.num_data))
            new = [np.asarray(p) for p in _likelihood_parts(self.target, self.layout, order, flat, batch)]
            parts = new if not parts else [a + b for a, b in zip(parts, new, strict=True)]
        self.cost += self.source.num_data
        return parts

    def total(self, flat: np.ndarray, order: int) -> list[np.ndarray]:
        return [p + q for p, q in zip(self.prior(flat), self.likelihood(flat, order), strict=False)]


def _parts(function: Any, flat: Any, order: int) -> list:
    parts = [function, jax.grad(function), jax.hessian(function)]
    return [part(flat) for part in parts[: order + 1]]


@partial(jax.jit, static_argnums=(0, 1))
def _prior_parts(target: Target, layout: Layout, flat: jax.Array) -> list:
    return _parts(lambda t: target.log_prior(layout.unravel(t)), flat, 2)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _likelihood_parts(target: Target, layout: Layout, order: int, flat: jax.Array, batch: PyTree) -> list:
    def total(t: jax.Array) -> jax.Array:
        return jnp.sum(jax.vmap(target.log_likelihood, (None, 0))(layout.unravel(t), batch))

    return _parts(total, flat, order)


def laplace(target: Target, data: PyTree, theta_0: PyTree, *, max_steps: int = 100) -> Anchor:
    """Posterior mode by damped Newton steps with the dense Hessian, and the Laplace approximation there.

    Each step solves (H + lambda I) s = grad and halves s until the log density does not fall; lambda > 0 only where H
    is not positive definite. Ends when the Newton decrement is below 1e-7 of a posterior standard deviation. Cost: two
    or more full passes a step (about ten steps), d^2 memory. Raises `AnchorError` when there is no proper mode.
    """
    if not isinstance(target, Target):
        raise ValueError(f"target must be an lv.Target, got {target!r}. Wrap it: lv.Target(log_prior, log_likelihood).")
    layout = Layout.of(theta_0)
    source = None if data is None else as_source(data)
    flat = np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(theta_0)])
    likelihood = None if target.log_likelihood is None else isolated(target.log_likelihood)
    apart = Target(isolated(target.log_prior), likelihood)
    with jax.enable_x64(True):
        apart.check(theta_0, None if source is None else source.arrays)
        return _anchor(apart, source, layout, flat, max_steps)


def _anchor(target: Target, source: Any, layout: Layout, flat: np.ndarray, max_steps: int) -> Anchor:
    derivatives = _Derivatives(target, source, layout)
    flat = _newton(derivatives, flat, max_steps).astype(np.float32).astype(np.float64)
    prior, likelihood = derivatives.prior(flat), derivatives.likelihood(flat, 2)
    precision = -(prior[2] + likelihood[2])
    covariance = np.linalg.inv(precision)
    return Anchor(
        theta=flat,
        root=(np.linalg.cholesky(covariance),),
        covariance=covariance,
        precision=precision,
        likelihood_grad=None if source is None else likelihood[1],
        likelihood_hessian=None if source is None else likelihood[2],
        layout=layout,
        cost=derivatives.cost,
    )


def _newton(derivatives: _Derivatives, flat: np.ndarray, max_steps: int) -> np.ndarray:
    value, grad, hessian = derivatives.total(flat, 2)
    if not np.isfinite(value) or not np.all(np.isfinite(grad)):
        raise AnchorError(
            f"theta_0 must have a finite log density and gradient, got {float(value)}. Start from another theta_0."
        )
    for _ in range(max_steps):
        step, damped = _solve(-hessian, grad)
        decrement = float(grad @ step)
        if not damped and decrement < 1e-14:
            return flat
        for halving in range(60):
            trial = flat + step * 0.5**halving
            trial_value = float(derivatives.total(trial, 0)[0])
            # Near the mode the change drowns in rounding: 1e-13 of the value's size is no descent.
            if trial_value >= value - 1e-13 * (1.0 + abs(float(value))):
                break
        else:
            if not damped and decrement < 1e-6:
                return flat
            raise AnchorError(
                f"no ascent from theta = {flat} along the Newton direction (decrement {decrement:.3g}): the log "
                f"density is not smooth there. Check it for kinks, NaN or a wrong sign, or start elsewhere."
            )
        flat = trial
        value, grad, hessian = derivatives.total(flat, 2)
    raise AnchorError(
        f"no posterior mode within {max_steps} Newton steps: |theta| reached {np.linalg.norm(flat):.3g} with gradient "
        f"norm {np.linalg.norm(grad):.3g}. The posterior may have no proper mode (separable data with a flat prior?); "
        f"use a proper prior, or start closer."
    )


def _solve(precision: np.ndarray, grad: np.ndarray) -> tuple[np.ndarray, bool]:
    """Newton direction, damped until positive definite; says whether damping was needed."""
    scale = max(float(np.max(np.abs(np.diag(precision)))), 1e-300)
    # A curvature that is zero to rounding counts as not positive definite: its inverse would be noise.
    if np.linalg.eigvalsh(precision)[0] > 1e-14 * scale:
        return np.linalg.solve(precision, grad), False
    values, vectors = np.linalg.eigh(precision)
    return vectors @ ((vectors.T @ grad) / np.maximum(np.abs(values), 1e-3 * scale)), True
