"""Group terms of a formula, "(1 + x | school/class)": what varies, over which groups, and the labels of these."""

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from langevin.regression.columns import GROUP_TERM

Table = Any


class Written(NamedTuple):
    """A group term as it was written: what varies, and the columns whose values together are a group."""

    effects: str
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        """What to call the grouping: "school", "school:class"."""
        return ":".join(self.columns)


def written_groupings(right: str) -> list[Written]:
    """The group terms of the right side of a formula: (1 | a/b) is (1 | a) + (1 | a:b)."""
    found: list[Written] = []
    for effects, over in GROUP_TERM.findall(right):
        columns: tuple[str, ...] = ()
        for nested in over.split("/"):
            columns += tuple(name.strip().strip("`") for name in nested.split(":"))
            found.append(Written(effects, columns))
    sets = [frozenset(one.columns) for one in found]
    for one, own in zip(found, sets, strict=True):
        if "" in one.columns or len(own) < len(one.columns):
            raise ValueError(
                f"formula must name the columns of groups, each once, as (1 | school), (1 | school:class) or (1 | "
                f"school/class), got (... | {one.name})."
            )
        if sets.count(own) > 1:
            raise ValueError(
                f"formula must have one term for each grouping, got {sets.count(own)} for {one.name!r}. Write all that "
                f"varies into one, as (1 + x | {one.name})."
            )
    return found


def group_labels(table: Table, columns: Sequence[str]) -> np.ndarray:
    """The group of each row as a number or text; of several columns their values, joined by colons."""
    for name in columns:
        if name not in table.columns:
            raise ValueError(f"data must have the column of groups {name!r}. {columns_there(table)}")
    parts = [_plain(table[name]) for name in columns]
    if len(parts) == 1:
        return parts[0]
    return reduce(lambda a, b: np.char.add(np.char.add(a, ":"), b), map(_words, parts))


def columns_there(table: Table) -> str:
    """Which columns a table has, for a message."""
    names = ", ".join(repr(str(name)) for name in table.columns[:12])
    return f"Columns are {names}{', ...' if len(table.columns) > 12 else ''}."


def _plain(values: Any) -> np.ndarray:
    array = np.asarray(values)
    return array if array.dtype.kind in "biuf" else array.astype(str)


def _words(values: np.ndarray) -> np.ndarray:
    """Labels as text that stays apart when it is joined: 1.0 is 1, and a colon inside is marked."""
    names, place = np.unique(values, return_inverse=True)
    words = [str(name).removesuffix(".0") if values.dtype.kind == "f" else str(name) for name in names.tolist()]
    return np.array([word.replace("\\", "\\\\").replace(":", "\\:") for word in words], str)[place]
