"""Reading the arguments of schedules: what is refused is named, with its value, the rule and a remedy."""

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import fields
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from typing import Any, TypeAlias

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Parameter: TypeAlias = float | Array | jax.Array | Sequence[float]
Rule: TypeAlias = tuple[str, Callable[[Array], Any], str]

# Field, what must hold, and the message with the offending value in the braces. NaN meets none of them.
RULES: tuple[Rule, ...] = (
    ("alpha", lambda x: x != 0, "alpha must lie in (0, 1], got {}. For constant steps use Constant(delta)."),
    ("alpha", lambda x: ~(x < 0), "alpha must lie in (0, 1], got {}: the steps would grow. Try alpha=1/3."),
    (
        "alpha",
        lambda x: x <= 1,
        "alpha must lie in (0, 1], got {}: the sum of delta_m would stay finite and the chain would stop "
        "moving. Try alpha=1/3; values above 1/3 trade speed for less bias.",
    ),
    (
        "a",
        lambda x: (x >= 0) & (x < np.inf),
        "a must be finite and at least 0, got {}: a m + b would not stay positive. Try a=1.0.",
    ),
    ("b", np.isfinite, "b must be finite, got {}: delta_m would not be a step. Try b=50.0."),
    (
        "scale",
        lambda x: (x > 0) & (x < np.inf),
        "scale must be positive and finite, got {}: it multiplies every step. Try scale=0.01.",
    ),
    (
        "m_0",
        lambda x: (x >= 0) & (x < np.inf),
        "m_0 must be finite and at least 0, got {}: steps are counted from 1. Try m_0=0.",
    ),
    (
        "value",
        lambda x: (x > 0) & (x < np.inf),
        "delta must be positive and finite, got {}: the chain could not move. Try Constant(0.01).",
    ),
)


def read(schedule: Any) -> dict[str, Array]:
    """Store the fields of a schedule in standard form; return those that are numbers, checked one by one.

    JAX rebuilds registered dataclasses with tracers, `None` or bare objects for numbers: these pass.
    """
    known = {}
    for f in fields(schedule):
        value = _standard(f.name, getattr(schedule, f.name))
        object.__setattr__(schedule, f.name, value)
        if (array := concrete(value)) is not None:
            known[f.name] = array
    try:
        np.broadcast_shapes(*(x.shape for x in known.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {x.shape}" for name, x in known.items())
        raise ValueError(
            f"schedule parameters must broadcast together, got shapes {shapes}: "
            "give them one shape, or use a[:, None] with b[None, :] for a grid."
        ) from None
    for name, holds, message in RULES:
        if name in known:
            require(holds(known[name]), known[name], message)
    return known


def _standard(name: str, value: Any) -> Any:
    """Value as it is stored: a float, a read-only float64 array, a JAX array, or an untouched placeholder."""
    array = np.asarray(value) if isinstance(value, list | tuple | np.ndarray) else None
    dtype = getattr(value if array is None else array, "dtype", None)
    if isinstance(value, str | bytes | bool | complex) or (isinstance(dtype, np.dtype) and dtype.kind in "bcOSU"):
        raise ValueError(f"{name} must be a real number or an array of them, got {value!r}. Try {name}=1.0.")
    if array is None:
        return float(value) if isinstance(value, numbers.Real) else value
    if array.dtype != np.float64 or array.flags.writeable:
        array = array.astype(np.float64)
        array.setflags(write=False)
    return array


def concrete(value: Any) -> Array | None:
    """Float64 array of a stored value, or None when it is a placeholder."""
    known = isinstance(value, float | np.ndarray) or (
        isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)
    )
    return np.asarray(value, dtype=np.float64) if known else None


def comparable(value: Any) -> Any:
    """Value in a form that compares and hashes by content."""
    array = concrete(value)
    return value if array is None else (array.shape, tuple(array.ravel().tolist()))


def require(holds: ArrayLike, value: ArrayLike, message: str) -> None:
    """Raise ValueError, with the first offending value in the braces of the message, unless all holds."""
    if np.all(holds):
        return
    holds, value = np.broadcast_arrays(holds, value)
    first = tuple(int(i) for i in np.argwhere(~holds)[0])
    raise ValueError(message.format(repr(float(value[first])) + (f" at index {first}" if first else "")))


def exponent(p: Any) -> float:
    """Exponent of the weights as a float, refused unless it is one finite number."""
    if isinstance(p, bool) or not isinstance(p, numbers.Real) or not math.isfinite(p):
        raise ValueError(f"p must be one finite number, got {p!r}: weights are omega_m = delta_m^p. Try p=1.0.")
    return float(p)


def steps(m: ArrayLike, lowest: int) -> Array:
    """Indices m as float64, which is exact up to 2^53; refused unless they are integers from `lowest` up."""
    array = np.asarray(m)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"m must hold integers, got {m!r} of type {array.dtype}. Try np.arange(1, 101).")
    if array.dtype.kind == "f":
        whole = np.isfinite(array) & (np.floor(array) == array)
        require(whole, array, "m must hold integers, got {}: steps are counted 1, 2, 3. Round it first.")
    if array.size and array.min() < lowest:
        require(array >= lowest, array, f"m must be at least {lowest}, got {{}}: steps are counted from 1.")
    return array.astype(np.float64)


def m_0_for(alpha: float, below: float) -> int:
    """Smallest integer m_0 >= 0 with (m_0 + 1)^-alpha strictly below a bound.

    m_0 = floor(below^(-1/alpha)), since (m_0 + 1)^-alpha < below iff m_0 + 1 > below^(-1/alpha).
    Equality is common (alpha=0.5, below=0.1: 100^-0.5 = 0.1, so 100 and not 99) and binary fractions blur it,
    so 0.1 is read as 1/10, and a bound that equals some n^-alpha to double precision counts as equal.
    Cost: some 0.1 ms. Assumes 0 < alpha <= 1 and a positive bound.

    >>> m_0_for(0.5, 0.1)
    100
    """
    alpha, below = _standard("alpha", alpha), _standard("below", below)
    if not isinstance(alpha, float) or not 0 < alpha <= 1:
        raise ValueError(f"alpha must be one number in (0, 1], got {alpha!r}. Try m_0_for(1/3, below=0.1).")
    if not isinstance(below, float) or not 0 < below < math.inf:
        raise ValueError(f"below must be one positive finite number, got {below!r}. Try m_0_for(1/3, below=0.1).")
    digits = max(0.0, -math.log10(below) / alpha)
    if digits > 300:
        raise ValueError(
            f"below must be within reach, got {below!r}: with alpha={alpha!r} m_0 would have {digits:.0f} "
            "digits and the steps would be constant. Try a larger alpha, or Power with a small scale."
        )
    with localcontext() as context:
        context.prec = 60 + math.ceil(digits)
        x = (-_meant(below).ln() / _meant(alpha)).exp()
        nearest = x.to_integral_value()
        # A bound computed in float64 is off by up to 2^-53 of itself, twice that after a second rounding.
        tie = abs(x - nearest) <= x * Decimal(2.0**-52 / alpha)
        return int(nearest if tie else x.to_integral_value(rounding=ROUND_FLOOR))


def _meant(x: float) -> Decimal:
    """The number a double stands for: a simple fraction that rounds to it, else its shortest decimal."""
    simple = Fraction(x).limit_denominator(10**6)
    meant = simple if float(simple) == x else Fraction(repr(x))
    return Decimal(meant.numerator) / Decimal(meant.denominator)
