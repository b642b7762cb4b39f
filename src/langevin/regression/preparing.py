"""From a table and what was asked of it to a posterior: rows are checked, counted and turned into numbers."""

from typing import Any

import numpy as np

from langevin.mixed.groups import groups
from langevin.regression.columns import GROUP_TERM, complete, occurring, used_columns, weighing
from langevin.regression.design import design
from langevin.regression.families import FAMILIES
from langevin.regression.files import large_table
from langevin.regression.model import Model, check_effects, check_numbers, check_sampled
from langevin.regression.reading import (
    Prepared,
    Question,
    Reader,
    check_response,
    column,
    levels_of,
    names_of_columns,
    samples_groups,
)
from langevin.regression.streamed import streamed
from langevin.regression.tables import as_table


def prepared(asked: Question, data: Any) -> Prepared:
    """The posterior of a regression of these data, or an error that names what will not do."""
    if not isinstance(asked.formula, str):
        raise ValueError(f'formula must be text, got {asked.formula!r}. Try "y ~ x1 + C(x2)".')
    if asked.family not in FAMILIES:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}, got {asked.family!r}.")
    if asked.missing not in ("refuse", "drop"):
        raise ValueError(f"missing must be 'refuse' or 'drop', got {asked.missing!r}.")
    if asked.groups not in (None, "integrate", "sample"):
        raise ValueError(f"groups must be 'integrate', 'sample' or None, got {asked.groups!r}.")
    _refuse_idle(asked)
    large = large_table(data)
    return _in_memory(asked, data) if large is None else streamed(asked, large)


def _refuse_idle(asked: Question) -> None:
    """Raises on what the family needs and does not get, and on what would do nothing."""
    family = asked.family
    if family == "binomial" and asked.trials is None:
        raise ValueError(
            "trials must be given for family 'binomial', got None. Name their column, trials='n', or use "
            "family='bernoulli' for single trials."
        )
    if family != "binomial" and asked.trials is not None:
        raise ValueError(f"trials must be None for family {family!r}, which has none. Try family='binomial'.")
    if asked.levels is not None and not (FAMILIES[family].levels or family == "bernoulli"):
        raise ValueError(
            f"levels must be None for family {family!r}, whose response is a number, got {list(asked.levels)!r}. Try "
            f"family='categorical', 'ordinal' or 'bernoulli'."
        )
    if asked.groups == "sample" and not GROUP_TERM.search(asked.formula):
        raise ValueError(f"groups='sample' needs groups, got {asked.formula!r}. Add a term such as (1 | town).")


def _in_memory(asked: Question, data: Any) -> Prepared:
    family, table, named = FAMILIES[asked.family], as_table(data), names_of_columns(asked)
    for name, own in named.items():
        if own is not None:
            # Rows that are dropped take the entries of an array along.
            table = table.assign(**{own: column(table, getattr(asked, name), name, np.nan, finite=False)})
    used = tuple(name for name in named.values() if name is not None)
    table, dropped = complete(table, asked.formula, used, asked.missing == "drop")
    table = weighing(table, named["weights"])
    if not len(table):
        raise ValueError("data must hold at least one complete row with a weight above 0, got none.")
    table = occurring(table, used_columns(table.columns, asked.formula))
    # The cuts of an ordinal response are its intercepts.
    found = design(asked.formula, table, level=family.name != "ordinal")
    check_effects(found, family)
    levels = levels_of(table[found.response], family, found.response, asked.levels)
    reader = Reader(found, family, levels, named)
    numbers = reader.numbers(table)
    y, answer, labels = numbers.y, numbers.answer, numbers.labels
    check_response(y if answer.ndim == 1 else answer[:, 0], family, found.response, levels)
    samples = samples_groups(asked, found.groupings)
    sampled = tuple(tuple(np.unique(own).tolist()) for own in labels if samples)
    check_sampled(found, sampled)
    seen, codes = reader.summed(numbers, sampled)
    check_numbers(found, family, seen)
    model = Model.of(found, family, seen, levels, asked.priors, sampled)
    rows: Any = model.rows(numbers.x, numbers.z, numbers.offset)
    rows = {**rows, "y": answer, "weight": numbers.weight, **codes}
    if not labels:
        del rows["z"]
    elif not sampled:
        rows = groups(rows, by=labels[0])
    return Prepared(model, model.target, rows, model.theta_0(seen), dropped, named["offset"], named["trials"])
