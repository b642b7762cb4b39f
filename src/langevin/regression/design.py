"""From a table and a formula to numbers: the design matrix, the response and the groups, and the same for new data."""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Table = Any
# "(1 + x | town)": what varies, and over which groups.
_GROUP_TERM = re.compile(r"\+?\s*\(([^()|]*)\|([^()|]*)\)")


@dataclass(frozen=True, eq=False)
class Terms:
    """One side of a formula: formulaic's model specification, which knows levels and transforms, and its columns."""

    spec: Any
    columns: tuple[str, ...]

    @classmethod
    def learnt(cls, written: Any, table: Table, formula: str) -> "Terms":
        """Terms as formulaic has read them, with the levels and transforms of these data."""
        matrix = _built(written, table, formula)
        return cls(matrix.model_spec, tuple(matrix.columns))

    def rows(self, table: Table, names: Sequence[str], formula: str) -> np.ndarray:
        """Some of the columns for a table, float64."""
        matrix = _built(self.spec, table, formula)
        lost = [name for name in names if name not in matrix.columns]
        if lost:
            raise ValueError(
                f"data must have columns of the kinds that were fitted, got a table without {lost[0]!r}: numbers where "
                f"there was text, or the other way round. {_there(table)}"
            )
        return matrix[list(names)].to_numpy(np.float64)


@dataclass(frozen=True, eq=False)
class Design:
    """A formula with what it learnt from the data: levels, transforms, names of the columns.

    `response` is the name on the left, `group` the column of the groups or None. `level` tells whether an intercept is
    among the coefficients: it codes the levels either way.
    """

    formula: str
    response: str
    fixed: Terms
    varying: Terms | None
    group: str | None
    level: bool = True

    @property
    def names(self) -> list[str]:
        """Names of the coefficients, in the order of the formula."""
        return [name for name in self.fixed.columns if self.level or name != "Intercept"]

    @property
    def varying_names(self) -> list[str]:
        """Names of the effects that vary between groups."""
        return [] if self.varying is None else list(self.varying.columns)

    @property
    def intercept(self) -> int | None:
        """Place of the intercept among the coefficients."""
        return self.names.index("Intercept") if "Intercept" in self.names else None

    def groups_of(self, table: Table) -> Any:
        """The column of groups."""
        if self.group not in table.columns:
            raise ValueError(f"data must have the column of groups {self.group!r}. {_there(table)}")
        return table[self.group]

    def matrices(self, table: Table) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the coefficients and of the varying effects, float64, for any table with the formula's columns."""
        fixed = self.fixed.rows(table, self.names, self.formula)
        if self.varying is None:
            return fixed, np.zeros((len(table), 0))
        return fixed, self.varying.rows(table, self.varying_names, self.formula)


def as_table(data: Any) -> Table:
    """A pandas data frame of a frame, an arrow table, a dict of columns, or the path of a CSV or Parquet file."""
    pandas = _pandas()
    if isinstance(data, pandas.DataFrame):
        table = data
    elif hasattr(data, "to_pandas"):
        table = data.to_pandas()
    elif isinstance(data, Mapping):
        table = pandas.DataFrame(dict(data))
    elif isinstance(data, str) or hasattr(data, "__fspath__"):
        name = str(data)
        try:
            table = pandas.read_parquet(name) if name.endswith(".parquet") else pandas.read_csv(name)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or _first_line(error)
            raise ValueError(f"data must be a table in a .csv or .parquet file, got {name}: {reason}") from error
    else:
        raise ValueError(
            f"data must be a data frame, a dict of columns, or the path of a .csv or .parquet file, got "
            f"{type(data).__name__}."
        )
    twice = [str(name) for name in table.columns[table.columns.duplicated()]]
    if twice:
        raise ValueError(f"data must have one column of each name, got {twice[0]!r} twice. Rename or drop one.")
    if not len(table):
        raise ValueError("data must hold at least one row, got an empty table.")
    return table


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("lv.fit needs pandas and formulaic: pip install 'langevin[fit]'") from error
    return pandas


@dataclass(frozen=True)
class Sides:
    """What a formula says, before any data: the response, the group, and its terms as formulaic reads them."""

    response: str
    fixed: Any
    varying: Any
    group: str | None


def sides(formula: str) -> Sides:
    """Reads a formula; raises where it cannot be read."""
    try:
        from formulaic import Formula
        from formulaic.errors import FormulaicError
    except ImportError as error:
        raise ImportError("lv.fit needs pandas and formulaic: pip install 'langevin[fit]'") from error
    left, tilde, right = formula.partition("~")
    if not tilde or not left.strip() or not right.strip():
        raise ValueError(f'formula must be "response ~ predictors", got {formula!r}. Try "y ~ x1 + C(x2)".')
    terms = _GROUP_TERM.findall(right)
    if len(terms) > 1:
        raise ValueError(
            f"formula must have one grouping at most, got {len(terms)}: crossed and nested groupings do not factorise "
            f"into groups. Keep the one with the most levels and give the other as C(...), or write it for lv.sample."
        )
    fixed = _GROUP_TERM.sub("", right).strip() or "1"
    fixed = fixed.removeprefix("+").strip()
    if "|" in fixed:
        raise ValueError(
            f"formula must have group terms without inner brackets, got {formula!r}. Make 0/1 columns of what varies, "
            f"and write (1 + red | town)."
        )
    try:
        read = [None if text is None else Formula(text) for text in (fixed, terms[0][0] if terms else None)]
    except (FormulaicError, SyntaxError) as error:
        raise ValueError(f"formula must be readable, got {formula!r}: {_first_line(error)}") from error
    return Sides(left.strip().strip("`"), read[0], read[1], terms[0][1].strip() if terms else None)


def design(formula: str, table: Table, level: bool = True) -> Design:
    """Reads the formula and learns its columns from the table; without an intercept unless `level`."""
    said = sides(formula)
    for column in [said.response, *([said.group] if said.group else [])]:
        if column not in table.columns:
            raise ValueError(
                f"formula must name columns of the data, got {column!r}. {_there(table)} A transformed response is a "
                f"column to make first."
            )
    fixed = Terms.learnt(said.fixed, table, formula)
    varying = None if said.varying is None else Terms.learnt(said.varying, table, formula)
    return Design(formula, said.response, fixed, varying, said.group, level)


def _built(spec: Any, table: Table, formula: str) -> Any:
    from formulaic.errors import DataMismatchWarning, FormulaicError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DataMismatchWarning)
            matrix = spec.get_model_matrix(table, na_action="raise")
    except DataMismatchWarning as error:
        seen = re.search(r"\{.*?\}", str(error))
        raise ValueError(
            f"data must have the levels of the data that were fitted, got {seen[0] if seen else 'others'}, which was "
            f"not among them. Leave such rows out, or fit with data that have it."
        ) from error
    except (FormulaicError, ValueError, KeyError, TypeError) as error:
        cause = error.__cause__ if error.__cause__ is not None else error
        raise ValueError(
            f"formula must fit the data, got {formula!r}: {_first_line(cause)} {_there(table)} Text becomes a "
            f"predictor by C(...)."
        ) from error
    names = list(matrix.columns)
    unseen = [name for name in names if not np.isfinite(np.asarray(matrix[name], float)).all()]
    if unseen:
        raise ValueError(f"formula must give numbers, but {unseen[0]!r} has NaN or infinity. Check its transform.")
    return matrix


def complete(table: Table, formula: str, more: tuple[str, ...], drop: bool) -> tuple[Table, int]:
    """The rows without missing values in the columns that the formula names, and how many were dropped."""
    words = set(re.findall(r"[A-Za-z_][\w.]*|`[^`]*`", formula))
    used = [name for name in table.columns if str(name) in words or f"`{name}`" in words or name in more]
    missing = table[used].isna()
    bad = missing.any(axis=1).to_numpy()
    if not bad.any():
        return table, 0
    if drop:
        return table[~bad], int(bad.sum())
    column = next(name for name in used if missing[name].any())
    row = int(np.flatnonzero(missing[column].to_numpy())[0])
    raise ValueError(
        f"data must be complete, got {int(bad.sum())} of {len(table)} rows with a missing value, first {column!r} in "
        f"row {row}. Impute them, or leave these rows out with missing='drop'."
    )


def _there(table: Table) -> str:
    names = ", ".join(repr(str(name)) for name in table.columns[:12])
    return f"Columns are {names}{', ...' if len(table.columns) > 12 else ''}."


def _first_line(error: BaseException) -> str:
    text = (str(error).splitlines() or [""])[0].strip()
    return text if text.endswith(".") else f"{text}."
