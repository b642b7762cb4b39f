"""The record of a run: float64 sums over rows of transitions, from which every estimate is computed.

Row r of a chain covers the transitions r L + 1 ... (r+1) L; the last row may be open. L depends on the number of
transitions alone, and sums are merged pairwise by position, so how a run was cut into blocks leaves no trace.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from langevin.anchor import Anchor
from langevin.coordinates import Coordinates
from langevin.data.sharded import Sharded
from langevin.engine.draws import Draws
from langevin.engine.program import row_steps
from langevin.kernels import DensityKernel, ExactKernel, Kernel
from langevin.schedules import Schedule

Array = np.ndarray
Rows = dict[str, Array]
# Sums over the steps of a row are the same for all chains.
_OF_ALL_CHAINS = ("delta", "delta2", "omega")


@dataclass(frozen=True)
class Column:
    """One observable as the ledger holds it: flat sums of (value - reference), and what is needed to read them back.

    `pairs` is set for `Moments` only: sums are of u and u_i u_j, u = theta - reference, for these i, j. `trace` is
    tr(Sigma Q), twice what the Laplace model adds to the reference; `hessian` the second derivatives Q at the anchor
    (values, d, d), for the estimate of the bias. Both are None without an anchor. `marginals`: sums are of distribution
    functions on a grid, see `Marginals`.
    """

    shape: tuple[int, ...]
    reference: Array
    pairs: tuple[Array, Array] | None
    trace: Array | None
    hessian: Array | None
    marginals: bool = False


@dataclass(frozen=True, repr=False, eq=False)
class Ledger:
    """Weighted sums of a run, by chain and row. Leading axes: (*schedule settings, chains, rows).

    values[name] = sum omega_m (phi(theta_{m-1}) - reference), left end point, theta_0 included; corrections[name] the
    same for -A_hat h; outer = sum delta_m^2 g g'; sum_delta, sum_delta2, sum_omega per row; visits counts data seen.
    `outer` and the columns' second derivatives are in the `coordinates` in which the chains moved; where these are
    paired, `far` counts steps from the far tail; `divergences` those of an exact kernel that left its path, `levels`
    (..., 3) adds up its log density, that squared, and the squares of its changes from step to step. `kernel` answers
    what is known of its law, `noisy` says whether gradients were estimated. `manifest` is what the run was made of,
    `checkpoint` where it can go on.

    Example:
        >>> import langevin as lv
        >>> target, parts = lv.Target(lambda t: -0.5 * t**2), {"schedule": lv.Constant(0.1), "num_steps": 100}
        >>> first = lv.run(target, None, 0.0, chains=[0], **parts)
        >>> first.stack(lv.run(target, None, 0.0, chains=[1], **parts))
        Ledger(2 chains x 100 transitions, 7 rows of 16, observables theta, 200 datum visits)
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
    divergences: Array | None
    levels: Array | None
    visits: Array
    far: Array | None
    columns: dict[str, Column]
    anchor: Anchor | None
    kernel: Kernel | DensityKernel
    coordinates: Coordinates
    iid: bool
    noisy: bool
    draws: Draws | None
    manifest: Any
    checkpoint: Any
    interrupted: bool = False

    @property
    def exact(self) -> bool:
        """Whether the kernel leaves the posterior as it is."""
        return isinstance(self.kernel, ExactKernel)

    @property
    def stays(self) -> Sharded | None:
        """The subsampler of chains that stay with one shard for many steps; None where steps are independent of it."""
        part = None if self.manifest is None else self.manifest.parts["subsample"]
        return part if isinstance(part, Sharded) and not part.iid else None

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
        """Sums over chains (chains, ...) as means over units that are independent: single chains, or pairs of them."""
        if not self.coordinates.paired:
            return sums
        pair = self.chains // 2
        return np.stack([sums[pair == number].mean(axis=0) for number in np.unique(pair)])

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
        return self._by_chain(lambda part: part[0][at], [self], self.chains[chains])

    def stack(self, other: "Ledger") -> "Ledger":
        """One ledger of both runs' chains: the same run but for the chain numbers and the seed, of the same length."""
        if self.num_steps != other.num_steps:
            raise ValueError(f"ledgers must have the same length to be stacked, got {self!r} and {other!r}.")
        shared = np.intersect1d(self.chains, other.chains)
        if shared.size:
            raise ValueError(f"ledgers must hold different chains to be stacked, both hold {shared}. Run other chains.")
        differs = self.manifest.difference(other.manifest, but=("chains", "seed", "keep", "versions"))
        if differs is not None:
            raise ValueError(f"ledgers must be of one run to be stacked, but {differs}.")
        axis = len(self.schedule.batch_shape)
        chains = np.concatenate([self.chains, other.chains])
        return self._by_chain(lambda parts: np.concatenate(parts, axis=axis), [self, other], chains)

    def _by_chain(self, join: Callable[[list[Array]], Array], ledgers: "list[Ledger]", chains: Array) -> "Ledger":
        """This ledger with every array that has a chain axis made of those of the ledgers; missing in one, missing."""

        def joined(parts: list[Any]) -> Any:
            if any(part is None for part in parts):
                return None
            if isinstance(parts[0], dict):
                return {name: joined([part[name] for part in parts]) for name in parts[0]}
            return join(parts)

        names = ("values", "corrections", "outer", "acceptance", "divergences", "levels", "visits", "far")
        changed = {name: joined([getattr(ledger, name) for ledger in ledgers]) for name in names}
        draws = [ledger.draws for ledger in ledgers if ledger.draws is not None]
        changed["draws"] = None
        if len(draws) == len(ledgers) and all(np.array_equal(draw.m, draws[0].m) for draw in draws):
            theta, grad = (joined([getattr(draw, name) for draw in draws]) for name in ("theta", "grad"))
            changed["draws"] = replace(draws[0], theta=theta, grad=grad)
        return replace(self, chains=chains, checkpoint=None, **changed)


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

    @classmethod
    def by_chain(cls, join: Callable[..., Array], books: "list[RowBook]") -> "RowBook":
        """A book whose chains are made of those of others by `join(arrays, axis)`."""

        def joined(parts: list[Rows]) -> Rows:
            shared = {name: parts[0][name] for name in _OF_ALL_CHAINS}
            return {name: join([part[name] for part in parts], 2) for name in parts[0] if name not in shared} | shared

        copies = [book.copy() for book in books]
        new = copies[0].copy()
        new._whole = [joined(list(parts)) for parts in zip(*(book._whole for book in copies), strict=True)]
        new._tail = None if new._tail is None else joined([book._tail for book in copies if book._tail is not None])
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
