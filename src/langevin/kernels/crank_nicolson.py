"""Proposals that leave a Gaussian reference as it is, however many dimensions it has."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from langevin.kernels.protocol import ExactKernel, ExactState, LogDensity

Array = jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PCN(ExactKernel):
    """The preconditioned Crank-Nicolson walk: with Phi = -log pi - |z|^2 / 2, what the posterior adds to N(0, I),

        z' = ((1 - delta/4) z + sqrt(delta) eta) / (1 + delta/4),    accepted with probability min(1, exp(Phi - Phi')).

    The proposal leaves N(0, I) as it is, so only Phi is ever rejected: where z is a path or a field with a Gaussian
    prior, the acceptance does not fall as the grid becomes finer. Put the prior's covariance into the coordinates,
    `coordinates=lv.Preconditioned.by(prior_covariance)`, for a prior of mean 0. Exact for any target, slow where it is
    far from the reference; delta up to 4, an independent draw of the reference. Cost: one full gradient, N datum visits
    a step (the gradient is carried along for the correction).

    Cotter, Roberts, Stuart and White, *MCMC methods for functions: modifying old algorithms to make them faster*
    (2013): their beta is sqrt(delta) / (1 + delta/4).

    Example:
        >>> import jax.numpy as jnp, langevin as lv, numpy as np
        >>> times = np.arange(1, 101) / 100  # a Brownian path, seen once at time 1
        >>> prior = np.minimum.outer(times, times)
        >>> precision = jnp.asarray(np.linalg.inv(prior))
        >>> target = lv.Target(lambda u: -0.5 * u @ precision @ u - 0.5 * (u[-1] - 1.0) ** 2)
        >>> ledger = lv.run(target, None, np.zeros(100), kernel=lv.PCN(), schedule=lv.Constant(0.5), num_steps=1000,
        ...                 coordinates=lv.Preconditioned.by(prior))
        >>> bool(ledger.acceptance.sum() / 1000 > 0.5)
        True
    """

    target_acceptance = 0.35

    def step(
        self, log_density: LogDensity, state: ExactState, eta: Array, log_uniform: Array, delta: Array
    ) -> ExactState:
        """One transition."""
        theta = ((1.0 - 0.25 * delta) * state.theta + jnp.sqrt(delta) * eta) / (1.0 + 0.25 * delta)
        value, grad = log_density(theta)
        log_ratio = value - state.log_density + 0.5 * (jnp.sum(theta**2) - jnp.sum(state.theta**2))
        return state.accept(ExactState(theta, value, grad, state.acceptance), log_ratio, log_uniform)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CrankNicolsonLangevin(ExactKernel):
    """Langevin dynamics with the reference's drift taken half implicitly (pCNL): with Phi as in `PCN`, G = grad Phi,

        z' = ((1 - delta/4) z - delta/2 G + sqrt(delta) eta) / (1 + delta/4),
        log ratio = Phi - Phi' + R(z, z') - R(z', z),
        R(z, z') = <(1 + delta/4) z' - (1 - delta/4) z, G> / 2 + delta/8 |G|^2.

    The terms of the reference cancel before they are computed, so nothing of size d is subtracted, and the acceptance
    does not fall as the grid of a path becomes finer. Use as `PCN`; with Phi = 0 all proposals are accepted. Exact for
    any target. Cost: one full gradient, N datum visits a step.

    Cotter, Roberts, Stuart and White, *MCMC methods for functions* (2013).

    Example:
        >>> import langevin as lv
        >>> target = lv.Target(lambda t: -0.5 * t**2 - 0.1 * t**4)
        >>> ledger = lv.run(target, None, 0.0, kernel=lv.CrankNicolsonLangevin(), schedule=lv.Constant(1.0),
        ...                 num_steps=1000, chains=4)
        >>> bool(ledger.acceptance.sum() / 4000 > 0.8)
        True
    """

    target_acceptance = 0.574

    def step(
        self, log_density: LogDensity, state: ExactState, eta: Array, log_uniform: Array, delta: Array
    ) -> ExactState:
        """One transition."""
        kept, all_of_it = 1.0 - 0.25 * delta, 1.0 + 0.25 * delta
        pull = -(state.grad + state.theta)
        theta = (kept * state.theta - 0.5 * delta * pull + jnp.sqrt(delta) * eta) / all_of_it
        value, grad = log_density(theta)
        back = -(grad + theta)

        def reach(start: Array, end: Array, slope: Array) -> Array:
            return 0.5 * jnp.dot(all_of_it * end - kept * start, slope) + 0.125 * delta * jnp.dot(slope, slope)

        gain = value - state.log_density + 0.5 * (jnp.sum(theta**2) - jnp.sum(state.theta**2))
        log_ratio = gain + reach(state.theta, theta, pull) - reach(theta, state.theta, back)
        return state.accept(ExactState(theta, value, grad, state.acceptance), log_ratio, log_uniform)
