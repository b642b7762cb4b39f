"""Tables become shuffled columns: every row once, in an order that the seed decides, whatever their form."""

import os
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import langevin as lv
from langevin import limits
from langevin.cli import app
from langevin.data import importer, tables
from tests.unit.tables import COLUMNS, TABLE, N, arrow, check_rows, parquet, spoiled, written


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Many buckets and batches for few rows."""
    monkeypatch.setattr(importer, "_BUCKET_BYTES", 20_000)
    monkeypatch.setattr(importer, "_JOURNAL_SECONDS", 0.0)
    monkeypatch.setattr(tables, "_CSV_BYTES", 30_000)
    for module in (importer, tables):
        monkeypatch.setattr(module, "BATCH_ROWS", 256)


@pytest.mark.parametrize("form", ["parquet", "csv", "folder of parquet", "list of csv"])
def test_every_row_arrives_once_and_whole(form, tmp_path):
    source = lv.import_data(written(form, tmp_path), tmp_path / "out", columns=COLUMNS)
    check_rows(source)
    assert source.in_random_order and sorted(os.listdir(tmp_path / "out")) == [
        "id.npy", "langevin.json", "town.npy", "x.npy", "y.npy",
    ]  # fmt: skip
    assert not (tmp_path / "out.importing").exists()
    assert np.array_equal(np.load(tmp_path / "out" / "x.npy", allow_pickle=False), source.arrays["x"])


def test_importing_again_does_nothing_until_something_changes(tmp_path, monkeypatch):
    path = written("parquet", tmp_path)
    one = lv.import_data(path, tmp_path / "out", columns=COLUMNS)
    before = (tmp_path / "out" / "x.npy").stat()
    lv.import_data(path, tmp_path / "out", columns=COLUMNS)
    assert (tmp_path / "out" / "x.npy").stat() == before
    other = lv.import_data(path, tmp_path / "out", columns=COLUMNS, seed=1)
    check_rows(other)
    assert not np.array_equal(one.arrays["id"], other.arrays["id"])
    parquet.write_table(TABLE.slice(0, 100), path)
    assert lv.import_data(path, tmp_path / "out", columns=COLUMNS, seed=1).num_data == 100


def test_what_was_damaged_is_imported_anew_by_the_same_call(tmp_path):
    path = written("parquet", tmp_path)
    whole = lv.import_data(path, tmp_path / "out", columns=COLUMNS)
    for damage in (lambda one: one.unlink(), lambda one: np.save(one, np.ones(5)), lambda one: one.write_bytes(b"")):
        damage(tmp_path / "out" / "x.npy")
        with pytest.raises(ValueError, match="data"):
            lv.DataSource.of(tmp_path / "out")
        assert lv.import_data(path, tmp_path / "out", columns=COLUMNS).fingerprint == whole.fingerprint


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_buckets_are_counted_from_the_rows_as_they_are_written(form, tmp_path, monkeypatch):
    """A file may say little of many rows."""
    shuffle, sizes = importer._Import._shuffle, []

    def watched(self, k, records, *more):
        sizes.append(records.nbytes)
        return shuffle(self, k, records, *more)

    monkeypatch.setattr(importer._Import, "_shuffle", watched)
    table = arrow.table({name: np.full(N, 7.0, np.float32) for name in "ab"})
    assert lv.import_data(written(form, tmp_path, table), tmp_path / "out").num_data == N
    assert sum(sizes) == 8 * N and max(sizes) < 1.2 * 20_000


def test_a_huge_row_group_is_not_held_whole(tmp_path):
    columns = {f"x{k}": np.random.default_rng(k).normal(size=1_000_000) for k in range(4)}
    parquet.write_table(arrow.table(columns), tmp_path / "t.parquet", row_group_size=1_000_000)
    held = [arrow.total_allocated_bytes()]
    for _ in tables.open_table([tmp_path / "t.parquet"], []).batches(list(columns), None):
        held.append(arrow.total_allocated_bytes())
    assert len(held) > 10 and max(held) - held[0] < 16e6


def test_a_path_to_a_table_is_imported_beside_it(tmp_path):
    source = lv.DataSource.of(str(written("csv", tmp_path)))
    assert source.path == tmp_path / "t.csv.langevin" and sorted(source.arrays) == ["id", "town", "x1", "x2", "y"]
    assert source.arrays["x1"].dtype == np.float32 and source.arrays["id"].dtype == np.int32


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 700), st.integers(0, 2**63), st.integers(1, 40))
def test_the_order_is_a_permutation_whatever_the_sizes(tmp_path_factory, rows, seed, buckets):
    folder = tmp_path_factory.mktemp("order")
    np.save(folder / "i.npy", np.arange(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importer, "_BUCKET_BYTES", max(8 * rows // buckets, 1))
        source = lv.import_data(folder / "i.npy", folder / "out", seed=seed)
    assert np.array_equal(np.sort(source.arrays), np.arange(rows))


def test_every_order_is_equally_likely():
    """All 24 orders of four rows over 2400 seeds; a chi-square limit that a right importer misses once in 1e7 times."""
    from scipy.stats import chi2

    counts: dict[tuple, int] = {}
    for seed in range(2400):
        order = _order_of_four(seed)
        counts[order] = counts.get(order, 0) + 1
    observed = np.array([*counts.values(), *[0] * (24 - len(counts))])
    assert np.sum((observed - 100.0) ** 2 / 100.0) < chi2.isf(1e-7, 23)


def _order_of_four(seed, buckets=3):
    """The order as the two passes make it, without their files."""
    bucket = importer._Import._throws(SimpleNamespace(_seed=seed, _buckets=buckets), 0, 4)
    found = []
    for k in range(buckets):
        inside = np.flatnonzero(bucket == k)
        found += inside[np.random.default_rng([seed, importer._ORDERS, k]).permutation(len(inside))].tolist()
    return tuple(found)


def test_the_order_does_not_depend_on_the_batches(tmp_path, monkeypatch):
    np.save(tmp_path / "i.npy", np.arange(3000))
    one = lv.import_data(tmp_path / "i.npy", tmp_path / "one")
    monkeypatch.setattr(tables, "BATCH_ROWS", 100)
    other = lv.import_data(tmp_path / "i.npy", tmp_path / "other")
    assert np.array_equal(one.arrays, other.arrays)
    # Neighbours of the file are strangers afterwards.
    assert abs(np.corrcoef(one.arrays[1:], one.arrays[:-1])[0, 1]) < 5.5 / np.sqrt(2999)  # false alarms: 4e-8


def test_integers_that_turn_into_other_numbers_are_read_as_such(tmp_path):
    numbers = np.append(np.arange(9999), 0.5)
    (tmp_path / "t.csv").write_text("v\n" + "\n".join(f"{v:g}" for v in numbers[:-1]) + "\n0.5\n")
    source = lv.import_data(tmp_path / "t.csv", tmp_path / "out")
    assert source.arrays["v"].dtype == np.float32 and np.array_equal(np.sort(source.arrays["v"]), np.sort(numbers))
    assert lv.import_data(tmp_path / "t.csv", tmp_path / "out").num_data == 10_000
    assert sorted(os.listdir(tmp_path)) == ["out", "t.csv"]


def test_the_command_line_says_what_it_made(tmp_path):
    path = written("csv", tmp_path, spoiled("x1", 7, None))
    call = ["import", str(path), str(tmp_path / "out"), "--column", "x=x1,x2", "--column", "town"]
    refused = CliRunner().invoke(app, call)
    assert refused.exit_code == 2 and "row 7 of" in refused.output and "--drop-missing" in refused.output
    done = CliRunner().invoke(app, [*call, "--drop-missing"])
    assert done.exit_code == 0 and "4,999 rows" in done.output and "dropped for x1: 1 rows" in done.output


def test_ctrl_c_says_that_the_same_call_goes_on(tmp_path, monkeypatch):
    def pressed(*_):
        raise limits._Stop("reading the table")

    monkeypatch.setattr(importer, "checkpoint", pressed)
    (tmp_path / "t.csv").write_text("x\n1\n2\n")
    with pytest.raises(lv.Interrupted, match="; the same call goes on from where it was"):
        lv.import_data(tmp_path / "t.csv", tmp_path / "out")
