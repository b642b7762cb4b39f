"""Chains that travel between the owners of shards: every number is that of the run in one place."""

import os

import jax
import numpy as np
import pytest

import langevin as lv
from langevin.data.travel import Parcel
from langevin.engine import travelling
from tests.cluster.mishaps import Mishap, die
from tests.invariance.cases import ANCHOR, CASES, assert_same, numbers, run

TWO = lv.Processes(workers=2)
CASE = CASES["sharded"]
CORRECTED = {
    **CASE, "gradient": lv.ControlVariate(ANCHOR, order=2), "anchor": ANCHOR, "kernel": lv.LeimkuhlerMatthews(),
    "coordinates": lv.Whitened.by(ANCHOR), "schedule": lv.Constant(0.5),
}  # fmt: skip


@pytest.mark.parametrize("case", [CASE, CORRECTED], ids=["plain", "corrected"])
def test_owners_of_shards_give_the_bits_of_the_run_in_one_place(case):
    local = run(case, 100, chains=4)
    ledger = run(case, 100, chains=4, engine=TWO)
    assert_same(numbers(ledger), numbers(local))
    assert ledger.manifest.difference(local.manifest) is None
    # It goes on from there, here or with them.
    assert_same(numbers(run(case, 160, chains=4, engine=TWO, resume=ledger)), numbers(run(case, 160, chains=4)))


def test_chains_as_lanes_travel_one_by_one():
    assert_same(numbers(run(CASE, 40, chains=16, engine=TWO)), numbers(run(CASE, 40, chains=16)))


def test_owners_have_their_own_shards_and_nothing_else(monkeypatch):
    # Rows of the data, shards, and what a worker was told: of three shards of 35, 5 and 10 rows.
    sent = []
    parcel = Parcel.of
    monkeypatch.setattr(travelling.Parcel, "of", lambda source, store: (sent.append(source), parcel(source, store))[1])
    run(CASE, 8, chains=2, engine=TWO)
    whole = jax.tree.leaves(CASE["data"])
    assert [source.num_data for source in sent] == [40, 10]
    for source, rows in zip(sent, (slice(0, 40), slice(40, 50)), strict=True):
        assert all(np.array_equal(a, b[rows]) for a, b in zip(jax.tree.leaves(source.arrays), whole, strict=True))


def test_an_owner_of_other_rows_would_be_noticed():
    # The control: shards handed to the wrong owners, which the bits must not survive.
    swapped = {**CASE, "data": jax.tree.map(lambda leaf: np.concatenate([leaf[35:], leaf[:35]]), CASE["data"])}
    ledger, local = run(swapped, 100, chains=2, engine=TWO), run(CASE, 100, chains=2)
    with pytest.raises(AssertionError, match="not equal, bit for bit"):
        assert_same(numbers(ledger), numbers(local))


@pytest.mark.slow
def test_an_owner_killed_midway_changes_no_bit(tmp_path):
    parts = {name: value for name, value in CASE.items() if name != "schedule"}
    parts["subsample"] = lv.Sharded(5, sizes=(35, 15), stay=500)

    def made(folder, **more):
        folder.mkdir()
        mishap = Mishap(die, folder)
        ledger = run(parts, 6000, chains=4, schedule=lv.Custom(lambda m: 1e-3 * mishap(m)), **more)
        return ledger, os.path.exists(mishap.flag)

    local, happened = made(tmp_path / "local")
    assert not happened
    ledger, happened = made(tmp_path / "owners", engine=TWO)
    assert happened
    assert_same(numbers(ledger), numbers(local))
    assert ledger.checkpoint.spent == pytest.approx(local.checkpoint.spent, rel=1e-12)


@pytest.mark.slow
def test_a_folder_goes_from_owners_to_this_process_and_back(tmp_path):
    run(CASE, 60, chains=2, checkpoint=tmp_path, engine=TWO)
    run(CASE, 120, chains=2, checkpoint=tmp_path)
    ledger = run(CASE, 180, chains=2, checkpoint=tmp_path, engine=TWO)
    assert_same(numbers(ledger), numbers(run(CASE, 180, chains=2)))


def test_files_are_opened_by_each_owner(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(60, 1)).astype(np.float32))
    target = lv.Target(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x[0] - t) ** 2)
    parts = {"subsample": lv.Sharded(3, sizes=(50, 10), stay=9), "schedule": lv.Constant(0.01), "progress": False}
    local, ledger = (
        lv.run(target, lv.DataSource.of(tmp_path / "x.npy"), 0.0, num_steps=64, chains=2, engine=engine, **parts)
        for engine in (None, TWO)
    )
    assert_same(numbers(ledger), numbers(local))
