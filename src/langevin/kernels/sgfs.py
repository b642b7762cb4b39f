"""Stochastic gradient Fisher scoring."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from langevin.kernels.protocol import Kernel

Array = jax.Array


class FisherState(NamedTuple):
    """The position, the average of g g' over the steps so far, and their number."""

    theta: Array
    second: Array
    seen: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SGFS(Kernel):
    """SGLD damped by the second moments M of its own gradients, so that no step is too large:

        theta_m = theta_{m-1} + (I + delta_m M_m / 4)^-1 (delta_m / 2 grad + sqrt(delta_m) eta_m),
        M_m = M_{m-1} + 2 / (m + 1) (grad grad' - M_{m-1}).

    On the Gaussian model (precision H, gradient noise C) the chain gathers M = H + C, and with that

        H^-1 = A H^-1 A' + D (delta I + delta^2 C / 4) D,    A = I - delta D H / 2,  D = (I + delta (H + C) / 4)^-1:

    its covariance is H^-1 at every step size, whatever the noise; multiply by D^-1 on both sides to see it. Small steps
    are SGLD. As delta grows, theta_m = theta_{m-1} + 2 M^-1 grad: no noise is injected, that of the minibatches does it
    all, and where the posterior is not Gaussian a law comes out with the right covariance at the mode and a shape that
    the way the noise changes with theta decides, not the posterior. M is an average with weights proportional to m: the
    start is forgotten as 1/m^2, what is left of the error of M as 1/m. No claim is made of it: `uncorrected`. The first
    M are rough: before steps that SGLD could not take, let some hundred small ones gather M (`lv.Custom`). Cost: one
    gradient, a solution of d equations, d^2 numbers a chain.

    Ahn, Korattikara and Welling, *Bayesian posterior sampling via stochastic gradient Fisher scoring* (2012), with
    B = I and their (N + n) N I / n, the covariance of the scores within minibatches scaled up, replaced by what it
    stands for: the second moments of the whole gradient at stationarity.

    Example:
        >>> import langevin as lv
        >>> target = lv.Target(lambda t: -0.5 * t**2)  # steps ten times as large as SGLD could take
        >>> ledger = lv.run(target, None, 0.0, kernel=lv.SGFS(), schedule=lv.Constant(40.0), num_steps=4000, chains=4)
        >>> abs(float(lv.estimate(ledger)["theta.variance"].value[0]) - 1.0) < 0.3
        True
    """

    def init(self, theta: Array, eta: Array) -> FisherState:
        """The state before the first step; the first gradient makes the first average."""
        return FisherState(theta, jnp.zeros((theta.size, theta.size), theta.dtype), jnp.zeros((), theta.dtype))

    def step(self, state: FisherState, grad: Array, eta: Array, delta: Array) -> FisherState:
        """One transition."""
        seen = state.seen + 1.0
        second = state.second + 2.0 / (seen + 1.0) * (grad[:, None] * grad - state.second)
        root = jnp.linalg.cholesky(jnp.eye(grad.size, dtype=grad.dtype) + 0.25 * delta * second)
        move = (0.5 * delta * grad + jnp.sqrt(delta) * eta)[:, None]
        half = lax.linalg.triangular_solve(root, move, left_side=True, lower=True)
        whole = lax.linalg.triangular_solve(root, half, left_side=True, lower=True, transpose_a=True)
        return FisherState(state.theta + whole[:, 0], second, seen)
