"""Float64 beside float32: functions whose NumPy constants JAX has not met before."""

import copy
import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np

# For code that runs once: compiling it takes longer than running it, and without optimisation two thirds as long.
COMPILED_QUICKLY = {"xla_backend_optimization_level": 0}
# For loops of a few seconds at most: half the time to compile.
COMPILED_SOON = {"xla_cpu_use_fusion_emitters": False}

# Twins made before, each with the objects that it was made from: a notebook cell run anew makes new objects.
_MADE: dict[tuple[int, ...], tuple[Any, list[Any]]] = {}
_MOST_KEPT = 64


def isolated(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with copies of the NumPy arrays that it closes over, holds, or finds among its module's names.

    JAX remembers a NumPy array by its identity together with the precision in which it was first traced, and fails to
    compile the other one. The anchor works in float64, so it must not show JAX the arrays that the float32 run uses.
    Functions, methods, partials and callable objects are followed. The same captured objects give the same twin, so
    that compiled code is found again.
    """
    captured: list[Any] = []
    twin = _copied(function, {}, captured)
    key = tuple(id(one) for one in captured)
    if key not in _MADE:
        while len(_MADE) >= _MOST_KEPT:
            del _MADE[next(iter(_MADE))]
        _MADE[key] = (twin, captured)
    return _MADE[key][0]


def _copied(value: Any, made: dict[int, Any], captured: list[Any]) -> Any:
    if id(value) in made:
        return made[id(value)]
    if isinstance(value, np.ndarray):
        captured.append(value)
        made[id(value)] = value.copy()
        return made[id(value)]
    if isinstance(value, types.FunctionType):
        return _copied_function(value, made, captured)
    if isinstance(value, types.MethodType):
        return types.MethodType(_copied(value.__func__, made, captured), _copied_object(value.__self__, made, captured))
    if isinstance(value, functools.partial):
        arguments = [_copied(part, made, captured) for part in value.args]
        keywords = {name: _copied(part, made, captured) for name, part in value.keywords.items()}
        return functools.partial(_copied(value.func, made, captured), *arguments, **keywords)
    if isinstance(getattr(value, "__wrapped__", None), types.FunctionType):  # what jax.jit returns
        return _copied(value.__wrapped__, made, captured)
    if callable(value) and not isinstance(value, type) and not _of_a_library(type(value)):
        return _copied_object(value, made, captured)
    return value


def _copied_function(value: types.FunctionType, made: dict[int, Any], captured: list[Any]) -> Any:
    captured.append(value)
    scope = {name: value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__}
    cells = value.__closure__ if value.__closure__ is not None else ()
    twin = types.FunctionType(
        value.__code__,
        {**scope, "__builtins__": value.__globals__.get("__builtins__", __builtins__)},
        value.__name__,
        value.__defaults__,
        tuple(types.CellType() for _ in cells),
    )
    twin.__kwdefaults__ = value.__kwdefaults__
    # Entered before its parts are copied, so that functions which call each other end.
    made[id(value)] = twin
    for name, part in scope.items():
        if not (callable(part) and _of_a_library(part)):
            twin.__globals__[name] = _copied(part, made, captured)
    for new, old in zip(twin.__closure__ if twin.__closure__ is not None else (), cells, strict=True):
        new.cell_contents = _copied(old.cell_contents, made, captured)
    return twin


def _copied_object(value: Any, made: dict[int, Any], captured: list[Any]) -> Any:
    """A shallow copy of an object with copies of the arrays among its attributes; as it is, if it has none."""
    arrays = {n: a for n, a in getattr(value, "__dict__", {}).items() if isinstance(a, np.ndarray)}
    captured.append(value)
    if not arrays:
        return value
    twin = made[id(value)] = copy.copy(value)
    for name, array in arrays.items():
        # Frozen dataclasses refuse plain assignment.
        object.__setattr__(twin, name, _copied(array, made, captured))
    return twin


def _of_a_library(part: Any) -> bool:
    return str(getattr(part, "__module__", "")).split(".")[0] in ("jax", "jaxlib", "numpy", "langevin")


def _names(code: types.CodeType) -> set[str]:
    """Global names that the code or a function defined inside it may use."""
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*(_names(one) for one in inner))
