"""A run's numbers are a function of (seed, chain, layout) alone: cuts, resumption and company change no bit."""

from dataclasses import fields

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.engine import setup
from tests.invariance.cases import CASES, STEPS, assert_same, every_case, four_chains, numbers, run


def test_no_number_of_a_ledger_escapes_the_comparison():
    # A new field must be added to `numbers` above, or to this list with a reason.
    not_numbers = {
        "names",
        "schedule",
        "weight_power",
        "columns",
        "anchor",
        "kernel",
        "coordinates",
        "iid",
        "noisy",
        "manifest",
    }
    compared = {
        "num_steps",
        "row_steps",
        "sum_delta",
        "sum_delta2",
        "sum_omega",
        "chains",
        "values",
    }
    compared |= {"corrections", "outer", "acceptance", "divergences", "levels", "visits", "far", "draws", "checkpoint"}
    assert {f.name for f in fields(lv.Ledger)} == not_numbers | compared | {"interrupted"}


def test_the_comparison_can_fail():
    case = CASES["no data"]
    other = {**case, "theta_0": {"a": jnp.array([0.0, 1e-7]), "b": jnp.float32(0.5)}}
    with pytest.raises(AssertionError, match="bit for bit"):
        assert_same(numbers(four_chains(case)), numbers(run(other, chains=4)))


@pytest.mark.parametrize("block_steps", [1, 7, 100, 1000])
@every_case
def test_block_length_changes_no_bit(case, block_steps):
    assert_same(numbers(run(case, chains=4, block_steps=block_steps)), numbers(four_chains(case)))


@every_case
def test_stop_and_resume_changes_no_bit(case):
    ledger = None
    for stop in (1, 15, 16, 100, 101, STEPS):
        ledger = run(case, stop, chains=4, resume=ledger)
    assert_same(numbers(ledger), numbers(four_chains(case)))


@every_case
def test_a_ledger_can_be_resumed_twice(case):
    part = run(case, 100, chains=4)
    before = numbers(part)
    first, second = (run(case, chains=4, resume=part) for _ in range(2))
    assert_same(numbers(first), numbers(four_chains(case)))
    assert_same(numbers(second), numbers(four_chains(case)))
    assert_same(numbers(part), before)


@every_case
def test_a_chain_moves_alone_as_among_others(case):
    # All cases here choose the layout "chain": four chains are too few for vector lanes.
    alone = run(case, chains=[2])
    assert_same(numbers(alone, state=False), numbers(four_chains(case), [2], state=False))


def test_chains_run_apart_and_stacked_equal_chains_together():
    for case in (CASES["without replacement"], CASES["MALA"]):
        stacked = run(case, chains=[2]).stack(run(case, chains=[0])).stack(run(case, chains=[3]))
        expected = numbers(four_chains(case), [2, 0, 3], state=False)
        assert_same(numbers(stacked, state=False), expected)


@pytest.mark.parametrize("name", ["without replacement", "control variate, anchor, Leimkuhler-Matthews"])
@pytest.mark.parametrize("chains", [[3, 1], pytest.param([0, 1, 2], marks=pytest.mark.slow)], ids=str)
def test_a_few_chains_move_as_four(name, chains):
    # Two or three chains can be compiled in another way than one or four: XLA treats small loops differently.
    few = run(CASES[name], chains=chains)
    assert_same(numbers(few, state=False), numbers(four_chains(CASES[name]), chains, state=False))


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("without replacement", "wide"),
        ("without replacement", "chain"),
        pytest.param("control variate, anchor, Leimkuhler-Matthews", "wide", marks=pytest.mark.slow),
        pytest.param("control variate, anchor, Leimkuhler-Matthews", "chain", marks=pytest.mark.slow),
    ],
)
def test_company_of_twenty_changes_no_bit(name, layout):
    case = {**CASES[name], "layout": layout}
    twenty = run(case, chains=20)
    assert_same(numbers(run(case, chains=[3, 17]), state=False), numbers(twenty, [3, 17], state=False))


@pytest.mark.slow
def test_one_lane_moves_as_twenty():
    case = {**CASES["without replacement"], "layout": "wide"}
    assert_same(numbers(run(case, chains=[5]), state=False), numbers(run(case, chains=20), [5], state=False))


def test_wide_layout_is_cut_and_resumed_without_a_trace():
    case = {**CASES["epochs"], "layout": "wide"}
    expected = numbers(run(case, chains=20))
    assert_same(numbers(run(case, chains=20, block_steps=7)), expected)
    assert_same(numbers(run(case, chains=20, resume=run(case, 50, chains=20))), expected)


@pytest.mark.parametrize("name", ["with replacement", "epochs"])
def test_minibatches_gathered_on_the_host_change_no_bit(monkeypatch, name):
    # Large data are gathered by the host, block by block; here the threshold is set to nothing.
    monkeypatch.setattr(setup, "FROM_BYTES", 0)
    case = CASES[name]
    gathered = run(case, chains=4)
    assert_same(numbers(gathered), numbers(four_chains(case)))
    assert_same(numbers(run(case, chains=4, block_steps=7)), numbers(gathered))
    assert_same(numbers(run(case, chains=4, resume=run(case, 100, chains=4))), numbers(gathered))


@pytest.mark.parametrize("name", ["without replacement", "no data"])
def test_a_slice_of_an_array_of_schedules_is_the_scalar_run(name):
    a = np.array([1.0, 2.0, 30.0])
    together = run({**CASES[name], "schedule": lv.Polynomial(a=a, b=200.0)}, chains=2)
    assert together.sum_delta.shape[0] == 3
    for i in (0, 2):
        one = run({**CASES[name], "schedule": lv.Polynomial(a=a[i], b=200.0)}, chains=2)
        for field in ("sum_delta", "sum_delta2", "sum_omega"):
            assert np.array_equal(getattr(together, field)[i], getattr(one, field))
        assert np.array_equal(together.values["theta"][i], one.values["theta"])
        for field in ("theta", "grad", "weight"):
            assert np.array_equal(getattr(together.draws, field)[i], getattr(one.draws, field))


def test_the_doubling_of_the_rows_leaves_no_trace():
    case, total = CASES["no data"], 16384 + 100
    expected = numbers(run(case, total))
    assert expected["row_steps"] == 32 and len(expected["m_stop"]) == 516
    for block_steps in (17, 1000, 4096):
        assert_same(numbers(run(case, total, block_steps=block_steps)), expected)
    ledger = None
    for stop in (16383, 16384, 16385, 16400, total):
        ledger = run(case, stop, resume=ledger)
    assert_same(numbers(ledger), expected)


def test_rows_longer_than_the_device_sums_them():
    # From m = 262145 a ledger row is two device rows of 256; the run ends on a device row, inside a ledger row.
    case = {**CASES["no data"], "keep": 0}
    whole = run(case, 262_144 + 256)
    assert whole.row_steps == 512 and whole.m_stop[-1] == 262_400
    resumed = run(case, 262_400, resume=run(case, 262_144 + 100))
    assert_same(numbers(resumed), numbers(whole))


def test_twelve_parameters_with_an_anchor_move_alone_as_among_others():
    # A loop over one chain, taken apart by the compiler, once gave other last bits than a loop over several.
    model = lv.models.Logistic.simulate(num_data=300, dimension=12, seed=2)
    parts = {
        "subsample": lv.WithReplacement(10),
        "schedule": lv.Constant(1e-3),
        "num_steps": 100,
        "anchor": lv.laplace(model.target, model.data, model.theta_0),
    }
    together = lv.run(model.target, model.data, model.theta_0, chains=3, **parts)
    for chain in (0, 2):
        alone = lv.run(model.target, model.data, model.theta_0, chains=[chain], **parts)
        assert_same(numbers(together, [chain], state=False), numbers(alone, state=False))


@every_case
def test_groups_of_chains_on_other_cores_change_no_bit(case, monkeypatch):
    """One group of four; then two of two and one: the last is padded, and what is padded leaves no trace."""
    four = four_chains(case)
    monkeypatch.setattr("langevin.engine.run.num_groups", lambda prepared, cores: 1)
    assert_same(numbers(run(case, chains=4)), numbers(four))
    monkeypatch.setattr("langevin.engine.run.num_groups", lambda prepared, cores: 2)
    assert_same(numbers(run(case, chains=3), state=False), numbers(four, [0, 1, 2], state=False))
