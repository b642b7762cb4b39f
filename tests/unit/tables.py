"""A table in every form that can be imported, and a check that it has arrived."""

import numpy as np
import pytest

arrow = pytest.importorskip("pyarrow")
csv, parquet = pytest.importorskip("pyarrow.csv"), pytest.importorskip("pyarrow.parquet")

N = 5000
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 2))
TOWNS = np.array(["Zwolle", "Aachen", 'a "b", c'])[RNG.integers(3, size=N)]
TABLE = arrow.table(
    {"x1": X[:, 0], "x2": X[:, 1].astype(np.float32), "town": TOWNS, "y": X[:, 0] > 0, "id": np.arange(N)}
)
COLUMNS = {"x": "x*", "town": "town", "y": "y", "id": "id"}


def written(form, folder, table=TABLE):
    """The table in one of the forms that can be imported: what to import."""
    if form == "parquet":
        parquet.write_table(table, folder / "t.parquet", row_group_size=700)
        return folder / "t.parquet"
    if form == "csv":
        csv.write_csv(table, folder / "t.csv")
        return folder / "t.csv"
    whole = folder / "parts"
    whole.mkdir()
    for k in range(3):
        part = table.slice(k * 2000, 2000)
        parquet.write_table(part, whole / f"{k}.parquet") if "parquet" in form else csv.write_csv(
            part, whole / f"{k}.csv"
        )
    return whole if "folder" in form else sorted(whole.iterdir())


def check_rows(source, rows=None):
    """Every row is there once, with all that belongs to it."""
    rows = np.arange(N) if rows is None else rows
    order = source.arrays["id"]
    assert np.array_equal(np.sort(order), rows)
    assert np.array_equal(source.arrays["x"], X.astype(np.float32)[order])
    assert np.array_equal(source.arrays["y"], X[order, 0] > 0) and source.arrays["y"].dtype == bool
    assert source.levels["town"] == tuple(sorted(set(TOWNS)))
    assert np.array_equal(np.array(source.levels["town"])[source.arrays["town"]], TOWNS[order])


def spoiled(column, row, value):
    values = TABLE.column(column).to_pylist()
    values[row] = value
    return TABLE.set_column(TABLE.schema.get_field_index(column), column, [values])
