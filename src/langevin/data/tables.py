"""Tables in files as batches of columns, in order, from any position that an earlier reading has reached."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from langevin.data.columns import MappedFile
from langevin.data.csv_lines import below_header, names_of, refusal
from langevin.data.text import numbers_in, pyarrow_module

# Rows of a batch, its bytes where rows are long, and bytes of a CSV file that are parsed at once.
BATCH_ROWS, _BATCH_BYTES = 2**16, 16 * 2**20
_CSV_BYTES = 16 * 2**20
# Bytes of a Parquet column that are fetched at once; ahead of need, or without a buffer, row groups are held whole.
_BUFFER_BYTES = 2**16


class Batch(NamedTuple):
    """Some rows: columns by name (Arrow or NumPy arrays), the file and the number of the first row there.

    `read` counts the bytes of the files up to its end, more or less.
    `after` is the position from which reading can go on behind this batch, None within a piece that is read as one.
    `texts` holds, where a number could not be read, what is written there.
    """

    columns: dict[str, Any]
    file: Path
    first: int
    after: list[int] | None
    read: int
    texts: Mapping[str, Any] = MappingProxyType({})


class Table(Protocol):
    """Files of one format that make up a table."""

    # Arrow or NumPy dtype of each column, the bytes of the files, and rows in them: at most so many.
    types: dict[str, Any]
    files: list[Path]
    bytes: int
    rows: int
    bare: bool

    def batches(self, names: Sequence[str], position: list[int] | None) -> Iterator[Batch]:
        """These columns of all rows from a position on."""


class Promoted(ValueError):
    """A column of integers, or of text, that turns out to hold other numbers: all of it has to be read as float."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


def open_table(paths: Sequence[Path], floats: Sequence[str], texts: Sequence[str] = ()) -> Table:
    """The table in these files or folders; `floats` and `texts` name columns to read as such in any case."""
    files = [file for path in paths for file in _inside(path)]
    suffixes = {file.suffix.lower() for file in files}
    if suffixes == {".npy"}:
        return _Arrays(files, bare=len(paths) == 1 and not paths[0].is_dir())
    if suffixes == {".parquet"}:
        return _Parquet(files, floats)
    if suffixes == {".csv"}:
        return _Csv(files, floats, texts)
    listed = ", ".join(str(path) for path in paths)
    if len(suffixes) > 1:
        raise ValueError(f"data must be files of one kind, got {', '.join(sorted(suffixes))} in {listed}.")
    raise ValueError(f"data must be .npy, .parquet or .csv files, or a folder of them, got {listed}.")


def _inside(path: Path) -> list[Path]:
    if not path.exists():
        raise ValueError(f"data must be a path that exists, got {str(path)!r}.")
    if not path.is_dir():
        return [path]
    # The order of the parts of a data set is the order of their names.
    return sorted(file for file in path.iterdir() if file.suffix.lower() in (".npy", ".parquet", ".csv"))


def _refuse_twins(names: Sequence[str], places: Sequence[Any]) -> None:
    first: dict[str, Any] = {}
    for name, place in zip(names, places, strict=True):
        if name in first:
            raise ValueError(
                f"data: columns must have different names, got {name!r} twice: {first[name]} and {place}. Rename one."
            )
        first[name] = place


def _places(names: Sequence[str], file: Path) -> list[str]:
    return [f"column {k} of {file}" for k in range(1, len(names) + 1)]


class _Arrays:
    """`.npy` files, one column each."""

    def __init__(self, files: list[Path], bare: bool) -> None:
        _refuse_twins([file.stem for file in files], files)
        self.files, self._files = files, {file.stem: MappedFile(file) for file in files}
        self.types = {name: (file.dtype, file.shape[1:]) for name, file in self._files.items()}
        self.bytes = sum(file.nbytes for file in self._files.values())
        self.bare = bare
        lengths = {file.shape[0] for file in self._files.values()}
        if len(lengths) > 1:
            raise ValueError(f"data must share one leading axis, got columns of {sorted(lengths)} rows.")
        (self.rows,) = lengths

    def batches(self, names: Sequence[str], position: list[int] | None) -> Iterator[Batch]:
        arrays = {name: self._files[name].array for name in names}
        first = self._files[names[0]]
        width = sum(file.nbytes for file in self._files.values()) // self.rows
        size = int(np.clip(_BATCH_BYTES // max(width, 1), 1, BATCH_ROWS))
        for start in range(0 if position is None else position[0], self.rows, size):
            stop = min(start + size, self.rows)
            columns = {name: array[start:stop] for name, array in arrays.items()}
            yield Batch(columns, first.path, start, [stop], stop * width)


class _Parquet:
    """Parquet files; a row group is a piece."""

    bare = False

    def __init__(self, files: list[Path], floats: Sequence[str]) -> None:
        arrow, parquet = pyarrow_module("pyarrow"), pyarrow_module("pyarrow.parquet")
        self._lib, self._number, self._floats = arrow.lib, arrow.float64(), floats
        self.files, self._files = files, []
        for file in files:
            try:
                self._files.append(parquet.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False))
            except (self._lib.ArrowInvalid, OSError) as error:
                raise ValueError(f"data: {file} is not a Parquet file: {str(error).splitlines()[0]}.") from error
        self.types = {one.name: one.type for one in self._files[0].schema_arrow}
        for file, opened in zip(files, self._files, strict=True):
            _refuse_twins(opened.schema_arrow.names, _places(opened.schema_arrow.names, file))
            own = {one.name: one.type for one in opened.schema_arrow}
            if own != self.types:
                odd = next(n for n in [*self.types, *own] if own.get(n) != self.types.get(n))
                raise ValueError(
                    f"data: all files must have the same columns, but {odd!r} is {self.types.get(odd, 'not there')} in "
                    f"{files[0]} and {own.get(odd, 'not there')} in {file}."
                )
        self.types.update(dict.fromkeys(floats, self._number))
        self.rows = sum(opened.metadata.num_rows for opened in self._files)
        self.bytes = sum(file.stat().st_size for file in files)

    def batches(self, names: Sequence[str], position: list[int] | None) -> Iterator[Batch]:
        begin, before = [0, 0] if position is None else position, 0
        size = int(np.clip(_BATCH_BYTES // (8 * len(names)), 1, BATCH_ROWS))
        for k, (file, opened) in enumerate(zip(self.files, self._files, strict=True)):
            row = 0
            for g in range(opened.metadata.num_row_groups):
                stop = row + opened.metadata.row_group(g).num_rows
                if [k, g] < begin:
                    row = stop
                    continue
                try:
                    for batch in opened.iter_batches(size, row_groups=[g], columns=list(names)):
                        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                        texts = {name: columns[name] for name in self._floats if name in columns}
                        columns.update({name: numbers_in(text, self._number)[0] for name, text in texts.items()})
                        first, row = row, row + len(batch)
                        read = int((before + row) / self.rows * self.bytes)
                        yield Batch(columns, file, first, [k, g + 1] if row == stop else None, read, texts)
                except (self._lib.ArrowInvalid, OSError) as error:
                    raise ValueError(f"data: {file} is damaged: {str(error).splitlines()[0]}.") from error
            before += row


class _Csv:
    """CSV files with a header line each; pieces end with a line. Types are those of the first piece."""

    bare = False

    def __init__(self, files: list[Path], floats: Sequence[str], texts: Sequence[str]) -> None:
        self._arrow, self._csv = pyarrow_module("pyarrow"), pyarrow_module("pyarrow.csv")
        self.files = files
        self.bytes = sum(file.stat().st_size for file in files)
        self.types: dict[str, Any] = {}
        names, piece = self._names(files[0]), below_header(_lines(files[0], 0)[0])
        found = self._read(piece, names, files[0], 0, None).schema if piece.strip() else []
        number, nothing = self._arrow.float64(), self._arrow.null()
        self.types.update(dict.fromkeys(names, number))
        self.types.update({one.name: one.type for one in found if one.type != nothing})
        self.types.update(dict.fromkeys(floats, number))
        self.types.update({name: self._arrow.string() for name in texts if name in names})
        # A row has a byte for each column at least, which separates it from the next.
        self.rows = self.bytes // len(self.types)

    def batches(self, names: Sequence[str], position: list[int] | None) -> Iterator[Batch]:
        begin = [0, 0, 0] if position is None else position
        for k in range(begin[0], len(self.files)):
            file, (_, offset, row) = self.files[k], begin if k == begin[0] else (k, 0, 0)
            header, before = self._header(file), sum(earlier.stat().st_size for earlier in self.files[:k])
            while offset < file.stat().st_size:
                piece, end = _lines(file, offset)
                if offset == 0:
                    piece = below_header(piece)
                offset = end
                if piece.strip():
                    table, texts = self._parsed(piece, header, names, file, row)
                    columns = {name: self._whole(table.column(name)) for name in names}
                    first, row = row, row + len(table)
                    yield Batch(columns, file, first, [k, offset, row], before + offset, texts)

    def _whole(self, column: Any) -> Any:
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)

    def _header(self, file: Path) -> list[str]:
        names = self._names(file)
        if set(names) != set(self.types):
            odd = next(iter(set(names) ^ set(self.types)))
            raise ValueError(
                f"data: all files must have the same columns, but {odd!r} is not in both {self.files[0]} and {file}."
            )
        return names

    def _names(self, file: Path) -> list[str]:
        names = names_of(file)
        _refuse_twins(names, _places(names, file))
        return names

    def _read(self, piece: bytes, header: list[str], file: Path, row: int, types: Any, **more: Any) -> Any:
        """Lines as a table of these types; ArrowInvalid where those of the table do not fit."""
        # Unquoted NA and empty entries are missing, in columns of strings too; a quoted "NA" is a string.
        convert = self._csv.ConvertOptions(
            column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False, **more
        )
        buffer, read = self._arrow.py_buffer(piece), {"column_names": header, "block_size": 4 * 2**20}
        try:
            return self._csv.read_csv(buffer, self._csv.ReadOptions(**read), None, convert)
        except self._arrow.lib.ArrowInvalid as error:
            if types is self.types and "conversion error" in str(error):
                raise
            raise refusal(error, buffer, read, file, row) from error

    def _parsed(
        self, piece: bytes, header: list[str], names: Sequence[str], file: Path, row: int
    ) -> tuple[Any, dict[str, Any]]:
        """The piece as a table, and the texts of columns in which something is no number."""
        try:
            return self._read(piece, header, file, row, self.types, include_columns=list(names)), {}
        except self._arrow.lib.ArrowInvalid:
            string = self._arrow.string()
            table = self._read(piece, header, file, row, dict.fromkeys(names, string), include_columns=list(names))
        texts = {}
        for name in names:
            type_, text = self.types[name], table.column(name)
            if type_ == string:
                continue
            values, others = numbers_in(text, type_)
            if others:
                raise Promoted(name)
            table = table.set_column(table.schema.get_field_index(name), name, values)
            texts[name] = self._whole(text)
        return table, texts


def _lines(file: Path, offset: int) -> tuple[bytes, int]:
    """Whole lines from an offset on, about as many bytes as are parsed at once, and where they end."""
    size = _CSV_BYTES
    with open(file, "rb") as opened:
        while True:
            opened.seek(offset)
            piece = opened.read(size)
            if len(piece) < size:
                return piece, offset + len(piece)
            end = piece.rfind(b"\n") + 1
            if end:
                return piece[:end], offset + end
            size *= 2
