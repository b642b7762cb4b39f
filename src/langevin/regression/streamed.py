"""Regressions of tables that are not held in memory: their numbers go to mapped files, some rows at a time.

Two readings. The first counts rows and groups, finds every level, and keeps the columns from which transforms learn;
the formula's columns and where they are centred come from a random sample of the rows that holds each level. The second
turns rows into numbers, adds up their moments, and writes them: row after row, or each into the place of its group.
"""

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap

from langevin.data.files import FileSource, open_data
from langevin.limits import checkpoint, set_up
from langevin.mixed.groups import Groups
from langevin.regression.columns import GROUP_TERM, complete, used_columns, weighing
from langevin.regression.design import design, learning, sides
from langevin.regression.families import FAMILIES
from langevin.regression.files import Frames, Piece
from langevin.regression.groupings import group_labels
from langevin.regression.model import Model, check_effects, check_numbers, check_sampled, middle
from langevin.regression.reading import (
    Prepared,
    Question,
    Reader,
    check_response,
    levels_of,
    names_of_columns,
    samples_groups,
)
from langevin.regression.summary import Summary

Table = Any
Floats = np.ndarray
# Rows from which formula and centres are learnt.
_SAMPLE = 2**17
# A stream of its own: default_rng(seed) may be what the data were simulated from.
_STREAM = 0x46495421


@dataclass(frozen=True, eq=False, kw_only=True)
class MappedGroups(FileSource, Groups):
    """Groups in files."""


@dataclass
class _Counted:
    """What the first reading finds: rows that count, rows left out, levels, a sample, and by grouping rows of groups.

    `whole` has all rows of the columns from which transforms learn.
    """

    rows: int = 0
    dropped: int = 0
    groups: list[dict[Any, int]] = field(default_factory=list)
    levels: dict[str, dict[Any, None]] = field(default_factory=dict)
    # Categories as the files declare them, None where they do not agree.
    declared: dict[str, Any] = field(default_factory=dict)
    sample: list[Table] = field(default_factory=list)
    whole: list[Table] = field(default_factory=list)


@set_up()
def streamed(asked: Question, frames: Frames) -> Prepared:
    """As `prepared`, for a table in files of any size. Cost: two readings; disk for a float32 of every number."""
    arrays = [name for name in names_of_columns(asked) if not isinstance(getattr(asked, name), str | None)]
    if arrays:
        raise ValueError(f"{arrays[0]} must name a column of the files, got an array. Make it a column of theirs.")
    return frames.through(lambda found: _Work(asked, found).done())


class _Work:
    """One table under way."""

    def __init__(self, asked: Question, frames: Frames) -> None:
        self.asked, self.frames, self.family = asked, frames, FAMILIES[asked.family]
        self.named = names_of_columns(asked)
        self._extra = tuple(name for name in self.named.values() if name is not None)
        self.said = sides(asked.formula)
        wanted = [self.said.response, *self.said.group_columns, *self._extra]
        lost = [name for name in wanted if name not in frames.columns]
        if lost:
            listed = ", ".join(map(repr, frames.columns[:12]))
            raise ValueError(f"formula must name columns of the data, got {lost[0]!r}. Columns are {listed}.")
        self._used = list(dict.fromkeys([*used_columns(frames.columns, asked.formula), *wanted]))
        predictors = GROUP_TERM.sub(r"+ \1 ", asked.formula)
        self._groups_alone = set(self.said.group_columns) - set(used_columns(frames.columns, predictors))
        self._learns = used_columns(frames.columns, " ".join(learning(self.said)))
        self.counted = _Counted(groups=[{} for _ in self.said.groupings])

    def done(self) -> Prepared:
        """Both readings."""
        self._count()
        sample = self._levelled(_together(self.counted.sample))
        whole = _together(self.counted.whole) if self._learns else None
        found = design(self.asked.formula, sample, level=self.family.name != "ordinal", whole=whole)
        check_effects(found, self.family)
        levels = levels_of(sample[found.response], self.family, found.response, self.asked.levels)
        reader = Reader(found, self.family, levels, self.named)
        centre = middle(found, self.family, found.matrices(sample)[0].mean(axis=0))
        labels = [sorted(sizes) for sizes in self.counted.groups]
        sampled = tuple(map(tuple, labels)) if samples_groups(self.asked, labels) else ()
        check_sampled(found, sampled)
        padded = self.counted.groups[0] if labels and not sampled else None
        store = _Store(self.frames.paths[0], self.counted.rows, padded)
        seen = self._write(reader, centre, sampled, store)
        check_numbers(found, self.family, seen)
        model = Model.of(found, self.family, seen, levels, self.asked.priors, sampled, centre)
        return Prepared(
            *(model, model.target, store.source(), model.theta_0(seen), self.counted.dropped),
            *(self.named["offset"], self.named["trials"]),
        )

    def _pieces(self, words: str) -> Iterator[tuple[Table, int]]:
        """Complete rows, and how many of a piece were left out."""
        for piece in self.frames.pieces(self._used):
            checkpoint(words, piece.read / self.frames.bytes)
            yield self._complete(piece)

    def _complete(self, piece: Piece) -> tuple[Table, int]:
        drop, where = self.asked.missing == "drop", f" of {piece.file}"
        table, dropped = complete(piece.frame, self.asked.formula, self._extra, drop, where, piece.first)
        table = weighing(table, self.named["weights"])
        return table.set_axis(piece.first + table.index, axis=0), dropped

    def _count(self) -> None:
        """The first reading."""
        counted, rng = self.counted, np.random.default_rng(_STREAM)
        kept = 1.0
        for table, dropped in self._pieces("reading the table"):
            counted.rows += len(table)
            counted.dropped += dropped
            for columns, sizes in zip(self.said.groupings, counted.groups, strict=True):
                names, numbers = np.unique(group_labels(table, columns), return_counts=True)
                for name, number in zip(names.tolist(), numbers.tolist(), strict=True):
                    sizes[name] = sizes.get(name, 0) + number
            if self._learns:
                counted.whole.append(table[self._learns])
            new = self._new_levels(table)
            # Rows are kept with a chance that halves whenever the sample is full, those of a new level in any case.
            counted.sample.append(table[(rng.random(len(table)) < kept) | new])
            while sum(map(len, counted.sample)) > 2 * _SAMPLE:
                kept /= 2.0
                counted.sample = [self._thinned(part, rng) for part in counted.sample]
        if not counted.rows:
            raise ValueError("data must hold at least one complete row with a weight above 0, got none.")

    def _thinned(self, table: Table, rng: np.random.Generator) -> Table:
        first = np.zeros(len(table), bool)
        for name in self.counted.levels:
            first |= ~table[name].duplicated().to_numpy()
        return table[(rng.random(len(table)) < 0.5) | first]

    def _new_levels(self, table: Table) -> np.ndarray:
        """Which rows hold a level that was not seen before: of text, and of what stands in C(...)."""
        new = np.zeros(len(table), bool)
        for name in self._used:
            values = table[name]
            text = values.dtype.kind not in "biuf"
            response = name == self.said.response and (self.family.levels or self.asked.levels is not None)
            coded = f"C({name}" in self.asked.formula.replace(" ", "").replace("`", "")
            if name in self._groups_alone or not (text or response or coded):
                continue
            known = self.counted.levels.setdefault(name, {})
            declared = values.dtype if values.dtype.name == "category" else None
            if self.counted.declared.setdefault(name, declared) != declared:
                self.counted.declared[name] = None
            for value in values.unique().tolist():
                if value not in known:
                    known[value] = None
                    new |= (~new) & (np.cumsum((values == value).to_numpy()) == 1) & (values == value).to_numpy()
        return new

    def _levelled(self, table: Table) -> Table:
        """Text as categories of all levels, the same in every piece, in the order of the files where they have one."""
        import pandas

        found = {}
        for name, known in self.counted.levels.items():
            if table[name].dtype.kind not in "biuf":
                declared = self.counted.declared[name]
                order = sorted(known) if declared is None else [one for one in declared.categories if one in known]
                ordered = declared is not None and declared.ordered
                found[name] = pandas.Categorical(table[name], order, ordered=ordered)
        return table.assign(**found)

    def _write(self, reader: Reader, centre: Floats, sampled: tuple[tuple[Any, ...], ...], store: "_Store") -> Summary:
        """The second reading."""
        seen: Summary | None = None
        values: list[np.ndarray] = []
        few = self.family.levels or self.family.name == "bernoulli"
        for table, _ in self._pieces("writing the numbers of the regression"):
            if not len(table):
                continue
            rows = reader.numbers(self._levelled(table))
            own = rows.answer if rows.answer.ndim == 1 else rows.answer[:, 0]
            if few:
                values.append(np.unique(own))
            else:
                check_response(own, self.family, reader.design.response, reader.levels)
            part, codes = reader.summed(rows, sampled)
            seen = part if seen is None else seen + part
            columns = {"x": rows.x - centre, "offset": rows.offset, "y": rows.answer, "weight": rows.weight, **codes}
            if rows.labels:
                columns["z"] = rows.z
            store.add(columns, rows.labels[0] if rows.labels else None)
        if few:
            check_response(np.unique(np.concatenate(values)), self.family, reader.design.response, reader.levels)
        assert seen is not None  # a table without rows was refused
        return seen


def _together(parts: list[Table]) -> Table:
    import pandas

    parts = [
        part.assign(**{n: part[n].astype(object) for n in part if part[n].dtype.name == "category"}) for part in parts
    ]
    return pandas.concat(parts, ignore_index=True)


class _Store:
    """The folder of the numbers, beside the table; it goes when the data are no longer used, or the process ends."""

    def __init__(self, beside: Path, rows: int, groups: dict[Any, int] | None) -> None:
        self._labels, self._written = None, 0
        self._shape: tuple[int, ...] = (rows,)
        if groups is not None:
            self._labels = np.array(sorted(groups))
            self._sizes = np.array([groups[label] for label in sorted(groups)])
            self._filled = np.zeros(len(groups), np.int64)
            self._shape = (len(groups), int(self._sizes.max()))
        self.path = _fresh_folder(beside)
        self._gone = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
        self._arrays: dict[str, np.ndarray] = {}

    def add(self, columns: dict[str, np.ndarray], labels: np.ndarray | None) -> None:
        """Some rows."""
        count = len(columns["x"])
        if self._labels is None or labels is None:
            at: Any = slice(self._written, self._written + count)
            self._written += count
            self._put(at, columns)
            return
        code = np.searchsorted(self._labels, labels)
        # Group by group, so that neighbours go to neighbouring places.
        order = np.argsort(code, kind="stable")
        code = code[order]
        names, first, sizes = np.unique(code, return_index=True, return_counts=True)
        place = self._filled[code] + np.arange(count) - np.repeat(first, sizes)
        self._filled[names] += sizes
        self._put(
            (code, place), {name: values[order] for name, values in {**columns, "mask": np.ones(count, bool)}.items()}
        )

    def _put(self, at: Any, columns: dict[str, np.ndarray]) -> None:
        for name, values in columns.items():
            if name not in self._arrays:
                dtype = np.dtype(np.float32) if values.dtype.kind == "f" else values.dtype
                # Places that nothing is written to are zeros, and take no room on the disk.
                file = self.path / f"{name}.npy"
                self._arrays[name] = open_memmap(file, "w+", dtype, (*self._shape, *values.shape[1:]))
            self._arrays[name][at] = values

    def source(self) -> FileSource:
        """What was written, mapped."""
        for array in self._arrays.values():
            array.flush()  # type: ignore[attr-defined]
        self._arrays.clear()
        found = open_data(self.path)
        if self._labels is not None:
            parts = {name: getattr(found, name) for name in found.__dataclass_fields__}
            found = MappedGroups(**parts, labels=self._labels, sizes=self._sizes)
        # From here on it is the data that are in use.
        self._gone.detach()
        weakref.finalize(found, shutil.rmtree, self.path, ignore_errors=True)
        return found


def _fresh_folder(beside: Path) -> Path:
    """A new folder next to the data where that can be written to, and none left of processes that were killed."""
    place = beside.absolute().parent
    if not os.access(place, os.W_OK):
        place = Path(tempfile.gettempdir())
    for left in place.glob(f"{beside.name}.numbers-*"):
        process = left.name.rpartition("-")[2].partition(".")[0]
        with suppress(ValueError, PermissionError):
            try:
                os.kill(int(process), 0)
            except ProcessLookupError:
                shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{beside.name}.numbers-{os.getpid()}.", dir=place))
