"""What the kernels with momentum share: a state, a friction, and the time scale in which all of them move.

They discretise one diffusion, with g = grad log pi and a friction rate gamma,

    d theta = p ds,    d p = (g - gamma p) ds + sqrt(2 gamma) dW,

that leaves pi(theta) N(p; 0, I) as it is. Over times long against 1 / gamma it moves theta by

    d theta = g / gamma ds + sqrt(2 / gamma) dW,

the paper's diffusion, run for delta = 2 h / gamma in a step of length h. So a kernel takes `friction` = gamma h, the
rate at which *one step* forgets momentum (exp(-friction) of it is kept), and chooses h from delta such that over many
steps drift delta / 2 and noise sqrt(delta) hold, whatever the friction. It has no units: a number serves any posterior.
"""

import numbers
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from langevin.kernels.protocol import AffineKernel

Array = jax.Array


class MomentumState(NamedTuple):
    """The position and the momentum that arrives there, before the gradient at theta acts on it."""

    theta: Array
    momentum: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MomentumKernel(AffineKernel):
    """A kernel with momentum; subclasses state `step`, and their theory follows from it."""

    friction: float = 1.0

    def __post_init__(self) -> None:
        # JAX rebuilds registered dataclasses with placeholders: only what a user could have meant is refused.
        given = isinstance(self.friction, str | list | tuple | numbers.Real | np.ndarray | jax.Array)
        if not given or isinstance(self.friction, jax.core.Tracer):
            return
        number = not isinstance(self.friction, str | list | tuple | bool)
        if not number or not np.all(np.isfinite(self.friction) & (np.asarray(self.friction) > 0.0)):
            raise ValueError(
                f"friction must be a positive finite number, got {self.friction!r}: a step keeps exp(-friction) of the "
                f"momentum. Try {type(self).__name__}(friction=1.0)."
            )

    def init(self, theta: Array, eta: Array) -> MomentumState:
        """The state before the first step, with a momentum from N(0, I)."""
        return MomentumState(theta, eta.reshape(-1, theta.size)[0])
