"""Tables that go to a file some rows at a time, and are there when they are whole."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from langevin.data.text import pyarrow_module
from langevin.regression.files import is_path
from langevin.saving.locks import claimed

Table = Any


@contextmanager
def written(out: Path, data: Any) -> Iterator[Callable[[Table], None]]:
    """Takes data frames of the same columns, one after the other, for a .csv or .parquet file.

    `data` is what they are made of: a file of it is not written over.
    """
    if out.suffix not in (".csv", ".parquet"):
        raise ValueError(f"out must end in .csv or .parquet, got {str(out)!r}.")
    with _draft(out, data) as draft:
        file = (_Csv if out.suffix == ".csv" else _Parquet)(draft)

        def put(frame: Table) -> None:
            with _explained(out):
                file.put(frame)

        try:
            yield put
        except BaseException:
            # What went wrong is said already.
            with suppress(OSError):
                file.close()
            raise
        with _explained(out):
            file.close()


class _Csv:
    def __init__(self, path: Path) -> None:
        self._file = open(path, "w", newline="", encoding="utf-8")

    def put(self, frame: Table) -> None:
        """Adds rows."""
        frame.to_csv(self._file, index=False, header=self._file.tell() == 0)

    def close(self) -> None:
        """Ends the file."""
        self._file.close()


class _Parquet:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._arrow, self._parquet = pyarrow_module("pyarrow"), pyarrow_module("pyarrow.parquet")
        # It needs to know the columns.
        self._writer: Any = None

    def put(self, frame: Table) -> None:
        """Adds rows, a group of them."""
        table = self._arrow.Table.from_pandas(frame, preserve_index=False)
        if self._writer is None:
            self._writer = self._parquet.ParquetWriter(self._path, table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        """Ends the file."""
        if self._writer is not None:
            self._writer.close()


@contextmanager
def _draft(out: Path, data: Any) -> Iterator[Path]:
    """A file beside `out`, which takes its place once it is whole and on the disk; nothing is left of one that is not.

    Of a killed process it stays, for the next one to write over.
    """
    # A link keeps leading where it did.
    final = out.resolve()
    _refuse(out, final, data)
    draft = final.with_name(final.name + ".predicting")
    # What cannot be written is better known now than after hours of work.
    try:
        lock = os.open(draft, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        raise _refused(out, str(error.strerror)) from error
    try:
        if not claimed(lock) or not (draft.exists() and os.path.samestat(os.fstat(lock), os.stat(draft))):
            raise _refused(out, "another process is writing it")
        try:
            yield draft
            with _explained(out):
                os.fsync(lock)
                os.replace(draft, final)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    finally:
        os.close(lock)


def _refuse(out: Path, final: Path, data: Any) -> None:
    """Raises on folders, and on what predictions would take the place of or stand among."""
    if final.is_dir():
        raise _refused(out, "it is a folder")
    for path in [Path(one).resolve() for one in (data if isinstance(data, (list, tuple)) else [data]) if is_path(one)]:
        if final == path or (path.is_dir() and final.parent == path):
            raise _refused(out, "the data are there")


def _refused(out: Path, reason: str) -> ValueError:
    return ValueError(f"out must be a file that can be written, got {str(out)!r}: {reason}. Try another.")


@contextmanager
def _explained(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror if error.strerror else str(error)
        said = f"out could not be written, and what was there is untouched: {reason}"
        raise OSError(error.errno, said, str(out)) from error
