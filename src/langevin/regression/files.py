"""Tables in files as pandas frames: whole where they are small, some rows at a time where they are not."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from langevin.data.columns import MANIFEST, DataChanged, Manifest
from langevin.data.prefetch import FROM_BYTES
from langevin.data.tables import Batch, Promoted, Table, open_table

Frame = Any
Value = TypeVar("Value")


class Piece(NamedTuple):
    """Some rows of a file, the number of the first of them there, and bytes of all files up to their end."""

    frame: Frame
    file: Path
    first: int
    read: int


@dataclass(frozen=True, eq=False)
class Frames:
    """A table in files: `columns` are its names, `paths` the files and folders, `bytes` their size.

    `floats` are columns of a CSV file that only look like integers at first.
    `parts` tells for each column in which of the table's own it lies and at which place, None where it is one of its
    own; `levels` what the codes of an imported folder stand for; `opened` size and time of each file.
    """

    table: Table
    paths: tuple[Path, ...]
    floats: tuple[str, ...]
    parts: dict[str, tuple[str, int | None]]
    levels: dict[str, tuple[str, ...]]
    opened: dict[Path, tuple[int, int]]

    @property
    def columns(self) -> list[str]:
        """Names, in the order of the table."""
        return list(self.parts)

    @property
    def bytes(self) -> int:
        """Of the files."""
        return self.table.bytes

    def pieces(self, names: Sequence[str]) -> Iterator[Piece]:
        """These columns of all rows, in order."""
        import pandas

        own = list(dict.fromkeys(self.parts[name][0] for name in names))
        for batch in self.table.batches(own, None):
            columns = {}
            for name in names:
                whole, place = self.parts[name]
                values = batch.columns[whole]
                if not isinstance(values, np.ndarray):
                    _refuse_text(name, values, batch)
                    values = values.to_pandas(types_mapper=_nullable(values))
                if place is not None:
                    values = values[:, place]
                elif name in self.levels:
                    values = pandas.Categorical.from_codes(values, self.levels[name])
                columns[name] = values
            self._check(batch.file)
            yield Piece(pandas.DataFrame(columns), batch.file, batch.first, batch.read)

    def _check(self, file: Path) -> None:
        """Raises where a file is not what it was at the beginning: readings of it would not be of the same rows."""
        if file in self.opened and _state(file) != self.opened[file]:
            raise DataChanged(f"data: {file} was changed while it was being read. Start again when it is whole.")

    def through(self, work: Callable[["Frames"], Value]) -> Value:
        """What some work on the table gives; anew where integers of a CSV file turn out to be other numbers."""
        try:
            return work(self)
        except Promoted as found:
            again = _frames(self.paths, (*self.floats, found.column))
        return again.through(work)

    def whole(self) -> Frame:
        """All of it in memory."""
        import pandas

        return pandas.concat([piece.frame for piece in self.pieces(self.columns)], ignore_index=True)


def _nullable(values: Any) -> Callable[[Any], Any] | None:
    """Integers and truth values stay what they are where some are missing; pandas would make floats and objects."""
    import pandas
    from pyarrow import types

    if not values.null_count:
        return None
    kind = types.is_integer(values.type), types.is_boolean(values.type)
    own = pandas.Int64Dtype() if kind[0] else pandas.BooleanDtype() if kind[1] else None
    return lambda _: own


def _refuse_text(name: str, values: Any, batch: Batch) -> None:
    """Text below the first part of a CSV file, in a column that held numbers there: it is not a missing value."""
    written = batch.texts.get(name)
    if written is None:
        return
    rows = np.flatnonzero(np.asarray(values.is_null()) & np.asarray(written.is_valid()))
    if len(rows):
        raise ValueError(
            f"{name!r} must hold numbers, as in the first rows of {batch.file}, got {written[int(rows[0])].as_py()!r} "
            f"in row {batch.first + int(rows[0])}. Mend or leave out such rows, or give names that look like numbers "
            f"as text in a Parquet file."
        )


def table_in_files(data: Any) -> Frames | None:
    """The table at a path, at a list of them, or in a folder, imported ones too; None where data are no path."""
    paths = tuple(Path(one) for one in (data if isinstance(data, (list, tuple)) else [data]) if is_path(one))
    if not paths or (isinstance(data, (list, tuple)) and len(paths) < len(data)):
        return None
    return _frames(paths, ())


def _frames(paths: tuple[Path, ...], floats: tuple[str, ...]) -> Frames:
    table, folder, described = open_table(paths, floats), paths[0], {}
    if len(paths) == 1 and (folder / MANIFEST).exists():
        described = {Path(column.file).stem: column for column in Manifest.read(folder).columns}
    parts: dict[str, tuple[str, int | None]] = {}
    levels = {}
    for name, kind in table.types.items():
        column = described.get(name)
        width = kind[1][0] if isinstance(kind, tuple) and kind[1] else None
        names = [name] if column is None else list(column.made_of if len(column.made_of) > 1 else [column.name])
        if width is not None and len(names) != width:
            names = [f"{names[0]}_{k}" for k in range(width)]
        for k, one in enumerate(names):
            parts[one] = (name, None if width is None else k)
        if column is not None and column.levels is not None:
            levels[names[0]] = column.levels
    return Frames(table, paths, floats, parts, levels, {file: _state(file) for file in table.files})


def _state(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns


def large_table(data: Any) -> Frames | None:
    """The table in files of more than 32 MB, which is not to be held in memory; None for any other data."""
    paths = [one for one in (data if isinstance(data, (list, tuple)) else [data]) if is_path(one)]
    if not paths or not all(Path(one).exists() for one in paths) or _size(paths) <= FROM_BYTES:
        return None
    return table_in_files(data)


def _size(paths: Sequence[Any]) -> int:
    files = [file for path in map(Path, paths) for file in ([path] if path.is_file() else path.iterdir())]
    return sum(file.stat().st_size for file in files if file.is_file())


def is_path(data: Any) -> bool:
    """Whether data are named by where they are."""
    return isinstance(data, (str, PathLike))
