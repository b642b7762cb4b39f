"""The books of a run: device rows and draws as they come back, and the ledger that they make."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from langevin.engine.block import Carry, Output
from langevin.engine.draws import DrawBook, Draws
from langevin.engine.ledger import Ledger, RowBook
from langevin.engine.setup import Prepared
from langevin.engine.steps import Steps
from langevin.frame import grad_of, theta_of

PyTree = Any
Rows = dict[str, np.ndarray]


class Sent(NamedTuple):
    """A block on its way: the transition it starts after, its length, and what the device will answer."""

    start: int
    num_steps: int
    row_steps: int
    output: Output


class LeftOff(NamedTuple):
    """What a later call needs to go on: the books, the device state, and what the call must have in common."""

    rows: RowBook
    draws: DrawBook
    carry: Carry
    identity: dict[str, Any]


class Books:
    """Rows and kept draws of a prepared call, in float64 on the host."""

    def __init__(self, prepared: Prepared) -> None:
        self.call, self.program = prepared, prepared.program
        self.steps = Steps(prepared.schedule, prepared.weight_power)
        self.rows, self.draws = RowBook(), DrawBook(self.program.keep)

    def restore(self, left: LeftOff) -> None:
        """Takes over the books of an earlier call."""
        self.rows, self.draws = left.rows.copy(), left.draws.copy()

    def read(self, sent: Sent) -> Rows:
        """The whole rows of a finished block, by name, (rows, settings, chains, ...)."""
        whole = (sent.start + sent.num_steps) // sent.row_steps - sent.start // sent.row_steps
        return self._rows(sent.output.rows, whole)

    def append(self, sent: Sent, rows: Rows) -> None:
        """Books the rows that were read from a block, and its kept draws."""
        first, whole = sent.start // sent.row_steps, len(next(iter(rows.values())))
        if whole:
            rows |= self.steps.sums(first * sent.row_steps + 1, (first + whole) * sent.row_steps, whole)
            rows["visits"] = self._visits(rows, sent.row_steps)
            self.rows.append(rows, sent.row_steps)
        if self.program.keep:
            self.draws.append(sent.start, sent.num_steps, sent.output.kept)

    def _rows(self, rows: PyTree, count: int) -> Rows:
        """The first device rows as float64 arrays by name."""
        flat = {}
        for kind, sums in rows.items():
            if isinstance(sums, tuple):
                flat.update({f"{kind}/{name}": leaf for name, leaf in zip(self.call.columns, sums, strict=True)})
            else:
                flat[kind] = sums
        return {name: np.moveaxis(np.asarray(s)[:, :, :count], 2, 0).astype(np.float64) for name, s in flat.items()}

    def _visits(self, rows: Rows, steps: int) -> np.ndarray:
        """Datum visits of rows of `steps` transitions each, (rows, settings, chains)."""
        shape = next(sums for name, sums in rows.items() if name.startswith("values/")).shape[:3]
        visits = np.full(shape, float(steps * self.call.cost_per_step))
        return visits + self.program.batch_size * rows["rounds"] if self.program.guard > 1 else visits

    def ledger(self, m: int, carry: Carry | None, interrupted: bool) -> Ledger:
        """The books as they stand after m transitions; without a carry (a divergence), the whole rows before it."""
        open_row: Rows = {}
        if carry is None:
            m = self.rows.m
        elif m > self.rows.m:
            open_row = self._rows(jax.tree.map(lambda leaf: leaf[:, :, None], carry.sums), 1)
            open_row |= self.steps.sums(self.rows.m + 1, m, 1)
            open_row["visits"] = self._visits(open_row, m - self.rows.m)
        length, table = self.rows.table(open_row, m)
        shape = self.call.schedule.batch_shape

        def settings_first(rows: np.ndarray, chains: bool = True) -> np.ndarray:
            moved = np.moveaxis(rows, 0, 2 if chains else 1)
            # In one order of memory, whatever the blocks were: sums over several axes follow it to the last bit.
            return np.ascontiguousarray(moved).reshape(*shape, *moved.shape[1:])

        def by_name(kind: str) -> dict[str, np.ndarray]:
            return {name: settings_first(table[f"{kind}/{name}"]) for name in self.call.columns}

        corrected = self.program.corrected
        return Ledger(
            num_steps=m,
            row_steps=length,
            chains=self.call.chains,
            names=self.program.layout.names,
            schedule=self.call.schedule,
            weight_power=self.call.weight_power,
            sum_delta=settings_first(table["delta"], chains=False),
            sum_delta2=settings_first(table["delta2"], chains=False),
            sum_omega=settings_first(table["omega"], chains=False),
            values=by_name("values"),
            corrections=by_name("corrections") if corrected else None,
            outer=settings_first(table["outer"]) if self.program.gradient_outer else None,
            acceptance=settings_first(table["acceptance"]) if self.program.exact else None,
            visits=settings_first(table["visits"]),
            far=settings_first(table["far"]) if self.program.whitened else None,
            columns=self.call.columns,
            anchor=self.call.anchor,
            exact=self.program.exact,
            iid=self.program.subsample is None or self.program.subsample.iid,
            noisy=self.program.custom_gradient or 0 < self.program.batch_size < self.program.num_data,
            discretisation_bias=self.call.discretisation_bias,
            whitened=self.program.whitened,
            draws=self._kept(m) if self.program.keep else None,
            carry=None if carry is None else self._left_off(carry),
            interrupted=interrupted,
        )

    def _kept(self, m: int) -> Draws | None:
        """The kept draws in the user's coordinates."""
        draws = self.draws.draws(m, self.call.schedule, self.call.weight_power)
        if draws is None or not self.program.whitened:
            return draws
        anchor: Any = self.call.anchor
        return replace(draws, theta=theta_of(anchor, draws.theta), grad=grad_of(anchor, draws.grad))

    def _left_off(self, carry: Carry) -> LeftOff:
        return LeftOff(self.rows.copy(), self.draws.copy(), jax.tree.map(np.array, carry), self.call.identity)
