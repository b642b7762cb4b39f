"""`lv.sample` as a user meets it: budgets, what a Result offers, how it goes on, what it says."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import langevin as lv
from benchmarks.sampled import runs

MODEL = lv.models.Logistic.simulate(seed=1)
POSTERIOR = (MODEL.target, MODEL.data, MODEL.theta_0)


@pytest.fixture(scope="module")
def result():
    return lv.sample(*POSTERIOR, passes=20)


def test_the_answer_is_right_within_its_bars(result):
    truth = MODEL.truth()
    assert result.status == "ok"
    # Seeded: the bars' calibration is the business of the coverage tests.
    assert np.abs((result.mean.value - truth.mean) / result.mean.stderr).max() < 4
    assert np.abs((result.sd.value - np.sqrt(np.diag(truth.covariance))) / result.sd.stderr).max() < 4
    assert result.mean.stderr.max() < 0.01 * result.sd.value.min()


def test_passes_are_spent_to_within_a_row(result):
    row = 16 * 4 * result.session.batch_size / 1000
    assert 20 - row <= result.passes <= 20 + row
    assert result.setup_passes == (result.plan.anchor.cost + result.plan.pilot.cost + result.plan.survey.cost) / 1000


@pytest.mark.parametrize("passes", [0.001, 1.0, 2.0])
def test_a_budget_too_small_for_the_rules_is_honoured_and_flagged(passes):
    small = lv.sample(*POSTERIOR, passes=passes)
    assert small.status == "too_few_batches"
    assert small.passes <= max(passes, 16 * 4 * small.session.batch_size / 1000) * 1.001
    assert "fewer than the 300" in str(small)


def test_the_plan_is_what_is_run_and_its_error_is_about_right(result):
    plan = lv.plan(*POSTERIOR, passes=20)
    assert plan.batch_size == result.session.batch_size
    assert abs(plan.num_steps - result.session.steps) <= 64
    assert plan.setup_cost == result.plan.setup_cost
    # A forecast: within a factor of 3 of what came out, for every parameter.
    ratio = np.stack([plan.expected_mean_error / (result.mean.stderr / result.sd.value),
                      plan.expected_sd_error / (result.sd.stderr / result.sd.value)])  # fmt: skip
    assert ratio.max() < 3 and ratio.min() > 1 / 3
    assert "second-order control variates" in str(plan)


def test_batched_runs_are_bit_for_bit_what_sample_gives():
    alone = lv.sample(*POSTERIOR, passes=10, seed=5, chains=[8, 9, 10, 11])
    batched = list(runs(*POSTERIOR, steps=alone.session.steps, count=4, seed=5))[2]
    assert alone.session.batch_size == batched.session.batch_size
    for name in ("mean", "sd"):
        one, other = getattr(alone, name), getattr(batched, name)
        assert_array_equal(one.value, other.value)
        assert_array_equal(one.stderr, other.stderr)
        assert_array_equal(one.statuses, other.statuses)


def test_a_second_call_with_other_data_of_the_same_shapes_compiles_nothing(result):
    other = lv.models.Logistic.simulate(seed=2)
    with jax.log_compiles(False):
        from jax._src import test_util

        with test_util.count_jit_compilation_cache_miss() as count:
            lv.sample(MODEL.target, other.data, MODEL.theta_0, passes=20)
    # The batch size may be another one for other data: then the block alone is compiled anew.
    assert count() <= 1


def test_the_table_can_be_read_and_names_come_from_the_pytree():
    def log_prior(t):
        return -0.5 * (jnp.sum(t["beta"] ** 2) + t["log sigma"] ** 2)

    def log_likelihood(t, datum):
        x, y = datum
        return -0.5 * (y - x @ t["beta"]) ** 2 * jnp.exp(-2 * t["log sigma"]) - t["log sigma"]

    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 2)).astype(np.float32)
    y = (x @ np.array([1.0, -0.5]) + rng.standard_normal(300)).astype(np.float32)
    start = {"beta": jnp.zeros(2), "log sigma": jnp.float32(0.0)}
    found = lv.sample(lv.Target(log_prior, log_likelihood), (x, y), start, passes=200)
    assert found.names == ("beta[0]", "beta[1]", "log sigma")
    text = str(found)
    assert all(name in text for name in found.names) and "Laplace" in text and "Status ok" in text
    assert "control variates" in found.explain()
    of_beta = found.expectation(lambda t: t["beta"])
    assert np.abs(of_beta.value - found.mean.value[:2]).max() < 5 * of_beta.stderr.max()


def test_expectations_have_their_own_bars(result):
    truth = MODEL.truth()
    linear = result.expectation(lambda t: t)
    assert linear.status == "ok"
    assert np.abs((linear.value - truth.mean) / linear.stderr).max() < 4
    square = result.expectation(lambda t: t[0] ** 2)
    assert abs(square.value - truth.mean[0] ** 2 - truth.covariance[0, 0]) < 4 * square.stderr
    half = result.expectation(lambda t: t[0] > truth.mean[0])
    assert half.status == "uncorrected" and 0.4 < half.value < 0.6
    never = result.expectation(lambda t: t[0] > 1e6)
    assert never.status == "too_few_batches" and np.isnan(never.stderr)


def test_predictive_expectations_over_new_data(result):
    x = np.random.default_rng(3).standard_normal((7, 3)).astype(np.float32)
    found = result.expectation(lambda t, row: lv.sigmoid(row @ t), data=x)
    one = result.expectation(lambda t: lv.sigmoid(jnp.asarray(x[4]) @ t))
    assert found.value.shape == (7,)
    assert_allclose(found.value[4], one.value, rtol=1e-6)
    assert_allclose(found.stderr[4], one.stderr, rtol=1e-4)


def test_quantiles_and_covariance(result):
    truth = MODEL.truth()
    quantiles = result.quantiles((0.1, 0.5, 0.9))
    assert quantiles.value.shape == (3, 3) and np.all(np.diff(quantiles.value, axis=0) > 0)
    covariance = result.covariance
    assert np.abs((covariance.value - truth.covariance) / covariance.stderr).max() < 4.5


def test_extend_goes_on_and_the_batch_size_may_grow(result):
    longer = result.extend(passes=180)
    assert longer.session.steps > result.session.steps
    assert longer.session.batch_size > result.session.batch_size
    row = 16 * 4 * longer.session.batch_size / 1000
    assert 200 - 16 * row <= longer.passes <= 200 + row
    assert longer.status == "ok"
    assert np.all(longer.mean.stderr < result.mean.stderr)
    assert_array_equal(longer.ledger.values["theta"][:, :50], result.ledger.values["theta"][:, :50])


def test_precision_is_reached():
    found = lv.sample(*POSTERIOR, precision=0.004)
    halves = [np.ptp(np.stack(part.interval()), axis=0) / 2 / found.sd.value for part in (found.mean, found.sd)]
    assert found.session.stopped == "precision" and np.max(halves) <= 0.004


def test_the_time_limit_is_kept(result):
    began = time.monotonic()
    found = lv.sample(*POSTERIOR, time_limit=1.0)
    # Everything but the block for a grown batch size is compiled already; that takes a few seconds on a busy machine.
    assert found.session.stopped == "time_limit" and time.monotonic() - began < 15.0
    assert found.session.steps >= 64


def test_the_first_limit_reached_ends_the_run(result):
    found = lv.sample(*POSTERIOR, passes=10, precision=1e-9)
    assert found.session.stopped == "passes" and found.passes <= 10.5


def test_ctrl_c_returns_a_partial_result(result):
    for seconds in (0.3, 0.6, 1.0):  # into a segment, or between two
        timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            found = result.extend(precision=1e-7, progress=False)
        finally:
            timer.cancel()
        assert found.partial and found.session.steps > result.session.steps
        assert "Interrupted" in str(found)


def test_a_target_without_data_counts_gradients():
    target = lv.Target(lambda t: -0.5 * jnp.sum((t - 1.0) ** 2) / 4.0)
    found = lv.sample(target, None, jnp.zeros(2), passes=4000)
    assert found.passes <= 4000 and found.status == "ok"
    assert_allclose(found.mean.value, 1.0, atol=1e-4)
    assert_allclose(found.sd.value, 2.0, atol=1e-3)
    assert "gradients" in str(found) and "passes" not in str(found)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"passes": 0}, "passes must be a positive finite number, got 0"),
        ({"passes": "many"}, "passes must be a positive"),
        ({"time_limit": -1.0}, "time_limit must be a positive"),
        ({"precision": float("nan")}, "precision must be a positive"),
        ({"passes": 5, "chains": 0}, "chains must be"),
        ({"passes": 5, "seed": -1}, "seed must be"),
    ],
)
def test_bad_budgets_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        lv.sample(*POSTERIOR, **changed)


def test_a_target_must_be_a_target():
    with pytest.raises(ValueError, match=r"target must be an lv\.Target"):
        lv.sample(lambda t: 0.0, None, jnp.zeros(1), passes=5)


def test_a_run_can_be_extended_by_time(result):
    longer = result.extend(time_limit=2.0)
    assert longer.session.steps > result.session.steps and longer.session.stopped == "time_limit"


def test_a_generous_limit_beside_a_tight_one_does_not_make_steps_dearer():
    alone, beside = (lv.sample(*POSTERIOR, precision=0.02, **more) for more in ({}, {"passes": 1e9}))
    assert beside.session.batch_size == alone.session.batch_size
    assert beside.passes == alone.passes


def test_a_precision_that_was_not_reached_is_named():
    found = lv.sample(*POSTERIOR, passes=5, precision=1e-7)
    assert "precision of 1e-07 posterior sds was not reached, the passes are spent" in str(found)


def test_a_run_that_stopped_inside_a_row_goes_on_with_larger_minibatches(result):
    run = result.session.prepared()
    run.advance(result.session.steps + 5)
    inside = lv.Result(replace(result.session, ledger=run.ledger(), run=run))
    longer = inside.extend(passes=180)
    assert longer.session.batch_size > result.session.batch_size and longer.status == "ok"


def test_every_entry_of_an_array_is_judged_by_itself(result):
    found = result.expectation(lambda t: jnp.stack([t[0], 1.0 * (t[0] > 0.47), 1.0 * (t[0] > 1e6)]))
    assert found.statuses.tolist() == ["ok", "uncorrected", "too_few_batches"]
    assert np.isnan(found.stderr[2])


def test_a_phi_that_is_not_finite_is_refused(result):
    with pytest.raises(ValueError, match=r"phi must be finite .* draws"):
        result.expectation(lambda t: jnp.log(t[0] - 0.5))


def test_quantiles_beyond_the_grid_have_no_bar(result):
    found = result.quantiles((0.5, 0.99999))
    assert found.statuses[0].tolist() == ["ok"] * 3 and found.statuses[1].tolist() == ["too_few_batches"] * 3
    assert np.isnan(found.stderr[1]).all()


def test_chains_of_a_pair_mirror_each_other_and_share_their_minibatches(result):
    theta = result.draws.theta - result.plan.anchor.theta
    first, second = theta[0], theta[1]
    assert np.corrcoef(first.ravel(), second.ravel())[0, 1] < -0.9
    assert abs(np.corrcoef(first.ravel(), theta[2].ravel())[0, 1]) < 0.3


@pytest.mark.parametrize("chains", [3, [0, 2], [1, 2]])
def test_chains_come_in_pairs(chains):
    with pytest.raises(ValueError, match="chains must be 1 or even"):
        lv.sample(*POSTERIOR, passes=5, chains=chains)


def test_one_chain_is_enough():
    found = lv.sample(*POSTERIOR, passes=20, chains=1)
    assert found.status == "ok" and found.mean.num_batches == 20


@pytest.mark.slow
def test_a_call_takes_less_than_ten_seconds_cold_and_one_and_a_half_warm():
    code = """
import time, numpy as np, langevin as lv
model = lv.models.Logistic.simulate(seed=1)
for _ in range(2):
    began = time.perf_counter()
    lv.sample(model.target, model.data, np.zeros(3), passes=20).status
    print(time.perf_counter() - began)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    cold, warm = map(float, found.stdout.split())
    assert cold < 10.0 and warm < 1.5
