"""The sampler under test with known sins, for every study to find out."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from langevin.kernels.sgld import SGLDState


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Twin:
    """SGLD with factors on drift and noise: numbers in a pytree, so that one compilation serves all of them.

    With factors of 1 it is the honest sampler.
    """

    drift: float = 1.0
    noise: float = 1.0

    def init(self, theta, eta):
        return SGLDState(theta)

    def step(self, state, grad, eta, delta):
        return SGLDState(state.theta + 0.5 * delta * (self.drift * grad) + jnp.sqrt(delta) * (self.noise * eta))


TWINS = {"noise sqrt(2 delta)": Twin(noise=2**0.5), "drift delta": Twin(drift=2.0)}
