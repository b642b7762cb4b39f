"""Float64 beside float32: functions whose NumPy constants JAX has not met before."""

import types
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np


@lru_cache(maxsize=128)
def isolated(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with copies of the NumPy arrays that it closes over or finds among its module's names.

    JAX remembers a NumPy array by its identity together with the precision in which it was first traced, and fails to
    compile the other one. The anchor works in float64, so it must not show JAX the arrays that the float32 run uses.
    Python functions are followed into the functions that they call; other callables pass as they are.
    """
    return _copied(function, {})


def _copied(value: Any, made: dict[int, Any]) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    if not isinstance(value, types.FunctionType):
        return value
    if id(value) in made:
        return made[id(value)]
    used = _names(value.__code__)
    scope = value.__globals__
    mine = {name: scope[name] for name in used if isinstance(scope.get(name), np.ndarray | types.FunctionType)}
    cells = value.__closure__ if value.__closure__ is not None else ()
    twin = types.FunctionType(
        value.__code__, dict(scope), value.__name__, value.__defaults__, tuple(types.CellType() for _ in cells)
    )
    twin.__kwdefaults__ = value.__kwdefaults__
    # Entered before its parts are copied, so that functions which call each other end.
    made[id(value)] = twin
    twin.__globals__.update({name: _copied(part, made) for name, part in mine.items()})
    for new, old in zip(twin.__closure__ if twin.__closure__ is not None else (), cells, strict=True):
        new.cell_contents = _copied(old.cell_contents, made)
    return twin


def _names(code: types.CodeType) -> set[str]:
    """Global names that the code or a function defined inside it may use."""
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*(_names(one) for one in inner))
