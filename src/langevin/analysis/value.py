"""`Estimate`: an expectation with its standard error, its bias and a status."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from langevin.analysis.errorbars import t_quantile, unskewed
from langevin.analysis.statuses import STATUSES, worse

Array = NDArray[np.float64]
# A bar that is this many times as long is much longer: too much for a correction, say.
MUCH = 2.0
# Errors of one run differ by one sum of standard errors at most, in the root mean square: this is 6e-7 of the time.
_APART = 5.0


@dataclass(frozen=True, eq=False)
class Estimate(NDArrayOperatorsMixin):
    """An expectation with its standard error and how it could be wrong.

        interval = value - w error,  or value exp(-w error / value) for variances and sds
        error^2 = stderr^2 + bias^2

    with w = +-t_df corrected for the `skewness` of the batches (`errorbars.unskewed`).

    Arrays have the shape of the observable, after leading axes for schedule settings and, unpooled, chains.
    `stderr`^2 = `sigma2` / (chains T_m): sigma2 estimates the variance of the central limit theorem. `bias`
    is the estimated bias of `value` (NaN if unknown, 0 for an intercept); it is not taken off, but the interval
    has room for it. `statuses` judges every value, `status` the worst. In arithmetic, comparisons and functions of
    NumPy it stands for its values: what comes out is a plain array, or a number, without an error bar.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.Logistic.simulate(seed=1)
        >>> mean = lv.sample(model.target, model.data, model.theta_0, passes=20).mean
        >>> lower, upper = mean.interval(0.95)
        >>> mean.status, bool((lower < mean.value).all())
        ('ok', True)
    """

    value: Array
    stderr: Array
    df: Array
    bias: Array
    sigma2: Array
    kurtosis: Array
    skewness: Array
    statuses: NDArray[np.str_]
    T_m: Array
    B_m: Array
    num_batches: Array
    laplace: Array | None = None
    noise_inflation: Array | None = None
    log_scale: bool = False

    @property
    def status(self) -> str:
        """The worst word in `statuses`; see STATUSES for the order."""
        present = set(np.unique(self.statuses).tolist())
        return next(status for status in STATUSES if status in present)

    @property
    def error(self) -> Array:
        """Standard error and bias together, as far as the bias is known.

        1.96 sqrt(1 + c^2) - c > 1.65 for a bias of c standard errors: the interval covers it at its level.
        """
        return np.hypot(self.stderr, np.nan_to_num(self.bias))

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper ends of the central interval; that of a variance below 0 starts at 0."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must lie in (0, 1), got {level!r}. Try level=0.95.")
        t = t_quantile(0.5 + 0.5 * level, self.df)
        return self._end(t), self._end(-t)

    def _end(self, t: Array) -> Array:
        """The value at which the studentised error is t."""
        count = self.num_batches.reshape(self.num_batches.shape + (1,) * (self.value.ndim - self.num_batches.ndim))
        shift = -self.error * unskewed(t, self.skewness, count)
        if not self.log_scale:
            return self.value + shift
        positive = self.value > 0
        with np.errstate(over="ignore"):  # a value near 0 may be anything: its interval ends at infinity
            ratio = np.exp(shift / np.where(positive, self.value, 1.0))
        return np.where(positive, self.value * ratio, np.maximum(self.value + shift, 0.0))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the values."""
        return self.value.shape

    def __len__(self) -> int:
        return len(self.value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        return np.array(self.value, dtype, copy=copy)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = (one.value if isinstance(one, Estimate) else one for one in inputs)
        return getattr(ufunc, method)(*plain, **kwargs)

    def __float__(self) -> float:
        return float(self.value)

    def __format__(self, spec: str) -> str:
        """`f"{estimate:.3f}"` is that of a single value; without a format the value comes with its error and status."""
        return format(self.value[()], spec) if spec else str(self)

    def __getitem__(self, index: Any) -> "Estimate":
        """Some of the values, each with what belongs to it."""

        def chosen(part: Any) -> Any:
            if part is None or np.ndim(part) == 0:
                return part
            # What is known of a setting or a chain has the leading axes of the values, a Laplace value the last ones.
            if np.shape(part) != self.shape[-np.ndim(part) :]:
                part = np.reshape(part, np.shape(part) + (1,) * (self.value.ndim - np.ndim(part)))
            return np.asarray(np.broadcast_to(part, self.shape)[index])

        parts = {one.name: chosen(getattr(self, one.name)) for one in fields(self) if one.name != "log_scale"}
        return replace(self, **parts)

    def __str__(self) -> str:
        if self.value.size > 8:
            typical = f"median stderr {np.nanmedian(self.stderr):.2g}"
            return f"{self.value.shape} values, {typical} [{self.status}]"
        entries = zip(self.value.ravel(), self.stderr.ravel(), strict=True)
        text = ", ".join(plus_minus(value, stderr) for value, stderr in entries)
        return f"{text if self.value.size == 1 else f'[{text}]'} [{self.status}]"

    def __repr__(self) -> str:
        return f"Estimate({self})"


def decimals(scale: float, digits: int) -> int:
    """Decimals that show so many digits of a number of this size; negative where they end before the point."""
    return digits - 1 - int(np.floor(np.log10(scale))) if np.isfinite(scale) and scale > 0 else digits


def plus_minus(value: float, stderr: float) -> str:
    """The value to the second digit of its standard error."""
    if not np.isfinite(stderr) or stderr <= 0 or not np.isfinite(value):
        return f"{value:.6g} +- {stderr:.2g}"
    shown = max(decimals(stderr, 2), 0)
    # Float64 holds sixteen digits; an error beyond them is written by itself.
    if shown > 15:
        return f"{value:.16g} +- {stderr:.2g}"
    return f"{value:.{shown}f} +- {stderr:.{shown}f}" if stderr >= 1e-4 else f"{value:.{shown}f} +- {stderr:.1e}"


def apart(one: Estimate, other: Estimate) -> NDArray[np.bool_]:
    """Where two estimates of one number from one run differ by more than both bars allow."""
    return np.abs(one.value - other.value) > _APART * (one.stderr + other.stderr)


def quieter(corrected: Estimate, raw: Estimate, exact: bool) -> Estimate:
    """The corrected values, or the raw ones where the correction would make the bar much wider.

    It removes bias as well, so a bar of the same length is reason enough to keep it; of an exact kernel, which has
    none, the shorter bar is taken, and the raw values where both cannot be right: a correction averages to zero only
    if the density vanishes where it ends.
    """
    better = ~(corrected.stderr > (1.0 if exact else MUCH) * raw.stderr) & ~np.isnan(corrected.stderr)
    if exact:
        better &= ~apart(corrected, raw)
    better |= np.isnan(raw.stderr)
    other = raw.statuses if exact else worse(raw.statuses, "uncorrected")
    chosen: dict[str, Any] = {
        name: np.where(better, getattr(corrected, name), getattr(raw, name))
        for name in ("value", "stderr", "df", "bias", "sigma2", "kurtosis", "skewness")
    }
    return replace(corrected, **chosen, statuses=np.where(better, corrected.statuses, other))
