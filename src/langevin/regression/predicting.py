"""Predictions for new rows: the same numbers for a table in memory and for one in files, of which some rows are held.

Rows are worked out in blocks whose size is a function of the number of draws alone, in their order and with one stream
of random numbers: in which pieces a file is read changes nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from langevin.display import tell
from langevin.limits import interrupt, stop_requests
from langevin.regression.columns import refuse_stray, used_columns
from langevin.regression.effects import numbers_of
from langevin.regression.files import Frames, Piece, large_table
from langevin.regression.model import Model
from langevin.regression.reading import column
from langevin.regression.tables import as_table

Table = Any
Rows = dict[str, np.ndarray]
# Numbers of a prediction that are worked out at once.
_AT_ONCE = 2**21
# Rows that go to a file at once.
_WRITTEN = 2**16


@dataclass(frozen=True, eq=False)
class Needs:
    """What a prediction takes of a table: columns of the model, and `more`, the offset and the trials.

    Of these it has what is given: the name of a column, an array, or None for the column that the fit had.
    """

    model: Model
    known: Mapping[str, str | None]
    given: Mapping[str, Any]

    def columns(self, there: list[str]) -> list[str]:
        """Those of a table that are needed; at least one, which says how many rows there are."""
        names = [self._name(name) for name in self.given]
        own = used_columns(there, self.model.design.formula.partition("~")[2])
        return list(dict.fromkeys([*own, *(name for name in names if isinstance(name, str))])) or there[:1]

    def check(self, rows: int) -> None:
        """Raises on arrays of another length than the table."""
        for name, one in self.given.items():
            if not (one is None or isinstance(one, str)) and np.shape(one) != (rows,):
                raise ValueError(f"{name} must hold one finite number a row, {rows} in all, got shape {np.shape(one)}.")

    def numbers(self, table: Table, at: int) -> Rows:
        """The rows of a part of the table, which begins at row `at`."""
        model = self.model
        x, z = model.design.matrices(table)
        offset = self._taken(table, "offset", at, 0.0)
        # As in the fit, an offset in the units of the response never meets float32.
        known = offset if model.family.scaled else np.zeros(len(x))
        rows = {**model.rows(x, z, offset - known), "known": known, "trials": self._taken(table, "trials", at, 1.0)}
        if model.groups:
            rows["group"] = numbers_of(model.groups, model.design.labels(table))
        return rows

    def _name(self, name: str) -> Any:
        return self.known[name] if self.given[name] is None else self.given[name]

    def _taken(self, table: Table, name: str, at: int, default: float) -> np.ndarray:
        """A column that the fit had too: as given, by the name that it had, or not at all where it had none."""
        one = self._name(name)
        if self.given[name] is None and one is not None and one not in table.columns:
            raise ValueError(f"{name} must be given, since the fit had one: a column {one!r} of the data, or an array.")
        if not (one is None or isinstance(one, str)):
            one = np.asarray(one)[at : at + len(table)]
        return column(table, one, name, default)


@dataclass(frozen=True, eq=False)
class NewRows:
    """The rows to predict for: how many, and parts of them in their order."""

    count: int
    parts: Callable[[], Iterator[Rows]]

    @classmethod
    def of(cls, data: Any, needs: Needs) -> "NewRows":
        """Those of a table in memory, or of files, which are counted first. Cost: a reading for files."""
        frames = large_table(data)
        if frames is not None:
            return frames.through(lambda found: cls._of_files(found, needs))
        table = as_table(data)
        needs.check(len(table))
        return cls(len(table), lambda: iter([needs.numbers(table, 0)]))

    @classmethod
    def _of_files(cls, frames: Frames, needs: Needs) -> "NewRows":
        _look(frames, needs)
        names, count = needs.columns(frames.columns), 0
        with stop_requests() as stop_requested:
            for piece in frames.pieces(names):
                tell("counting the rows", piece.read / frames.bytes)
                if stop_requested():
                    interrupt("Interrupted while the rows were counted; nothing was predicted.")
                count += len(piece.frame)
        needs.check(count)
        return cls(count, lambda: _pieces(frames, names, needs))

    def blocks(self, size: int) -> Iterator[Rows]:
        """Parts of so many rows, the last one of what is left."""
        left: Rows = {}
        for part in self.parts():
            rows = {name: np.concatenate([left[name], values]) for name, values in part.items()} if left else part
            whole = len(rows["x"]) // size * size
            for at in range(0, whole, size):
                yield {name: values[at : at + size] for name, values in rows.items()}
            left = {name: values[whole:] for name, values in rows.items()}
        if len(left["x"]):
            yield left


def _look(frames: Frames, needs: Needs) -> None:
    """Raises where the first rows will not do, with the names of all columns that there are.

    One row would not show it: a word below it makes text of its number.
    """
    first = next(frames.pieces(frames.columns), None)
    if first is None:
        raise ValueError("data must hold at least one row, got an empty table.")
    _numbers(first, 0, needs)


def _pieces(frames: Frames, names: list[str], needs: Needs) -> Iterator[Rows]:
    at = 0
    for piece in frames.pieces(names):
        yield _numbers(piece, at, needs)
        at += len(piece.frame)


def _numbers(piece: Piece, at: int, needs: Needs) -> Rows:
    try:
        refuse_stray(piece.frame, needs.model.design.formula, first=piece.first)
        return needs.numbers(piece.frame, at)
    except ValueError as error:
        last = piece.first + len(piece.frame) - 1
        raise ValueError(f"in rows {piece.first} to {last} of {piece.file}: {error}") from error


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a model says of new rows, by draws of its posterior, all of equal weight: nothing is worked out yet."""

    model: Model
    new: NewRows
    theta: Any
    level: float
    seed: int

    def blocks(self) -> Iterator[Rows]:
        """The columns of `Fit.predict`, some rows at a time."""
        draws = len(jax.tree.leaves(self.theta)[0])
        rng, done = np.random.default_rng(self.seed), 0
        effects = rng.standard_normal((draws, len(self.model.spreads))).astype(np.float32)
        ends = (0.5 - 0.5 * self.level, 0.5 + 0.5 * self.level)
        with stop_requests() as stop_requested:
            for rows in self.new.blocks(max(1, _AT_ONCE // draws)):
                tell("predicting", done / self.new.count)
                if stop_requested():
                    interrupt(f"Interrupted after {done:,} of {self.new.count:,} rows; nothing was kept of them.")
                yield self._block(effects, rows, ends, rng)
                done += len(rows["x"])

    def arrays(self) -> Rows:
        """All of it in memory."""
        found: Rows = {}
        at = 0
        for block in self.blocks():
            for name, values in block.items():
                if name not in found:
                    found[name] = np.empty((self.new.count, *values.shape[1:]), values.dtype)
                found[name][at : at + len(values)] = values
            at += len(block["mean"])
        return found

    def head(self, most: int) -> Table:
        """The first rows, as a data frame."""
        held: list[Rows] = []
        for block in self.blocks():
            held.append(block)
            if _length(held) >= most:
                break
        return self._frame(held).head(most)

    def write(self, put: Callable[[Table], None]) -> None:
        """Hands over data frames of some rows, in their order: never is all of it in memory."""
        held: list[Rows] = []
        for block in self.blocks():
            held.append(block)
            if _length(held) >= _WRITTEN:
                put(self._frame(held))
                held = []
        if held:
            put(self._frame(held))

    def _frame(self, blocks: list[Rows]) -> Table:
        """Blocks as a data frame; a response with levels has a column for each."""
        import pandas

        columns: Rows = {}
        for name in blocks[0]:
            values = np.concatenate([block[name] for block in blocks])
            if values.ndim == 1:
                columns[name] = values
            else:
                columns.update({f"{name} [{one}]": values[:, k] for k, one in enumerate(self.model.levels)})
        return pandas.DataFrame(columns)

    def _block(self, effects: np.ndarray, rows: Rows, ends: tuple, rng: np.random.Generator) -> Rows:
        model, theta = self.model, self.theta
        few = {name: values for name, values in rows.items() if name != "known"}

        def one(draw: Any, z: Any) -> Any:
            varying = model.new_effects(draw, z) if z.size else None
            return model.family.mean(model.predictor(draw, few, varying), draw)

        expected = np.asarray(jax.vmap(one)(theta, effects), np.float64)
        lower, upper = _ends(expected, ends)
        found = {"mean": expected.mean(axis=0), "lower": lower, "upper": upper}
        if not model.family.levels:
            further = {name: np.asarray(value)[:, None] for name, value in theta.items() if np.ndim(value) == 1}
            further["trials"] = rows["trials"]
            new = model.family.draw(rng, expected, further)
            found["predicted_lower"], found["predicted_upper"] = _ends(new, ends)
        return {name: values + rows["known"] for name, values in found.items()} if model.family.scaled else found


def _length(blocks: list[Rows]) -> int:
    return sum(len(block["mean"]) for block in blocks)


def _ends(values: np.ndarray, ends: tuple) -> list[np.ndarray]:
    """Quantiles over the first axis, between neighbouring draws, as `np.quantile` has them; several times as fast."""
    ordered = np.sort(np.ascontiguousarray(np.moveaxis(values, 0, -1), np.float32), axis=-1)
    found = []
    for place in np.array(ends) * (len(values) - 1):
        low, part = int(place), place % 1.0
        below, above = ordered[..., low], ordered[..., min(low + 1, len(values) - 1)]
        found.append(below + part * (above - below))
    return found
