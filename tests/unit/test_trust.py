"""Estimates that deserve no trust say so: stuck chains, one slow direction, skewed posteriors."""

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv


@pytest.mark.parametrize("kernel", [lv.MALA(), lv.HMC(3)], ids=["MALA", "HMC"])
def test_a_chain_that_never_moves_is_not_ok(kernel):
    normal = lv.Target(lambda t: -0.5 * jnp.sum(t**2))
    ledger = lv.run(normal, None, 5 * jnp.ones(2), kernel=kernel, schedule=lv.Constant(1e4), num_steps=500, chains=2)
    assert ledger.acceptance.sum() < 10
    assert all(found.status == "transient" for found in lv.estimate(ledger).values())


def test_one_slow_direction_among_twenty_is_seen():
    scale = jnp.concatenate([jnp.array([100.0]), jnp.ones(20)])
    target = lv.Target(lambda t: -0.5 * jnp.sum((t / scale) ** 2))
    schedule = lv.adapt_step(target, None, jnp.zeros(21), kernel=lv.MALA())
    ledger = lv.run(
        target, None, jnp.zeros(21), kernel=lv.MALA(), schedule=schedule, num_steps=20_000, chains=4,
        observables={"theta": lambda t: t},
    )  # fmt: skip
    found = lv.estimate(ledger)["theta"]
    assert found.statuses[0] == "too_few_batches"
    # Values are judged one by one: the fast ones keep their word, but for a false alarm.
    assert np.mean(found.statuses[1:] == "ok") > 0.8


def test_in_coordinates_of_its_own_a_step_is_adapted_to_the_same_acceptance_whatever_the_scales():
    scale = jnp.array([100.0, 1.0, 1.0])
    target = lv.Target(lambda t: -0.5 * jnp.sum((t / scale) ** 2))
    units = lv.Preconditioned.by(np.square(scale))
    round_one = lv.adapt_step(lv.Target(lambda z: -0.5 * jnp.sum(z**2)), None, jnp.zeros(3), kernel=lv.MALA())
    schedule = lv.adapt_step(target, None, jnp.zeros(3), kernel=lv.MALA(), coordinates=units)
    # The same chain in the same units but for rounding.
    assert schedule.delta(1) == pytest.approx(round_one.delta(1), rel=1e-3)
    with pytest.raises(ValueError, match=r"coordinates must be lv.Coordinates or None, got 'whitened'"):
        lv.adapt_step(target, None, jnp.zeros(3), kernel=lv.MALA(), coordinates="whitened")


def test_the_raw_mean_of_a_skewed_posterior_is_not_ok():
    # Linear regression with unknown log sd: its posterior is skewed, and a large step moves the mean with it.
    rng = np.random.default_rng(0)
    x = np.stack([rng.standard_normal(30), np.ones(30)], axis=1).astype(np.float32)
    data = (x, (x @ [1.0, 0.5] + 0.8 * rng.standard_normal(30)).astype(np.float32))

    def log_likelihood(theta, datum):
        row, y = datum
        return -theta["ls"] - 0.5 * ((y - jnp.dot(row, theta["b"])) * jnp.exp(-theta["ls"])) ** 2

    target = lv.Target(lambda t: -0.5 * jnp.sum(t["b"] ** 2) - 0.5 * t["ls"] ** 2, log_likelihood)
    anchor = lv.laplace(target, data, {"b": jnp.zeros(2), "ls": jnp.float32(0.0)})
    step = 0.3 * float(np.linalg.eigvalsh(anchor.covariance)[0])
    ledger = lv.run(
        target, data, anchor.mode, gradient=lv.ControlVariate(anchor), subsample=lv.WithReplacement(5),
        schedule=lv.Constant(step), num_steps=100_000, chains=4, anchor=anchor,
    )  # fmt: skip
    mean = lv.estimate(ledger, "raw")["theta.mean"]
    assert mean.statuses[ledger.names.index("ls")] == "bias_dominates"
