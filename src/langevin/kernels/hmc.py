"""Hamiltonian Monte Carlo with a fixed number of leapfrog steps."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jax import lax

from langevin.kernels.protocol import ExactKernel, ExactState, LogDensity

Array = jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class HMC(ExactKernel):
    """Leapfrog with step sqrt(delta) from momentum eta, accepted with probability min(1, exp(-energy error)).

    In the paper's time scale, so that one leapfrog step is MALA with the same delta. Exact: no bias at any step size.
    Cost: `num_leapfrog` full gradients, num_leapfrog * N datum visits a step.

    Example:
        >>> import langevin as lv
        >>> target = lv.Target(lambda t: -0.5 * t**2)
        >>> ledger = lv.run(target, None, 0.0, kernel=lv.HMC(3), schedule=lv.Constant(0.3), num_steps=4000, chains=4)
        >>> abs(float(lv.estimate(ledger)["theta.mean"].value[0])) < 0.3
        True
    """

    num_leapfrog: int = field(default=10, metadata={"static": True})

    target_acceptance = 0.8

    def __post_init__(self) -> None:
        if not isinstance(self.num_leapfrog, int) or self.num_leapfrog < 1:
            raise ValueError(f"num_leapfrog must be an integer of at least 1, got {self.num_leapfrog!r}. Try 10.")

    @property
    def gradients(self) -> int:
        """One a leapfrog step."""
        return self.num_leapfrog

    def step(
        self, log_density: LogDensity, state: ExactState, eta: Array, log_uniform: Array, delta: Array
    ) -> ExactState:
        """One transition."""
        size = jnp.sqrt(delta)

        def leapfrog(_, phase):
            theta, momentum, _, grad = phase
            momentum = momentum + 0.5 * size * grad
            theta = theta + size * momentum
            value, grad = log_density(theta)
            return theta, momentum + 0.5 * size * grad, value, grad

        phase = (state.theta, eta, state.log_density, state.grad)
        theta, momentum, value, grad = lax.fori_loop(0, self.num_leapfrog, leapfrog, phase)
        log_ratio = value - state.log_density + 0.5 * (jnp.sum(eta**2) - jnp.sum(momentum**2))
        return state.accept(ExactState(theta, value, grad, state.acceptance), log_ratio, log_uniform)
