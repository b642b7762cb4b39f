"""The record of a run: float64 sums over rows of transitions, from which every estimate is computed.

Row r of a chain covers the transitions r L + 1 ... (r+1) L; the last row may be open. L depends on the number of
transitions alone, and sums are merged pairwise by position, so how a run was cut into blocks leaves no trace.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from langevin.anchor import Anchor
from langevin.engine.draws import Draws
from langevin.engine.program import row_steps
from langevin.schedules import Schedule

Array = np.ndarray
Rows = dict[str, Array]


@dataclass(frozen=True)
class Column:
    """One observable as the ledger holds it: flat sums of (value - reference), and what is needed to read them back.

    `pairs` is set for `Moments` only: sums are of u and u_i u_j, u = theta - reference, for these i, j. `trace` is
    tr(Sigma Q), twice what the Laplace model adds to the reference; `hessian` the second derivatives Q at the anchor
    (values, d, d), for the estimate of the bias. Both are None without an anchor.
    """

    shape: tuple[int, ...]
    reference: Array
    pairs: tuple[Array, Array] | None
    trace: Array | None
    hessian: Array | None


@dataclass(frozen=True, repr=False, eq=False)
class Ledger:
    """Weighted sums of a run, by chain and row. Leading axes: (*schedule settings, chains, rows).

    values[name] = sum omega_m (phi(theta_{m-1}) - reference), left end point, theta_0 included; corrections[name] the
    same for -A_hat h; outer = sum delta_m^2 g g'; sum_delta, sum_delta2, sum_omega per row; visits counts data seen.
    A whitened run moves in the anchor's coordinates: `outer` and the columns' second derivatives are in z there, chains
    2k and 2k + 1 are an antithetic pair, and `far` counts steps from the far tail, where the guard is called. `noisy`
    says whether gradients were estimated. `carry` is the device state from which a run can go on.
    """

    num_steps: int
    row_steps: int
    chains: Array
    names: tuple[str, ...]
    schedule: Schedule
    weight_power: float
    sum_delta: Array
    sum_delta2: Array
    sum_omega: Array
    values: dict[str, Array]
    corrections: dict[str, Array] | None
    outer: Array | None
    acceptance: Array | None
    visits: Array
    far: Array | None
    columns: dict[str, Column]
    anchor: Anchor | None
    exact: bool
    iid: bool
    noisy: bool
    discretisation_bias: bool
    whitened: bool
    draws: Draws | None
    carry: Any
    interrupted: bool = False

    @property
    def m_stop(self) -> Array:
        """Last transition of every row."""
        rows = self.sum_delta.shape[-1]
        return np.minimum(self.row_steps * np.arange(1, rows + 1), self.num_steps)

    @property
    def cost(self) -> int:
        """Datum visits of all chains of one schedule setting."""
        return round(float(self.visits.sum()) / int(np.prod(self.schedule.batch_shape)))

    def units(self, sums: Array) -> Array:
        """Sums over chains (chains, ...) as means over units that are independent: whitened chains go in pairs."""
        if not self.whitened:
            return sums
        pair = self.chains // 2
        return np.stack([sums[pair == number].mean(axis=0) for number in np.unique(pair)])

    @property
    def curvature(self) -> Array | None:
        """Precision of the Laplace approximation in the coordinates in which the chains move; None if unknown."""
        if self.anchor is None:
            return None
        return np.eye(len(self.names)) if self.whitened else self.anchor.precision

    @property
    def finite(self) -> Array:
        """Whether every sum of a row is finite, shape (*settings, chains, rows)."""
        return np.logical_and.reduce([np.isfinite(sums).all(axis=-1) for sums in self.values.values()])

    def __repr__(self) -> str:
        settings = self.schedule.batch_shape
        return (
            f"Ledger({len(self.chains)} chains x {self.num_steps} transitions"
            + (f" x settings {settings}" if settings else "")
            + f", {self.sum_delta.shape[-1]} rows of {self.row_steps}, observables {', '.join(self.columns)}"
            + f", {self.cost:.3g} datum visits{', interrupted' if self.interrupted else ''})"
        )

    def select(self, chains: slice) -> "Ledger":
        """The ledger of some of the chains, by position; it cannot be resumed."""
        at = (slice(None),) * len(self.schedule.batch_shape) + (chains,)

        def part(a: Any) -> Any:
            return None if a is None else {name: a[name][at] for name in a} if isinstance(a, dict) else a[at]

        names = ("values", "corrections", "outer", "acceptance", "visits", "far")
        draws = None
        if self.draws is not None:
            draws = replace(self.draws, theta=self.draws.theta[at], grad=self.draws.grad[at])
        changed = {name: part(getattr(self, name)) for name in names}
        return replace(self, chains=self.chains[chains], draws=draws, carry=None, **changed)

    def stack(self, other: "Ledger") -> "Ledger":
        """One ledger of both runs' chains: same parts, same length, different chain numbers."""
        if self.num_steps != other.num_steps or list(self.columns) != list(other.columns):
            raise ValueError(
                f"ledgers must have the same length and observables to be stacked, got {self!r} and {other!r}."
            )
        if self.schedule != other.schedule or self.weight_power != other.weight_power:
            raise ValueError("ledgers must share their schedule and weights to be stacked: their rows differ in time.")
        shared = np.intersect1d(self.chains, other.chains)
        if shared.size:
            raise ValueError(f"ledgers must hold different chains to be stacked, both hold {shared}. Run other chains.")
        axis = len(self.schedule.batch_shape)

        def join(a: Any, b: Any) -> Any:
            if a is None or b is None:
                return None
            if isinstance(a, dict):
                return {name: join(a[name], b[name]) for name in a}
            return np.concatenate([a, b], axis=axis)

        draws = None
        if self.draws is not None and other.draws is not None:
            theta, grad = (join(getattr(self.draws, n), getattr(other.draws, n)) for n in ("theta", "grad"))
            draws = replace(self.draws, theta=theta, grad=grad)
        return replace(
            self,
            chains=np.concatenate([self.chains, other.chains]),
            values=join(self.values, other.values),
            corrections=join(self.corrections, other.corrections),
            outer=join(self.outer, other.outer),
            acceptance=join(self.acceptance, other.acceptance),
            visits=join(self.visits, other.visits),
            far=join(self.far, other.far),
            draws=draws,
            carry=None,
        )


class RowBook:
    """Rows as they arrive from the device, merged pairwise into the rows of a ledger (float64, rows on axis 0)."""

    def __init__(self) -> None:
        self.m = 0
        self._length = row_steps(1)
        self._whole: list[Rows] = []
        self._tail: Rows | None = None

    def copy(self) -> "RowBook":
        """An independent book with the same content."""
        new = RowBook()
        new.m, new._length, new._tail = self.m, self._length, self._tail
        new._whole = [_join(self._whole)] if self._whole else []
        return new

    def append(self, rows: Rows, length: int) -> None:
        """Adds whole device rows of `length` transitions each; they must lie on one side of a doubling of the rows."""
        count = len(next(iter(rows.values())))
        if not count:
            return
        if row_steps(self.m + 1) != self._length:
            self._whole, self._length = [_halve(_join(self._whole))], 2 * self._length
        self.m += count * length
        tail = rows if self._tail is None else _join([self._tail, rows])
        group = self._length // length
        whole = len(next(iter(tail.values()))) // group * group
        if whole:
            merged = {name: sums[:whole] for name, sums in tail.items()}
            for _ in range(group.bit_length() - 1):
                merged = _halve(merged)
            self._whole.append(merged)
        self._tail = {name: sums[whole:] for name, sums in tail.items()}

    def table(self, open_row: Rows, m: int) -> tuple[int, Rows]:
        """Row length and all rows of a ledger of m transitions; `open_row` holds what the device has not closed."""
        parts, length = list(self._whole), self._length
        if row_steps(m) != length:
            parts, length = [_halve(_join(parts))], 2 * length
        if m % length:
            tail = _join([rows for rows in (self._tail, open_row) if rows])
            parts.append({name: sums.sum(axis=0, keepdims=True) for name, sums in tail.items()})
        return length, _join(parts)


def _join(parts: list[Rows]) -> Rows:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _halve(rows: Rows) -> Rows:
    """Neighbours added: the order of a sum depends on the positions of its rows alone."""
    return {name: sums[::2] + sums[1::2] for name, sums in rows.items()}
