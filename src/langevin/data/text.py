"""Columns of text: which of their entries are numbers, read as such or not."""

from typing import Any

import numpy as np

_BOOLEAN = r"^\s*(?i:true|false|0|1)\s*$"
# Of any length, and of one that 64 bits hold.
_DIGITS, _INTEGER = r"^\s*[-+]?\d+\s*$", r"^\s*[-+]?\d{1,18}\s*$"
_NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
# What people write for a number besides: 1,000 or 2,5 or 12% or $3.
_WRITTEN = r"^\s*[-+]?[$€£]?\s*((\d{1,3}([,' ]\d{3})+|\d+)([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?\s*%?\s*$"


def pyarrow_module(name: str) -> Any:
    """A module of pyarrow, or an error that says how to install it."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError("Parquet and CSV files need pyarrow: pip install 'langevin[files]'.") from error


def numbers_in(text: Any, type_: Any) -> tuple[Any, bool]:
    """The entries as values of an Arrow type, missing where they are none; whether other numbers are among those."""
    arrow, compute = pyarrow_module("pyarrow"), pyarrow_module("pyarrow.compute")
    whole = arrow.types.is_integer(type_)
    pattern = _INTEGER if whole else _BOOLEAN if arrow.types.is_boolean(type_) else _NUMBER
    fits = compute.match_substring_regex(text, pattern)
    readable = compute.if_else(fits, text, arrow.scalar(None, text.type))
    found = compute.utf8_trim_whitespace(readable).cast(type_)
    if not whole:
        return found, False
    number, digits = (compute.match_substring_regex(text, one) for one in (_NUMBER, _DIGITS))
    return found, bool(compute.any(compute.and_not(number, digits)).as_py())


def counts(encoded: Any) -> np.ndarray:
    """Entries of an encoded column: how many there are, are numbers in any writing, and are read as no number."""
    match, texts = pyarrow_module("pyarrow.compute").match_substring_regex, encoded.dictionary
    rows = np.bincount(encoded.indices.drop_null().to_numpy(), minlength=len(texts))
    written, read = (match(texts, one).to_numpy(zero_copy_only=False).astype(bool) for one in (_WRITTEN, _NUMBER))
    return np.array([rows.sum(), rows[written].sum(), rows[~read].sum()])
