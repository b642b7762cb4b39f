"""Random-walk Metropolis."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from langevin.kernels.protocol import ExactKernel, ExactState, LogDensity

Array = jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RWM(ExactKernel):
    """Propose theta' = theta + sqrt(delta) * eta; accept with probability min(1, pi(theta') / pi(theta)).

    Exact: no bias at any step size. Cost: N datum visits a step; the gradient is carried along for the correction.

    Example:
        >>> import langevin as lv
        >>> target = lv.Target(lambda t: -0.5 * t**2)
        >>> ledger = lv.run(target, None, 0.0, kernel=lv.RWM(), schedule=lv.Constant(2.0), num_steps=4000, chains=4)
        >>> abs(float(lv.estimate(ledger)["theta.mean"].value[0])) < 0.3
        True
    """

    target_acceptance = 0.35

    def step(
        self, log_density: LogDensity, state: ExactState, eta: Array, log_uniform: Array, delta: Array
    ) -> ExactState:
        """One transition."""
        theta = state.theta + jnp.sqrt(delta) * eta
        value, grad = log_density(theta)
        proposal = ExactState(theta, value, grad, state.acceptance)
        return state.accept(proposal, value - state.log_density, log_uniform)
