"""Reshuffled passes beneath every gradient: over an epoch the estimates at one point average to the exact gradient."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv

N, BATCH = 12, 4
RNG = np.random.default_rng(8)
DATA = {"x": RNG.normal(size=N).astype(np.float32), "y": RNG.poisson(2.0, N).astype(np.float32)}


def log_likelihood(theta, datum):
    rate = theta[0] + theta[1] * datum["x"]
    return datum["y"] * rate - jnp.exp(rate)


TARGET = lv.Target(lambda t: -0.5 * jnp.dot(t, t), log_likelihood)
ANCHOR = lv.laplace(TARGET, DATA, np.zeros(2))
THETA = np.array([0.2, -0.3], np.float32)


class Place(NamedTuple):
    theta: jax.Array


class Held(lv.Kernel):
    """A chain that stays where it is, so that its gradients can be compared."""

    def init(self, theta, eta):
        return Place(theta)

    def step(self, state, grad, eta, delta):
        return state


def by_epoch(gradient, subsample):
    """Means of the gradients over every whole epoch of 16, (epochs, d)."""
    steps = 16 * N // BATCH
    ledger = lv.run(
        TARGET, DATA, THETA, kernel=Held(), gradient=gradient, subsample=subsample, schedule=lv.Constant(0.1),
        num_steps=steps, keep=2 * steps, progress=False,
    )  # fmt: skip
    grads = ledger.draws.grad[0]
    assert len(grads) == steps
    return grads.reshape(16, N // BATCH, 2).mean(axis=1)


GRADIENTS = {
    "plain": lv.Minibatch(),
    "control variate 1": lv.ControlVariate(ANCHOR, order=1),
    "control variate 2": lv.ControlVariate(ANCHOR, order=2),
    "svrg": lv.SVRG(period=5),
    "saga": lv.SAGA(),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name != "plain" else name for name in GRADIENTS]
)
def test_an_epoch_averages_to_the_exact_gradient(name):
    exact = np.asarray(TARGET.grad(jnp.asarray(THETA), jax.tree.map(jnp.asarray, DATA)))
    # Rounding of sums of some tens of float32 numbers.
    np.testing.assert_allclose(by_epoch(GRADIENTS[name], lv.Epochs(BATCH)), np.tile(exact, (16, 1)), rtol=1e-4)


def test_control_independent_minibatches_do_not():
    exact = np.asarray(TARGET.grad(jnp.asarray(THETA), jax.tree.map(jnp.asarray, DATA)))
    found = by_epoch(lv.Minibatch(), lv.WithReplacement(BATCH))
    assert np.max(np.abs(found / exact - 1)) > 0.1
