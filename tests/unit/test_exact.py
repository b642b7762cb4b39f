"""Exact sampling as the second half of `lv.sample`: when it takes over, what it says, and that it can be kept."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, polygamma

import langevin as lv
from langevin.sampling.choice import exact_passes
from langevin.sampling.tails import moments
from langevin.sampling.travel import Modes
from tests.unit.saved import assert_same

# Logarithms of gamma variables of shape 1/2: far from Gaussian, with known moments.
SKEWED = lv.Target(lambda t: jnp.sum(0.5 * t - jnp.exp(t)))
TRUTH = float(digamma(0.5)), float(np.sqrt(polygamma(1, 0.5)))


def two_modes(weight, distance):
    def log_density(t):
        return jnp.logaddexp(
            jnp.log(1.0 - weight) - 0.5 * jnp.sum(t**2), jnp.log(weight) - 0.5 * jnp.sum((t - distance) ** 2)
        )

    return lv.Target(log_density)


def student(nu, d):
    return lv.Target(lambda t: -0.5 * (nu + d) * jnp.log1p(jnp.sum(t**2) / nu))


@pytest.fixture(scope="module")
def skewed():
    return lv.sample(SKEWED, None, np.zeros(3), passes=100, progress=False)


def test_a_skewed_posterior_is_answered_exactly_and_says_why(skewed):
    assert skewed.method == "exact" and skewed.status == "ok"
    for part, true in zip((skewed.mean, skewed.sd), TRUTH, strict=True):
        lower, upper = part.interval(1 - 1e-9)
        assert np.all((lower < true) & (true < upper))
    text = skewed.explain()
    assert "sampled exactly, because" in text and "not near-Gaussian" in text
    assert "Split R-hat" in text and "No-U-Turn" in text
    # A hundred gradients were allowed, and nobody would have been served by them.
    assert skewed.session.steps >= 1000 / 2


def test_an_exact_run_can_be_saved_and_extended(skewed, tmp_path):
    skewed.save(tmp_path / "run")
    again = lv.load(tmp_path / "run", SKEWED)
    assert again.method == "exact"
    assert_same(again.mean, skewed.mean)
    assert_same(again.quantiles(), skewed.quantiles())
    one, other = (result.extend(passes=20_000, progress=False) for result in (again, skewed))
    assert one.session.steps > skewed.session.steps
    assert_same(one.mean, other.mean)


def test_the_method_can_be_chosen():
    gaussian = lv.Target(lambda t: -0.5 * jnp.sum(t**2))
    assert lv.plan(gaussian, None, np.ones(2), passes=4000).method == "minibatch"
    asked = lv.sample(gaussian, None, np.ones(2), precision=0.05, method="exact", progress=False)
    assert asked.method == "exact" and asked.status == "ok" and "it was asked for" in asked.explain()
    insisted = lv.sample(SKEWED, None, np.zeros(3), passes=4000, method="minibatch", progress=False)
    assert insisted.method == "minibatch" and insisted.status != "ok"
    with pytest.raises(ValueError, match="method must be one of auto, minibatch, exact, got 'nuts'"):
        lv.sample(gaussian, None, np.ones(2), passes=10, method="nuts")


def test_a_plan_says_which_method_and_what_the_other_would_take():
    exact, minibatch = (str(lv.plan(t, None, np.zeros(2), passes=4000)) for t in (SKEWED, student(1e4, 2)))
    assert "exact sampling, because" in exact and "No-U-Turn" in exact
    assert "minibatches, because" in minibatch and "exact: 33,600 gradients at least" in minibatch


def test_data_that_are_too_many_for_the_budget_are_named():
    rng = np.random.default_rng(0)
    y = np.r_[1.0, np.zeros(99_999)].astype(np.float32)
    target = lv.Target(lambda t: -0.02 * t[0] ** 2, lambda t, y: y * t[0] - jnp.logaddexp(0.0, t[0]))
    plan = lv.plan(target, y[rng.permutation(len(y))], np.full(1, -10.0), passes=5)
    assert plan.method == "minibatch" and exact_passes(plan) > 5
    assert f"{exact_passes(plan):,.0f} passes" in str(plan)


def test_the_anchor_moves_to_the_heavier_mode():
    plan = lv.plan(two_modes(0.99, 12.0), None, np.full(1, 0.1), passes=4000)
    assert abs(plan.anchor.theta[0] - 12.0) < 0.1
    # From the heavier one it stays there.
    assert abs(lv.plan(two_modes(0.01, 12.0), None, np.full(1, 0.1), passes=4000).anchor.theta[0]) < 0.1


def test_modes_that_chains_travel_between_are_one_answer(monkeypatch, tmp_path):
    target = two_modes(0.3, 30.0)
    far = lv.sample(target, None, np.full(1, 0.1), precision=0.1, progress=False)
    assert far.method == "exact" and far.status == "ok"
    truth = 0.3 * 30.0, np.sqrt(1.0 + 0.3 * 0.7 * 900.0)
    for part, true in zip((far.mean, far.sd), truth, strict=True):
        lower, upper = part.interval(1 - 1e-9)
        assert np.all((lower < true) & (true < upper))
    assert "2 modes; the chains changed between them" in str(far) and "jumps between 2 modes" in far.explain()
    far.save(tmp_path / "run")
    again = lv.load(tmp_path / "run", target)
    assert_same(*(result.extend(passes=20_000, progress=False).mean for result in (again, far)))
    # Without jumps the chains stay where they are, and say so.
    monkeypatch.setattr(Modes, "kernel", lambda self, units: lv.NUTS())
    alone = lv.sample(target, None, np.full(1, 0.1), precision=0.1, progress=False)
    assert alone.status == "several_modes" and np.all(np.isnan(alone.mean.stderr))
    assert "from another one 0 times only" in str(alone)
    # Nor are modes one answer where there may be more of them.
    monkeypatch.undo()
    monkeypatch.setattr("langevin.sampling.travel._MOST_MODES", 1)
    open_ended = lv.sample(target, None, np.full(1, 0.1), precision=0.1, progress=False)
    assert open_ended.status == "several_modes" and "there may be more" in str(open_ended)


@pytest.mark.parametrize("nu, d", [(1.0, 1), (3.0, 1), (2.0, 3), (6.0, 2)])
def test_moments_are_read_off_a_power_law(nu, d):
    anchor = lv.laplace(student(nu, d), None, np.full(d, 0.1))
    assert abs(moments(student(nu, d), None, anchor, 0) - nu) < 0.1
    # Light tails have them all.
    assert moments(lv.Target(lambda t: -jnp.sum(jnp.abs(t))), None, anchor, 0) > 30


def test_moments_of_one_parameter_are_seen_in_units_that_correlate_it():
    cauchys = lv.Target(lambda t: -jnp.sum(jnp.log1p(t**2)))
    anchor = lv.laplace(cauchys, None, np.full(3, 0.1))
    assert abs(moments(cauchys, None, anchor, 0) - 1.0) < 0.1
    # What draws without a variance make of independent parameters.
    skewed = np.array([[1.0, 0.3, -0.4], [0.3, 1.0, 0.2], [-0.4, 0.2, 1.0]])
    refitted = replace(anchor, root=(np.linalg.cholesky(skewed),), covariance=skewed, precision=np.linalg.inv(skewed))
    assert abs(moments(cauchys, None, refitted, 0) - 1.0) < 0.1


def test_a_density_that_needs_float64_gets_it():
    # Spoilt by 1e6 in float32: the value is rounded to a sixteenth, and whole paths cost or gain for no reason.
    target = lv.Target(lambda t: jnp.sum(0.5 * t - jnp.exp(t)) + 1e9 * (jnp.cos(1e-6 * jnp.sum(t)) - 1.0))
    with jax.enable_x64(True):
        result = lv.sample(target, None, np.zeros(2), passes=100, method="exact", progress=False)
    assert result.ledger.acceptance.sum() / (result.session.steps * 4) > 0.6


def test_units_are_refitted_where_the_curvature_at_the_mode_misleads():
    # A narrow peak on a wide hill: a hundredth of the width of what matters.
    target = lv.Target(
        lambda t: jnp.logaddexp(-0.5 * jnp.sum(t**2), jnp.log(0.02) - 0.5 * jnp.sum(t**2) * 1e4 + 2 * jnp.log(100.0))
    )
    result = lv.sample(target, None, np.zeros(2), precision=0.1, progress=False)
    assert result.session.tuned.refitted and result.method == "exact"
    assert "disagreed with" in result.explain()


def test_the_densities_of_many_data_keep_their_digits(monkeypatch):
    """A sum of -10^6 is known to a thirty-second in float32; less what is typical of a datum, to a thousandth."""
    y = np.random.default_rng(0).normal(size=400_000).astype(np.float32)
    target = lv.Target(lambda t: 0.0 * t[0], lambda t, y: -0.5 * (y - t[0]) ** 2 - 2.0)

    def scatter():
        call = {"kernel": lv.RWM(), "schedule": lv.Constant(1e-6), "num_steps": 16, "chains": 8}
        state = lv.run(target, y, np.full(1, y.mean()), **call).checkpoint.carry.state
        theta = state.theta[0, :, 0].astype(np.float64)
        exact = theta * np.sum(y, dtype=np.float64) - 0.5 * len(y) * theta**2
        return np.std(state.log_density[0] - exact)

    assert scatter() < 1e-3
    monkeypatch.setattr("langevin.engine.evaluate._MANY_DATA", 10**9)
    assert scatter() > 5e-3


def test_a_bound_that_depends_on_the_data_is_named():
    """Uniform on (0, exp(theta)): the density of theta is largest where it ends, and gradients push beyond."""
    y = 3.0 * np.random.default_rng(0).random(100)
    target = lv.Target(lambda t: -0.05 * t**2, lambda t, y: jnp.where(y < jnp.exp(t), -t, -jnp.inf))
    with pytest.raises(lv.AnchorError, match="the gradient does not average to zero: the density ends before it"):
        lv.sample(target, y, np.float32(2.0), precision=0.1)


def test_raw_averages_stand_in_where_corrected_ones_cannot_be_right():
    """A normal law cut at one sd below its mode: its mean gradient is not zero, so a correction takes the mean off."""
    target = lv.Target(lambda t: jnp.sum(jnp.where(t > 0.0, -0.5 * (t - 1.0) ** 2, -jnp.inf)))
    result = lv.sample(target, None, np.ones(1), method="exact", passes=20_000)
    assert result.status == "hard_bound"
    assert abs(result.mean.value[0] - 1.2876) < 0.1
    assert abs(lv.estimate(result.ledger, "corrected")["theta.mean"].value[0] - 1.2876) > 0.2
