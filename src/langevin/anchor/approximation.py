"""The Laplace approximation as a value: where the mode is, how wide it is, and what control variates need there."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np

from langevin.target import Layout

PyTree = Any
# A whitened gradient of this size puts the anchor about a tenth of a posterior standard deviation off the mode.
_CLOSE = 0.1


# The books (cost, gradient_norm, positive) stay out of compiled code: they differ between data sets of one shape.
@partial(
    jax.tree_util.register_dataclass,
    data_fields=["theta", "root", "covariance", "precision", "likelihood_grad", "likelihood_hessian"],
    meta_fields=["layout"],
    drop_fields=["cost", "gradient_norm", "positive"],
)
@dataclass(frozen=True, eq=False)
class Anchor:
    """Laplace approximation N(theta, L L') and the full-data derivatives that control variates need.

    `theta` is the mode rounded to float32 so that the device holds the same point as the books; all derivatives are
    float64 values at that rounded point. `root` holds the blocks on the diagonal of L in the order of the flat vector,
    each a lower triangle (b, b) or a diagonal (b,). A dense anchor has one block, L L' = covariance = precision^-1;
    the others neglect the curvature between blocks and have neither covariance, precision nor likelihood_hessian. The
    likelihood parts are None for a target without data. `gradient_norm` is |L' grad log pi(theta)|: about the distance
    to the mode in posterior standard deviations. `positive` is False where the Hessian was not positive definite and
    something positive stands in for it. `cost` counts datum visits.

    Example:
        >>> import langevin as lv
        >>> anchor = lv.laplace(lv.Target(lambda t: -2.0 * (t - 1.0) ** 2), None, 0.0)
        >>> float(anchor.mode), anchor.covariance.tolist(), anchor.converged
        (1.0, [[0.25]], True)
    """

    theta: np.ndarray
    root: tuple[np.ndarray, ...]
    # Typed loosely, since tracing code reads them only where they are there.
    covariance: Any
    precision: Any
    likelihood_grad: Any
    likelihood_hessian: Any
    layout: Layout
    cost: int = field(default=0, repr=False)
    gradient_norm: float = field(default=0.0, repr=False)
    positive: bool = field(default=True, repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Anchor) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def _content(self) -> tuple:
        arrays = (self.theta, *self.root, self.precision, self.likelihood_grad, self.likelihood_hessian)
        return (self.layout, *(None if a is None else np.asarray(a).tobytes() for a in arrays))

    @property
    def mode(self) -> PyTree:
        """The mode as a pytree of float32 NumPy arrays: a good theta_0."""
        # In NumPy: every shape that JAX reshapes outside of compiled code is a small program of its own.
        return self.layout.unravel(np.asarray(self.theta, np.float32))

    @property
    def dense(self) -> bool:
        """Whether the whole curvature is known, so that second-order control variates can be used."""
        return self.covariance is not None

    @property
    def converged(self) -> bool:
        """Whether theta is a proper mode for all that sampling needs; a network's optimiser often stops short of it."""
        return self.positive and self.gradient_norm <= _CLOSE

    @property
    def sd(self) -> np.ndarray:
        """Laplace standard deviations of the flat parameters, given the other blocks when the anchor is not dense."""
        if self.dense:
            return np.sqrt(np.diag(self.covariance))
        return np.concatenate([block if block.ndim == 1 else np.sqrt(np.sum(block**2, axis=1)) for block in self.root])
