"""How rows of a table become the numbers of a regression: what was asked, and what the columns hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from langevin.regression.design import Design
from langevin.regression.effects import numbers_of
from langevin.regression.families import Family
from langevin.regression.model import Model
from langevin.regression.summary import GroupSums, Summary
from langevin.target import Target

Table = Any
Floats = np.ndarray


@dataclass(frozen=True, eq=False)
class Question:
    """The arguments of `lv.fit` that make the model; `source` is the path of the data, where they have one."""

    formula: str
    family: str
    priors: Mapping[str, Any] | None
    weights: Any
    offset: Any
    trials: Any
    levels: tuple[Any, ...] | None
    missing: str
    groups: str | None
    source: str | None


@dataclass(frozen=True, eq=False)
class Prepared:
    """A model with its posterior; `offset` and `trials` are the columns that a prediction needs too."""

    model: Model
    target: Target
    data: Any
    theta_0: dict[str, Any]
    dropped: int
    offset: str | None
    trials: str | None


class Numbers(NamedTuple):
    """Some rows: of coefficients and varying effects, the response as a model's centre and as its likelihood has it,
    offset, weight, and the labels of the groups, for each grouping."""

    x: Floats
    z: Floats
    y: Floats
    answer: Floats
    offset: Floats
    weight: Floats
    labels: tuple[Floats, ...]


@dataclass(frozen=True, eq=False)
class Reader:
    """Turns rows into numbers, once a formula has learnt its columns and the response its levels.

    `named` are the columns of weights, offset and trials, None where there are none.
    """

    design: Design
    family: Family
    levels: tuple[Any, ...]
    named: Mapping[str, str | None]

    def numbers(self, table: Table) -> Numbers:
        """The rows of a table; raises on what the family cannot be."""
        x, z = self.design.matrices(table)
        y = coded(table[self.design.response], self.family, self.design.response, self.levels)
        offset = column(table, self.named["offset"], "offset", 0.0)
        if self.family.scaled:
            # What is known goes before the rest is rounded to seven digits.
            y, offset = y - offset, np.zeros(len(y))
        answer = y
        if self.family.name == "binomial":
            total = column(table, self.named["trials"], "trials", 0.0)
            self._check_trials(table, y, total)
            answer, y = np.stack([y, total], axis=1), y / total
        weight = column(table, self.named["weights"], "weights", 1.0).astype(np.float32)
        if np.any(weight < 0):
            raise ValueError(f"weights must be 0 or more, got {weight.min():g}. Leave rows out that do not count.")
        answer = answer.astype(np.int32 if self.family.levels else np.float32)
        return Numbers(x, z, y, answer, offset, weight, self.design.labels(table))

    def summed(self, rows: Numbers, groups: tuple[tuple[Any, ...], ...]) -> tuple[Summary, dict[str, Floats]]:
        """What a model has to know of the rows, and their column of group numbers where groups are sampled."""
        if not groups:
            return Summary.of(rows.x, rows.z, rows.y, rows.offset), {}
        numbers = numbers_of(groups, rows.labels)
        ends = np.cumsum([len(one.effects) for one in self.design.groupings])[:-1]
        parts = zip(np.split(rows.z, ends, axis=1), numbers.T, groups, strict=True)
        sums = tuple(GroupSums.of(rows, z, own, len(labels)) for z, own, labels in parts)
        return Summary.of(rows.x, rows.z, rows.y, rows.offset, sums), {"group": numbers}

    def _check_trials(self, table: Table, y: Floats, total: Floats) -> None:
        for k in np.flatnonzero((total < 1) | (total != np.round(total)))[:1]:
            raise ValueError(
                f"trials must be whole numbers of at least 1, got {total[k]:g} in row {table.index[k]}. Leave out rows "
                f"without trials."
            )
        for k in np.flatnonzero(y > total)[:1]:
            raise ValueError(
                f"{self.design.response!r} must hold successes, at most the trials, got {y[k]:g} of {total[k]:g} in "
                f"row {table.index[k]}. Mend such rows, or see whether trials is the right column."
            )


def names_of_columns(asked: Question) -> dict[str, str | None]:
    """The columns of weights, offset and trials; an array is a column too, under a name that no file has."""
    given = {name: getattr(asked, name) for name in ("weights", "offset", "trials")}
    return {name: one if one is None or isinstance(one, str) else f"({name})" for name, one in given.items()}


def samples_groups(asked: Question, groupings: Sequence[Any]) -> bool:
    """Whether effects of groups are parameters: where that is asked for, and where groupings are several."""
    if len(groupings) > 1 and asked.groups == "integrate":
        raise ValueError(
            f"groups must be 'sample', or left out, for several groupings, got 'integrate' with {asked.formula!r}: "
            f"crossed effects do not factorise over groups, so that they cannot be integrated out group by group. "
            f"Leave it out to have them sampled, or keep one grouping and give the others as C(...)."
        )
    return bool(groupings) and (len(groupings) > 1 or asked.groups == "sample")


def column(table: Table, given: Any, name: str, default: float, finite: bool = True) -> np.ndarray:
    """A column of numbers by name, or as an array; the default where nothing is given."""
    if given is None:
        return np.full(len(table), default)
    if isinstance(given, str):
        if given not in table.columns:
            raise ValueError(f"{name} must name a column of the data, got {given!r}.")
        given = table[given]
    try:
        values = np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers, got others ({error}). Mend such rows.") from error
    if values.shape != (len(table),) or (finite and not np.isfinite(values).all()):
        raise ValueError(f"{name} must hold one finite number a row, {len(table)} in all, got shape {values.shape}.")
    return values


def levels_of(values: Any, family: Family, name: str, order: Sequence[Any] | None) -> tuple[Any, ...]:
    """The levels of a response, none where it is a number."""
    array = np.asarray(values)
    text = array.dtype.kind not in "biuf"
    named = text or order is not None or hasattr(values, "cat")
    if family.levels or (family.name == "bernoulli" and named):
        return _levels(values, array, family, name, order)
    if text:
        row = next((k for k, value in enumerate(array.tolist()) if not _is_number(value)), 0)
        raise ValueError(
            f"{name!r} must hold numbers for family {family.name!r}, got the text {str(array[row])!r} in row {row}. "
            f"Mend such rows, or choose a family of levels: bernoulli, categorical or ordinal."
        )
    return ()


def _is_number(value: Any) -> bool:
    try:
        return np.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def coded(values: Any, family: Family, name: str, levels: tuple[Any, ...]) -> np.ndarray:
    """The response as numbers: places among its levels, where it has some."""
    array = np.asarray(values)
    if levels:
        place = {level: k for k, level in enumerate(levels)}
        return np.array([place[value] for value in array.tolist()], np.float64)
    return array.astype(np.float64)


def check_response(y: np.ndarray, family: Family, name: str, levels: tuple[Any, ...]) -> None:
    """Raises where the response, or all of its different values, are none of the family's."""
    if family.holds(y) and not (levels and len(levels) < (3 if family.levels else 2)):
        return
    values = np.unique(y)
    shown = ", ".join(f"{value:g}" for value in values[:4]) + (" and more" if len(values) > 4 else "")
    got = list(levels)[:4] if levels else shown
    remedy = ""
    if family.name == "bernoulli" and not levels and len(values) == 2:
        remedy = (
            f" Numbers must be 0 and 1; others are levels if you say so, levels=[{shown}], or as text or categories."
        )
    raise ValueError(f"{name!r} must hold {family.rule} for family {family.name!r}, got {got}.{remedy}")


def _levels(values: Any, array: np.ndarray, family: Family, name: str, order: Sequence[Any] | None) -> tuple[Any, ...]:
    """The levels in the user's order, in that of a categorical column, or sorted."""
    seen, categories = np.unique(array).tolist(), getattr(values, "cat", None)
    if order is not None:
        if array.dtype.kind in "biuf":
            # A shell has words only.
            words = {word: value for value in seen for word in (str(value), f"{value:g}")}
            order = [words.get(one, one) if isinstance(one, str) else one for one in order]
        unknown = [value for value in seen if value not in list(order)]
        if unknown or len(set(order)) != len(order):
            raise ValueError(
                f"levels must list every level of {name!r} once, got {list(order)!r}, and {seen[:6]} occur."
            )
        return tuple(order)
    # Categories that nobody has ordered are in the order of the alphabet.
    if (
        family.name == "ordinal"
        and array.dtype.kind not in "biuf"
        and getattr(categories, "ordered", False) is not True
    ):
        raise ValueError(
            f"levels must be given for an ordinal response in words, whose order nobody can guess: {seen[:6]}. Try "
            f"levels={seen[:3]!r} in their order, an ordered categorical column, or numbers."
        )
    if categories is not None:
        return tuple(value for value in categories.categories.tolist() if value in seen)
    return tuple(seen)
