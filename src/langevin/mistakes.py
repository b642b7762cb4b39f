"""Mistakes in a model that JAX lets pass without a word, found in the traced function before anything is compiled."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

PyTree = Any
# The smallest and the largest value that an index takes; both occur.
Bounds = tuple[int, int]
Reader = Callable[[int], Bounds | None]
# Rows that may say nothing about theta, as a share: a few may be padding.
_MOST_SILENT = 0.05
_SAME = {"convert_element_type", "broadcast_in_dim", "reshape", "squeeze", "copy", "stop_gradient"}


def traced(name: str, function: Callable, arguments: Sequence[PyTree]) -> tuple[Any, Any]:
    """The function as JAX sees it, and the shapes that it returns; says what is wrong where JAX cannot follow it."""
    try:
        return jax.make_jaxpr(function, return_shape=True)(*arguments)
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError) as error:
        choice = isinstance(error, jax.errors.TracerBoolConversionError)
        seen = (
            "a Python `if` or `while` asked for the value of"
            if choice
            else "a function of NumPy, SciPy or `math`, or float(), was applied to"
        )
        remedy = "Use jnp.where or jax.lax.cond" if choice else "Use jax.numpy (jnp.exp for np.exp) and jax.scipy"
        raise ValueError(
            f"{name} must be made of JAX functions, but {seen} a number that is not known yet: it is differentiated "
            f"and compiled. {remedy}."
        ) from error
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        given = " and a datum ".join(str(jax.tree.map(jnp.shape, argument)) for argument in arguments)
        raise ValueError(
            f"{name} must accept theta as theta_0 has it, but failed for shapes {given}: "
            f"{type(error).__name__}: {str(error).splitlines()[0]}. Check theta_0 against the model; a list is a "
            f"pytree of its entries, so pass np.asarray(list) for an array."
        ) from error


def check_indices(name: str, jaxpr: Any, read: Reader) -> None:
    """Raises where an index lies beyond the array that it is used on: JAX would take the nearest entry instead.

    Only what is beyond doubt: constants, and entries of the data, as `read` knows them, plus or minus a constant.
    """
    found = _beyond(jaxpr.jaxpr, [_bounds(constant) for constant in jaxpr.consts], read)
    if found is not None:
        index, size = found
        raise ValueError(
            f"{name} must stay within its arrays, but it uses the index {index} on an axis of {size} entries (0 to "
            f"{size - 1}), and JAX would quietly take the nearest one. Check theta_0 and the columns against the model."
        )


def check_rows(grads: np.ndarray, values: np.ndarray) -> None:
    """Raises where rows have nothing to say: `grads` of each row at some points, (points, rows, d), `values` (rows,).

    Rows that say nothing are all alike. Those before a threshold have no gradient either, but values that differ.
    """
    points, rows, _ = grads.shape
    silent = np.flatnonzero(~np.any(grads, axis=(0, 2)))
    if silent.size > _MOST_SILENT * rows and np.ptp(values[silent]) == 0.0:
        raise ValueError(
            f"log_likelihood must depend on theta for every datum, but its gradient is zero at {points} points for "
            f"{silent.size} of {rows} rows. Labels 0 and 1 in a likelihood meant for -1 and 1 do that "
            f"(log_sigmoid(y * x @ theta) wants y = 2 * label - 1); rows of weight zero say nothing: leave them out."
        )


def ignored(jaxpr: Any, arguments: range) -> bool:
    """Whether the value depends on none of these flat arguments."""
    used = _used(jaxpr.jaxpr)
    return not any(used[k] for k in arguments)


def _used(jaxpr: Any) -> list[bool]:
    """Which inputs the outputs depend on."""
    needed = {var for var in jaxpr.outvars if not _literal(var)}
    for equation in reversed(jaxpr.eqns):
        if not needed.intersection(equation.outvars):
            continue
        inner = _called(equation)
        kept = [True] * len(equation.invars) if inner is None else _used(inner.jaxpr)
        needed.update(var for var, use in zip(equation.invars, kept, strict=True) if use and not _literal(var))
    return [var in needed for var in jaxpr.invars]


def _called(equation: Any) -> Any:
    """The function that a call of a jitted one stands for, if that is what the equation is."""
    return equation.params["jaxpr"] if equation.primitive.name in ("jit", "pjit") else None


def _literal(var: Any) -> bool:
    return hasattr(var, "val")


def _bounds(value: Any) -> Bounds | None:
    array = np.asarray(value)
    if array.dtype.kind not in "iub" or not array.size:
        return None
    return int(array.min()), int(array.max())


def _beyond(jaxpr: Any, constants: list[Bounds | None], read: Reader) -> tuple[int, int] | None:
    """The first index beyond its axis, and that axis' length."""
    known: dict[Any, Bounds | None] = dict(zip(jaxpr.constvars, constants, strict=True))
    inputs = {var: k for k, var in enumerate(jaxpr.invars)}

    def bounds(var: Any) -> Bounds | None:
        if _literal(var):
            return _bounds(var.val)
        if var in inputs and var not in known:
            known[var] = read(inputs[var]) if np.issubdtype(var.aval.dtype, np.integer) else None
        return known.get(var)

    for equation in jaxpr.eqns:
        name, given = equation.primitive.name, equation.invars
        inner = _called(equation)
        if inner is not None:
            found = _beyond(inner.jaxpr, [_bounds(constant) for constant in inner.consts], lambda k: bounds(given[k]))  # noqa: B023
        else:
            found = _outside(equation, bounds)
        if found is not None:
            return found
        if inner is None and len(equation.outvars) == 1:
            known[equation.outvars[0]] = _result(name, given, bounds)
    return None


def _result(name: str, given: Sequence[Any], bounds: Callable[[Any], Bounds | None]) -> Bounds | None:
    """Bounds of the operations that indices go through; None where they are not known, or need not both occur."""
    if name not in _SAME | {"add", "sub", "lt", "select_n"}:
        return None
    found = [bounds(var) for var in given]
    if name == "select_n" and found[0] in ((0, 0), (1, 1)):
        return found[1 + found[0][0]]
    if any(one is None for one in found) or name == "select_n":
        return None
    if name in _SAME:
        return found[0]
    (low, high), (least, most) = found  # type: ignore[misc]
    if low != high and least != most:
        return None
    if name == "lt":
        always, never = high < least, low >= most
        return (1, 1) if always else (0, 0) if never else None
    return (low + least, high + most) if name == "add" else (low - most, high - least)


def _outside(equation: Any, bounds: Callable[[Any], Bounds | None]) -> tuple[int, int] | None:
    name = equation.primitive.name
    if name == "dynamic_slice":
        operand, *indices = equation.invars
        axes = list(zip(indices, operand.aval.shape, equation.params["slice_sizes"], strict=True))
    elif name == "gather" and equation.params["mode"] != jax.lax.GatherScatterMode.FILL_OR_DROP:
        operand, index = equation.invars
        mapped = equation.params["dimension_numbers"].start_index_map
        # Indices of several axes lie in one array, where their bounds cannot be told apart.
        axes = (
            [(index, operand.aval.shape[k], equation.params["slice_sizes"][k]) for k in mapped]
            if len(mapped) == 1
            else []
        )
    else:
        return None
    for index, length, size in axes:
        found = bounds(index)
        if found is not None and not (0 <= found[0] and found[1] + size <= length):
            return (found[1] if found[1] + size > length else found[0]), length
    return None
