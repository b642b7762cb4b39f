"""The books of a run: device rows and draws as they come back, and the ledger that they make."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from langevin.engine.block import Carry, Output
from langevin.engine.draws import DrawBook, Draws
from langevin.engine.ledger import Ledger, RowBook, Rows
from langevin.engine.prepared import Prepared
from langevin.engine.steps import Steps

PyTree = Any
# What a kernel counts of its log density: see `Ledger.levels`.
LEVELS = ("level", "level2", "moved2")
# Arrays with an axis of chains made one.
Join = Callable[[Sequence[np.ndarray], int], np.ndarray]


class Sent(NamedTuple):
    """A block on its way: the transition it starts after, its length, and what each group of chains answers."""

    start: int
    num_steps: int
    row_steps: int
    outputs: list[Output]


class Checkpoint(NamedTuple):
    """Where a run can go on: its books and the device state of all chains."""

    rows: RowBook
    draws: DrawBook
    spent: float
    carry: Carry

    def select(self, chains: np.ndarray, spent: float) -> "Checkpoint":
        """That of some of the chains, by position, which have spent so much."""
        return self._by_chain(lambda parts, axis: parts[0].take(chains, axis), [self])._replace(spent=spent)

    @classmethod
    def stacked(cls, parts: "list[Checkpoint]") -> "Checkpoint":
        """That of the chains of all parts, in order; they stand after the same transition."""
        return cls._by_chain(np.concatenate, parts)._replace(spent=sum(part.spent for part in parts))

    @staticmethod
    def _by_chain(join: Join, parts: "list[Checkpoint]") -> "Checkpoint":
        return Checkpoint(
            RowBook.by_chain(join, [part.rows for part in parts]),
            DrawBook.by_chain(join, [part.draws for part in parts]),
            0.0,
            jax.tree.map(lambda *leaves: join(leaves, 1), *(part.carry for part in parts)),
        )


class Books:
    """Rows and kept draws of a prepared call, in float64 on the host."""

    def __init__(self, prepared: Prepared) -> None:
        self.call, self.program = prepared, prepared.program
        self.steps = Steps(prepared.schedule, prepared.weight_power)
        self.rows, self.draws = RowBook(), DrawBook(prepared.keep)
        # Datum visits of all whole rows of one schedule setting.
        self.spent = 0.0

    def restore(self, left: Checkpoint) -> None:
        """Takes over the books of an earlier call."""
        self.rows, self.draws = left.rows.copy(), left.draws.copy()
        self.spent = left.spent

    def checkpoint(self, carry: Carry) -> Checkpoint:
        """The books as they stand, beside the state of the chains."""
        return Checkpoint(self.rows.copy(), self.draws.copy(), self.spent, carry)

    def read(self, sent: Sent) -> Rows:
        """The whole rows of a finished block, by name, (rows, settings, chains, ...)."""
        whole = (sent.start + sent.num_steps) // sent.row_steps - sent.start // sent.row_steps
        return self._rows(self.joined([output.rows for output in sent.outputs]), whole)

    def joined(self, groups: list[PyTree]) -> PyTree:
        """Arrays of the groups of chains as those of all chains, (settings, chains, ...), on the host."""
        if len(groups) == 1:
            return jax.tree.map(np.asarray, groups[0])
        # The last group may be padded.
        return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1)[:, : len(self.call.chains)], *groups)

    def append(self, sent: Sent, rows: Rows) -> None:
        """Books the rows that were read from a block, and its kept draws."""
        first, whole = sent.start // sent.row_steps, len(next(iter(rows.values())))
        if whole:
            rows |= self.steps.sums(first * sent.row_steps + 1, (first + whole) * sent.row_steps, whole)
            self._count(rows, sent.row_steps)
            self.spent += float(rows["visits"].sum()) / self.steps.settings
            self.rows.append(rows, sent.row_steps)
        if self.program.kept:
            self.draws.append(sent.start, sent.num_steps, self.joined([output.kept for output in sent.outputs]))

    def _rows(self, rows: PyTree, count: int) -> Rows:
        """The first device rows as float64 arrays by name."""
        flat = {}
        for kind, sums in rows.items():
            if isinstance(sums, tuple):
                flat.update({f"{kind}/{name}": leaf for name, leaf in zip(self.call.columns, sums, strict=True)})
            else:
                flat[kind] = sums
        return {name: np.moveaxis(np.asarray(s)[:, :, :count], 2, 0).astype(np.float64) for name, s in flat.items()}

    def _count(self, rows: Rows, steps: int) -> None:
        """Adds the datum visits of rows of `steps` transitions each, where the device has not counted them."""
        shape = next(sums for name, sums in rows.items() if name.startswith("values/")).shape[:3]
        rows.setdefault("visits", np.full(shape, float(steps * self.call.cost_per_step)))

    def ledger(self, m: int, carry: Carry | None, interrupted: bool) -> Ledger:
        """The books as they stand after m transitions; without a carry (a divergence), the whole rows before it."""
        open_row: Rows = {}
        if carry is None:
            m = self.rows.m
        elif m > self.rows.m:
            open_row = self._rows(jax.tree.map(lambda leaf: leaf[:, :, None], carry.sums), 1)
            open_row |= self.steps.sums(self.rows.m + 1, m, 1)
            self._count(open_row, m - self.rows.m)
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
            acceptance=settings_first(table["acceptance"]) if "acceptance" in table else None,
            divergences=settings_first(table["divergences"]) if "divergences" in table else None,
            levels=np.stack([settings_first(table[name]) for name in LEVELS], -1) if LEVELS[0] in table else None,
            visits=settings_first(table["visits"]),
            far=settings_first(table["far"]) if "far" in table else None,
            columns=self.call.columns,
            anchor=self.call.anchor,
            kernel=self.call.kernel,
            coordinates=self.call.coordinates,
            iid=self.program.subsample is None or self.program.subsample.iid,
            noisy=self.program.source in ("custom", "stateful")
            or (self.program.source == "datum" and 0 < self.program.batch_size < self.program.num_data),
            draws=self._kept(m) if self.program.kept else None,
            manifest=self.call.manifest,
            checkpoint=None if carry is None else self.checkpoint(carry),
            interrupted=interrupted,
        )

    def _kept(self, m: int) -> Draws | None:
        """The kept draws in the user's coordinates."""
        draws = self.draws.draws(m, self.call.schedule, self.call.weight_power)
        if draws is None:
            return draws
        coordinates = self.call.coordinates
        theta, grad = coordinates.theta(draws.theta), coordinates.unpulled(draws.grad)
        return replace(draws, theta=theta, grad=grad)
