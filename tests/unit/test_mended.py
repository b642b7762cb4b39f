"""What a hostile reader found once: each case must never come back."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv

NORMAL = lv.Target(lambda t: -0.005 * t**2, lambda t, x: -0.5 * (x - t) ** 2)


def standardised(seed=0, size=1000):
    z = np.random.default_rng(seed).normal(size=size)
    return ((z - z.mean()) / z.std()).astype(np.float32)


def test_a_start_at_the_mode_is_as_good_as_any():
    """Standardised data have their mode within rounding of 0, where nothing tells yet how fast steps converge."""
    for seed in range(5):
        anchor = lv.laplace(NORMAL, standardised(seed), jnp.zeros(()))
        assert abs(anchor.theta[0]) < 1e-6 and anchor.converged
    model = lv.models.Logistic.simulate(seed=1)
    mode = lv.laplace(model.target, model.data, model.theta_0).theta
    assert lv.laplace(model.target, model.data, mode + 1e-12).converged


def test_no_bar_is_shorter_than_the_spacing_of_float32():
    result = lv.sample(NORMAL, standardised(), jnp.zeros(()), passes=50, progress=False)
    bars = np.concatenate([result.mean.stderr, result.sd.stderr, result.quantiles().stderr.ravel()])
    assert np.all(bars >= 0.9 * 2.0**-23 * result.sd.value) and result.quantiles().status == "ok"


def test_data_changed_in_place_are_noticed():
    data = standardised()
    result = lv.sample(NORMAL, data, jnp.zeros(()), passes=20, progress=False)
    assert result.extend(passes=5).passes > result.passes
    data *= 1.5
    with pytest.raises(ValueError, match="changed in place"):
        result.extend(passes=5)


class Position(NamedTuple):
    theta: jax.Array


class TwiceTheDrift(lv.AffineKernel):
    def init(self, theta, eta):
        return Position(theta)

    def step(self, state, grad, eta, delta):
        return Position(state.theta + delta * grad + jnp.sqrt(delta) * eta)


class Bent(TwiceTheDrift):
    def step(self, state, grad, eta, delta):
        return Position(state.theta + 0.5 * delta * jnp.tanh(grad) + jnp.sqrt(delta) * eta)


COUNTS = lv.Target(lambda t: -0.005 * t[0] ** 2, lambda t, y: y * t[0] - jnp.exp(t[0]))
SIX = np.array([0.0, 1.0, 2.0, 0.0, 1.0, 2.0], np.float32)


def counts(kernel):
    anchor = lv.laplace(COUNTS, SIX, np.zeros(1))
    ledger = lv.run(
        COUNTS, SIX, np.zeros(1), kernel=kernel, subsample=lv.WithoutReplacement(3), schedule=lv.Constant(0.02),
        num_steps=20_000, chains=4, anchor=anchor, progress=False,
    )  # fmt: skip
    return lv.estimate(ledger, "corrected")


def test_a_law_that_lacks_variance_is_no_better_than_one_with_too_much():
    found = counts(TwiceTheDrift())
    assert found["theta.mean"].status != "ok" and found["theta.sd"].status != "ok"


def test_a_kernel_that_only_claims_to_be_affine_is_found_out():
    with pytest.raises(ValueError, match="must be affine"):
        counts(Bent())


def test_steps_beyond_stability_are_called_biased_without_a_warning():
    """The ledger of an unstable run warns of nothing in NumPy, and no number of it is ok."""
    model = lv.models.LinearGaussian.simulate(seed=1)
    anchor = lv.laplace(model.target, model.data, 0.0)
    delta = 3.9 / float(anchor.precision[0, 0]) + 0.2 / float(anchor.precision[0, 0])
    ledger = lv.run(
        model.target, model.data, model.theta_0, subsample=lv.WithoutReplacement(10), schedule=lv.Constant(delta),
        num_steps=64, chains=4, anchor=anchor, progress=False,
    )  # fmt: skip
    for method in ("raw", "corrected"):
        assert all(part.status != "ok" for part in lv.estimate(ledger, method).values())


def test_a_phi_that_is_singular_at_the_mode_alone_has_an_expectation():
    normal = lv.Target(lambda t: -0.5 * jnp.sum(t**2))
    result = lv.sample(normal, None, jnp.ones(2), passes=4000, progress=False)
    found = result.expectation(lambda t: jnp.log(jnp.abs(t[0])))
    # E log |z| = -(log 2 + Euler's constant)/2, at a false alarm of 1e-9.
    lower, upper = found.interval(1.0 - 1e-9)
    assert found.status == "uncorrected" and lower < -0.5 * (np.log(2.0) + np.euler_gamma) < upper
    with pytest.raises(ValueError, match="phi must return an array"):
        result.expectation(lambda t: None)
    for wrong in ((), "a", [[0.1]]):
        with pytest.raises(ValueError, match="probabilities must be numbers"):
            result.quantiles(wrong)
