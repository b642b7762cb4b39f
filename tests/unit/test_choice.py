"""Which method a call takes: costs that are counted, forecasts, and the change to exact sampling on the way."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.data.source import as_source
from langevin.sampling.choice import (
    ASKED,
    affordable,
    exact_is_sooner,
    exact_passes,
    exact_seconds,
    minibatch_steps,
    operations,
)
from langevin.sampling.pace import SLOWER
from langevin.target import Layout

BENT = lv.Target(lambda t: -3.0 * jnp.sum(jnp.log1p(t**2 / 5.0)))


def of_looking_up(levels):
    """Multiplications for a datum of a model with one parameter a level."""
    data = as_source({"k": np.zeros(256, np.int32), "y": np.zeros(256, np.float32)})
    target = lv.Target(lambda t: -0.5 * jnp.sum(t[0] ** 2), lambda t, d: -0.5 * (d["y"] - t[d["k"]]) ** 2)
    return operations(target, data, Layout.of(np.zeros(levels)))


def of_products(size):
    """The same for a regression on so many columns."""
    data = as_source({"x": np.zeros((256, size), np.float32), "y": np.zeros(256, np.float32)})
    target = lv.Target(lambda t: 0.0 * t[0], lambda t, d: lv.log_sigmoid(d["y"] * jnp.dot(d["x"], t)))
    return operations(target, data, Layout.of(np.zeros(size)))


def test_work_is_that_of_the_model_and_not_of_its_length():
    assert of_looking_up(10) == of_looking_up(3000) == 100.0
    # A product there and one back, each with as many sums.
    assert 3.5 * 2000 < of_products(2000) < 5.0 * 2000


def test_a_model_that_looks_parameters_up_can_afford_exact_sampling():
    groups = 300
    rng = np.random.default_rng(0)
    k = np.repeat(np.arange(groups), 40).astype(np.int32)
    data = {"k": k, "y": (rng.normal(size=groups)[k] + rng.normal(size=len(k))).astype(np.float32)}
    target = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, d: -0.5 * (d["y"] - t[d["k"]]) ** 2)
    plan = lv.plan(target, data, np.zeros(groups), time_limit=30)
    # By a product with every parameter it would take longer than the limit; counted, it does not.
    assert exact_seconds(replace(plan, work=groups + 10.0)) > 30.0
    assert affordable(plan) and exact_seconds(plan) < 30.0


@pytest.fixture(scope="module")
def plan():
    return lv.plan(BENT, None, np.zeros(2), precision=0.01)


def test_exact_sampling_is_sooner_where_steps_on_minibatches_are_very_many(plan):
    steps = 1e3 * minibatch_steps(plan, 0.01)
    assert not exact_is_sooner(plan, 1000.0, 1)
    assert exact_is_sooner(plan, 1e9, 1) and exact_is_sooner(plan, max(steps, 1e8), 1)
    assert not exact_is_sooner(replace(plan, because=ASKED), 1e9, 1)
    # Nor where it is more than the call may take.
    assert not exact_is_sooner(replace(plan, budget=replace(plan.budget, time_limit=1e-6)), 1e9, 1)


def test_the_plan_forecasts_both(plan):
    assert exact_passes(plan, 0.01) > exact_passes(plan, 0.1) >= exact_passes(plan)
    text = str(plan)
    assert "forecast of sampling to 0.01 sds:" in text
    assert f"exact about {exact_passes(plan, 0.01):,.0f} gradients" in text
    assert "forecast" not in str(lv.plan(BENT, None, np.zeros(2), passes=1000))


def test_a_run_gives_way_to_the_shorter_one(monkeypatch):
    monkeypatch.setattr("langevin.sampling.pace.exact_is_sooner", lambda *_: True)
    near = lv.Target(lambda t: -20.0 * jnp.sum(jnp.log1p(t**2 / 39.0)))
    result = lv.sample(near, None, np.zeros(1), precision=0.005, progress=False)
    planned = lv.sample(near, None, np.zeros(1), passes=2000, method="minibatch", progress=False)
    # Whoever extends a run wants that one to go on.
    assert planned.extend(precision=0.005, progress=False).session.stopped != SLOWER
    unhurried = lv.sample(near, None, np.zeros(1), precision=0.005, method="minibatch", progress=False)
    assert result.method == "exact" and "exact sampling is forecast to reach sooner" in result.explain()
    assert unhurried.method == "minibatch" and "method='exact' is forecast to reach it sooner" in str(unhurried)
