"""Stochastic gradient Riemannian Langevin dynamics for positive parameters, and by them for the simplex."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from langevin.coordinates import Coordinates
from langevin.kernels.protocol import Kernel
from langevin.kernels.sgld import SGLDState

Array = jax.Array
# Where float32 would reach 0, and 0 times an infinite gradient is no number.
_LEAST = 1e-30


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SGRLD(Kernel):
    """Langevin dynamics in the metric G = diag(1 / theta), for theta > 0, reflected at 0:

        theta_m = |theta_{m-1} + delta_m / 2 (theta_{m-1} grad + 1) + sqrt(delta_m theta_{m-1}) eta_m|.

    The 1 is the divergence of G^-1. With a prior of independent Gamma(b, 1) on the rows of theta the shares
    theta_w / sum of theta are Dirichlet(b): the expanded-mean coordinates of a simplex, in which drifts of counts are
    b - theta + n_w - share_w n, without a division by small shares. `theta_0` must be positive, coordinates the plain
    ones: in others 0 lies elsewhere, and reflections there have another law. On Gamma(b) with exact gradients the mean
    is b and the variance b / (1 - delta/4) as long as reflections are rare; where many shares are near 0 the bias is
    not known: `uncorrected`. It is held to Gamma laws, to a logistic regression whose coefficients are positive, and as
    the sampler of `models.LDA` to topics that are known; parameters of either sign are not for it. Cost: one gradient.

    Patterson and Teh, *Stochastic gradient Riemannian Langevin dynamics on the probability simplex* (2013).

    Example:
        >>> import jax.numpy as jnp, langevin as lv, numpy as np
        >>> b = np.array([5.0, 10.0], np.float32)
        >>> target = lv.Target(lambda t: jnp.sum((b - 1) * jnp.log(t) - t))
        >>> ledger = lv.run(target, None, b, kernel=lv.SGRLD(), schedule=lv.Constant(0.2), num_steps=4000, chains=4,
        ...                 observables={"share": lambda t: t[0] / jnp.sum(t)})
        >>> bool(abs(lv.estimate(ledger)["share"].value - 1 / 3) < 0.05)
        True
    """

    def check(self, coordinates: Coordinates, starts: np.ndarray) -> None:
        """Raises unless chains move in theta itself, from positive points."""
        if type(coordinates) is not Coordinates:
            raise ValueError(
                f"coordinates must be None for {self!r}, got {type(coordinates).__name__}: it reflects theta itself at "
                f"0. Try coordinates=None, or another kernel on the logarithms of theta."
            )
        if not np.all(starts > 0.0):
            raise ValueError(
                f"theta_0 must be positive for {self!r}, got {np.min(starts):g} in it. Try another start, or another "
                f"kernel for parameters of either sign."
            )

    def init(self, theta: Array, eta: Array) -> SGLDState:
        """The state before the first step; the noise of index 0 is not used."""
        return SGLDState(theta)

    def step(self, state: SGLDState, grad: Array, eta: Array, delta: Array) -> SGLDState:
        """One transition."""
        theta = state.theta
        moved = theta + 0.5 * delta * (theta * grad + 1.0) + jnp.sqrt(delta * theta) * eta
        return SGLDState(jnp.maximum(jnp.abs(moved), _LEAST))
