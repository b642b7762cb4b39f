"""Float64 beside float32: functions whose constants JAX has not met before."""

import copy
import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from langevin.startup import MOST_MODELS
from langevin.target import Target

# Twins made before, each with the objects that it was made from: a notebook cell run anew makes new objects.
_MADE: dict[tuple[int, ...], tuple[Any, list[Any]]] = {}
# Two functions for each model that is remembered.
_MOST_KEPT = 2 * MOST_MODELS
_Jitted: Any = type(jax.jit(len))


def in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with everything in it in JAX's usual precision, whatever the user's setting is."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        with jax.enable_x64(False):
            return function(*arguments, **keywords)

    return wrapped


def apart(target: Target, bits: int = 64) -> Target:
    """The target for code that runs in float64, or in float32, whatever else sees it; see `isolated`."""
    likelihood = None if target.log_likelihood is None else isolated(target.log_likelihood, bits)
    return Target(isolated(target.log_prior, bits), likelihood)


def for_float32(target: Target) -> Target:
    """The target for float32 code: where the user's setting is x64, what the model holds in float64 is narrowed."""
    return apart(target, bits=32) if wide_setting() else target


def wide_setting() -> bool:
    """Whether the user works in float64."""
    return jax.dtypes.canonicalize_dtype(np.float64) == np.float64


def isolated(function: Callable[..., Any], bits: int = 64) -> Callable[..., Any]:
    """The same function with copies of the arrays that it closes over, holds, or finds among its module's names.

    JAX remembers a NumPy array by its identity together with the precision in which it was first traced, and fails to
    compile the other one. The anchor works in float64, so it must not show JAX the arrays that the float32 run uses.
    With bits = 32 the copies have at most 32 bits, as float32 code needs them: a JAX array that was made under
    jax_enable_x64 keeps its 64 bits. Functions, methods, partials, callable objects and plain containers are followed.
    The same captured objects give the same twin, so that compiled code is found again.
    """
    captured: list[Any] = []
    twin = _Copies(bits, captured).of(function)
    key = (bits, *(id(one) for one in captured))
    if key not in _MADE:
        while len(_MADE) >= _MOST_KEPT:
            del _MADE[next(iter(_MADE))]
        _MADE[key] = (twin, captured)
    return _MADE[key][0]


class _Copies:
    """Copies made for one twin; what was copied is remembered, so that it is copied once."""

    def __init__(self, bits: int, captured: list[Any]) -> None:
        self.bits, self.captured = bits, captured
        self.made: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        if id(value) in self.made:
            return self.made[id(value)]
        if isinstance(value, np.ndarray) or (isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)):
            self.captured.append(value)
            self.made[id(value)] = self._array(value)
            return self.made[id(value)]
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            return types.MethodType(self.of(value.__func__), self._object(value.__self__))
        if isinstance(value, functools.partial):
            keywords = {name: self.of(part) for name, part in value.keywords.items()}
            return functools.partial(self.of(value.func), *map(self.of, value.args), **keywords)
        if isinstance(value, _Jitted):
            return self.of(value.__wrapped__)
        if type(value) in (list, tuple, dict):
            return self._container(value)
        if callable(value) and not isinstance(value, type):
            if dataclasses.is_dataclass(value):
                return self._dataclass(value)
            if not _of_a_library(type(value)):
                return self._object(value)
        return value

    def _container(self, value: Any) -> Any:
        # What contains itself stays as it is inside.
        self.made[id(value)] = value
        if type(value) is dict:
            return {name: self.of(part) for name, part in value.items()}
        return type(value)(map(self.of, value))

    def _array(self, value: Any) -> Any:
        wide = value.dtype.itemsize > 4 and value.dtype.kind in "fiu"
        if self.bits == 32 and wide:
            return np.asarray(value).astype(f"{value.dtype.kind}4")
        return value.copy() if isinstance(value, np.ndarray) else value

    def _function(self, value: types.FunctionType) -> Any:
        self.captured.append(value)
        scope = {name: value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__}
        cells = value.__closure__ if value.__closure__ is not None else ()
        twin = types.FunctionType(
            value.__code__,
            {**scope, "__builtins__": value.__globals__.get("__builtins__", __builtins__)},
            value.__name__,
            None,
            tuple(types.CellType() for _ in cells),
        )
        # Entered before its parts are copied, so that functions which call each other end.
        self.made[id(value)] = twin
        twin.__defaults__, twin.__kwdefaults__ = self.of(value.__defaults__), self.of(value.__kwdefaults__)
        for name, part in scope.items():
            if not (callable(part) and _of_a_library(part)):
                twin.__globals__[name] = self.of(part)
        for new, old in zip(twin.__closure__ if twin.__closure__ is not None else (), cells, strict=True):
            new.cell_contents = self.of(old.cell_contents)
        return twin

    def _dataclass(self, value: Any) -> Any:
        """A callable of fields, such as a marginal likelihood: its functions hold arrays as well."""
        self.captured.append(value)
        twin = self.made[id(value)] = copy.copy(value)
        for field in dataclasses.fields(value):
            # Frozen dataclasses refuse plain assignment.
            object.__setattr__(twin, field.name, self.of(getattr(value, field.name)))
        return twin

    def _object(self, value: Any) -> Any:
        """A shallow copy of an object with copies of the arrays among its attributes; as it is, if it has none."""
        arrays = {n: a for n, a in getattr(value, "__dict__", {}).items() if isinstance(a, (np.ndarray, jax.Array))}
        self.captured.append(value)
        if not arrays:
            return value
        twin = self.made[id(value)] = copy.copy(value)
        for name, array in arrays.items():
            # Frozen dataclasses refuse plain assignment.
            object.__setattr__(twin, name, self.of(array))
        return twin


def _of_a_library(part: Any) -> bool:
    return str(getattr(part, "__module__", "")).split(".")[0] in ("jax", "jaxlib", "numpy", "langevin")


def _names(code: types.CodeType) -> set[str]:
    """Global names that the code or a function defined inside it may use."""
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*(_names(one) for one in inner))
