"""A folder that holds one run: a JSON file and files of arrays, whole after a crash at any moment.

Arrays get a name of their own, by their content: a record can only ever meet the arrays that it was written with. Then
the record that names them replaces the old one in a single rename. Reading runs no code of theirs.
"""

import errno
import hashlib
import json
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile

import numpy as np
from numpy.lib.npyio import NpzFile

from langevin.data.journal import force_to_disk
from langevin.saving.locks import claimed
from langevin.saving.packing import FORMAT

Record = dict[str, Any]
Arrays = dict[str, np.ndarray]

_RECORD, _BEFORE, _LOCK = "run.json", "run-before.json", "lock"
_UNFINISHED = "unfinished.partial"
_ARRAYS = re.compile(r"arrays-([0-9a-f]{16})\.npz")


class Folder:
    """The directory of a saved run; what is in it can be read at any time, and written by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # The record that was read or written last, to be kept as the one before.
        self._newest: bytes | None = None
        # The open file by which other processes are kept out; None where nothing is.
        self._lock: int | None = None

    @property
    def taken(self) -> bool:
        """Whether a run is, or was, saved here."""
        return any((self.path / name).exists() for name in (_RECORD, _BEFORE))

    @property
    def busy(self) -> bool:
        """Whether a process is writing here; False where the system cannot tell."""
        try:
            lock = os.open(self.path / _LOCK, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        except OSError:
            return False
        try:
            return not claimed(lock)
        finally:
            os.close(lock)

    @contextmanager
    def locked(self) -> Iterator["Folder"]:
        """Makes the folder if need be, and keeps other processes from writing; the lock dies with its process."""
        self._check_free()
        with self._explained():
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = self._opened_lock()
        try:
            if not claimed(self._lock):
                raise ValueError(
                    f"checkpoint must lead to a folder of this run alone, got {self.path}, where another run is "
                    f"writing. Wait for it or stop it, or give another folder."
                )
            yield self
        finally:
            os.close(self._lock)
            self._lock = None

    def holds(self, names: Iterable[str]) -> bool:
        """Whether files of arrays are still there: whoever tidies up a disk may remove what a run has saved."""
        return all((self.path / name).exists() for name in names)

    def write(self, record: Record, fresh: dict[str, Arrays], *, keep_before: bool) -> dict[str, str]:
        """Saves a record with `fresh` arrays by entry, beside those that it names already; returns the names of all.

        `keep_before`: the record before stays as well.
        """
        self._check_free()
        with self._explained():
            self.path.mkdir(exist_ok=True)
            self._keep_lock()
            try:
                content = self._write(record, fresh, keep_before)
            finally:
                self._sweep()
        self._newest = content
        return record["arrays"]

    def _write(self, record: Record, fresh: dict[str, Arrays], keep_before: bool) -> bytes:
        if self._newest is not None and not self.holds(_array_files(_parsed(self._newest))):
            self._newest = None
        for entry, arrays in fresh.items():
            self._fill(partial(_save_arrays, arrays))
            record["arrays"][entry] = f"arrays-{_file_digest(self.path / _UNFINISHED)}.npz"
            self._publish(record["arrays"][entry])
        # No record may reach the disk before its arrays.
        force_to_disk(self.path)
        record["digest"] = _digest(record)
        content = json.dumps(record, indent=1, allow_nan=False).encode()
        if keep_before and self._newest is not None:
            before = self._newest
            self._fill(lambda file: file.write(before))
            self._publish(_BEFORE)
        self._fill(lambda file: file.write(content))
        self._publish(_RECORD)
        force_to_disk(self.path)
        if self._newest is None:
            force_to_disk(self.path.parent)
        if not keep_before:
            (self.path / _BEFORE).unlink(missing_ok=True)
        return content

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            said = f"the run could not be saved (what is there already is untouched): {error.strerror}"
            raise OSError(error.errno, said, str(self.path)) from error

    def read(self) -> tuple[Record, dict[str, np.ndarray]]:
        """The newest record that is whole, checked, and its arrays; says so where that is the one before."""
        if not self.path.exists():
            raise FileNotFoundError(errno.ENOENT, "path must lead to a saved run, and there is nothing", str(self.path))
        if not self.taken:
            raise ValueError(f"path must lead to a saved run, got {self.path}, which has no {_RECORD}.")
        try:
            return self._read(_RECORD)
        except _DamagedError as damage:
            try:
                found = self._read(_BEFORE)
            except _DamagedError:
                raise ValueError(f"{damage}. Restore it from a copy.") from damage
            warnings.warn(f"{damage}. Went back to the checkpoint before it.", RuntimeWarning, stacklevel=2)
            return found

    def _read(self, name: str) -> tuple[Record, dict[str, np.ndarray]]:
        file = self.path / name
        try:
            content = file.read_bytes()
            record = _parsed(content)
        except (OSError, ValueError) as error:
            raise _DamagedError(f"{file} is damaged, or not of a saved run: {error}") from error
        if record["format"] != FORMAT:
            raise ValueError(
                f"{self.path} has format {record['format']}, written by langevin {record['langevin']}; this version "
                f"({version('langevin')}) reads format {FORMAT}. Use that version."
            )
        if record.pop("digest", None) != _digest(record):
            raise _DamagedError(f"{file} is damaged: its content does not fit its digest")
        arrays: Arrays = {}
        for stored in _array_files(record):
            arrays |= self._read_arrays(stored)
        self._newest = content
        return record, arrays

    def _read_arrays(self, name: str) -> Arrays:
        file = self.path / name
        try:
            named = _ARRAYS.fullmatch(name)
            if named is None or _file_digest(file) != named[1]:
                raise ValueError("its content does not fit its name")
            with open(file, "rb") as opened, NpzFile(opened, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
        except (OSError, ValueError, BadZipFile) as error:
            raise _DamagedError(f"{file} is missing or damaged: {error}") from error

    def _opened_lock(self) -> int:
        return os.open(self.path / _LOCK, os.O_RDONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)

    def _keep_lock(self) -> None:
        """Locks the folder anew where the lock was removed; raises OSError where another process has it by now."""
        if self._lock is None or self._is_lock(self._lock):
            return
        lock = self._opened_lock()
        if not claimed(lock):
            os.close(lock)
            raise OSError(errno.EBUSY, "its lock was removed, and another run is writing there now")
        os.close(self._lock)
        self._lock = lock

    def _is_lock(self, lock: int) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(lock), os.stat(self.path / _LOCK))
        return False

    def _check_free(self) -> None:
        """Raises unless the path can become a saved run without harm to anything else."""
        path = self.path
        held = path.exists() or path.is_symlink()
        if path.is_dir():
            held = not self._is_run() and not all(_is_ours(entry.name) for entry in path.iterdir())
        if held:
            raise ValueError(
                f"path must be new or a saved run, got {path}, which holds something else, or a run that is damaged. "
                f"Try another path."
            )

    def _is_run(self) -> bool:
        for name in (_RECORD, _BEFORE):
            with suppress(OSError, ValueError):
                _parsed((self.path / name).read_bytes())
                return True
        return False

    def _fill(self, write: Callable[[BinaryIO], Any]) -> None:
        """Writes the unfinished file, and waits until the disk has it."""
        file = self.path / _UNFINISHED
        # A link that someone has put here would lead out of the folder.
        file.unlink(missing_ok=True)
        with open(file, "xb") as opened:
            write(opened)
            opened.flush()
            os.fsync(opened.fileno())

    def _publish(self, name: str) -> None:
        """Gives the unfinished file its name: whoever looks finds the whole file."""
        os.replace(self.path / _UNFINISHED, self.path / name)

    def _sweep(self) -> None:
        """Removes what earlier and failed saves have left: files of ours that no record names."""
        with suppress(OSError):
            named = {_LOCK} | self._names(_RECORD) | self._names(_BEFORE)
            for entry in list(self.path.iterdir()):
                if _is_ours(entry.name) and entry.name not in named:
                    entry.unlink()

    def _names(self, name: str) -> set[str]:
        """The files that a record needs."""
        with suppress(ValueError, FileNotFoundError):
            return set(_array_files(_parsed((self.path / name).read_bytes())))
        return set()


class _DamagedError(ValueError):
    """A record or its arrays cannot be read."""


def _parsed(content: bytes) -> Record:
    """The record as it stands in the file; raises ValueError if it is none."""
    record = json.loads(content)
    if not isinstance(record, dict) or not {"format", "langevin"} <= record.keys():
        raise ValueError("the marks of a saved run are missing")
    return record


def _save_arrays(arrays: Arrays, file: BinaryIO) -> None:
    np.savez(file, allow_pickle=False, **arrays)


def _array_files(record: Record) -> list[str]:
    files = record.get("arrays")
    return [name for name in files.values() if isinstance(name, str)] if isinstance(files, dict) else []


def _is_ours(name: str) -> bool:
    return name in (_UNFINISHED, _LOCK) or _ARRAYS.fullmatch(name) is not None


def _digest(record: Record) -> str:
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()[:16]


def _file_digest(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:16]
