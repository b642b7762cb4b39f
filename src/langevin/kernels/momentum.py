"""What the kernels with momentum share: a state, a friction, and the time scale in which all of them move.

They discretise one diffusion, with g = grad log pi and a friction rate gamma,

    d theta = p ds,    d p = (g - gamma p) ds + sqrt(2 gamma) dW,

that leaves pi(theta) N(p; 0, I) as it is. Over times long against 1 / gamma it moves theta by

    d theta = g / gamma ds + sqrt(2 / gamma) dW,

the paper's diffusion, run for delta = 2 h / gamma in a step of length h. So a kernel takes `friction` = gamma h, the
rate at which *one step* forgets momentum (exp(-friction) of it is kept), and chooses h from delta such that over many
steps drift delta / 2 and noise sqrt(delta) hold, whatever the friction. It has no units.

On a Gaussian of precision lambda, with c = exp(-friction) and gradient noise of variance C, all of them obey

    theta_{m+1} = (1 + c - (1 - c) delta lambda / 2) theta_m - c theta_{m-1} + noise,
    variance = (v + delta C / 4) / (lambda (1 - delta lambda tanh(friction / 2) / 4)),

stable for delta lambda < 4 / tanh(friction / 2), with a number v that each kernel states.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax

from langevin.kernels.protocol import AffineKernel, must_be_positive

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
        must_be_positive(self, "friction", "a step keeps exp(-friction) of the momentum", "1.0")

    def init(self, theta: Array, eta: Array) -> MomentumState:
        """The state before the first step, with a momentum from N(0, I)."""
        return MomentumState(theta, eta.reshape(-1, theta.size)[0])
