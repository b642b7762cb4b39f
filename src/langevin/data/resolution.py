"""Whether numbers survive being rounded to float32: what matters is the spacing there against how far they spread."""

from typing import Any

import numpy as np

# Numbers that are looked at in one array: what rounding does to a column shows in any part of it.
_MOST_NUMBERS, _FEWEST_ROWS = 2**12, 256
# Rounding errors of this part of the spread, as if independent, add a millionth to a variance.
_MOST_ROUNDING = 1e-3
# Errors that all have one sign move a mean by this part of its own standard error.
_MOST_SHIFT = 0.01
# What float64 itself leaves in a column that is constant.
_CONSTANT = 1e-12


class Rounding:
    """Rounding errors e = x - float32(x) of columns of float64 against the spread of x, added up part by part.

    Example:
        >>> import numpy as np
        >>> rounding = Rounding()
        >>> rounding.add(2460000.0 + np.linspace(0.3, 0.4, 100))
        >>> rounding.refusal("date", num_rows=100)[:75]
        'date must be resolved by float32, got numbers near 2.46e+06 that spread by '
    """

    def __init__(self, count: int = 0, first: Any = (), largest: Any = (), sums: Any = ()) -> None:
        self._count, self._first, self._largest = count, np.array(first), np.array(largest)
        # Sums of x - first, its square, e and its square.
        self._sums = np.array(sums)

    @property
    def state(self) -> dict[str, Any]:
        """What has been added up, as JSON: `Rounding(**state)` goes on from there."""
        arrays = {"first": self._first, "largest": self._largest, "sums": self._sums}
        return {"count": self._count, **{name: array.tolist() for name, array in arrays.items()}}

    def add(self, values: np.ndarray) -> None:
        """Takes some rows into account; the columns are the trailing axes. Types that lose nothing are not."""
        if np.can_cast(values.dtype, np.float32) or not values.size:
            return
        flat = values.reshape(len(values), -1)
        if flat.size > _MOST_NUMBERS:
            # At random: rows may have a period.
            most = max(-(-_MOST_NUMBERS // flat.shape[1]), _FEWEST_ROWS)
            flat = flat[np.sort(np.random.default_rng(0).integers(len(flat), size=most))]
        flat = flat.astype(np.float64)
        flat = flat[np.isfinite(flat).all(axis=1)]
        if not len(flat):
            return
        if not self._count:
            self._first, self._largest = flat[0], np.abs(flat[0])
            self._sums = np.zeros((4, flat.shape[1]))
        with np.errstate(over="ignore", invalid="ignore"):
            moved, error = flat - self._first, flat - flat.astype(np.float32)
            self._sums += [part.sum(axis=0) for part in (moved, moved**2, error, error**2)]
        self._largest = np.maximum(self._largest, np.abs(flat).max(axis=0))
        self._count += len(flat)

    def refusal(self, name: str, num_rows: int) -> str | None:
        """Why the column `name` cannot be rounded, of so many rows in all; None where it can."""
        if not self._count:
            return None
        moved, square, error, error2 = self._sums / self._count
        spread = np.sqrt(np.maximum(square - moved**2, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            scatter, shift = np.sqrt(error2) / spread, np.abs(error) * np.sqrt(num_rows) / spread
        # A mean of errors that are as often positive as negative is no shift.
        shift = np.where(np.abs(error) > 5.0 * np.sqrt(error2 / self._count), shift, 0.0)
        coarse = ((scatter > _MOST_ROUNDING) | (shift > _MOST_SHIFT)) & (spread > _CONSTANT * self._largest)
        if not coarse.any():
            return None
        k = int(np.argmax(coarse))
        column = name if coarse.size == 1 else f"{name}, column {k},"
        step = float(np.spacing(np.float32(self._largest[k])))
        constant = round(float(self._first[k] + moved[k]))
        return (
            f"{column} must be resolved by float32, got numbers near {self._largest[k]:.3g} that spread by "
            f"{spread[k]:.2g} only, and float32 has steps of {step:.2g} there. Subtract a constant from it in float64, "
            f"such as {constant}, before it is passed on."
        )
