"""From a table and what was asked of it to a posterior: rows are checked, counted and turned into numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from langevin.regression.design import as_table, complete, design
from langevin.regression.families import FAMILIES, Family
from langevin.regression.model import Model, check_design
from langevin.target import Target

Table = Any


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
    groups: str
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


def prepared(asked: Question, data: Any) -> Prepared:
    """The posterior of a regression of these data, or an error that names what will not do."""
    if asked.family not in FAMILIES:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}, got {asked.family!r}.")
    if asked.missing not in ("refuse", "drop"):
        raise ValueError(f"missing must be 'refuse' or 'drop', got {asked.missing!r}.")
    if asked.groups not in ("integrate", "sample"):
        raise ValueError(f"groups must be 'integrate' or 'sample', got {asked.groups!r}.")
    family, table = FAMILIES[asked.family], as_table(data)
    named: dict[str, str | None] = {}
    for name in ("weights", "offset", "trials"):
        given = getattr(asked, name)
        # An array is a column too: rows that are dropped take their entries along.
        named[name] = given if given is None or isinstance(given, str) else f"({name})"
        if named[name] is not None:
            table = table.assign(**{str(named[name]): column(table, given, name, np.nan, finite=False)})
    used = tuple(name for name in named.values() if name is not None)
    table, dropped = complete(table, asked.formula, used, asked.missing == "drop")
    # The cuts of an ordinal response are its intercepts.
    found = design(asked.formula, table, level=family.name != "ordinal")
    x, z = found.matrices(table)
    check_design(found, family, x)
    y, seen = response(table[found.response], family, found.response, asked.levels)
    answer = y
    if family.name == "binomial":
        total = column(table, named["trials"], "trials", 0.0)
        if not np.all((total >= 1) & (total >= y) & (total == np.round(total))):
            raise ValueError("trials must be whole numbers, at least 1 and at least the successes. Try trials='n'.")
        answer, y = np.stack([y, total], axis=1), y / total
    shift = column(table, named["offset"], "offset", 0.0)
    labels = None if found.group is None else group_labels(table[found.group])
    sampled = () if labels is None or asked.groups == "integrate" else tuple(np.unique(labels).tolist())
    model = Model.of(found, family, x, z, y, shift, seen, asked.priors, sampled)
    rows = model.rows(x, z, shift)
    rows["y"] = answer.astype(np.int32 if family.levels else np.float32)
    rows["weight"] = column(table, named["weights"], "weights", 1.0).astype(np.float32)
    if np.any(rows["weight"] < 0):
        raise ValueError(f"weights must be 0 or more, got {rows['weight'].min():g}. Leave rows out that do not count.")
    target, units = model.posterior(rows, labels)
    return Prepared(model, target, units, model.theta_0(y, labels), dropped, named["offset"], named["trials"])


def group_labels(values: Any) -> np.ndarray:
    """A column of groups as numbers or text."""
    array = np.asarray(values)
    return array if array.dtype.kind in "biuf" else array.astype(str)


def column(table: Table, given: Any, name: str, default: float, finite: bool = True) -> np.ndarray:
    """A column of numbers by name, or as an array; the default where nothing is given."""
    if given is None:
        return np.full(len(table), default)
    if isinstance(given, str):
        if given not in table.columns:
            raise ValueError(f"{name} must name a column of the data, got {given!r}.")
        given = table[given]
    values = np.asarray(given, np.float64)
    if values.shape != (len(table),) or (finite and not np.isfinite(values).all()):
        raise ValueError(f"{name} must hold one finite number a row, {len(table)} in all, got shape {values.shape}.")
    return values


def response(values: Any, family: Family, name: str, order: Sequence[Any] | None) -> tuple[np.ndarray, tuple[Any, ...]]:
    """The response as numbers, and its levels where it has some; raises where it is none of the family's."""
    array = np.asarray(values)
    text = array.dtype.kind not in "biuf"
    if family.levels or (family.name == "bernoulli" and (text or order is not None)):
        found = _levels(values, array, family, name, order)
        y = np.array([found.index(value) for value in array.tolist()], np.float64)
        if len(found) < (3 if family.levels else 2) or not family.holds(y):
            raise ValueError(f"{name!r} must hold {family.rule} for family {family.name!r}, got {list(found)[:4]}.")
        return y, found
    if text:
        raise ValueError(f"{name!r} must hold numbers for family {family.name!r}, got text such as {array[0]!r}.")
    y = array.astype(np.float64)
    if not np.isfinite(y).all() or not family.holds(y):
        shown = ", ".join(f"{value:g}" for value in np.unique(y)[:4])
        raise ValueError(f"{name!r} must hold {family.rule} for family {family.name!r}, got values {shown}, ...")
    return y, ()


def _levels(values: Any, array: np.ndarray, family: Family, name: str, order: Sequence[Any] | None) -> tuple[Any, ...]:
    """The levels in the user's order, in that of a categorical column, or sorted."""
    seen, categories = np.unique(array).tolist(), getattr(values, "cat", None)
    if order is not None:
        unknown = [value for value in seen if value not in list(order)]
        if unknown or len(set(order)) != len(order):
            raise ValueError(
                f"levels must list every level of {name!r} once, got {list(order)!r}, and {seen[:6]} occur."
            )
        return tuple(order)
    if categories is not None:
        return tuple(value for value in categories.categories.tolist() if value in seen)
    if family.name == "ordinal" and array.dtype.kind not in "biuf":
        raise ValueError(
            f"levels must be given for an ordinal response in words, whose order nobody can guess: {seen[:6]}. Try "
            f"levels={seen[:3]!r} in their order, an ordered categorical column, or numbers."
        )
    return tuple(seen)
