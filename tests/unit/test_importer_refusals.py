"""What cannot be imported is refused by name; what is wrong with a folder or a disk is said, and nothing is left."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import langevin as lv
from langevin.data import encode, importer, tables
from langevin.data.columns import MANIFEST, Manifest
from tests.unit.tables import COLUMNS, TABLE, N, arrow, check_rows, csv, parquet, spoiled, written


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Many buckets and batches for few rows."""
    monkeypatch.setattr(importer, "_BUCKET_BYTES", 20_000)
    monkeypatch.setattr(importer, "_JOURNAL_SECONDS", 0.0)
    monkeypatch.setattr(tables, "_CSV_BYTES", 30_000)
    for module in (importer, tables):
        monkeypatch.setattr(module, "BATCH_ROWS", 256)


MISSING = {
    (
        "parquet",
        "x1",
        None,
    ): r"'x1' must hold a finite number in every row, got a missing value in row 4,321 of .*t\.parquet",
    ("parquet", "x1", np.nan): r"'x1'.* got nan in row 4,321",
    ("parquet", "x1", np.inf): r"'x1'.* got inf in row 4,321",
    ("parquet", "town", None): r"'town'.* got a missing value in row 4,321",
    ("parquet", "id", None): r"'id'.* got a missing value in row 4,321",
    ("csv", "x1", None): r"'x1'.* got a missing value in row 4,321 of .*t\.csv",
    ("csv", "x1", "ten"): r"'x1'.* got 'ten' in row 4,321 of .*t\.csv",
    ("csv", "id", "ten"): r"'id'.* got 'ten' in row 4,321",
    ("csv", "town", None): r"'town'.* got a missing value in row 4,321",
}


@pytest.mark.parametrize(("case", "words"), MISSING.items(), ids=[" ".join(map(str, case)) for case in MISSING])
def test_a_row_without_a_number_is_refused_by_name_or_dropped_and_counted(case, words, tmp_path):
    form, column, value = case
    table = spoiled(column, 4321, value) if value != "ten" else TABLE
    path = written(form, tmp_path, table)
    if value == "ten":
        lines = path.read_text().splitlines()
        entries = lines[4322].split(",")
        entries[TABLE.schema.names.index(column) if column == "x1" else -1] = "ten"
        path.write_text("\n".join([*lines[:4322], ",".join(entries), *lines[4323:]]))
    with pytest.raises(ValueError, match=words):
        lv.import_data(path, tmp_path / "out", columns=COLUMNS)
    assert sorted(os.listdir(tmp_path)) == [path.name]
    source = lv.import_data(path, tmp_path / "out", columns=COLUMNS, drop_missing=True)
    assert source.dropped == {column: 1} and source.num_data == N - 1
    if column != "id":
        check_rows(source, np.delete(np.arange(N), 4321))


REFUSED = {
    "a column that is not there": ({"columns": ["z"]}, r"no column 'z'; the table has x1, x2, town, y, id"),
    "strings side by side": (
        {"columns": {"a": ["x1", "town"]}},
        r"only numbers can stand side by side in 'a', got 'town'",
    ),
    "no columns": ({"columns": []}, r"at least one column"),
    "a seed": ({"seed": -1}, r"seed must be a whole number of at least 0, got -1"),
}


@pytest.mark.parametrize(("options", "words"), REFUSED.values(), ids=REFUSED)
def test_wrong_options_are_refused(options, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        lv.import_data(written("parquet", tmp_path), tmp_path / "out", **options)


def test_dates_huge_numbers_and_identifiers_are_refused(tmp_path, monkeypatch):
    import datetime

    for value, words in [
        (datetime.date(2020, 1, 1), r"'v' has type date32.*leave it out"),
        (1e300, r"'v' must fit in float32 .*got 1e\+300 in row 0"),
        (2**40, r"'v' must fit in int32.*got 1099511627776 in row 0"),
    ]:
        parquet.write_table(arrow.table({"v": [value]}), tmp_path / "t.parquet")
        with pytest.raises(ValueError, match=words):
            lv.import_data(tmp_path / "t.parquet", tmp_path / "out")
    monkeypatch.setattr(encode, "_MOST_LEVELS", 10)
    parquet.write_table(arrow.table({"v": [f"{k}" for k in range(11)]}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"'v' has more than 10 different strings"):
        lv.import_data(tmp_path / "t.parquet", tmp_path / "out")


def test_columns_of_one_name_are_refused_and_both_are_named(tmp_path):
    (tmp_path / "t.csv").write_text("x,y,x\n1,2,3\n")
    twins = arrow.Table.from_arrays([arrow.array([1]), arrow.array([2])], names=["x", "x"])
    parquet.write_table(twins, tmp_path / "t.parquet")
    for data, words in [
        (tmp_path / "t.csv", r"'x' twice: column 1 of .*t\.csv and column 3 of"),
        (tmp_path / "t.parquet", r"'x' twice: column 1 of .*t\.parquet and column 2 of"),
    ]:
        with pytest.raises(ValueError, match=words):
            lv.import_data(data, tmp_path / "out")
    files = [tmp_path / "a" / "x.npy", tmp_path / "b" / "x.npy"]
    for k, file in enumerate(files):
        file.parent.mkdir()
        np.save(file, np.full(3, float(k)))
    with pytest.raises(ValueError, match=r"'x' twice: .*a/x\.npy and .*b/x\.npy"):
        lv.DataSource.of(files)
    with pytest.raises(ValueError, match="'x' twice"):
        lv.DataSource.of(twins)


def test_files_of_two_kinds_or_tables_are_refused(tmp_path):
    csv.write_csv(TABLE, tmp_path / "t.csv")
    parquet.write_table(TABLE, tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"files of one kind, got \.csv, \.parquet"):
        lv.import_data([tmp_path / "t.csv", tmp_path / "t.parquet"], tmp_path / "out")
    parquet.write_table(TABLE.select(["x1"]), tmp_path / "u.parquet")
    with pytest.raises(ValueError, match=r"same columns, but 'x2' is float in .* and not there in"):
        lv.import_data([tmp_path / "t.parquet", tmp_path / "u.parquet"], tmp_path / "out")
    (tmp_path / "v.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(ValueError, match=r"v\.parquet is not a Parquet file"):
        lv.import_data(tmp_path / "v.parquet", tmp_path / "out")


def test_a_folder_that_is_something_else_is_left_alone(tmp_path):
    path = written("parquet", tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="folder must be new, empty or an earlier import"):
        lv.import_data(path, tmp_path / "out")
    assert os.listdir(tmp_path / "out") == ["letter.txt"]


def test_a_changed_column_is_noticed_and_a_copied_folder_is_not_refused(tmp_path, monkeypatch):
    import shutil

    from langevin.data import files

    monkeypatch.setattr(files, "FROM_BYTES", 100)
    lv.import_data(written("parquet", tmp_path), tmp_path / "out", columns=COLUMNS)
    shutil.copytree(tmp_path / "out", tmp_path / "copy", copy_function=shutil.copyfile)
    check_rows(lv.DataSource.of(tmp_path / "copy"))
    with open(tmp_path / "copy" / "x.npy", "r+b") as file:
        file.seek(1000)
        file.write(b"\0\0\0\0")
    with pytest.raises(ValueError, match=r"x\.npy is not what was imported"):
        lv.DataSource.of(tmp_path / "copy")
    (tmp_path / "copy" / "x.npy").unlink()
    with pytest.raises(ValueError, match=r"x\.npy cannot be opened: No such file"):
        lv.DataSource.of(tmp_path / "copy")


@pytest.mark.parametrize("name", ["../x.npy", "/etc/x.npy", "a/x.npy", ".x.npy", "x.txt", 3])
def test_a_manifest_cannot_name_files_elsewhere(name, tmp_path):
    lv.import_data(written("parquet", tmp_path), tmp_path / "out", columns=["x1"])
    file = tmp_path / "out" / MANIFEST
    manifest = json.loads(file.read_text())
    manifest["columns"][0]["file"] = name
    file.write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=r"must be a \.npy file of the folder itself"):
        Manifest.read(tmp_path / "out")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}', '{"format": 1}', '{"format": 1, "columns": 3}'])
def test_a_damaged_manifest_is_refused(text, tmp_path):
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(ValueError, match="not a manifest that can be used"):
        lv.DataSource.of(tmp_path)


FULL = """
import resource, signal, sys
from langevin.data import importer
import langevin as lv
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    lv.import_data(sys.argv[1], sys.argv[2])
except OSError as error:
    print(error.strerror)
"""


def test_a_disk_that_takes_no_more_is_named_and_the_import_goes_on_later(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(10_000.0))
    arguments = [sys.executable, "-c", FULL, str(tmp_path / "x.npy"), str(tmp_path / "out")]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert "could not be finished" in done.stdout and "room for twice the columns" in done.stdout, done.stderr
    assert not (tmp_path / "out").exists()
    assert lv.import_data(tmp_path / "x.npy", tmp_path / "out").num_data == 10_000
    assert not (tmp_path / "out.importing").exists()
    with pytest.raises(OSError, match=r"could not be finished.*langevin import SRC ELSEWHERE"):
        lv.import_data(tmp_path / "x.npy", "/proc/nowhere/out")


def test_two_imports_into_one_folder_do_not_meet(tmp_path):
    from langevin.data.journal import Workshop

    np.save(tmp_path / "x.npy", np.arange(10.0))
    with Workshop(tmp_path / "out", {}), pytest.raises(RuntimeError, match="another process is importing into"):
        lv.import_data(tmp_path / "x.npy", tmp_path / "out")
