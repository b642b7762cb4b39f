"""From a table and a formula to numbers: the design matrix, the response and the groups, and the same for new data."""

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np

from langevin.regression.columns import GROUP_TERM, plain, refuse_stray, used_columns
from langevin.regression.groupings import columns_there, group_labels, written_groupings
from langevin.regression.tables import first_line

Table = Any
# Columns farther from zero than this many sds, such as times in seconds since 1970, have a place of their own for their
# zero: float32 would lose 6e-8 |mean| / sd of what the column explains in the level, for a million rows of data and a
# slope as large as the noise 6% of its posterior sd. Below the second share a column is a constant and its rounding.
_FAR, _CONSTANT = 1e3, 1e-13
_LEARNS = re.compile(r"\b(center|scale|standardize|poly|bs|cc|cr|cs)\s*\(")


@dataclass(frozen=True, eq=False)
class Terms:
    """One side of a formula: formulaic's model specification, which knows levels and transforms, and its columns.

    `origins` are zeros of columns that are far from their own, for an intercept that float32 can tell from the slopes.
    """

    spec: Any
    columns: tuple[str, ...]
    origins: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def learnt(cls, written: Any, table: Table, formula: str, states: Mapping[str, Any]) -> "Terms":
        """Terms as formulaic has read them, with the levels and transforms of these data, or the states given."""
        from formulaic import ModelSpec

        matrix = _built(ModelSpec.from_spec(written, transform_state=dict(states)), table, formula)
        found = cls(matrix.model_spec, tuple(matrix.columns))
        few = slice(-max(1, min(10, len(table) // 2)), None)
        before, again = matrix.iloc[few].to_numpy(np.float64), found.rows(table.iloc[few], found.columns, formula)
        changed = ~np.isclose(again, before, rtol=1e-6, atol=1e-9).all(axis=0)
        if changed.any():
            raise ValueError(
                f"formula must make a row of each row alone, but {found.columns[int(np.argmax(changed))]!r} depends on "
                f"the others. Use center, scale or poly, which remember what they learn, or make the column first."
            )
        if "Intercept" not in found.columns:
            return found
        places = {name: _origin(matrix[name].to_numpy(np.float64)) for name in found.columns}
        return replace(found, origins={name: place for name, place in places.items() if place})

    def at(self, name: str) -> str:
        """What to call a coefficient: the intercept says where it is, unless all columns are zero there."""
        if name != "Intercept" or not self.origins:
            return name
        return f"{name} ({', '.join(f'{one} = {place:.15g}' for one, place in self.origins.items())})"

    def rows(self, table: Table, names: Sequence[str], formula: str) -> np.ndarray:
        """Some of the columns for a table, from their origins, float64."""
        matrix = _built(self.spec, table, formula, learnt=True)
        lost = [name for name in names if name not in matrix.columns]
        if lost:
            _refuse_kinds(table, lost[0])
        return matrix[list(names)].to_numpy(np.float64) - [self.origins.get(name, 0.0) for name in names]


@dataclass(frozen=True, eq=False)
class Grouping:
    """Groups are what the values of some columns say together; `terms` are the effects that vary between them."""

    columns: tuple[str, ...]
    terms: Terms

    @property
    def name(self) -> str:
        """What to call it: "school", "school:class"."""
        return ":".join(self.columns)

    @property
    def effects(self) -> tuple[str, ...]:
        """What to call the effects."""
        return tuple(self.terms.at(name) for name in self.terms.columns)


@dataclass(frozen=True, eq=False)
class Design:
    """A formula with what it learnt from the data: levels, transforms, names of the columns.

    `response` is the name on the left. `level` tells whether an intercept is among the coefficients: it codes the
    levels either way.
    """

    formula: str
    response: str
    fixed: Terms
    groupings: tuple[Grouping, ...]
    level: bool = True

    @property
    def names(self) -> list[str]:
        """Names of the coefficients, in the order of the formula."""
        return [name for name in self.fixed.columns if self.level or name != "Intercept"]

    @property
    def intercept(self) -> int | None:
        """Place of the intercept among the coefficients."""
        return self.names.index("Intercept") if "Intercept" in self.names else None

    def labels(self, table: Table) -> tuple[np.ndarray, ...]:
        """The groups of each row, for each grouping."""
        return tuple(group_labels(table, one.columns) for one in self.groupings)

    def matrices(self, table: Table) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the coefficients and of all varying effects, float64, for any table with the formula's columns."""
        refuse_stray(table, self.formula)
        table = plain(table, used_columns(table.columns, self.formula))
        varying = [one.terms.rows(table, one.terms.columns, self.formula) for one in self.groupings]
        fixed = self.fixed.rows(table, self.names, self.formula)
        return fixed, np.concatenate([np.zeros((len(table), 0)), *varying], axis=1)


@dataclass(frozen=True)
class Sides:
    """What a formula says, before any data: the response, its terms as formulaic reads them, and the groupings.

    `varying` has the terms of each grouping, `groupings` its columns.
    """

    response: str
    fixed: Any
    varying: tuple[Any, ...]
    groupings: tuple[tuple[str, ...], ...]

    @property
    def group_columns(self) -> list[str]:
        """Columns that make groups."""
        return list(dict.fromkeys(name for columns in self.groupings for name in columns))


def sides(formula: str) -> Sides:
    """Reads a formula; raises where it cannot be read."""
    try:
        from formulaic import Formula
        from formulaic.errors import FormulaicError
    except ImportError as error:
        raise ImportError("lv.fit needs pandas and formulaic: pip install 'langevin[fit]'") from error
    left, _, right = formula.partition("~")
    if formula.count("~") != 1 or not left.strip() or not right.strip():
        raise ValueError(f'formula must be "response ~ predictors", got {formula!r}. Try "y ~ x1 + C(x2)".')
    groupings = written_groupings(right)
    if used_columns([left.strip().strip("`")], right):
        raise ValueError(f"formula must have the response on the left alone, got {formula!r}. Drop it on the right.")
    fixed = GROUP_TERM.sub("", right).strip() or "1"
    fixed = fixed.removeprefix("+").strip()
    if "|" in fixed:
        raise ValueError(
            f"formula must have group terms in brackets, without inner brackets, got {formula!r}. Write (1 | town); "
            f"where levels vary make 0/1 columns of them, and write (1 + red | town)."
        )
    try:
        read, *varying = [Formula(text) for text in (fixed, *(one.effects for one in groupings))]
    except (FormulaicError, SyntaxError) as error:
        raise ValueError(f"formula must be readable, got {formula!r}: {first_line(error)}") from error
    return Sides(left.strip().strip("`"), read, tuple(varying), tuple(one.columns for one in groupings))


def learning(said: Sides) -> list[str]:
    """Those parts of a formula that learn from numbers, such as center(x)."""
    written = [term for side in (said.fixed, *said.varying) for term in side]
    parts = dict.fromkeys(one.expr for term in written for one in term.factors)
    return [part for part in parts if _LEARNS.search(part)]


def design(formula: str, table: Table, level: bool = True, whole: Table | None = None) -> Design:
    """Reads the formula and learns its columns from the table; without an intercept unless `level`.

    Where the table is a sample, `whole` has all rows of the columns from which transforms learn.
    """
    said = sides(formula)
    for column in [said.response, *said.group_columns]:
        if column not in table.columns:
            raise ValueError(
                f"formula must name columns of the data, got {column!r}. {columns_there(table)} A transformed "
                f"response is a column to make first."
            )
    states: Mapping[str, Any] = {}
    if whole is not None:
        from formulaic import Formula

        states = _built(Formula(["0", *learning(said)]), whole, formula).model_spec.transform_state
    fixed = Terms.learnt(said.fixed, table, formula, states)
    learnt = (Terms.learnt(terms, table, formula, states) for terms in said.varying)
    groupings = tuple(map(Grouping, said.groupings, learnt))
    return Design(formula, said.response, fixed, groupings, level)


def _origin(values: np.ndarray) -> float:
    """A round number within an sd of the mean, where that is far from zero; else zero."""
    mean, sd = float(values.mean()), float(values.std())
    if not _CONSTANT * abs(mean) < sd < abs(mean) / _FAR:
        return 0.0
    return round(mean, -math.floor(math.log10(sd)))


def _built(spec: Any, table: Table, formula: str, learnt: bool = False) -> Any:
    from formulaic.errors import DataMismatchWarning, FormulaicError

    try:
        # What is no number is refused below.
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("error", DataMismatchWarning)
            matrix = spec.get_model_matrix(table, na_action="raise")
    except DataMismatchWarning as error:
        seen = re.search(r"\{(.*?)\}", str(error))
        raise ValueError(
            f"data must have the levels of the data that were fitted, got {seen[1] if seen else 'others'}, which was "
            f"not among them. Leave such rows out, or fit with data that have it."
        ) from error
    except (FormulaicError, ValueError, KeyError, TypeError) as error:
        cause = error.__cause__ if error.__cause__ is not None else error
        empty = re.search(r"`(.*?)` contains null values", str(cause))
        if empty and empty[1] not in table.columns:
            raise ValueError(
                f"formula must give numbers, but {empty[1]!r} has none in some rows, as log of negative ones. Check it."
            ) from error
        if empty:
            raise ValueError(
                f"data must be complete, got missing values in {empty[1]!r}. Impute them, or leave these rows out."
            ) from error
        other = re.search(r"`(.*?)` has generated (?:too|columns)", str(cause))
        if other:
            _refuse_kinds(table, other[1], error)
        lost = re.search(r"`(.*?)` is not present|name '(.*?)' is not defined", str(cause))
        if lost and learnt:
            raise ValueError(
                f"data must have the columns that were fitted, got a table without {lost[1] or lost[2]!r}. "
                f"{columns_there(table)} Add it."
            ) from error
        if lost:
            raise ValueError(
                f"formula must be made of columns of the data and functions of formulaic, got {formula!r}, where "
                f"{lost[1] or lost[2]!r} is neither. {columns_there(table)}"
            ) from error
        raise ValueError(
            f"formula must fit the data, got {formula!r}: {first_line(cause)} {columns_there(table)} Text becomes a "
            f"predictor by C(...)."
        ) from error
    names = list(matrix.columns)
    for name in names:
        if not np.isfinite(np.asarray(matrix[name], float)).all():
            raise ValueError(f"formula must give numbers, but {name!r} has NaN or infinity. Check its transform.")
    return matrix


def _refuse_kinds(table: Table, column: str, error: Exception | None = None) -> NoReturn:
    """Raises on numbers where there was text, or the other way round, in what a column of the design is made of."""
    from pandas.api.types import is_numeric_dtype

    own = used_columns(table.columns, column)
    kinds = ("numbers", "text") if own and is_numeric_dtype(table[own[0]]) else ("text", "numbers")
    raise ValueError(
        f"data must have columns of the kinds that were fitted, got {kinds[0]} in {(own or [column])[0]!r}, which "
        f"held {kinds[1]} then. Convert it, as by astype."
    ) from error
