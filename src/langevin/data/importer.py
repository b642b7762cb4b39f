"""`lv.import_data`: Parquet, CSV and `.npy` files become a folder of shuffled `.npy` columns, once.

Two passes, neither of which holds the data in memory. The first throws every row into one of K buckets, independently
and uniformly. The second shuffles each bucket in memory and appends it to the columns. Every order of the rows is then
equally likely (Rao, 1961; Sandelius, 1962), and it is a function of the seed, the number of rows and K alone.

All of it happens in a working folder beside the final one, which appears at the end by a rename. A journal in it says
what is done; lengths of files beyond that are cut off when a killed import goes on.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import pairwise
from math import prod
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO
from zlib import crc32

import numpy as np

from langevin.data.columns import MANIFEST, Column, DataChanged, Manifest, file_name, header_of
from langevin.data.encode import Encoder, declared_levels, parts_of
from langevin.data.files import FileSource, open_data
from langevin.data.journal import Workshop, appending
from langevin.data.memory import memoryview_of
from langevin.data.tables import BATCH_ROWS, Batch, Promoted, Table, open_table
from langevin.display import showing
from langevin.limits import checkpoint, set_up

# Bytes of a bucket, and buckets: open files at once. Beyond 32 GB buckets grow.
_BUCKET_BYTES, _MOST_BUCKETS = 128 * 2**20, 256
# Rows that are put in order at once: records of them stay in the second cache.
_ROWS = 2**14
# Streams of random numbers of the two passes.
_THROWS, _ORDERS = 1, 2
# Seconds of work that a kill may cost.
_JOURNAL_SECONDS = 2.0


def import_data(
    data: Any,
    folder: str | Path,
    *,
    columns: Any = None,
    drop_missing: bool = False,
    seed: int = 0,
    progress: bool | None = None,
) -> FileSource:
    """Parquet, CSV or `.npy` files as a folder of shuffled columns, ready for `lv.sample` and `lv.run`.

    data:    a file, a folder, or a list of files of one kind, which make up one table.
    columns: which columns, all if None: names, or {"x": ["x1", "x2"], "y": "y"} to put some side by side into one
             float32 matrix, which is what a step reads fastest. Names may be patterns: {"x": "x*", "y": "y"}.
             {"code": "C(code)"} says that entries are names, even where they look like numbers.

    Numbers become float32 or integers of at most 32 bits; strings become codes, whose levels are in `source.levels`.
    A column of text most of which is numbers is one of numbers, with mistakes. A row without a finite number in one of
    the columns is refused, or dropped and counted with `drop_missing`. Rows are shuffled, every order equally likely.
    Importing again does nothing where the folder is whole and neither the files (by size and time) nor the options have
    changed; an import that was killed goes on where it was. The folder appears when it is complete.

    Cost: the data are read once and written twice; disk for twice the columns, memory for a few hundred MB.

    Example:
        >>> import tempfile, numpy as np, langevin as lv
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/x.npy", np.arange(5.0))
        ...     source = lv.import_data(f"{folder}/x.npy", f"{folder}/shuffled")
        >>> source.num_data, float(source.arrays.sum())
        (5, 10.0)
    """
    paths = [Path(one) for one in (data if isinstance(data, (list, tuple)) else [data])]
    final = Path(folder).absolute()
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be a whole number of at least 0, got {seed!r}. Try seed=0.")
    with showing(progress), set_up(left="the same call goes on from where it was"):
        floats: list[str] = []
        while True:
            try:
                table = open_table(paths, floats, declared_levels(columns))
                return _imported(table, final, columns, drop_missing, seed)
            except Promoted as found:
                # Integers or text at first sight, other numbers on the whole: read it anew.
                floats.append(found.column)


def beside(paths: Sequence[Path]) -> Path:
    """Where data go that were given as a path only: next to it."""
    more = f"-and-{len(paths) - 1}-more" if len(paths) > 1 else ""
    return paths[0].absolute().with_name(f"{paths[0].name}{more}.langevin")


def _imported(table: Table, final: Path, columns: Any, drop_missing: bool, seed: int) -> FileSource:
    encoder = Encoder(parts_of(table, columns), drop_missing)

    def origin() -> dict[str, Any]:
        return {
            "files": [[str(file.absolute()), file.stat().st_size, file.stat().st_mtime_ns] for file in table.files],
            "columns": [[part.name, part.asked] for part in encoder.parts],
            "drop_missing": drop_missing,
            "seed": seed,
        }

    began = origin()
    if (final / MANIFEST).exists() and Manifest.read(final).origin == began:
        # What is damaged is imported anew.
        with suppress(ValueError):
            return open_data(final)
    buckets = int(np.clip(-(-table.rows * encoder.record.itemsize // _BUCKET_BYTES), 1, _MOST_BUCKETS))
    # These are no choices of the user's, but rows that were read or thrown in another way cannot be used.
    own = {"types": [str(part.dtype) for part in encoder.parts], "buckets": buckets}
    with Workshop(final, {**began, **own}) as shop:
        if not shop.complete:
            work = _Import(table, encoder, seed, shop, buckets)
            work.throw()
            work.collect()
            if origin() != began:
                raise DataChanged("data: the files were changed while they were imported. Import them again.")
            work.describe(began)
        shop.publish()
    return open_data(final)


class _Import:
    """One import under way."""

    def __init__(self, table: Table, encoder: Encoder, seed: int, shop: Workshop, buckets: int) -> None:
        self._table, self._encoder, self._seed, self._shop = table, encoder, seed, shop
        self._journal, self._record, self._buckets = shop.journal, encoder.record, buckets
        encoder.resume(shop.journal)
        taken: set[str] = set()
        self._files = [shop.columns / file_name(part.name, taken) for part in encoder.parts]

    def throw(self) -> None:
        """The first pass: every row into a bucket."""
        journal, size = self._journal, self._record.itemsize
        if journal.thrown:
            return
        journal.lengths = journal.lengths or [0] * self._buckets
        saved, read = monotonic(), 0
        with ExitStack() as stack:
            lengths = [rows * size for rows in journal.lengths]
            files = [stack.enter_context(appending(self._shop.bucket(k), had)) for k, had in enumerate(lengths)]
            # One batch is read, one becomes numbers, one is sorted and written.
            reader, writer = (stack.enter_context(ThreadPoolExecutor(1)) for _ in range(2))
            writing: Future[None] | None = None
            for batch in _ahead(self._table.batches(self._encoder.names, journal.position), reader):
                checkpoint("importing: reading the files", read / max(self._table.bytes, 1))
                records, kept = self._encoder.encoded(batch)
                bucket = self._throws(journal.row, len(records))
                journal.row += len(records)
                if writing is not None:
                    writing.result()
                writing = writer.submit(self._sorted_in, records, bucket, kept, files)
                if batch.after is not None:
                    journal.position = batch.after
                    if monotonic() - saved > _JOURNAL_SECONDS:
                        # A journal may not speak of rows that are still on their way.
                        writing.result()
                        self._encoder.note(journal)
                        self._shop.save()
                        saved = monotonic()
                read = batch.read
            if writing is not None:
                writing.result()
        self._encoder.check(journal.row)
        journal.thrown = True
        self._shop.save()

    def _sorted_in(
        self, records: np.ndarray, bucket: np.ndarray, kept: np.ndarray | None, files: Sequence[BinaryIO]
    ) -> None:
        """Appends records to the files of their buckets, in order."""
        if kept is not None:
            records, bucket = records[kept], bucket[kept]
        rows = _bytes(records).take(np.argsort(bucket, kind="stable"), axis=0)
        ends = np.cumsum(np.bincount(bucket, minlength=self._buckets))
        for k, (start, stop) in enumerate(pairwise([0, *ends.tolist()])):
            if stop > start:
                _write(files[k], rows[start:stop])
                self._journal.lengths[k] += stop - start

    def _throws(self, first: int, count: int) -> np.ndarray:
        """The buckets of rows first ... first+count-1, however these are cut into batches."""
        blocks = range(first // BATCH_ROWS, -(-(first + count) // BATCH_ROWS))
        drawn = [
            np.random.default_rng([self._seed, _THROWS, block]).integers(self._buckets, size=BATCH_ROWS, dtype=np.uint8)
            for block in blocks
        ]
        start = first - blocks.start * BATCH_ROWS
        return np.concatenate(drawn)[start : start + count] if drawn else np.empty(0, np.uint8)

    def collect(self) -> None:
        """The second pass: every bucket, shuffled, to the end of the columns."""
        journal, parts = self._journal, self._encoder.parts
        total = sum(journal.lengths)
        if not total:
            raise ValueError("data must hold at least one row, got none that is whole.")
        headers = [header_of(part.dtype, (total, *part.shape)) for part in parts]
        sizes = [part.dtype.itemsize * prod(part.shape) for part in parts]
        codes = [self._encoder.final_levels(part)[1] if part.categorical else None for part in parts]
        journal.checksums = journal.checksums or [0] * len(parts)
        with ExitStack() as stack:
            files = []
            for file, header, size in zip(self._files, headers, sizes, strict=True):
                done = journal.written * size + len(header) if journal.written else 0
                files.append(stack.enter_context(appending(file, done)))
                if not journal.written:
                    _write(files[-1], np.frombuffer(header, np.uint8))
            checker, shuffler = (stack.enter_context(ThreadPoolExecutor(1)) for _ in range(2))
            # While a bucket is written, the next is shuffled; in memory that serves again, as new pages cost much.
            most = max(journal.lengths)
            records = np.empty((most, self._record.itemsize), np.uint8)
            spaces = [[np.empty((most, *part.shape), part.dtype) for part in parts] for _ in range(2)]

            def shuffled(k: int) -> Future[list[np.ndarray]]:
                space = [column[: journal.lengths[k]] for column in spaces[k % 2]]
                return shuffler.submit(self._shuffle, k, records[: journal.lengths[k]], space, codes)

            following = [shuffled(k) for k in range(journal.bucket, self._buckets)[:1]]
            for k in range(journal.bucket, self._buckets):
                checkpoint("importing: writing the columns", journal.written / total)
                columns = following.pop().result()
                following += [shuffled(k + 1)] if k + 1 < self._buckets else []
                for c, column in enumerate(columns):
                    checksum = checker.submit(crc32, memoryview_of(column), journal.checksums[c])
                    _write(files[c], column)
                    journal.checksums[c] = checksum.result()
                journal.bucket, journal.written = k + 1, journal.written + journal.lengths[k]
                self._shop.save()
                self._shop.bucket(k).unlink()
            for opened in files:
                os.fsync(opened.fileno())

    def _shuffle(
        self, k: int, records: np.ndarray, columns: list[np.ndarray], codes: list[np.ndarray | None]
    ) -> list[np.ndarray]:
        """Fills the columns with the rows of a bucket in random order, by way of its records."""
        count = len(records)
        with open(self._shop.bucket(k), "rb") as file:
            if file.readinto(memoryview_of(records)) != records.nbytes:
                raise ValueError(f"{self._shop.bucket(k)} is shorter than its journal says. Import again.")
        order = np.random.default_rng([self._seed, _ORDERS, k]).permutation(count)
        for start in range(0, count, _ROWS):
            stop = min(start + _ROWS, count)
            rows = records.take(order[start:stop], axis=0).view(self._record)[:, 0]
            for c, (column, final) in enumerate(zip(columns, codes, strict=True)):
                values = rows[f"c{c}"]
                column[start:stop] = values if final is None else final[values]
        return columns

    def describe(self, origin: dict[str, Any]) -> None:
        """Writes the manifest."""
        journal, columns = self._journal, []
        for part, file, crc in zip(self._encoder.parts, self._files, journal.checksums, strict=True):
            found = file.stat()
            columns.append(
                Column(
                    name=part.name,
                    file=file.name,
                    dtype=str(part.dtype),
                    shape=(journal.written, *part.shape),
                    crc32=crc,
                    size=found.st_size,
                    mtime_ns=found.st_mtime_ns,
                    levels=tuple(self._encoder.final_levels(part)[0]) if part.categorical else None,
                    made_of=part.made_of,
                )
            )
        bare = self._table.bare and len(columns) == 1
        made = Manifest(journal.written, tuple(columns), bare, self._seed, origin, journal.dropped)
        made.write(self._shop.columns / MANIFEST)


def _ahead(batches: Iterator[Batch], aside: ThreadPoolExecutor) -> Iterator[Batch]:
    """The batches, each read and decoded while the one before is at work."""
    following = aside.submit(next, batches, None)
    while (batch := following.result()) is not None:
        following = aside.submit(next, batches, None)
        yield batch


def _bytes(records: np.ndarray) -> np.ndarray:
    return records.view(np.uint8).reshape(len(records), records.dtype.itemsize)


def _write(file: BinaryIO, array: np.ndarray) -> None:
    """All of it: a single call to the system may stop short."""
    left = memoryview_of(array)
    while left:
        left = left[file.write(left) :]
