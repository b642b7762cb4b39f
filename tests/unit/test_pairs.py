"""Pairs of runs on one noise: the coarse one has the law of twice the step, and the extrapolation its exact limit.

Scores are over independent chains, limits for 1e-9, and a factor of 4 allowed for skewness.
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import langevin as lv

CHAINS, DELTA = 256, 0.5
NORMAL = lv.Target(lambda t: -0.5 * t**2)
LIMIT = float(stats.t.isf(0.5e-9, CHAINS - 1))


def square(theta):
    return theta**2


def run(kernel, delta=DELTA, steps=2048, seed=3, chains=CHAINS, target=NORMAL, **more):
    parts = {"observables": {"square": square}, "schedule": lv.Constant(delta), "progress": False, **more}
    return lv.run(target, None, 0.0, kernel=kernel, num_steps=steps, chains=chains, seed=seed, **parts)


@pytest.fixture(scope="module")
def pair():
    return run(lv.SGLD()), run(lv.Coarse(lv.SGLD()))


def variance(delta):
    """Of SGLD on N(0, 1)."""
    return 1 / (1 - float(np.float32(delta)) / 4)


def squares(ledger):
    rows = ledger.m_stop > 256
    return ledger.values["square"][:, rows, 0].sum(axis=1) / ledger.sum_omega[rows].sum()


def score(values, truth):
    return abs(values.mean() - truth) / (values.std(ddof=1) / np.sqrt(len(values)))


def test_a_coarse_run_moves_every_second_step_by_both_noises():
    kernel = lv.Coarse(lv.SGLD())
    state, etas, deltas = kernel.init(jnp.array([0.5]), jnp.zeros(1)), [0.3, -1.1], [0.1, 0.2]
    held = kernel.step(state, jnp.array([7.0]), jnp.array(etas[:1]), jnp.float32(deltas[0]))
    assert held.theta.tolist() == [0.5]
    moved = kernel.step(held, jnp.array([2.0]), jnp.array(etas[1:]), jnp.float32(deltas[1]))
    expected = 0.5 + 0.3 / 2 * 2.0 + np.sqrt(0.1) * 0.3 - np.sqrt(0.2) * 1.1
    np.testing.assert_allclose(moved.theta, [expected], rtol=1e-6)
    assert lv.Coarse(lv.UBU(0.5)).noises == 2 and not lv.Coarse(lv.SGFS()).has_theory


def test_both_have_their_laws_and_stay_close(pair):
    fine, coarse = map(squares, pair)
    assert score(fine, variance(DELTA)) < LIMIT and score(coarse, variance(2 * DELTA)) < LIMIT
    # The control: neither has the other's.
    assert score(fine, variance(2 * DELTA)) > LIMIT + 8 and score(coarse, variance(DELTA)) > LIMIT + 8
    assert np.corrcoef(fine, coarse)[0, 1] > 0.9


def test_the_extrapolation_has_its_limit_and_its_bar_is_that_of_both(pair):
    found = lv.richardson_romberg(*pair)["square"]
    limit = 2 * variance(DELTA) - variance(2 * DELTA)
    lower, upper = found.interval(1 - 1e-9)
    assert lower < limit < upper and found.status == "uncorrected" and np.isnan(found.bias)
    # What is left, -0.05, is less than half of the fine run's bias of 0.14, and the bar is not twice as long.
    assert abs(limit - 1) < 0.5 * (variance(DELTA) - 1)
    alone = lv.estimate(pair[0])["square"]
    assert found.stderr < 2 * alone.stderr
    assert not alone.interval(1 - 1e-9)[0] < limit < alone.interval(1 - 1e-9)[1]


@pytest.mark.slow
def test_moments_are_extrapolated_before_a_variance_is_made_of_them():
    parts = {"observables": None, "chains": 32}
    found = lv.richardson_romberg(run(lv.SGLD(), **parts), run(lv.Coarse(lv.SGLD()), **parts))["theta.variance"]
    lower, upper = found.interval(1 - 1e-9)
    assert lower[0] < 2 * variance(DELTA) - variance(2 * DELTA) < upper[0] < variance(DELTA) + 0.1


@pytest.mark.slow
def test_levels_add_up_to_the_finest_step_with_a_shorter_bar_than_that_alone():
    base = run(lv.SGLD(), 1.0, 8192, seed=0)
    pairs = [
        (run(lv.SGLD(), delta, 2048, seed), run(lv.Coarse(lv.SGLD()), delta, 2048, seed))
        for delta, seed in ((0.5, 1), (0.25, 2))
    ]
    found = lv.multilevel(base, pairs)["square"]
    lower, upper = found.interval(1 - 1e-9)
    assert lower < variance(0.25) < upper and not lower < variance(0.5) < upper and found.status == "uncorrected"
    assert found.stderr < 0.7 * lv.estimate(pairs[1][0])["square"].stderr


@pytest.fixture(scope="module")
def levels():
    """Two levels that fit, short: the base at 0.5, a pair at 0.25."""
    parts = {"delta": 0.25, "steps": 64, "seed": 1, "chains": 2}
    return run(lv.SGLD(), 0.5, 64, 0, 2), (run(lv.SGLD(), **parts), run(lv.Coarse(lv.SGLD()), **parts))


def test_levels_may_differ_in_length_chains_and_draws(levels):
    _, pair = levels
    assert np.isfinite(lv.multilevel(run(lv.SGLD(), 0.5, 128, 0, 4, keep=16), [pair])["square"].stderr)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"delta": 1.0}, r"pairs\[0\] must have half the step of base, .* got .*0.25\) after .*1.0\)"),
        (
            {"target": lv.Target(lambda t: -0.5 * (t - 3) ** 2)},
            r"pairs\[0\] must be of the runs .* the target's gradient",
        ),
        ({"coordinates": lv.Preconditioned.by([4.0])}, "but coordinates is"),
        ({"observables": {"square": lambda t: t**2 + 1}}, "but observables is"),
        ({"observables": {"cube": lambda t: t**3}}, "but observables is"),
        ({"kernel": lv.BAOAB()}, r"but kernel is BAOAB\(friction=1.0\) and SGLD\(\)"),
        ({"schedule": lv.Polynomial(1.0, 1.0)}, "base must have constant steps"),
    ],
)
def test_a_base_on_which_the_pair_does_not_stand_is_refused(levels, more, named):
    """A base at step 1 gave 1.25 for 1.07, one of another target 10.1, each with a bar of 0.01."""
    parts = {"kernel": lv.SGLD(), "delta": 0.5, "steps": 64, "seed": 0, "chains": 2, **more}
    with pytest.raises(ValueError, match=named):
        lv.multilevel(run(**parts), [levels[1]])


def test_data_and_minibatches_are_those_of_the_base():
    line = lv.Target(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
    data = np.linspace(-1.0, 1.0, 30).astype(np.float32)

    def level(kernel, delta, seed, data=data, size=5):
        return lv.run(
            line, data, 0.0, kernel=kernel, schedule=lv.Constant(delta), num_steps=64, seed=seed, progress=False,
            subsample=lv.WithReplacement(size), observables={"square": square},
        )  # fmt: skip

    pair = level(lv.SGLD(), 0.01, 1), level(lv.Coarse(lv.SGLD()), 0.01, 1)
    assert np.isfinite(lv.multilevel(level(lv.SGLD(), 0.02, 0), [pair])["square"].value)
    with pytest.raises(ValueError, match=r"but the data are .* \(30,\)"):
        lv.multilevel(level(lv.SGLD(), 0.02, 0, data=data + 1), [pair])
    with pytest.raises(ValueError, match="but subsample is"):
        lv.multilevel(level(lv.SGLD(), 0.02, 0, size=10), [pair])


def test_levels_in_the_wrong_order_and_what_is_no_pair_are_refused(levels):
    base, pair = levels
    parts = {"delta": 0.125, "steps": 64, "seed": 2, "chains": 2}
    finer = run(lv.SGLD(), **parts), run(lv.Coarse(lv.SGLD()), **parts)
    assert np.isfinite(lv.multilevel(base, [pair, finer])["square"].value)
    with pytest.raises(ValueError, match=r"pairs\[0\] must have half the step of base"):
        lv.multilevel(base, [finer, pair])
    again = run(lv.SGLD(), 0.25, 64, 3, 2), run(lv.Coarse(lv.SGLD()), 0.25, 64, 3, 2)
    with pytest.raises(ValueError, match=r"pairs\[1\] must have half the step of pairs\[0\]"):
        lv.multilevel(base, [pair, again])
    with pytest.raises(ValueError, match=r"pairs must be a list of pairs \(fine, coarse\), got Ledger"):
        lv.multilevel(base, pair)
    with pytest.raises(ValueError, match="base must be the ledger of a run, got 3"):
        lv.multilevel(3, [])
    with pytest.raises(ValueError, match="coarse must be the ledger of a run, got None"):
        lv.richardson_romberg(base, None)


def test_runs_that_are_no_pair_are_refused(pair):
    fine, coarse = pair
    with pytest.raises(ValueError, match=r"coarse must be the run of lv.Coarse\(SGLD\(\)\)"):
        lv.richardson_romberg(fine, fine)
    with pytest.raises(ValueError, match="must be of one run but for the kernel"):
        lv.richardson_romberg(run(lv.SGLD(), seed=4, chains=2), run(lv.Coarse(lv.SGLD()), chains=2))
    with pytest.raises(ValueError, match="order must be an integer of at least 1, got 0"):
        lv.richardson_romberg(fine, coarse, order=0)
    with pytest.raises(ValueError, match="seeds of their own"):
        lv.multilevel(fine, [(fine, coarse)])
    with pytest.raises(ValueError, match="observables must be functions"):
        lv.multilevel(run(lv.SGLD(), chains=2, observables=None), [])
    with pytest.raises(ValueError, match="kernel must be a kernel for minibatches, got 3"):
        replace(lv.Coarse(lv.SGLD()), kernel=3)
