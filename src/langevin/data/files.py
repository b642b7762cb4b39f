"""Data in files: `.npy` arrays and folders of them, mapped into memory and read where they are needed."""

import mmap
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from zlib import crc32

import jax
import numpy as np

from langevin.data.columns import MANIFEST, Manifest, MappedFile
from langevin.data.memory import memoryview_of
from langevin.data.prefetch import FROM_BYTES
from langevin.data.source import ArraySource
from langevin.limits import checkpoint, set_up

PyTree = Any
# Row numbers are 32-bit integers on the device, with room for a minibatch beyond the last row.
_MOST_ROWS = 2**31 - 2**20
# Bytes that are checked at once.
_CHUNK = 8 * 2**20
# Files beyond this share of the machine's memory do not stay in it: rows wait for the disk, so many at a time.
_SHARE_OF_MEMORY, _WAITING = 0.5, 16
# Checksums of files that this process has read, by what tells that they are still the same.
_known: dict[tuple, int] = {}


@dataclass(frozen=True, eq=False, kw_only=True)
class FileSource(ArraySource):
    """Observations in a `.npy` file or a folder of `.npy` columns; `lv.DataSource.of(path)` opens one.

    Nothing is copied into memory but the rows that are looked at; only data below 32 MB are, as a whole.
    `in_random_order`: `lv.import_data` has shuffled the rows. `levels`: what the codes of categorical columns stand
    for, by column; `dropped`: how many rows the import left out, by the column without a number. `description` is a
    JSON value from which `reopened` makes the same source again.

    Example:
        >>> import tempfile, numpy as np, langevin as lv
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/x.npy", np.ones((3, 2)))
        ...     np.save(f"{folder}/y.npy", np.array([0, 1, 1]))
        ...     source = lv.DataSource.of(folder)
        >>> source.num_data, sorted(source.arrays)
        (3, ['x', 'y'])
    """

    path: Path
    in_random_order: bool
    levels: dict[str, tuple[str, ...]]
    dropped: dict[str, int]
    fingerprint: tuple = field(repr=False)
    # None of them where the data are in memory.
    files: tuple[MappedFile, ...] = field(repr=False)

    @property
    def unchanged(self) -> bool:
        """Whether the files are still those that were opened. Cost: a call to the system for each file."""
        return all(file.unchanged for file in self.files)

    @property
    def description(self) -> dict[str, Any]:
        """The path and the fingerprint, as JSON."""
        leaves = [[list(shape), dtype, crc] for shape, dtype, crc in self.fingerprint]
        return {"path": str(self.path.absolute()), "fingerprint": leaves}

    @classmethod
    def reopened(cls, description: dict[str, Any]) -> "FileSource":
        """The source of a description; without a pass over the data, whose numbers are taken on trust."""
        trusted = tuple((tuple(shape), dtype, crc) for shape, dtype, crc in description["fingerprint"])
        return _opened(Path(description["path"]), trusted)

    def __str__(self) -> str:
        """What is in it, a line for each column."""
        leaves = self.arrays if isinstance(self.arrays, dict) else {self.path.stem: self.arrays}
        lines = [f"{self.path}: {self.num_data:,} rows, {self.bytes / 1e6:,.1f} MB"]
        lines += [f"  {name}  {leaf.dtype} {leaf.shape[1:] or ''}" for name, leaf in leaves.items()]
        lines += [f"  dropped for {name}: {count:,} rows" for name, count in self.dropped.items()]
        return "\n".join(lines)

    def take(self, rows: np.ndarray, out: PyTree = None) -> PyTree:
        """See `DataSource.take`."""
        self.check()
        if not self.files or self.bytes < _SHARE_OF_MEMORY * _memory():
            return super().take(rows, out)
        if out is None:
            out = jax.tree.map(lambda leaf: np.empty((len(rows), *leaf.shape[1:]), leaf.dtype), self.arrays)

        def fill(start: int) -> None:
            part = slice(start, start + size)
            jax.tree.map(lambda leaf, to: leaf.take(rows[part], 0, to[part], "clip"), self._page_by_page, out)

        size = -(-len(rows) // _WAITING)
        list(self._threads.map(fill, range(0, len(rows), size)))
        return out

    def slice(self, start: int, stop: int) -> PyTree:
        """See `DataSource.slice`."""
        self.check()
        return super().slice(start, stop)

    def shuffled(self, repeated: int) -> PyTree:
        """See `DataSource.shuffled`."""
        if self.bytes > _SHARE_OF_MEMORY * _memory():
            raise ValueError(
                f"data: {self.path} is too large ({self.bytes / 1e9:.3g} GB) for a shuffled copy in memory. Import it "
                f"(langevin import {self.path} FOLDER): that shuffles on disk, and chains read such a folder as it is."
            )
        return super().shuffled(repeated)

    def _order(self) -> np.ndarray:
        return np.arange(self.num_data) if self.in_random_order else super()._order()

    def check(self) -> None:
        """Raises `DataChanged` where a file was written to or cut off, or is about to be."""
        for file in self.files:
            file.check()

    @cached_property
    def _page_by_page(self) -> PyTree:
        """The arrays in maps of their own, which do not read around a row: its neighbours are not wanted."""
        treedef: Any = jax.tree.structure(self.arrays)
        return treedef.unflatten([file.mapped(mmap.MADV_RANDOM) for file in self.files])

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_WAITING)


@contextmanager
def reading(source: Any) -> Iterator[None]:
    """Files of the source stay as they are inside, as far as the system can see to it; ask `check` now and then."""
    with ExitStack() as stack:
        for file in source.files if isinstance(source, FileSource) else ():
            stack.enter_context(file.reading())
        yield


def path_of(data: Any) -> str | None:
    """Where another process finds these data; None unless they are in files."""
    return str(data.path.absolute()) if isinstance(data, FileSource) else None


@set_up()
def open_data(data: Any) -> FileSource:
    """The source of a path, or of a list of them; Parquet and CSV files are imported first, next to where they are."""
    paths = [Path(one) for one in (data if isinstance(data, (list, tuple)) else [data])]
    for path in paths:
        if not path.exists():
            raise ValueError(f"data must be arrays or a path that exists, got {str(path)!r}.")
    if len(paths) == 1 and (paths[0].suffix == ".npy" or _is_folder_of_columns(paths[0])):
        return _opened(paths[0], None)
    from langevin.data.importer import beside, import_data

    return import_data(paths, beside(paths))


def _is_folder_of_columns(path: Path) -> bool:
    return path.is_dir() and ((path / MANIFEST).exists() or any(path.glob("*.npy")))


def _opened(path: Path, trusted: tuple | None) -> FileSource:
    """The source at a path; with a trusted fingerprint, or a manifest that fits, without a pass over the data."""
    manifest = Manifest.read(path) if (path / MANIFEST).exists() else None
    bare = not path.is_dir() or (manifest is not None and manifest.bare)
    names = {file.stem: file for file in (path.glob("*.npy") if path.is_dir() else [path])}
    if manifest is not None:
        names = {column.name: path / column.file for column in manifest.columns}
    # In the order in which JAX has the leaves of a dict.
    files = {name: MappedFile(names[name]) for name in sorted(names)}
    small = sum(file.nbytes for file in files.values()) <= FROM_BYTES
    arrays: PyTree = {name: file.array for name, file in files.items()}
    if small:
        # A copy, so that nothing that happens to the file can reach a run.
        checked = ArraySource.of({name: np.array(array) for name, array in arrays.items()})
        arrays, found = checked.arrays, checked.fingerprint
    else:
        _check_mapped(files)
        found = _fingerprint(files, manifest) if trusted is None else _with_checksums(files, trusted)
    if trusted is not None and found != trusted:
        raise ValueError(f"data: {path} does not hold the data that were described. Pass the path of those data.")
    _compare(files, found, manifest)
    return FileSource(
        arrays=arrays[next(iter(arrays))] if bare else arrays,
        num_data=found[0][0][0],
        path=path,
        in_random_order=manifest is not None,
        levels={c.name: c.levels for c in manifest.columns if c.levels is not None} if manifest else {},
        dropped=manifest.dropped if manifest else {},
        fingerprint=found,
        files=() if small else tuple(files.values()),
    )


def _check_mapped(files: dict[str, MappedFile]) -> None:
    """Raises unless the files can serve as they are."""
    lengths = {str(file.path): file.shape[0] for file in files.values()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {size:,}" for name, size in lengths.items())
        raise ValueError(f"data must share one leading axis (one entry per observation), got {listed} rows.")
    for file in files.values():
        if file.shape[0] > _MOST_ROWS:
            raise ValueError(
                f"data: {file.path} must have at most {_MOST_ROWS:,} rows, got {file.shape[0]:,}. Make a row hold "
                f"several observations, and sum over them in the log likelihood."
            )
        wide = file.dtype.itemsize > 4 or (file.dtype.kind == "f" and file.dtype.itemsize != 4)
        if wide or not file.dtype.isnative or file.offset % 64:
            raise ValueError(
                f"data: {file.path} must hold float32, or integers of at most 32 bits, on 64-byte borders to be read "
                f"where it is; got dtype {file.dtype} from byte {file.offset}. Import it once, which converts it: "
                f"langevin import {file.path} FOLDER."
            )


def _compare(files: dict[str, MappedFile], found: tuple, manifest: Manifest | None) -> None:
    """Raises where the numbers are not those that a manifest speaks of."""
    columns = {} if manifest is None else {column.name: column for column in manifest.columns}
    for (name, file), leaf in zip(files.items(), found, strict=True):
        column = columns.get(name)
        if column is not None and leaf != (column.shape, column.dtype, column.crc32):
            raise ValueError(
                f"data: {file.path} is not what was imported: it was {column.dtype} {column.shape} with checksum "
                f"{column.crc32:08x}, and is {leaf[1]} {leaf[0]} with checksum {leaf[2]:08x}. Import the data anew."
            )


def _with_checksums(files: dict[str, MappedFile], trusted: tuple) -> tuple:
    """What the headers say, with checksums that were taken before."""
    return tuple((file.shape, str(file.dtype), leaf[2]) for file, leaf in zip(files.values(), trusted, strict=False))


def _fingerprint(files: dict[str, MappedFile], manifest: Manifest | None) -> tuple:
    """(shape, dtype, checksum) of each file, in one pass over those that nothing is known of."""
    columns = {} if manifest is None else {column.name: column for column in manifest.columns}
    unknown = []
    for name, file in files.items():
        column = columns.get(name)
        if column is not None and file.opened == (column.size, column.mtime_ns):
            _known[file.identity] = column.crc32
        elif file.identity not in _known:
            unknown.append(file)
    done, total = 0, sum(file.nbytes for file in unknown)
    with ThreadPoolExecutor(1) as aside:
        for file in unknown:
            with file.reading():
                _known[file.identity] = _read_through(file, done, total, aside)
            done += file.nbytes
    return tuple((file.shape, str(file.dtype), _known[file.identity]) for file in files.values())


def _read_through(file: MappedFile, done: int, total: int, aside: ThreadPoolExecutor) -> int:
    """The checksum of a file; raises where a number of it is not finite. `done` of `total` bytes were read before."""
    flat = file.array.reshape(-1)
    size, crc = _CHUNK // file.dtype.itemsize, 0
    for start in range(0, len(flat), size):
        checkpoint("reading the data", (done + start * file.dtype.itemsize) / total)
        file.check()
        part = flat[start : start + size]
        finite = aside.submit(_all_finite, part)
        crc = crc32(memoryview_of(part), crc)
        if not finite.result():
            row = (start + int(np.argmin(np.isfinite(part)))) // (len(flat) // file.shape[0])
            raise ValueError(
                f"data: {file.path} must be finite, got NaN or infinity in row {row:,} (counted from 0). Drop such "
                f"rows: langevin import {file.path} FOLDER --drop-missing."
            )
    return crc


def _all_finite(part: np.ndarray) -> bool:
    # min and max carry NaN and infinity through, without a temporary.
    return part.dtype.kind != "f" or bool(np.isfinite(part.min()) and np.isfinite(part.max()))


def _memory() -> int:
    """Bytes of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
