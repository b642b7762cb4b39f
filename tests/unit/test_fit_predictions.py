"""Predictions for tables in files: to the bit those of the same table in memory, of which only some rows are held."""

import gc
import signal
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

import langevin as lv
from langevin.data import tables
from langevin.regression import files, predicting
from tests.unit.regressions import pandas

RNG = np.random.default_rng(9)
N = 700
TABLE = pandas.DataFrame(
    {
        "x": RNG.standard_normal(N),
        "colour": RNG.choice(["red", "green", "blue"], N),
        "town": RNG.integers(0, 4, N),
        "known": RNG.integers(1000, 1010, N) / 4.0,
        "n": RNG.integers(1, 9, N),
    }
)
TABLE["y"] = TABLE.known + TABLE.x + RNG.standard_normal(N)
TABLE["k"] = RNG.binomial(TABLE.n, 1 / (1 + np.exp(1.5 - TABLE.town - TABLE.x)))
# Files do not begin with all levels, and hold towns that no fit has seen.
NEW = TABLE.sort_values("colour", ignore_index=True).assign(town=np.arange(N) % 6)


@pytest.fixture(scope="module")
def scaled():
    return lv.fit(TABLE, "y ~ x + colour", offset="known", passes=20)


@pytest.fixture(scope="module")
def grouped():
    how = {"family": "binomial", "trials": "n", "groups": "sample"}
    return lv.fit(TABLE, "k ~ np.exp(x) + (1 | town)", passes=20, **how)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(files, "FROM_BYTES", 0)


def written(table, kind, folder):
    """The table as files of a kind, in pieces that end nowhere near a block of rows."""
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    if kind == "csv":
        table.to_csv(folder / "t.csv", index=False)
        return folder / "t.csv"
    if kind == "parquet":
        pq.write_table(arrow, folder / "t.parquet", row_group_size=61)
        return str(folder / "t.parquet")
    if kind == "list":
        places = [folder / "a.parquet", folder / "b.parquet"]
        pq.write_table(arrow.slice(0, 133), places[0])
        pq.write_table(arrow.slice(133), places[1], row_group_size=100)
        return places
    assert kind == "columns"
    for name in table.columns.drop("colour"):
        np.save(folder / f"{name}.npy", table[name].to_numpy())
    return folder


@pytest.mark.parametrize("kind", ["csv", "parquet", "list"])
def test_a_file_is_predicted_as_the_table_in_memory(scaled, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(predicting, "_AT_ONCE", 40 * 50)
    monkeypatch.setattr(tables, "_CSV_BYTES", 5000)
    monkeypatch.setattr(files.Frames, "whole", None)
    expected, found = scaled.predict(NEW, draws=50), scaled.predict(written(NEW, kind, tmp_path), draws=50)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.parametrize("kind", ["parquet", "columns"])
def test_groups_trials_and_transforms_come_from_files_too(grouped, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(predicting, "_AT_ONCE", 40 * 50)
    expected, found = grouped.predict(NEW, draws=50), grouped.predict(written(NEW, kind, tmp_path), draws=50)
    for name, values in expected.items():
        assert_array_equal(found[name], values, err_msg=name)


def test_imported_folders_are_predicted_by_the_names_of_their_columns(scaled, tmp_path):
    folder = lv.import_data(
        written(NEW, "parquet", tmp_path), tmp_path / "columns", columns={"m": ["x", "known"], "colour": "colour"}
    )
    whole = files.table_in_files(tmp_path / "columns").whole()
    assert folder is not None and len(whole) == N
    assert_array_equal(scaled.predict(tmp_path / "columns")["mean"], scaled.predict(whole)["mean"])


def test_as_many_draws_as_in_memory_are_taken_where_the_number_of_rows_decides(scaled, tmp_path, monkeypatch):
    taken = []
    monkeypatch.setattr(type(scaled), "_equal_draws", lambda self, count, seed: taken.append(count) or self.nothing)
    path = written(pandas.concat([NEW] * 20), "csv", tmp_path)
    for data in (path, pandas.read_csv(path)):
        with pytest.raises(AttributeError, match="nothing"):
            scaled.predict(data)
    assert taken == [2857, 2857]


def test_arrays_of_offsets_go_along_with_the_rows_of_a_file(scaled, tmp_path):
    path, offset = written(NEW, "parquet", tmp_path), np.linspace(0.0, 1.0, N)
    assert_array_equal(scaled.predict(path, offset=offset)["mean"], scaled.predict(NEW, offset=offset)["mean"])
    for data in (path, NEW):
        with pytest.raises(
            ValueError, match=r"offset must hold one finite number a row, 700 in all, got shape \(699,\)"
        ):
            scaled.predict(data, offset=offset[1:])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predictions_go_to_a_file_some_rows_at_a_time(scaled, suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(predicting, "_AT_ONCE", 40 * 50)
    monkeypatch.setattr(predicting, "_WRITTEN", 100)
    out = tmp_path / f"out.{suffix}"
    scaled.predict_to(out, written(NEW, "parquet", tmp_path), draws=50)
    found = pandas.read_csv(out) if suffix == "csv" else pandas.read_parquet(out)
    expected = scaled.predict(NEW, draws=50)
    assert list(found) == list(expected) and sorted(one.name for one in tmp_path.iterdir()) == [out.name, "t.parquet"]
    for name, values in expected.items():
        assert_array_equal(found[name], values, err_msg=name)


def test_a_response_with_levels_has_a_column_for_each(monkeypatch):
    found = {"mean": np.ones((3, 2)), "upper": np.ones((3, 2))}
    monkeypatch.setattr(predicting.Prediction, "blocks", lambda self: iter([found, found]))
    predicted = predicting.Prediction(SimpleNamespace(levels=("low", "high")), None, None, 0.95, 0)
    assert list(predicted.head(4)) == ["mean [low]", "mean [high]", "upper [low]", "upper [high]"]
    assert len(predicted.head(4)) == 4 and len(predicted.head(20)) == 6


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows_of_a_file(scaled, tmp_path, monkeypatch):
    monkeypatch.setattr(predicting, "_AT_ONCE", 2 * 10 * N)
    monkeypatch.setattr(predicting, "_WRITTEN", 10 * N)
    numbers = predicting.Needs.numbers

    def tidied(*of):
        # Frames that hold themselves stay until Python looks for such.
        gc.collect()
        return numbers(*of)

    monkeypatch.setattr(predicting.Needs, "numbers", tidied)

    def peak(pieces, work):
        path = tmp_path / "new.parquet"
        pq.write_table(pa.Table.from_pandas(pandas.concat([NEW] * 10 * pieces)), path, row_group_size=10 * N)
        tracemalloc.start()
        try:
            work(path)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def to_file(path):
        scaled.predict_to(tmp_path / "out.parquet", path, draws=2)

    def to_memory(path):
        scaled.predict(path, draws=2)

    scaled.predict(pandas.concat([NEW] * 10), draws=2)
    column = 6 * 10 * N * 8
    assert peak(8, to_file) < peak(2, to_file) + column
    # The twin keeps what it returns: five columns.
    assert peak(8, to_memory) > peak(2, to_memory) + 3 * column


def test_errors_say_where_in_which_file(scaled, tmp_path):
    late = NEW.assign(colour=NEW.colour.where(NEW.index < 650, "violet"))
    with pytest.raises(ValueError, match=r"in rows 610 to 670 of .*t\.parquet: data must have the levels .*'violet'"):
        scaled.predict(written(late, "parquet", tmp_path))
    with pytest.raises(ValueError, match=r"without 'x'. Columns are 'colour', 'town', 'known', 'n'"):
        scaled.predict(written(NEW.drop(columns="x"), "parquet", tmp_path))
    with pytest.raises(ValueError, match="offset must be given, since the fit had one: a column 'known'"):
        scaled.predict(written(NEW.drop(columns="known"), "parquet", tmp_path))


def test_text_in_a_column_of_numbers_is_named(scaled, tmp_path, monkeypatch):
    texts = NEW.x.astype(str)
    with pytest.raises(ValueError, match=r"'x' must hold numbers, got 'hello' in row 655 \(text in 1 of 700 rows\)"):
        scaled.predict(written(NEW.assign(x=texts.where(NEW.index != 655, "hello")), "csv", tmp_path))
    for table in (NEW.assign(x=texts), written(NEW.assign(x=texts), "parquet", tmp_path)):
        with pytest.raises(
            ValueError, match="columns of the kinds that were fitted, got text in 'x', which held numbers"
        ):
            scaled.predict(table)
    # Below the first piece, and rows are counted from the first of the file.
    path = tmp_path / "late.parquet"
    mixed = pa.Table.from_pandas(NEW.assign(x=texts.where(NEW.index != 20, "hello")), preserve_index=False)
    numbers = predicting.Needs.numbers
    monkeypatch.setattr(predicting.Needs, "numbers", lambda *of: None if len(of[1]) == 10 else numbers(*of))
    pq.write_table(mixed, path, row_group_size=10)
    with pytest.raises(ValueError, match=r"in rows 20 to 29 of .*: 'x' must hold numbers, got 'hello' in row 20 "):
        list(predicting.NewRows.of(path, predicting.Needs(scaled.model, {}, {})).parts())


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_without_rows_are_refused(scaled, kind, tmp_path):
    with pytest.raises(ValueError, match="data must hold at least one row, got an empty table"):
        scaled.predict(written(NEW.head(0), kind, tmp_path))


def test_integers_of_a_csv_file_that_turn_out_to_be_others_are_read_anew(scaled, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_CSV_BYTES", 5000)
    table = NEW.assign(x=[1] * 600 + [1.5] * 100)
    path = written(table.astype({"x": object}), "csv", tmp_path)
    path.write_text(
        path.read_text().replace("1.0,blue", "1,blue").replace("1.0,green", "1,green").replace("1.0,red", "1,red")
    )
    assert_array_equal(scaled.predict(path)["mean"], scaled.predict(table)["mean"])


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("out.txt", "out must end in .csv or .parquet, got"),
        ("nowhere/out.csv", "No such file or directory. Try another."),
        ("folder.csv", "it is a folder. Try another."),
        ("folder.csv/../t.csv/out.csv", "Not a directory. Try another."),
    ],
)
def test_a_file_that_cannot_be_written_is_named_before_any_work(scaled, out, said, tmp_path, monkeypatch):
    (tmp_path / "folder.csv").mkdir()
    path = written(NEW, "csv", tmp_path)
    monkeypatch.setattr(predicting.NewRows, "of", None)
    with pytest.raises(ValueError, match=said):
        scaled.predict_to(tmp_path / out, path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["folder.csv", "t.csv"]


def test_ctrl_c_leaves_no_half_of_a_file(scaled, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(predicting, "_AT_ONCE", 2 * 100)
    path, draw = written(NEW, "parquet", tmp_path), scaled.model.family.draw

    def pressed(*of):
        signal.raise_signal(signal.SIGINT)
        return draw(*of)

    object.__setattr__(scaled.model.family, "draw", pressed)
    try:
        with pytest.raises(lv.Interrupted):
            scaled.predict_to(tmp_path / "out.csv", path, draws=2)
    finally:
        object.__setattr__(scaled.model.family, "draw", draw)
    assert "Interrupted after 100 of 700 rows; nothing was kept of them." in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["t.parquet"]


def test_the_command_writes_all_rows_and_shows_the_first(scaled, tmp_path, monkeypatch):
    runner = pytest.importorskip("typer.testing").CliRunner()
    from langevin.cli import app

    scaled.save(tmp_path / "run")
    path, expected = written(NEW, "parquet", tmp_path), scaled.predict(NEW)
    runner.invoke(app, ["predict", str(tmp_path / "run"), path, "--out", str(tmp_path / "out.csv")])
    found = pandas.read_csv(tmp_path / "out.csv")
    assert_array_equal(found["predicted_upper"], expected["predicted_upper"])
    shown = runner.invoke(app, ["predict", str(tmp_path / "run"), path]).output
    assert f"{expected['mean'][19]:.6f}"[:7] in shown and "... and 680 more rows: give --out FILE.csv" in shown


def test_a_file_that_changes_between_two_readings_is_noticed(scaled, tmp_path, monkeypatch):
    path, check = written(NEW, "csv", tmp_path), predicting.Needs.check

    def changed(self, rows):
        check(self, rows)
        written(NEW.tail(600), "csv", tmp_path)

    monkeypatch.setattr(predicting.Needs, "check", changed)
    with pytest.raises(lv.DataChanged, match=r"t\.csv was changed while it was being read"):
        scaled.predict(path, draws=2)
