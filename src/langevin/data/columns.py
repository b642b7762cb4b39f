"""Columns on disk: `.npy` files mapped read-only, and the manifest that describes a folder of them.

Nothing here runs code of a file: headers are literals, manifests are JSON, objects are refused, and a manifest can only
name files of its own folder.
"""

import errno
import fcntl
import json
import mmap
import os
import re
import signal
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from io import BytesIO
from math import prod
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.lib import format as npy

MANIFEST = "langevin.json"
# Goes up whenever the manifest, or the meaning of a column, changes.
FORMAT = 1
# Plain names only: no folder, no hidden file, nothing that a shell or another system reads in its own way.
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.npy")


@dataclass(frozen=True)
class Column:
    """A column as its manifest describes it.

    `crc32` covers every byte of its numbers; `size` and `mtime_ns` tell a file that was touched since. `levels` are
    what the codes 0, 1, 2 ... of a categorical column stand for. `made_of` names the columns of the table in it.
    """

    name: str
    file: str
    dtype: str
    shape: tuple[int, ...]
    crc32: int
    size: int
    mtime_ns: int
    levels: tuple[str, ...] | None = None
    made_of: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """What an imported folder holds: columns of equal length, and where they come from.

    `bare`: the data are the one column itself, not a dict of columns. `seed` is that of the shuffle. `origin` describes
    the files and the options of the import, so that the same import need not be made twice; `dropped` counts the rows
    that were left out, by the column that had no number there.
    """

    num_data: int
    columns: tuple[Column, ...]
    bare: bool
    seed: int
    origin: dict[str, Any]
    dropped: dict[str, int]

    def write(self, file: Path) -> None:
        """As JSON, forced to the disk."""
        text = json.dumps({"format": FORMAT, **asdict(self)}, indent=1, allow_nan=False)
        with open(file, "w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """The manifest of a folder; raises ValueError where it is damaged or names files elsewhere."""
        file = folder / MANIFEST
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            if found.pop("format") != FORMAT:
                raise ValueError(f"it has another format than {FORMAT}: use the langevin that wrote it")
            columns = tuple(_column(**entry) for entry in found.pop("columns"))
            manifest = cls(columns=columns, **found)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"{file} is not a manifest that can be used: {error}. Delete {folder} and import anew."
            ) from error
        if not columns or (manifest.bare and len(columns) > 1):
            raise ValueError(f"{file} is not a manifest that can be used: it has {len(columns)} columns.")
        return manifest


def _column(*, file: str, shape: list[int], levels: list[str] | None, made_of: list[str], **rest: Any) -> Column:
    if not isinstance(file, str) or not _FILE.fullmatch(file):
        raise ValueError(f"a column must be a .npy file of the folder itself, got {file!r}")
    return Column(
        file=file,
        shape=tuple(shape),
        levels=None if levels is None else tuple(levels),
        made_of=tuple(made_of),
        **rest,
    )


def file_name(column: str, taken: set[str]) -> str:
    """A plain file name for a column of any name, different from those taken, in any case of letters."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", column)[:64] or "_"
    plain = plain if plain[0] != "-" else f"_{plain}"
    name, count = f"{plain}.npy", 1
    while name.lower() in taken:
        count += 1
        name = f"{plain}-{count}.npy"
    taken.add(name.lower())
    return name


class MappedFile:
    """A `.npy` file, mapped read-only; it knows when the file is no longer what was opened.

    Touching a page beyond the end of a file that was cut off ends the process without a word. So `reading` takes a read
    lease, where the system has them and the file is the user's own: whoever wants to write then waits until it is given
    back, 45 seconds at most.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                self.shape, self.dtype, self.offset = _header(file, path)
                # Kept open: where the name is given to another file, this one stays what it was.
                self._number = os.dup(file.fileno())
        except OSError as error:
            raise ValueError(f"data: {path} cannot be opened: {error.strerror}.") from error
        weakref.finalize(self, os.close, self._number)
        self._readers, self._lock, self._leased, self._busy = 0, Lock(), False, False
        self.nbytes = prod(self.shape) * self.dtype.itemsize
        self.opened = self.stat()
        if self.opened[0] < self.offset + self.nbytes:
            raise ValueError(
                f"data: {path} is truncated: its header promises {self.offset + self.nbytes:,} bytes, and there are "
                f"{self.opened[0]:,}. Write it anew, or restore it from a copy."
            )

    @cached_property
    def array(self) -> np.ndarray:
        """All of it, mapped once: pages that a first pass has touched cost later readers nothing."""
        return self.mapped()

    def mapped(self, advice: int | None = None) -> np.ndarray:
        """All of it in a map of its own; pages come from the disk when they are first used."""
        mapped = mmap.mmap(self._number, self.offset + self.nbytes, access=mmap.ACCESS_READ)
        if advice is not None:
            mapped.madvise(advice)
        return np.frombuffer(mapped, self.dtype, prod(self.shape), self.offset).reshape(self.shape)

    @property
    def unchanged(self) -> bool:
        """Whether nobody has written to the file, or cut it off, since it was opened."""
        return self.stat() == self.opened

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Others wait with writing to the file; ask `check` now and then whether they do."""
        with self._lock:
            self._readers += 1
            if self._readers == 1:
                self._lease("F_RDLCK")
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1
                if not self._readers:
                    self._lease("F_UNLCK")

    def _lease(self, kind: str) -> None:
        if not hasattr(fcntl, "F_SETLEASE"):
            return
        try:
            # A signal that does nothing unless somebody asks for it; the usual one would end the process.
            fcntl.fcntl(self._number, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(self._number, fcntl.F_SETLEASE, getattr(fcntl, kind))
            self._leased = True
        except OSError as error:
            # Not ours, or on a file system without leases: there is none. Busy: somebody has it open for writing.
            self._busy = self._leased and error.errno == errno.EAGAIN

    @property
    def _wanted(self) -> bool:
        """Whether somebody waits to write to the file, or has opened it for writing since there was a lease."""
        return self._busy or (self._leased and fcntl.fcntl(self._number, fcntl.F_GETLEASE) != fcntl.F_RDLCK)

    def check(self) -> None:
        """Raises `DataChanged` where the file was written to or cut off, or somebody waits to do so."""
        if not self.unchanged:
            raise DataChanged(
                f"data: {self.path} was changed while it was in use: it had {self.opened[0]:,} bytes when it was "
                f"opened, now has {self.stat()[0]:,}, and was written to. What was computed mixes two data sets. Start "
                f"again, and write new data to a new file."
            )
        if self._readers and self._wanted:
            raise DataChanged(
                f"data: {self.path} was opened for writing while it was in use. Nothing had been written yet, and what "
                f"was computed is of one data set; but a file that is cut off would end this process without a word. "
                f"Write new data to a new file."
            )

    def stat(self) -> tuple[int, int]:
        """Size and time of the last change."""
        found = os.fstat(self._number)
        return found.st_size, found.st_mtime_ns

    @property
    def identity(self) -> tuple:
        """What is the same only for the same file with the same contents."""
        found = os.fstat(self._number)
        return found.st_dev, found.st_ino, *self.opened


class DataChanged(RuntimeError):
    """A data file was changed or truncated while a run was reading it.

    Example:
        >>> import langevin as lv
        >>> issubclass(lv.DataChanged, RuntimeError)
        True
    """


def header_of(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """The beginning of a `.npy` file; its length is a multiple of 64."""
    buffer = BytesIO()
    npy.write_array_header_1_0(buffer, {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def _header(file: Any, path: Path) -> tuple[tuple[int, ...], np.dtype, int]:
    try:
        magic = npy.read_magic(file)
        read = npy.read_array_header_1_0 if magic == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except ValueError as error:
        raise ValueError(f"data: {path} is not a .npy file of numbers: {str(error).splitlines()[0]}.") from error
    if dtype.hasobject or dtype.kind not in "fiub":
        raise ValueError(
            f"data: {path} must hold numbers, got dtype {dtype}. Encode categories as integers; Python objects are "
            f"never read from a file."
        )
    if not shape or not shape[0]:
        raise ValueError(f"data: {path} must have a leading axis over observations, got shape {shape}.")
    if fortran and sum(size > 1 for size in shape) > 1:
        raise ValueError(
            f"data: {path} must be in C order (a row in one piece), got Fortran order. Save "
            f"np.ascontiguousarray(array) instead."
        )
    return shape, dtype, file.tell()
