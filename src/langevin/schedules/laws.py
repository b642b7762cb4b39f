"""Laws for the step sizes delta_m, the weights omega_m = delta_m^p, and the sums T_m, Omega_m, B_m they make.

The clock m counts steps from 1. All runs on the host in float64, so m = 10^12 is as exact as m = 1.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from jax.tree_util import register_dataclass
from numpy.typing import ArrayLike

from langevin.schedules.checks import StepCheck, check_numerically, check_power_law
from langevin.schedules.parameters import Array, Parameter, comparable, exponent, read, require, steps
from langevin.schedules.sums import power_sum, running_sum

# 1/3 rounded to float32 is off by 1e-8, which moves m^((1 - 3 alpha)/2) by less than one part in a million up
# to m = 10^12. So an exponent this near to 1/3 has the limit of 1/3 in every run that can be made.
NEAR_ONE_THIRD = 2e-8


class Schedule(ABC):
    """Step sizes delta_m, m = 1, 2, ...; array-valued parameters make a batch of schedules."""

    @property
    @abstractmethod
    def batch_shape(self) -> tuple[int, ...]:
        """Common shape of the parameters; () for a single schedule."""

    @abstractmethod
    def delta(self, m: ArrayLike) -> Array:
        """Steps delta_m, shape `batch_shape + m.shape`, for integers m >= 1. Cost: one power an entry."""

    @abstractmethod
    def sum_power(self, m: ArrayLike, p: float) -> Array:
        """Sum of delta_k^p over k = 1, ..., m, shape `batch_shape + m.shape`, for integers m >= 0."""

    @abstractmethod
    def B_limit(self) -> Array | None:
        """Limit of B_m: 0, a positive number or infinity, shape `batch_shape`; None if unknown."""

    @abstractmethod
    def _check(self, p: float) -> StepCheck: ...

    def omega(self, m: ArrayLike, p: float = 1.0) -> Array:
        """Weights omega_m = delta_m^p, shape `batch_shape + m.shape`. Cost: one more power an entry."""
        return self.delta(m) if exponent(p) == 1 else np.power(self.delta(m), p)

    def T_m(self, m: ArrayLike) -> Array:
        """Time T_m = sum_{k<=m} delta_k. Cost: as `sum_power`."""
        return self.sum_power(m, 1.0)

    def sum_delta2(self, m: ArrayLike) -> Array:
        """Sum of squares, sum_{k<=m} delta_k^2. Cost: as `sum_power`."""
        return self.sum_power(m, 2.0)

    def B_m(self, m: ArrayLike) -> Array:
        """Scale of the bias over that of the fluctuations, T_m^(-1/2) sum_{k<=m} delta_k^2, for m >= 1."""
        steps(m, lowest=1)
        return self.sum_delta2(m) / np.sqrt(self.T_m(m))

    # Generated comparison would ask arrays for one truth value, so equality goes by content.
    def _key(self) -> tuple[Any, ...]:
        return tuple(comparable(getattr(self, f.name)) for f in fields(self))  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self), self._key()))


class _PowerLaw(Schedule):
    """Common form of the closed laws, delta_m = scale (a m + b)^-alpha; constant if a = 0."""

    @abstractmethod
    def _law(self) -> tuple[Any, Any, Any, Any]:
        """Parameters (scale, a, b, alpha)."""

    def _arrays(self, extra: int = 0) -> list[Array]:
        """Parameters as float64 arrays, with `extra` axes of length 1 at the end."""
        arrays = [np.asarray(x, dtype=np.float64) for x in self._law()]
        return [x.reshape(x.shape + (1,) * extra) for x in arrays]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Common shape of the parameters; () for a single schedule."""
        return np.broadcast_shapes(*(np.shape(x) for x in self._law()))

    def delta(self, m: ArrayLike) -> Array:
        """Steps delta_m, shape `batch_shape + m.shape`, for integers m >= 1. Cost: one power an entry."""
        m = steps(m, lowest=1)
        scale, a, b, alpha = self._arrays(m.ndim)
        # np.power errs by less than 1 ulp; exp(log) and cbrt save a quarter of its time and err by up to 8.
        return scale * np.power(a * m + b, -alpha)

    def sum_power(self, m: ArrayLike, p: float) -> Array:
        """Sum of delta_k^p over k = 1, ..., m by Euler-Maclaurin. Cost: O(1). Relative error: 1e-13."""
        m, p = steps(m, lowest=0), exponent(p)
        scale, a, b, alpha = self._arrays()
        return np.power(scale, p).reshape(scale.shape + (1,) * m.ndim) * power_sum(a, b, alpha * p, m)

    def B_limit(self) -> Array:
        """Limit of B_m: infinity for alpha < 1/3 or constant steps, sqrt(6) c^(3/2) at 1/3, 0 above.

        Cost: O(1). Here c is the limit of m^alpha delta_m: a^-alpha for `Polynomial`, scale for `Power`.
        """
        # For alpha < 1/2, sum delta^2 ~ c^2 m^(1-2 alpha) / (1-2 alpha) and T_m ~ c m^(1-alpha) / (1-alpha),
        # so B_m is of order m^((1-3 alpha)/2), and at alpha = 1/3 it tends to
        # 3 c^2 m^(1/3) / sqrt((3/2) c m^(2/3)) = sqrt(6) c^(3/2).
        # At alpha = 1/2, B_m is of order log m / m^(1/4). Above, sum delta^2 converges and T_m diverges, at
        # alpha = 1 like log m. The limit is 0 in both cases.
        scale, a, _, alpha = np.broadcast_arrays(*self._arrays())
        c = scale * np.power(np.where(a == 0, 1.0, a), -alpha)
        balanced = np.abs(alpha - 1 / 3) <= NEAR_ONE_THIRD
        limit = np.where(balanced, math.sqrt(6) * c**1.5, np.where(alpha < 1 / 3, np.inf, 0.0))
        return np.where(a == 0, np.inf, limit)[()]

    def _check(self, p: float) -> StepCheck:
        _, a, _, alpha = self._arrays()
        return check_power_law(self.delta(1), np.where(a == 0, 0.0, alpha), p)

    def __post_init__(self) -> None:
        known = read(self)
        if len(known) == len(fields(self)):  # type: ignore[arg-type]
            self._require_first_step()

    def _require_first_step(self) -> None:
        """Refuse parameters that are legal one by one but make no step together."""
        _, a, b, _ = self._arrays()
        with np.errstate(all="ignore"):
            require(
                a + b > 0,
                a + b,
                "a + b must be positive, got {}: delta_1 = (a + b)^-alpha. Raise b above -a.",
            )
            delta_1 = self.delta(1)
        require(
            (delta_1 > 0) & (delta_1 < np.inf),
            delta_1,
            "delta_1 must be positive and finite, got {}: the parameters overflow. Bring them nearer to 1.",
        )


@register_dataclass
@dataclass(frozen=True, eq=False)
class Polynomial(_PowerLaw):
    """Steps delta_m = (a m + b)^-alpha; alpha = 1/3 balances bias and fluctuations.

    Cost: one power a step. Assumes a >= 0 (a = 0 is a constant step), a + b > 0 and 0 < alpha <= 1.

    >>> float(Polynomial(a=1.0, b=15.0, alpha=0.5).delta(1))
    0.25
    """

    a: Parameter = 1.0
    b: Parameter = 0.0
    alpha: Parameter = 1 / 3

    def _law(self) -> tuple[Any, Any, Any, Any]:
        return 1.0, self.a, self.b, self.alpha


@register_dataclass
@dataclass(frozen=True, eq=False)
class Power(_PowerLaw):
    """Steps delta_m = scale (m_0 + m)^-alpha: `scale` sets the size, `m_0` delays the decrease.

    Cost: one power a step. Assumes scale > 0, m_0 >= 0 and 0 < alpha <= 1. `m_0_for` chooses m_0.

    >>> float(Power(0.5, m_0=3, alpha=0.5).delta(1))
    0.25
    """

    scale: Parameter
    m_0: Parameter = 0.0
    alpha: Parameter = 1 / 3

    def _law(self) -> tuple[Any, Any, Any, Any]:
        return self.scale, 1.0, self.m_0, self.alpha


@register_dataclass
@dataclass(frozen=True, eq=False)
class Constant(_PowerLaw):
    """Steps delta_m = value for every m: the bias, of order delta, does not vanish as m grows.

    Cost: none. Assumes value > 0. The field is `value` because `delta` is the method that every schedule has.

    Example:
        >>> float(Constant(0.5).T_m(10))
        5.0
    """

    value: Parameter

    def delta(self, m: ArrayLike) -> Array:
        """Step sizes, all equal to `value`, shape `batch_shape + m.shape`. Cost: filling the array."""
        m = steps(m, lowest=1)
        return np.broadcast_to(self._arrays(m.ndim)[0], self.batch_shape + m.shape).copy()[()]

    def _law(self) -> tuple[Any, Any, Any, Any]:
        return self.value, 0.0, 1.0, 1.0


@register_dataclass
@dataclass(frozen=True, eq=False)
class Custom(Schedule):
    """Steps delta_m = function(m), for a NumPy function of a float64 array of m that returns as many steps.

    Cost: one call an array; sums loop over all m. Assumes that the function is pure and its values positive.

    Example:
        >>> Custom(lambda m: 1 / m).delta([1, 2, 4]).tolist()
        [1.0, 0.5, 0.25]
    """

    function: Callable[[Array], Array] = field(metadata={"static": True})

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ValueError(
                f"function must map an array of m to step sizes, got {self.function!r}. "
                "Try Custom(lambda m: 0.1 / np.sqrt(m)), or Constant(0.1)."
            )

    def __repr__(self) -> str:
        return f"Custom({getattr(self.function, '__qualname__', self.function)})"

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Always (): one function is one schedule."""
        return ()

    def delta(self, m: ArrayLike) -> Array:
        """Step sizes function(m), shape `m.shape`, for integers m >= 1. Cost: one call."""
        m = steps(m, lowest=1)
        return self._call(m.ravel()).reshape(m.shape)[()]

    def _call(self, m: Array) -> Array:
        """Values for a vector of m, refused unless they are as many positive finite numbers."""
        delta = np.asarray(self.function(m))
        if delta.shape != m.shape or delta.dtype.kind not in "iuf":
            raise ValueError(
                f"function must return one real number for each m, got shape {delta.shape} and type "
                f"{delta.dtype} for m of shape {m.shape}: write it with NumPy, as lambda m: 0.1 / m**0.5."
            )
        delta = delta.astype(np.float64)
        bad = ~((delta > 0) & (delta < np.inf))
        if np.any(bad):
            k = int(np.argmax(bad))
            raise ValueError(
                f"function must return positive finite steps, got {float(delta[k])!r} at m={m[k]:.0f}: "
                "the chain could not move. Try np.maximum(delta, 1e-12), or stop the run before this m."
            )
        return delta

    def sum_power(self, m: ArrayLike, p: float) -> Array:
        """Sum of delta_k^p over k = 1, ..., m, added up in chunks. Cost: O(max m) time, constant memory."""
        m, p = steps(m, lowest=0), exponent(p)
        return running_sum(lambda k: np.power(self._call(k), p), m)[()]

    def B_limit(self) -> None:
        """Unknown, None: no finite number of steps decides a limit."""
        return None

    def _check(self, p: float) -> StepCheck:
        return check_numerically(self._call, p)


def check_steps(schedule: Schedule, p: float = 1.0) -> StepCheck:
    """Whether delta_m and the weights omega_m = delta_m^p meet the two step-size assumptions.

    (1) delta_m decreases to 0 and T_m -> infinity; (2) omega_m -> 0, Omega_m -> infinity, the oscillation
    sum_{k<=m} |Delta(omega_k/delta_k)| / Omega_m is bounded, sum_m omega_m^2 / (delta_m Omega_m^2) is finite.
    A failure is reported, not raised. Cost: O(1); for `Custom`, 2^20 evaluations and numerical evidence only.

    >>> check_steps(Polynomial(alpha=1/3), p=2.0).ok
    True
    """
    return schedule._check(exponent(p))
