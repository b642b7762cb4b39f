"""Text among numbers is no category: it is refused by name or dropped; and CSV files that are none are refused."""

import os

import numpy as np
import pytest
from typer.testing import CliRunner

import langevin as lv
from langevin.cli import app
from langevin.data import tables
from tests.unit.tables import arrow, parquet

ROWS = [*(f"{k}.5" for k in range(100)), "?", *(f"{k}.25" for k in range(100))]
STRAY = r"'x' must hold a finite number in every row, got '\?' in row 100 of .*t\.{}.*--drop-missing.*C\(x\)"


def written(form, folder, rows=ROWS):
    """A column of text as a file."""
    path = folder / f"t.{form}"
    if form == "parquet":
        parquet.write_table(arrow.table({"x": rows, "y": np.arange(len(rows))}), path, row_group_size=30)
    else:
        path.write_text("x,y\n" + "".join(f'"{row}",{k}\n' for k, row in enumerate(rows)))
    return path


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_word_among_numbers_makes_no_codes_of_them(form, tmp_path):
    path = written(form, tmp_path)
    with pytest.raises(ValueError, match=STRAY.format(form)):
        lv.import_data(path, tmp_path / "out")
    with pytest.raises(ValueError, match=STRAY.format(form)):
        lv.DataSource.of(path)
    assert os.listdir(tmp_path) == [path.name]
    source = lv.import_data(path, tmp_path / "out", drop_missing=True)
    assert source.dropped == {"x": 1} and source.num_data == 200 and not source.levels
    numbers = np.array([float(row) for row in ROWS if row != "?"])
    assert np.array_equal(np.sort(source.arrays["x"]), np.sort(numbers).astype(np.float32))


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("number", ["1,000", "2,5", "12%", "$3.20", "1'234'567"])
def test_numbers_in_another_writing_are_refused(form, number, tmp_path):
    with pytest.raises(ValueError, match=r"'x' must hold a finite number in every row, got .* in row 0 of"):
        lv.import_data(written(form, tmp_path, [number] * 9), tmp_path / "out")


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize(
    "rows",
    [["a", "b", "1", "2"], ["1-2", "3-4", "5"], ["v1.2.3", "1.2.3"], ["A1", "7"]],
    ids=["half of them", "ranges", "versions", "names"],
)
def test_categories_stay_codes_though_some_look_like_numbers(form, rows, tmp_path):
    source = lv.import_data(written(form, tmp_path, rows), tmp_path / "out")
    assert source.levels["x"] == tuple(sorted(rows))


def test_text_of_numbers_only_and_declared_categories_stay_codes(tmp_path):
    columns = {"zip": ["00123", "04567", "00123"], "kind": arrow.array(["1", "2", "?"]).dictionary_encode()}
    parquet.write_table(arrow.table(columns), tmp_path / "t.parquet")
    source = lv.import_data(tmp_path / "t.parquet", tmp_path / "out")
    assert source.levels == {"zip": ("00123", "04567"), "kind": ("1", "2", "?")}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_numbers_can_be_declared_to_be_names(form, tmp_path):
    path = written(form, tmp_path)
    source = lv.import_data(path, tmp_path / "out", columns=["C(x)", "y"])
    assert source.levels["x"] == tuple(sorted(ROWS))
    order = source.arrays["y"]
    assert np.array_equal(np.array(source.levels["x"])[source.arrays["x"]], np.array(ROWS)[order])
    done = CliRunner().invoke(app, ["import", str(path), str(tmp_path / "cli"), "--column", "k=C(y)"])
    assert done.exit_code == 0, done.output
    assert lv.DataSource.of(tmp_path / "cli").levels["k"] == tuple(sorted(map(str, range(201))))
    for columns, words in [
        ({"x": "x", "k": "C(x)"}, r"'x' must be numbers or names, got both"),
        (["C(z)"], r"no column 'z'"),
    ]:
        with pytest.raises(ValueError, match=words):
            lv.import_data(path, tmp_path / "out", columns=columns)


def test_a_column_that_is_found_to_be_names_late_is_judged_by_all_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BATCH_ROWS", 10)
    rows = ["1"] * 40 + ["a"] * 60
    assert lv.import_data(written("parquet", tmp_path, rows), tmp_path / "out").levels["x"] == ("1", "a")


@pytest.mark.parametrize("header", ["x;y", "x\ty"])
def test_other_separators_than_commas_are_refused_with_the_remedy(header, tmp_path):
    (tmp_path / "t.csv").write_text(f"{header}\n1,5;2\n")
    with pytest.raises(ValueError, match=r"must have commas between its columns, got the header .* sep=.*to_csv"):
        lv.import_data(tmp_path / "t.csv", tmp_path / "out")


CSV = {
    "a header over two lines": ('"x\nz",y\n1,2\n', r"header of .*t\.csv must be one line, got '\"x'"),
    "a short row at once": ("x,y\n1,2\n3\n", r"must have 2 entries in every row.* got 1 in row 1 .*: '3'"),
    "a short row": ("x,y\n" + "123,1\n" * 10_000 + "7\n", r"must have 2 entries in every row.* in row 10,000 .*: '7'"),
    "a huge integer": ("x\n" + "12345\n" * 9_000 + "9" * 20, r"'x' must .* got '9{20}' in row 9,000 of .*t\.csv"),
    "no UTF-8": ("t\n" + "abcdef\n" * 9_000 + "\xe9\n", r"t\.csv cannot be read as CSV: .*UTF8"),
    "entries over lines": (
        "x,t\n" + '1,"a\nb' + 'c"\n2,"a\nb' * 9_000 + '"\n',
        r"a quoted entry that goes on in the next.*to_parquet",
    ),
}


@pytest.mark.parametrize(("text", "words"), CSV.values(), ids=CSV)
def test_what_is_wrong_with_a_csv_file_is_said(text, words, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_CSV_BYTES", 30_000)
    (tmp_path / "t.csv").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=words):
        lv.import_data(tmp_path / "t.csv", tmp_path / "out")
