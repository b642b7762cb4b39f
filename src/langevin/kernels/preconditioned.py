"""SGLD preconditioned by a running average of squared gradients."""

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp

from langevin.kernels.protocol import Kernel, must_be_positive

Array = jax.Array


class RunningState(NamedTuple):
    """The position, the running average V, the preconditioner G of the last step, its noise over G, and m."""

    theta: Array
    square: Array
    metric: Array
    push: Array
    seen: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PreconditionedSGLD(Kernel):
    """SGLD with the diagonal preconditioner of RMSprop, and with the drift that a changing preconditioner asks for:

        V_m = V_{m-1} + max(1 - decay, 1/m) (grad^2 - V_{m-1}),        G_m = 1 / (floor + sqrt(V_m)),
        theta_m = theta_{m-1} + delta_m / 2 (G_m grad + Gamma_m) + sqrt(delta_m G_m) eta_m,
        Gamma_i = d G_i / d theta_i.

    Gamma is not differentiated. The part of G_m - G_{m-1} that the noise of step m - 1 caused has, multiplied by that
    noise, the mean delta Gamma G: so step m adds (G_m - G_{m-1}) sqrt(delta / G_{m-1}) eta_{m-1} / 2, whose mean is
    delta Gamma / 2 to first order, whatever the noise of the gradients. `gamma=False` leaves it out, as most libraries
    do.

    With decay = 0 and small steps the chain without Gamma has a density proportional to pi / G in one dimension
    (on N(0, 1) with floor = 1 its variance is 1.44), and pi with it. With memory the preconditioner remembers more than
    the last noise, and Gamma as defined takes off a share of 1 - decay or so of the bias only; the bias goes away as
    the memory becomes longer than the chain's (decay = 1 averages over the whole run). No theory: `uncorrected`. Steps
    are in units of G: with gradients of size g a delta moves theta like SGLD with delta / g. From a start without
    gradient the first step is sqrt(delta / floor) large: choose a floor that means something. Published is V of the
    mean gradient of a minibatch, here it is of the estimate for all N data: their floor and step, times N. Cost: one
    gradient.

    Li, Chen, Carlson and Carin, *Preconditioned stochastic gradient Langevin dynamics for deep neural networks* (2016).
    A preconditioner that stays the same is better: `coordinates=lv.Preconditioned.by(matrix)` keeps every theory.

    Example:
        >>> import langevin as lv
        >>> target = lv.Target(lambda t: -0.5 * t**2)
        >>> ledger = lv.run(target, None, 0.0, kernel=lv.PreconditionedSGLD(floor=1.0),
        ...                 schedule=lv.Constant(1.0), num_steps=4000, chains=4)
        >>> lv.estimate(ledger)["theta.mean"].status
        'uncorrected'
    """

    decay: float = 0.99
    floor: float = 1e-5
    gamma: bool = field(default=True, metadata={"static": True})

    def __post_init__(self) -> None:
        must_be_positive(self, "floor", "it bounds the preconditioner where gradients vanish", "1e-5")
        if isinstance(self.decay, str | bool | int | float) and (
            isinstance(self.decay, str | bool) or not 0.0 <= self.decay <= 1.0
        ):
            raise ValueError(f"decay must lie in [0, 1], got {self.decay!r}. Try PreconditionedSGLD(decay=0.99).")
        if not isinstance(self.gamma, bool):
            raise ValueError(f"gamma must be True or False, got {self.gamma!r}.")

    def init(self, theta: Array, eta: Array) -> RunningState:
        """The state before the first step; the first gradient makes the first average."""
        nothing = jnp.zeros_like(theta)
        return RunningState(theta, nothing, nothing, nothing, jnp.zeros((), theta.dtype))

    def step(self, state: RunningState, grad: Array, eta: Array, delta: Array) -> RunningState:
        """One transition."""
        seen = state.seen + 1.0
        square = state.square + jnp.maximum(1.0 - self.decay, 1.0 / seen) * (grad**2 - state.square)
        metric = 1.0 / (self.floor + jnp.sqrt(square))
        theta = state.theta + 0.5 * delta * metric * grad + jnp.sqrt(delta * metric) * eta
        if self.gamma:
            theta = theta + 0.5 * (metric - state.metric) * state.push
        return RunningState(theta, square, metric, jnp.sqrt(delta / metric) * eta, seen)
