"""The columns that a formula names: complete, and of the kinds that a regression knows.

Kinds are those of NumPy, whatever a table has them in: the pieces of a file then agree with each other, and with the
same table in memory.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

Table = Any
# "(1 + x | town)": what varies, and over which groups.
GROUP_TERM = re.compile(r"\+?\s*\(([^()|]*)\|([^()|]*)\)")
_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal")
_DATES = ("date", "datetime", "datetime64", "time", "timedelta", "timedelta64", "period", "interval")


def used_columns(columns: Sequence[Any], formula: str) -> list[Any]:
    """Those that the formula names."""
    words = set(re.findall(r"[^\W\d][\w.]*|`[^`]*`", formula))
    # "x.clip(0)" names x.
    words |= {word.partition(".")[0] for word in words if not word.startswith("`")}
    return [name for name in columns if str(name) in words or f"`{name}`" in words]


def complete(
    table: Table, formula: str, more: tuple[str, ...], drop: bool, where: str = "", first: int = 0
) -> tuple[Table, int]:
    """The rows without missing values in the columns that the formula names, and how many were dropped.

    `where` and `first` tell where the rows come from, for the message.
    """
    refuse_stray(table, formula, where, first)
    used = list(dict.fromkeys([*used_columns(table.columns, formula), *more]))
    missing = table[used].isna()
    bad = missing.any(axis=1).to_numpy()
    if drop or not bad.any():
        found = plain(table[~bad] if bad.any() else table, used)
        # What stands in brackets may make numbers of them, as np.exp(-x) does.
        _refuse_infinite(found, [*used_columns(table.columns, _outside_brackets(formula)), *more], where, first)
        return found, int(bad.sum())
    column = next(name for name in used if missing[name].any())
    row = first + int(np.flatnonzero(missing[column].to_numpy())[0])
    many = "" if where else f"{int(bad.sum())} of {len(table)} rows with a missing value, first "
    raise ValueError(
        f"data must be complete, got {many or 'a missing value, '}{column!r} in row {row}{where}. Impute them, or "
        f"leave these rows out with missing='drop'."
    )


def _outside_brackets(formula: str) -> str:
    inner = re.sub(r"\([^()]*\)", " ", formula)
    return inner if inner == formula else _outside_brackets(inner)


def _refuse_infinite(table: Table, names: Sequence[Any], where: str, first: int) -> None:
    for name in names:
        values = table[name].to_numpy()
        for k in np.flatnonzero(np.isinf(values))[:1] if values.dtype.kind == "f" else ():
            raise ValueError(
                f"{name!r} must hold finite numbers, got {values[k]} in row {first + table.index[k]}{where}. Mend or "
                f"leave out such rows."
            )


def weighing(table: Table, weights: str | None) -> Table:
    """The rows that have a weight: one of zero says nothing."""
    return table if weights is None or not (table[weights] == 0).any() else table[table[weights] != 0]


def plain(table: Table, names: Sequence[Any]) -> Table:
    """These columns as NumPy's numbers and truth values, as text in objects, or as categories; no rows change."""
    return table.assign(**{name: _plain(table[name]) for name in names if _strange(table[name])})


def occurring(table: Table, names: Sequence[Any]) -> Table:
    """Categories that occur, and no others: a level without rows would be a column of zeros."""
    own = [name for name in names if table[name].dtype.name == "category"]
    return table.assign(**{name: table[name].cat.remove_unused_categories() for name in own})


def _strange(values: Any) -> bool:
    return not (isinstance(values.dtype, np.dtype) and values.dtype.kind != "O") and values.dtype.name != "category"


def _plain(values: Any) -> Any:
    from pandas.api.types import infer_dtype

    kind = infer_dtype(values, skipna=True)
    if kind == "string":
        return values.astype(object)
    if values.isna().any():
        return values
    if kind == "boolean":
        return values.astype(bool)
    if kind in _NUMBERS:
        return values.astype(np.int64 if kind == "integer" else np.float64)
    return values


def refuse_stray(table: Table, formula: str, where: str = "", first: int = 0) -> None:
    """Raises on predictors that are neither numbers nor levels: a word among numbers, dates; see `complete`.

    A word makes a whole column text, and every number in it a level of its own.
    """
    import pandas
    from pandas.api.types import infer_dtype, is_numeric_dtype

    predictors = GROUP_TERM.sub("", formula.partition("~")[2])
    for name in used_columns(table.columns, predictors):
        values = table[name]
        named = re.search(rf"C\(\s*`?{re.escape(str(name))}\b", predictors)
        if is_numeric_dtype(values) or values.dtype.name == "category" or named:
            continue
        if infer_dtype(values, skipna=True) in _DATES:
            raise ValueError(
                f"{name!r} must hold numbers or text, got dates or times. Make a number of it, such as days since the "
                f"first, or write C({name}) for a level each."
            )
        words = (pandas.to_numeric(values.astype(str), errors="coerce").isna() & values.notna()).to_numpy()
        if 0 < words.sum() < 0.5 * values.notna().sum():
            row = int(np.argmax(words))
            raise ValueError(
                f"{name!r} must hold numbers, got {values.iloc[row]!r} in row {first + row}{where} (text in "
                f"{int(words.sum())} of {len(table)} rows). Mend or leave out such rows, or write C({name}) where "
                f"numbers are names."
            )
