"""Reshuffled passes beneath every gradient: over an epoch the estimates at one point average to the exact gradient.

Corrected averages are scored at 8 standard errors: 1e-9 each with the 39 degrees of freedom of 40 batches, 8 values.
"""

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


def test_a_table_of_gradients_wants_rows_that_are_drawn_anew():
    with pytest.raises(ValueError, match=r"anew for SAGA.*lv.WithoutReplacement"):
        by_epoch(lv.SAGA(), lv.Epochs(BATCH))


# --- corrected averages: what a pass remembers is a bias, and is told ---

X = np.random.default_rng(7).normal(size=(2, 400))
LINE = {"x": X[0].astype(np.float32), "y": (0.5 * X[0] + X[1]).astype(np.float32)}
STRAIGHT = lv.Target(lambda t: -0.5 * jnp.sum(t**2) / 9, lambda t, r: -0.5 * (r["y"] - t[0] - t[1] * r["x"]) ** 2)
DESIGN = np.column_stack([np.ones(400), LINE["x"]])
SD = np.sqrt(np.diagonal(np.linalg.inv(DESIGN.T @ DESIGN + np.eye(2) / 9)))


def corrected_sd(subsample, gradient=None):
    anchor = lv.laplace(STRAIGHT, LINE, np.zeros(2))
    ledger = lv.run(
        STRAIGHT, LINE, anchor.mode, kernel=lv.LeimkuhlerMatthews(), subsample=subsample, anchor=anchor, chains=4,
        gradient=lv.ControlVariate(anchor) if gradient is None else gradient, schedule=lv.Constant(0.05 / 400),
        num_steps=40_000, progress=False,
    )  # fmt: skip
    return lv.estimate(ledger, "corrected")["theta.sd"]


@pytest.mark.slow
def test_what_shuffled_passes_leave_is_named_and_held_by_the_interval():
    found = corrected_sd(lv.Epochs(20))
    assert found.status == "bias_dominates" and np.all(found.bias < 0.0)
    # At the level 1 - 1e-9; without its room the interval at 95% misses, as it did when nothing was said.
    lower, upper = found.interval(1.0 - 1e-9)
    assert np.all((lower < SD) & (SD < upper))
    assert np.all(np.abs(found.value - SD) > 1.96 * found.stderr)


@pytest.mark.slow
def test_control_independent_rows_leave_nothing():
    found = corrected_sd(lv.WithoutReplacement(20))
    assert found.status == "ok" and np.all(np.abs(found.value - SD) < 8.0 * found.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [20, 100])
def test_a_full_pass_leaves_out_the_rows_that_blocks_repeat(batch):
    # With n - 1 rows counted twice sds are 2% and 10% too small, ten standard errors and more.
    found = corrected_sd(lv.Blocks(batch), lv.SVRG(20))
    assert found.status == "ok" and np.all(np.abs(found.value - SD) < 8.0 * found.stderr)
