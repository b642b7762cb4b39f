"""What the engine needs of every step-size law. A new one is tested by adding a line to SCHEDULES."""

import jax
import numpy as np
import pytest

import langevin as lv
from langevin.schedules import Schedule


def slowly(m):
    return 0.1 / (1 + np.log(m))


SCHEDULES = [
    lv.Polynomial(a=1.0, b=50.0, alpha=1 / 3),
    lv.Polynomial(a=[1.0, 2.0], b=50.0),
    lv.Power(0.1, m_0=9, alpha=0.5),
    lv.Constant(0.05),
    lv.Constant([0.05, 0.1, 0.2]),
    lv.Custom(slowly),
]
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)


@every_schedule
def test_is_a_value(schedule):
    assert isinstance(schedule, Schedule)
    leaves, treedef = jax.tree.flatten(schedule)
    assert treedef.unflatten(leaves) == schedule and hash(treedef.unflatten(leaves)) == hash(schedule)
    assert sum(schedule == other for other in SCHEDULES) == 1


@every_schedule
def test_steps_are_positive_float64_with_the_settings_leading(schedule):
    delta = schedule.delta(np.arange(1, 20))
    assert delta.dtype == np.float64 and delta.shape == (*schedule.batch_shape, 19)
    assert np.all(delta > 0) and np.all(np.diff(delta, axis=-1) <= 0)


@every_schedule
def test_the_books_hold_the_sums_of_the_rounded_steps(schedule):
    target = lv.Target(lambda t: -0.5 * t**2)
    for power in (1.0, 2.0):
        ledger = lv.run(target, None, 0.0, schedule=schedule, num_steps=40, weight_power=power)
        delta = schedule.delta(np.arange(1, 41)).astype(np.float32).astype(np.float64)
        omega = (schedule.delta(np.arange(1, 41)) ** power).astype(np.float32).astype(np.float64)
        for found, steps in (
            (ledger.sum_delta, delta),
            (ledger.sum_delta2, delta**2),
            (ledger.sum_omega, omega),
        ):
            expected = np.stack([steps[..., :16].sum(-1), steps[..., 16:32].sum(-1), steps[..., 32:].sum(-1)], axis=-1)
            # The same few positive float64 numbers in another order.
            np.testing.assert_allclose(found, expected, rtol=1e-14)
        assert ledger.values["theta"].shape == (*schedule.batch_shape, 1, 3, 2)
