"""Columns of a table as numbers: what each becomes, which rows have none, and what to say of them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from langevin.data.journal import Journal
from langevin.data.resolution import Rounding
from langevin.data.tables import Batch, Promoted, Table
from langevin.data.text import counts, pyarrow_module

# More levels than this look like an identifier, and have to be held in memory.
_MOST_LEVELS = 1_000_000
_INT32 = np.iinfo(np.int32)
# `C(x)`, as in a formula: the entries of x are names, also where they look like numbers.
_LEVELS = re.compile(r"C\((.+)\)")


@dataclass(frozen=True)
class Part:
    """A column of the folder: made of one column of the table, or of several of them side by side.

    `declared`: the user says that it is categorical, whatever it looks like.
    """

    name: str
    made_of: tuple[str, ...]
    dtype: np.dtype
    shape: tuple[int, ...]
    categorical: bool = False
    declared: bool = False

    @property
    def asked(self) -> list[str]:
        """What it was asked for as."""
        return [f"C({one})" for one in self.made_of] if self.declared else list(self.made_of)


def declared_levels(columns: Any) -> list[str]:
    """The table's columns that are asked for as `C(name)`."""
    wanted = [one for patterns in _asked(columns or {}).values() for one in _listed(patterns)]
    return [found[1] for one in wanted if (found := _LEVELS.fullmatch(one))]


def _asked(columns: Any) -> Mapping[str, Any]:
    if isinstance(columns, Mapping):
        return columns
    return {_LEVELS.sub(r"\1", name): name for name in _listed(columns)}


def _listed(names: Any) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def parts_of(table: Table, columns: Any) -> list[Part]:
    """The columns that were asked for: None for all, names, or {name: name, pattern, C(name) or list of them}."""
    asked = dict(zip(table.types, table.types, strict=True)) if columns is None else _asked(columns)
    parts = []
    for name, wanted in asked.items():
        patterns = _listed(wanted)
        named = _LEVELS.fullmatch(patterns[0]) if len(patterns) == 1 and patterns[0] not in table.types else None
        if named:
            parts.append(_of_levels(name, named[1], table))
            continue
        single = isinstance(wanted, str) and wanted in table.types
        made_of = tuple(dict.fromkeys(one for pattern in patterns for one in _matching(pattern, table)))
        kinds = [_kind(one, table.types[one]) for one in made_of]
        if single:
            dtype, shape, categorical = kinds[0]
            parts.append(Part(name, made_of, dtype, shape, categorical))
            continue
        odd = [one for one, (_, shape, categorical) in zip(made_of, kinds, strict=True) if categorical or shape]
        if odd:
            raise ValueError(f"columns: only numbers can stand side by side in {name!r}, got {odd[0]!r} among them.")
        parts.append(Part(name, made_of, np.dtype(np.float32), (len(made_of),)))
    if not parts:
        raise ValueError("columns must name at least one column, got none.")
    levels = {part.made_of[0] for part in parts if part.declared}
    both = levels.intersection(one for part in parts if not part.declared for one in part.made_of)
    if both:
        column = min(both)
        raise ValueError(f"columns: {column!r} must be numbers or names, got both it and C({column}). Ask for one.")
    return parts


def _of_levels(name: str, column: str, table: Table) -> Part:
    if column not in table.types:
        raise ValueError(_absent(column, table))
    dtype, shape, categorical = _kind(column, table.types[column])
    if isinstance(table.types[column], tuple) or not (categorical or dtype.kind in "iub"):
        raise ValueError(f"columns: C({column}) must name text, integers or truth values, got {table.types[column]}.")
    return Part(name, (column,), np.dtype(np.int32), shape, categorical=True, declared=True)


def _matching(pattern: str, table: Table) -> list[str]:
    found = [pattern] if pattern in table.types else [one for one in table.types if fnmatchcase(one, pattern)]
    if not found:
        raise ValueError(_absent(pattern, table))
    return found


def _absent(column: str, table: Table) -> str:
    return f"columns: there is no column {column!r}; the table has {', '.join(table.types)}."


def _kind(name: str, type_: Any) -> tuple[np.dtype, tuple[int, ...], bool]:
    """What a column becomes: dtype, shape of an entry, whether it is categorical."""
    if isinstance(type_, tuple):
        return _narrowed(type_[0]), type_[1], False
    types = pyarrow_module("pyarrow").types
    if types.is_dictionary(type_):
        type_ = type_.value_type
        if not (types.is_string(type_) or types.is_large_string(type_)):
            return _kind(name, type_)
    if types.is_string(type_) or types.is_large_string(type_):
        return np.dtype(np.int32), (), True
    if types.is_floating(type_) or types.is_decimal(type_):
        return np.dtype(np.float32), (), False
    if types.is_integer(type_) or types.is_boolean(type_):
        return _narrowed(np.dtype(type_.to_pandas_dtype())), (), False
    raise ValueError(
        f"data: column {name!r} has type {type_}, which is no number and no category. Turn it into numbers first, or "
        f"leave it out: columns=[...], on the command line --column."
    )


def _narrowed(dtype: np.dtype) -> np.dtype:
    if dtype.kind == "f":
        return np.dtype(np.float32)
    return np.dtype(np.int32) if dtype.itemsize > 4 else dtype.newbyteorder("=")


@dataclass
class Encoder:
    """Turns batches into records, one for a row; counts what it drops and collects levels as it goes."""

    parts: list[Part]
    drop_missing: bool
    levels: dict[str, dict[str, int]] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    # What is lost when the numbers of a column become float32.
    rounding: dict[str, Rounding] = field(default_factory=dict)
    # Of columns of text: entries, those that are numbers in any writing, and those that are read as none.
    entries: dict[str, list[int]] = field(default_factory=dict)

    @property
    def record(self) -> np.dtype:
        """A row as it lies in a file: column after column, without gaps."""
        return np.dtype([(f"c{k}", part.dtype, part.shape) for k, part in enumerate(self.parts)])

    @property
    def names(self) -> list[str]:
        """The table's columns that are read."""
        return list(dict.fromkeys(name for part in self.parts for name in part.made_of))

    def resume(self, journal: Journal) -> None:
        """Goes on from what a journal knows, and keeps levels and dropped rows there."""
        self.levels, self.dropped, self.entries = journal.levels, journal.dropped, journal.entries
        self.rounding = {name: Rounding(**state) for name, state in journal.rounding.items()}

    def note(self, journal: Journal) -> None:
        """Tells a journal what else it needs."""
        journal.rounding = {name: rounding.state for name, rounding in self.rounding.items()}

    def encoded(self, batch: Batch) -> tuple[np.ndarray, np.ndarray | None]:
        """The records of a batch, and which rows have a number everywhere (None: all); raises unless rows may go."""
        rows = len(next(iter(batch.columns.values())))
        records = np.empty(rows, self.record)
        bad: np.ndarray | None = None
        for k, part in enumerate(self.parts):
            for j, name in enumerate(part.made_of):
                values, missing = self._values(part, name, batch)
                target = records[f"c{k}"]
                if len(part.made_of) > 1 or (part.shape and values.ndim == 1):
                    target[:, j] = values
                else:
                    target[...] = values
                if missing is None:
                    continue
                if not self.drop_missing:
                    self._refuse(name, int(np.argmax(missing)), batch)
                new = missing if bad is None else missing & ~bad
                self.dropped[name] = self.dropped.get(name, 0) + int(new.sum())
                bad = missing if bad is None else bad | missing
        return records, None if bad is None else ~bad

    def _values(self, part: Part, name: str, batch: Batch) -> tuple[np.ndarray, np.ndarray | None]:
        """The numbers of a column, and where there are none."""
        column, missing = batch.columns[name], None
        if not isinstance(column, np.ndarray):
            if column.null_count:
                missing = column.is_null().to_numpy(zero_copy_only=False)
            column = self._codes(name, column, part.declared) if part.categorical else _plain(column)
        if part.dtype.kind == "f":
            # What is missing among integers is a zero here.
            self.rounding.setdefault(name, Rounding()).add(column if missing is None else column[~missing])
        if column.dtype.kind == "f":
            with np.errstate(over="ignore", invalid="ignore"):
                values = column.astype(np.float32, copy=False)
            # A sum is finite unless a term is not, or the terms are huge: most batches need no second look.
            with np.errstate(over="ignore", invalid="ignore"):
                suspect = not np.isfinite(np.add.reduce(values, axis=None))
            if suspect:
                finite = np.isfinite(column).reshape(len(column), -1).all(axis=1)
                over = finite & ~np.isfinite(values).reshape(len(column), -1).all(axis=1)
                if over.any():
                    self._refuse(name, int(np.argmax(over)), batch, "fit in float32 (below 3.4e38)")
                missing = None if finite.all() else ~finite
            return values, missing
        if column.dtype.itemsize > 4 and part.dtype.kind != "f" and column.size:
            over = (column > _INT32.max) | (column < _INT32.min)
            if over.any():
                row = int(np.argmax(over.reshape(len(column), -1).any(axis=1)))
                self._refuse(name, row, batch, "fit in int32: recode identifiers as 0, 1, 2, ...")
        return column, missing

    def _codes(self, name: str, column: Any, declared: bool) -> np.ndarray:
        """Provisional codes of a categorical column, in the order in which levels come."""
        arrow = pyarrow_module("pyarrow")
        if declared:
            column = column.cast(arrow.string())
        encoded = column if arrow.types.is_dictionary(column.type) else column.dictionary_encode()
        if encoded is not column and not declared:
            self.entries[name] = (counts(encoded) + self.entries.get(name, 0)).tolist()
        known = self.levels.setdefault(name, {})
        translate = np.array([known.setdefault(text, len(known)) for text in encoded.dictionary.to_pylist()], np.int32)
        if len(known) > _MOST_LEVELS:
            self._check_text()
            raise ValueError(
                f"data: column {name!r} has more than {_MOST_LEVELS:,} different strings: it looks like an identifier. "
                f"Leave it out: columns=[...], on the command line --column."
            )
        codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return translate[codes] if len(translate) else np.zeros(len(codes), np.int32)

    def _refuse(self, name: str, row: int, batch: Batch, rule: str = "") -> None:
        text = batch.texts.get(name)
        found = batch.columns[name][row]
        value = (text[row] if text is not None else found).as_py() if hasattr(found, "as_py") else found
        said = "a missing value" if value is None else repr(value)
        remedy = "" if rule else " Mend the row, or drop all such rows: drop_missing=True, --drop-missing."
        if text is not None and value is not None:
            remedy += f" If numbers are names: columns={{{name!r}: 'C({name})', ...}}, --column '{name}=C({name})'."
        raise ValueError(
            f"data: column {name!r} must {rule or 'hold a finite number in every row'}, got {said} in row "
            f"{batch.first + row:,} of {batch.file} (rows counted from 0).{remedy}"
        )

    def check(self, num_rows: int) -> None:
        """Once all rows have been seen: raises where text is numbers, or float32 cannot tell numbers apart."""
        self._check_text()
        for name, rounding in self.rounding.items():
            refusal = rounding.refusal(f"data: column {name!r}", num_rows)
            if refusal is not None:
                raise ValueError(refusal)

    def _check_text(self) -> None:
        """Raises `Promoted` where most of a column of text is numbers: the rest is no level, but a mistake."""
        for name, (entries, written, unread) in self.entries.items():
            if unread and 2 * written > entries:
                raise Promoted(name)

    def final_levels(self, part: Part) -> tuple[list[str], np.ndarray]:
        """The levels of a column in sorted order, and the final code of each provisional one."""
        known = self.levels.get(part.made_of[0], {})
        order = sorted(known)
        final = np.empty(len(known), np.int32)
        final[[known[text] for text in order]] = np.arange(len(order))
        return order, final


def _plain(column: Any) -> np.ndarray:
    """An Arrow array of numbers in NumPy; what is missing is 0 or NaN."""
    arrow = pyarrow_module("pyarrow")
    if arrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if arrow.types.is_decimal(column.type):
        column = column.cast(arrow.float64())
    if column.null_count and not arrow.types.is_floating(column.type):
        column = column.fill_null(False if arrow.types.is_boolean(column.type) else 0)
    return column.to_numpy(zero_copy_only=False)
