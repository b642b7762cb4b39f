"""Tables in files as batches of columns, in order, from any position that an earlier reading has reached."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from langevin.data.columns import MappedFile

# Rows of a batch, its bytes where rows are long, and bytes of a CSV file that are parsed at once.
BATCH_ROWS, _BATCH_BYTES = 2**16, 16 * 2**20
_CSV_BYTES = 16 * 2**20
# What counts as a number in a CSV file, for the rare part of one that cannot be read as its first part was.
_BOOLEAN, _INTEGER = r"^\s*(?i:true|false|0|1)\s*$", r"^\s*[-+]?\d+\s*$"
_NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"


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

    # Arrow or NumPy dtype of each column, and the bytes of the files.
    types: dict[str, Any]
    files: list[Path]
    bytes: int
    bare: bool

    def batches(self, names: Sequence[str], position: list[int] | None) -> Iterator[Batch]:
        """These columns of all rows from a position on."""


class Promoted(ValueError):
    """A column of integers that turns out to hold other numbers further down: all of it has to be read as float."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


def open_table(paths: Sequence[Path], floats: Sequence[str]) -> Table:
    """The table in these files or folders; `floats` names columns to read as float whatever they look like."""
    files = [file for path in paths for file in _inside(path)]
    suffixes = {file.suffix.lower() for file in files}
    if suffixes == {".npy"}:
        return _Arrays(files, bare=len(paths) == 1 and not paths[0].is_dir())
    if suffixes == {".parquet"}:
        return _Parquet(files)
    if suffixes == {".csv"}:
        return _Csv(files, floats)
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


def pyarrow_module(name: str) -> Any:
    """A module of pyarrow, or an error that says how to install it."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError("Parquet and CSV files need pyarrow: pip install 'langevin[files]'.") from error


class _Arrays:
    """`.npy` files, one column each."""

    def __init__(self, files: list[Path], bare: bool) -> None:
        self.files, self._files = files, {file.stem: MappedFile(file) for file in files}
        self.types = {name: (file.dtype, file.shape[1:]) for name, file in self._files.items()}
        self.bytes = sum(file.nbytes for file in self._files.values())
        self.bare = bare
        self._rows = {file.shape[0] for file in self._files.values()}
        if len(self._rows) > 1:
            raise ValueError(f"data must share one leading axis, got columns of {sorted(self._rows)} rows.")

    def batches(self, names: Sequence[str], position: list[int] | None) -> Iterator[Batch]:
        (rows,) = self._rows
        arrays = {name: self._files[name].array for name in names}
        first = self._files[names[0]]
        width = sum(file.nbytes for file in self._files.values()) // rows
        size = int(np.clip(_BATCH_BYTES // max(width, 1), 1, BATCH_ROWS))
        for start in range(0 if position is None else position[0], rows, size):
            stop = min(start + size, rows)
            columns = {name: array[start:stop] for name, array in arrays.items()}
            yield Batch(columns, first.path, start, [stop], stop * width)


class _Parquet:
    """Parquet files; a row group is a piece."""

    bare = False

    def __init__(self, files: list[Path]) -> None:
        parquet, self._lib = pyarrow_module("pyarrow.parquet"), pyarrow_module("pyarrow").lib
        self.files, self._files = files, []
        for file in files:
            try:
                self._files.append(parquet.ParquetFile(file))
            except (self._lib.ArrowInvalid, OSError) as error:
                raise ValueError(f"data: {file} is not a Parquet file: {str(error).splitlines()[0]}.") from error
        self.types = {one.name: one.type for one in self._files[0].schema_arrow}
        for file, opened in zip(files, self._files, strict=True):
            own = {one.name: one.type for one in opened.schema_arrow}
            if own != self.types:
                odd = next(n for n in [*self.types, *own] if own.get(n) != self.types.get(n))
                raise ValueError(
                    f"data: all files must have the same columns, but {odd!r} is {self.types.get(odd, 'not there')} in "
                    f"{files[0]} and {own.get(odd, 'not there')} in {file}."
                )
        self._rows = max(sum(opened.metadata.num_rows for opened in self._files), 1)
        self.bytes = sum(file.stat().st_size for file in files)

    def batches(self, names: Sequence[str], position: list[int] | None) -> Iterator[Batch]:
        begin, before = [0, 0] if position is None else position, 0
        for k, (file, opened) in enumerate(zip(self.files, self._files, strict=True)):
            row = 0
            for g in range(opened.metadata.num_row_groups):
                stop = row + opened.metadata.row_group(g).num_rows
                if [k, g] < begin:
                    row = stop
                    continue
                try:
                    for batch in opened.iter_batches(BATCH_ROWS, row_groups=[g], columns=list(names)):
                        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                        first, row = row, row + len(batch)
                        read = int((before + row) / self._rows * self.bytes)
                        yield Batch(columns, file, first, [k, g + 1] if row == stop else None, read)
                except (self._lib.ArrowInvalid, OSError) as error:
                    raise ValueError(f"data: {file} is damaged: {str(error).splitlines()[0]}.") from error
            before += row


class _Csv:
    """CSV files with a header line each; pieces end with a line. Types are those of the first piece."""

    bare = False

    def __init__(self, files: list[Path], floats: Sequence[str]) -> None:
        self._arrow, self._csv = pyarrow_module("pyarrow"), pyarrow_module("pyarrow.csv")
        self._compute = pyarrow_module("pyarrow.compute")
        self.files = files
        self.bytes = sum(file.stat().st_size for file in files)
        piece, _ = _lines(files[0], 0)
        try:
            # Unquoted NA and empty entries are missing, in columns of strings too; a quoted "NA" is a string.
            found = self._csv.read_csv(self._arrow.py_buffer(piece), convert_options=self._convert(None))
        except self._arrow.lib.ArrowInvalid as error:
            raise ValueError(f"data: {files[0]} is not a CSV file with a header: {error}.") from error
        number = self._arrow.float64()
        known = {one.name: number if one.type == self._arrow.null() else one.type for one in found.schema}
        self.types = {name: number if name in floats else type_ for name, type_ in known.items()}

    def _convert(self, types: dict[str, Any] | None, **more: Any) -> Any:
        return self._csv.ConvertOptions(
            column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False, **more
        )

    def batches(self, names: Sequence[str], position: list[int] | None) -> Iterator[Batch]:
        begin = [0, 0, 0] if position is None else position
        for k in range(begin[0], len(self.files)):
            file, (_, offset, row) = self.files[k], begin if k == begin[0] else (k, 0, 0)
            header, before = self._header(file), sum(earlier.stat().st_size for earlier in self.files[:k])
            while offset < file.stat().st_size:
                piece, end = _lines(file, offset)
                if offset == 0:
                    piece = piece[piece.find(b"\n") + 1 :] if b"\n" in piece else b""
                offset = end
                if piece.strip():
                    table, texts = self._parsed(piece, header, names, file)
                    columns = {name: self._whole(table.column(name)) for name in names}
                    first, row = row, row + len(table)
                    yield Batch(columns, file, first, [k, offset, row], before + offset, texts)

    def _whole(self, column: Any) -> Any:
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)

    def _header(self, file: Path) -> list[str]:
        with open(file, "rb") as opened:
            line = opened.readline()
        names = self._csv.read_csv(self._arrow.py_buffer(line)).schema.names
        if set(names) != set(self.types):
            odd = next(iter(set(names) ^ set(self.types)))
            raise ValueError(
                f"data: all files must have the same columns, but {odd!r} is not in both {self.files[0]} and {file}."
            )
        return names

    def _parsed(self, piece: bytes, header: list[str], names: Sequence[str], file: Path) -> tuple[Any, dict[str, Any]]:
        """The piece as a table, and the texts of columns in which something is no number."""
        read = self._csv.ReadOptions(column_names=header, block_size=4 * 2**20)

        def parse(types: dict[str, Any]) -> Any:
            convert = self._convert(types, include_columns=list(names))
            return self._csv.read_csv(self._arrow.py_buffer(piece), read_options=read, convert_options=convert)

        try:
            return parse(self.types), {}
        except self._arrow.lib.ArrowInvalid as error:
            if "conversion error" not in str(error):
                raise ValueError(f"data: {file} cannot be read as CSV: {str(error).splitlines()[0]}.") from error
        table, texts = parse(dict.fromkeys(names, self._arrow.string())), {}
        for name in names:
            type_, text = self.types[name], table.column(name)
            if type_ == self._arrow.string():
                continue
            whole = self._arrow.types.is_integer(type_)
            pattern = _INTEGER if whole else _BOOLEAN if self._arrow.types.is_boolean(type_) else _NUMBER
            fits = self._compute.match_substring_regex(text, pattern)
            number = self._compute.match_substring_regex(text, _NUMBER)
            if whole and self._compute.any(self._compute.and_not(number, fits)).as_py():
                raise Promoted(name)
            readable = self._compute.if_else(fits, text, self._arrow.scalar(None, self._arrow.string()))
            trimmed = self._compute.utf8_trim_whitespace(readable)
            table = table.set_column(table.schema.get_field_index(name), name, trimmed.cast(type_))
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
