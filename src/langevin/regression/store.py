"""Saved fits: what a formula learnt from the data as arrays and JSON, and back. No code of a file is ever run."""

import ast
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from langevin.regression.design import Design, Grouping, Terms, sides
from langevin.regression.families import FAMILIES
from langevin.regression.model import Model
from langevin.regression.priors import Prior, read
from langevin.regression.reading import Question
from langevin.sampling.session import Session
from langevin.sampling.store import save
from langevin.saving.folder import Folder
from langevin.saving.journal import FIT, Journal

# Arithmetic, comparisons and calls with plain arguments: what a formula that comes from a file may be made of.
_PLAIN = (
    *(ast.Expression, ast.keyword, ast.Name, ast.Constant, ast.Load, ast.List, ast.Tuple),
    *(ast.BinOp, ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop, ast.cmpop),
)


class Fitted(Protocol):
    """What is known of a regression beside its run."""

    @property
    def model(self) -> Model:
        """The model."""

    @property
    def dropped(self) -> int:
        """Rows left out."""

    @property
    def offset(self) -> str | None:
        """The column of offsets."""

    @property
    def trials(self) -> str | None:
        """The column of trials."""


def packed(fitted: Fitted, asked: Question) -> dict[str, Any]:
    """A fit, but for its run, as a file can hold it."""
    model, design = fitted.model, fitted.model.design
    own = {name: _column(getattr(asked, name)) for name in ("weights", "offset", "trials")}
    given = {} if asked.priors is None else {name: _law(read(name, one)) for name, one in asked.priors.items()}
    # Built of nothing but plain values: a folder can be opened before this room is.
    return {
        "asked": {**vars(asked), "priors": given, **own},
        "fixed": _packed_terms(design.fixed),
        "varying": tuple(_packed_terms(one.terms) for one in design.groupings),
        "level": design.level,
        "priors": {name: _law(prior) for name, prior in model.priors.items()},
        "centre": model.centre,
        "unit": model.unit,
        "spreads": model.spreads,
        "levels": tuple(_item(level) for level in model.levels),
        "groups": model.groups,
        "information": model.information,
        "dropped": fitted.dropped,
        "offset": fitted.offset,
        "trials": fitted.trials,
    }


def unpacked(stored: Mapping[str, Any]) -> tuple[Model, Question, int, str | None, str | None]:
    """The fields of a `Fit`, but for its session."""
    asked = question(stored)
    said = sides(asked.formula)
    fixed = _made_terms(said.fixed, stored["fixed"])
    terms = map(_made_terms, said.varying, stored["varying"])
    groupings = tuple(map(Grouping, said.groupings, terms))
    design = Design(asked.formula, said.response, fixed, groupings, stored["level"])
    parts = (stored[name] for name in ("centre", "unit", "spreads", "levels", "groups", "information"))
    model = Model(design, FAMILIES[asked.family], _laws(stored["priors"]), *parts)
    return model, asked, stored["dropped"], stored["offset"], stored["trials"]


def question(stored: Mapping[str, Any]) -> Question:
    """What was asked; raises on a formula that could run code."""
    asked = Question(**{**stored["asked"], "priors": _laws(stored["asked"]["priors"])})
    said = sides(asked.formula)
    for written in (said.fixed, *said.varying):
        _check_plain(written)
    return asked


def save_fit(session: Session, fitted: Fitted, asked: Question, path: Path) -> None:
    """Writes run and fit to a directory."""
    save(session, path, {FIT: packed(fitted, asked)})


def check_folder(path: str | PathLike | None, stored: Mapping[str, Any]) -> None:
    """Raises where the folder of a checkpoint holds another fit than this one, as packed."""
    if path is None or not Folder(Path(path)).taken:
        return
    journal, what = Journal.of(Folder(Path(path))), "a run of lv.sample"
    if FIT in journal:
        then = journal[FIT]
        if _parts(then) == _parts(stored):
            return
        what = f"the fit of {then['asked']['formula']!r}, family {then['asked']['family']!r}"
        if _parts(then)[:2] == _parts(stored)[:2]:
            what += ", to data with other levels or columns"
    raise ValueError(
        f"checkpoint must be new or of the same call, got {path}, which holds {what}. Choose another folder."
    )


def _parts(stored: Mapping[str, Any]) -> list[Any]:
    """What the parameters of a fit are."""
    asked = stored["asked"]
    return [
        asked["formula"],
        asked["family"],
        *(stored[name] for name in ("levels", "groups")),
        stored["fixed"]["columns"],
    ]


def _column(given: Any) -> Any:
    return given if given is None or isinstance(given, str) else np.asarray(given, np.float64)


def _law(prior: Prior) -> dict[str, Any]:
    return {"law": prior.law, "numbers": prior.numbers}


def _laws(stored: Mapping[str, Any]) -> dict[str, Prior]:
    return {name: Prior(**law) for name, law in stored.items()}


def _packed_terms(terms: Terms) -> dict[str, Any]:
    levels = {
        expression: tuple(_item(level) for level in state["categories"])
        for expression, (_, state) in terms.spec.encoder_state.items()
        if "categories" in state
    }
    states = {"transforms": terms.spec.transform_state, "levels": levels, "origins": terms.origins}
    return {"columns": terms.columns, **{name: _pairs(state) for name, state in states.items()}}


def _made_terms(written: Any, stored: Mapping[str, Any]) -> Terms:
    from formulaic import ModelSpec
    from formulaic.parser.types import Factor

    levels = {
        expression: (Factor.Kind.CATEGORICAL, {"categories": list(found)})
        for expression, found in _mapping(stored["levels"]).items()
    }
    spec = ModelSpec.from_spec(written, transform_state=_mapping(stored["transforms"]), encoder_state=levels)
    # Fits of earlier versions have none.
    return Terms(spec, stored["columns"], _mapping(stored["origins"]) if "origins" in stored else {})


def _pairs(state: Any) -> Any:
    """Dicts as pairs: the keys of a state may be numbers, which JSON would turn into text."""
    if isinstance(state, Mapping):
        return {"keys": tuple(_item(key) for key in state), "values": tuple(_pairs(value) for value in state.values())}
    return _item(state)


def _mapping(stored: Any) -> Any:
    if isinstance(stored, Mapping):
        return dict(zip(stored["keys"], (_mapping(value) for value in stored["values"]), strict=True))
    return stored


def _item(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _check_plain(written: Any) -> None:
    """Raises on an expression that could do anything but arithmetic: formulaic runs them as Python."""
    from formulaic.transforms import TRANSFORMS

    for expression in {one.expr for term in written for one in term.factors if one.eval_method.value == "python"}:
        try:
            nodes = list(ast.walk(ast.parse(expression.strip(), mode="eval")))
        except SyntaxError:
            nodes = []
        if not nodes or not all(_harmless(node, TRANSFORMS) for node in nodes):
            raise ValueError(
                f"a saved formula must be made of columns, arithmetic and formulaic's transforms, got {expression!r}, "
                f"which could run code. Fit anew with such a column in the data; a call of lv.fit goes on where it is "
                f"repeated."
            )


def _harmless(node: ast.AST, transforms: Mapping[str, Any]) -> bool:
    """Calls are of formulaic's transforms, NumPy's elementwise functions and formulaic's contrasts, no others."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in transforms
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute)
    if not isinstance(node, ast.Attribute):
        return isinstance(node, _PLAIN)
    place = node.value.id if isinstance(node.value, ast.Name) else ""
    known = place == "contr" or (place == "np" and isinstance(getattr(np, node.attr, None), np.ufunc))
    return known and not node.attr.startswith("_")
