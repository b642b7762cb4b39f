"""Tables of all kinds as pandas data frames."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from langevin.regression.files import is_path, table_in_files

Table = Any


def as_table(data: Any) -> Table:
    """A pandas data frame of a frame, an arrow table, a dict of columns, or what is at a path or a list of them."""
    pandas = _pandas()
    if isinstance(data, pandas.DataFrame):
        table = data.copy(deep=False)
    elif hasattr(data, "to_pandas"):
        table = data.to_pandas()
    elif isinstance(data, Mapping):
        # Numbers and words alone are one row.
        alone = all(np.ndim(values) == 0 for values in data.values())
        table = pandas.DataFrame({name: [values] if alone else values for name, values in data.items()})
    elif is_path(data) and Path(data).suffix.lower() in (".csv", ".parquet") and not Path(data).is_dir():
        table = _read(str(data), pandas)
    else:
        files = table_in_files(data)
        if files is None:
            raise ValueError(
                f"data must be a data frame, a dict of columns, or the path of a .csv or .parquet file, of a folder or "
                f"a list of them, or of an imported folder, got {type(data).__name__}."
                + " Call .collect() on it first."
                * hasattr(data, "collect")
            )
        table = files.through(lambda frames: frames.whole())
    _refuse_twins(table.columns)
    if not len(table):
        raise ValueError("data must hold at least one row, got an empty table.")
    # Rows are known by their places, those that are left after others were dropped too.
    table.index = pandas.RangeIndex(len(table))
    return table


def _read(name: str, pandas: Any) -> Table:
    try:
        if name.lower().endswith(".parquet"):
            return pandas.read_parquet(name)
        table = pandas.read_csv(name)
        header = pandas.read_csv(name, header=None, nrows=1, dtype=str).iloc[0].dropna()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        if isinstance(error, pandas.errors.EmptyDataError):
            reason = "the file is empty"
        reason = reason.removesuffix(".")
        raise ValueError(f"data must be a table in a .csv or .parquet file, got {name}: {reason}.") from error
    # pandas gives the second of two columns a new name, without a word.
    _refuse_twins(pandas.Index(header))
    return table


def _refuse_twins(names: Any) -> None:
    twice = [str(name) for name in names[names.duplicated()]]
    if twice:
        raise ValueError(f"data must have one column of each name, got {twice[0]!r} twice. Rename or drop one.")


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("lv.fit needs pandas and formulaic: pip install 'langevin[fit]'") from error
    return pandas


def first_line(error: BaseException) -> str:
    """What an error says, as a sentence."""
    text = (str(error).splitlines() or [""])[0].strip()
    return text if text.endswith(".") else f"{text}."
