"""Data that float32 cannot tell apart are refused; those that it can are not."""

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.data.source import as_source

RNG = np.random.default_rng(0)
NOISE = RNG.normal(size=500)
TARGET = lv.Target(lambda t: -0.5 * t**2, lambda t, y: -0.5 * (y - t) ** 2)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (1e8 + 2.7 + NOISE, "numbers near 1e\\+08 that spread by 1 only, and float32 has steps of 8 there"),
        (2460000.37 + 0.02 * NOISE, "steps of 0.25 there. Subtract a constant .* such as 2460000"),
        (2.0**24 + 1 + NOISE, "steps of 2 there"),
        (1.7e9 + 3600 * RNG.random(500), "steps of 1.3e\\+02 there"),
    ],
    ids=["large", "dates", "2^24", "seconds"],
)
def test_what_float32_cannot_tell_apart_is_refused(column, said):
    with pytest.raises(ValueError, match=f"data must be resolved by float32, got .*{said}"):
        lv.sample(TARGET, column, jnp.zeros(()), passes=1)
    with pytest.raises(ValueError, match=r"data\['x'\], column 1, must be resolved"):
        as_source({"x": np.stack([NOISE, column], axis=1)})


@pytest.mark.parametrize(
    "column",
    [
        NOISE,
        1e8 * NOISE,
        1013.25 + 5.0 * NOISE,
        np.full(500, 0.1),
        np.full(500, 2460000.37),
        np.where(NOISE > 0, 0.1, 0.3),
        np.round(2000 + 10 * NOISE),
        1.7e9 + 128.0 * np.arange(500),
        -73.98765 + 0.01 * NOISE,
        (1e8 + NOISE).astype(np.float32),
        np.arange(500) + 2**30,
    ],
)
def test_what_it_can_tell_apart_or_never_was_apart_is_not(column):
    assert as_source(column).num_data == 500


def test_errors_of_one_sign_are_refused_where_there_are_many():
    """Two values whose float32 are both too low by a quarter of a step: in a hundred rows that is no matter."""
    values = np.array([1e4 + 0.00025, 1e4 + 1.00025])
    assert as_source(np.tile(values, 50)).num_data == 100
    with pytest.raises(ValueError, match="must be resolved by float32"):
        as_source(np.tile(values, 50_000))


def test_integers_that_become_float32_side_by_side_are_held_to_the_same(tmp_path):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"age": np.arange(1000) % 80, "t": 1_700_000_000 + np.arange(1000)})
    table["late"] = table["t"].where(table["age"] > 0).astype("Int64")
    table.to_parquet(tmp_path / "t.parquet")
    for second in ("t", "late"):
        with pytest.raises(ValueError, match=f"column '{second}' must be resolved by float32"):
            lv.import_data(tmp_path / "t.parquet", tmp_path / "out", columns={"x": ["age", second]}, drop_missing=True)
    assert lv.import_data(tmp_path / "t.parquet", tmp_path / "out", columns=["age", "t"]).num_data == 1000


def test_an_import_that_was_interrupted_is_held_to_the_same(tmp_path, monkeypatch):
    from langevin.data import importer, tables

    monkeypatch.setattr(importer, "_JOURNAL_SECONDS", 0.0)
    monkeypatch.setattr(tables, "_BATCH_BYTES", 8_000)
    np.save(tmp_path / "t.npy", 1.7e9 + np.arange(3000.0))
    throws, calls = importer._Import._throws, []

    def interrupted(self, *more):
        calls.append(more)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return throws(self, *more)

    monkeypatch.setattr(importer._Import, "_throws", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lv.import_data(tmp_path / "t.npy", tmp_path / "out")
    with pytest.raises(ValueError, match="column 't' must be resolved by float32"):
        lv.import_data(tmp_path / "t.npy", tmp_path / "out")
    # The second call went on behind what the first had thrown.
    assert calls[3][0] > 0


def test_tables_are_held_to_the_same(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = pandas.DataFrame({"x": NOISE, "date": np.sort(2460000.37 + 0.02 * NOISE)})
    table.to_parquet(tmp_path / "table.parquet")
    with pytest.raises(ValueError, match="data: column 'date' must be resolved by float32"):
        lv.import_data(tmp_path / "table.parquet", tmp_path / "columns")
    assert not (tmp_path / "columns").exists()
    lv.import_data(tmp_path / "table.parquet", tmp_path / "columns", columns=["x"])
    # Spread over a year, sorted: a part of it spreads less than the whole.
    table["date"] = np.sort(2460000.0 + 365 * RNG.random(500))
    table.to_parquet(tmp_path / "year.parquet")
    assert lv.import_data(tmp_path / "year.parquet", tmp_path / "year").num_data == 500
