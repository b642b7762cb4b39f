"""The rules behind `lv.sample` against their formulas, and the fixed point of batch size and number of steps."""

from types import SimpleNamespace

import numpy as np
import pytest

from langevin.sampling import pace
from langevin.sampling.budget import Budget
from langevin.sampling.pace import Pace
from langevin.sampling.rules import CHUNK, Rules


def rules(**changes):
    known = {
        "num_data": 1000,
        "dimension": 3,
        "order": "cv2",
        "near_gaussian": True,
        "curvature_spread": 4.0,
        "noise": 0.1,
    }
    return Rules(**(known | changes))


def test_sizes_are_whole_rounds():
    one = rules(num_data=10**6)
    assert [one.in_rounds(size) for size in (1, 4, 9, 40)] == [4, 4, 12, 40]
    assert all(rules(num_data=10**6, noise=noise).batch_size(1e5) % CHUNK == 0 for noise in (0.01, 0.3, 5.0, 40.0))


@pytest.mark.parametrize(
    ("steps", "noise", "kappa", "near"), [(4000, 0.1, 0.0, True), (1e6, 0.1, 4.0, True), (4e4, 0.5, 9.0, False)]
)
def test_batch_size_is_the_larger_of_stability_and_noise(steps, noise, kappa, near):
    delta = 1.0 if near else 0.5
    tolerance = 0.005 * min(1.0, np.sqrt(4000 / steps))
    least = max(kappa / (8 / (3 * delta) - 1), delta * noise / (4 * tolerance), 1.0)
    found = rules(noise=noise, curvature_spread=kappa, near_gaussian=near).batch_size(steps)
    assert least <= found < least + CHUNK and found % CHUNK == 0


def test_few_data_or_a_large_share_of_them_means_all_of_them():
    assert rules(num_data=50).batch_size(1000) == 50
    assert rules(num_data=1000, noise=100.0).batch_size(1000) == 1000
    for unknown in (np.inf, np.nan):
        assert rules(noise=unknown).batch_size(1000) == rules(curvature_spread=unknown).batch_size(1000) == 1000
    assert rules(num_data=0, order="exact").batch_size(1000) == 0
    assert rules(num_data=1000).guard(1000) == 1
    assert rules(num_data=1000).guard(5) == 100


@pytest.mark.parametrize("visits", [1e2, 1e4, 1e6, 1e9])
@pytest.mark.parametrize("noise", [0.01, 0.3, 3.0])
@pytest.mark.parametrize("num_data", [200, 10**6])
def test_batch_size_and_number_of_steps_agree_with_each_other(visits, noise, num_data):
    one = rules(num_data=num_data, noise=noise)
    n, recorded = one.fit(visits)
    assert recorded * one.step_cost(n) == pytest.approx(visits)
    assert one.batch_size(recorded) <= n
    smaller = range(CHUNK, n, CHUNK)
    # No smaller size would do, except that all the data stand for every size beyond a third of them.
    enough = [s for s in smaller if one.batch_size(visits / one.step_cost(s)) <= s]
    assert not enough or (n == num_data and min(enough) > num_data / 3)


def test_without_second_order_the_step_balances_noise_and_fluctuations():
    one = rules(num_data=10**5, order="plain", noise=1e5)
    delta, n, steps = one.delta_0(1e4, 100), 100, 1e4
    mse = [(d * 1e5 / (4 * n)) ** 2 + 4 / (d * steps) for d in (0.9 * delta, delta, 1.1 * delta)]
    assert mse[1] < min(mse[0], mse[2])
    # tau = delta N / n = (32/P)^(1/3) at P passes
    assert delta * 1e5 / n == pytest.approx((32 / (steps * n / 1e5)) ** (1 / 3))


@pytest.mark.parametrize("num_data", [100, 101])
def test_a_run_on_minibatches_that_outgrows_its_data_sees_as_many_as_it_says(num_data):
    # All the data would be another program; a run that has begun draws as many of them.
    plan = SimpleNamespace(rules=rules(num_data=num_data, noise=1.0), chains=np.arange(4), num_data=num_data)
    run = SimpleNamespace(m=0, visits=0, rounds=None)
    going = Pace(plan, Budget(precision=1e-3), run, 0.0, 28)
    for goal in (1000, 10_000, 100_000):
        going.set_batch_size(goal)
        assert run.rounds[0] * CHUNK == going.batch_size
    assert going.batch_size > num_data


@pytest.mark.parametrize(
    ("steps", "worst", "goes_on"),
    [(1008, 1e-4, True), (9000, 0.04, True), (9000, 0.018, True), (9000, 0.017, False)],
)
def test_a_doubt_may_cost_eight_times_what_the_precision_did(monkeypatch, steps, worst, goes_on):
    survey = SimpleNamespace(outskirts=None)
    plan = SimpleNamespace(troubles=(), rules=None, chains=np.arange(4), survey=survey)
    run = SimpleNamespace(m=steps, visits=0, ledger=lambda: None)
    for status, expected in (("transient", 2 * steps if goes_on else steps), ("ok", steps)):
        monkeypatch.setattr(pace, "accuracy", lambda *_, status=status: ({"ok", status}, worst))
        assert Pace(plan, Budget(precision=0.05), run, 0.0, 28)._by_precision() == (expected, "precision")
