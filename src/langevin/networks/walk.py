"""A run of many parameters under way: two levels of chains, the draws kept of them, and what limits it."""

from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import numpy as np

from langevin.data.source import DataSource
from langevin.display import tell
from langevin.errors import Diverged
from langevin.limits import interrupt, stop_requests
from langevin.networks.levels import Levels
from langevin.networks.settle import Settled
from langevin.networks.store import DrawStore
from langevin.sampling.budget import Budget
from langevin.saving.journal import Journal
from langevin.startup import own_programs
from langevin.target import Target

PyTree = Any
# Units of time below which there is nothing to compare: a run takes so many whatever its passes.
_FEWEST = 8
# Draws that have two halves to compare: what is said of fewer would be nothing. A time limit waits for no more.
_HALVES = 2
# What a walk is, but for the target, the data, the draws and the device.
_STORED = ("settled", "budget", "time", "visits", "seconds", "stopped")


@dataclass(frozen=True, eq=False)
class Walk:
    """What is needed to go on, and what there is so far: the posterior, how chains move, and the draws kept of them.

    `time` counts the units of time that each chain has walked, `visits` the datum visits; `stopped` says what ended it.
    """

    target: Target | None
    source: DataSource | None
    theta_0: PyTree
    seed: int
    settled: Settled
    budget: Budget
    store: DrawStore
    time: int = 0
    visits: float = 0.0
    seconds: float = 0.0
    stopped: str = ""
    levels: Levels | None = field(default=None, repr=False)
    # Where the levels of another process stood.
    left: dict[str, Any] | None = field(default=None, repr=False)

    def stored(self) -> dict[str, Any]:
        """What a file holds of it: all but target, data and device; see `again`."""
        assert self.levels is not None
        return {
            **{name: getattr(self, name) for name in _STORED},
            "store": self.store.stored(),
            "left": self.levels.stored(),
        }

    def again(self, stored: dict[str, Any]) -> "Walk":
        """The walk that was stored, with the target and the data of this one."""
        return replace(self, **{**stored, "store": DrawStore.again(stored["store"])}, levels=None)

    def kept(self, budget: Budget, began: float, journal: Journal, name: str) -> "Walk":
        """As `spend`; the journal knows the work by its `name`."""
        if name in journal:
            return self.again(journal[name])
        left = journal.left(name)
        done = (self if left is None else self.again(left)).spend(budget, began, journal, name)
        # Ctrl-C comes in the middle of a unit of time, from where nothing goes on to the same bits.
        if journal.keeps and done.stopped != "interrupted":
            journal.enter(name, done.stored())
        return done

    def spend(self, budget: Budget, began: float, journal: Journal, name: str) -> "Walk":
        """Goes on until the first limit is reached; passes count from the run's first step, seconds from `began`."""
        assert self.target is not None and self.source is not None
        started, settled = monotonic(), self.settled
        levels = self.levels
        if levels is None:
            levels = Levels(
                self.target, self.source, self.theta_0, settled.scale, settled.pair, settled.starts, self.seed,
                settled.stages,
            )  # fmt: skip
            if self.left is not None:
                levels.restore(self.left)
        store = self.store.copy()
        a_tick = len(settled.starts[0]) * sum(settled.pair.ticks) * settled.pair.batch_size
        total = None if budget.passes is None else max(int(budget.passes * self.source.num_data / a_tick), _FEWEST)
        time, stopped, longest = self.time, "", 0.0

        def now(stopped: str) -> "Walk":
            return replace(
                self, budget=budget, store=store, time=time, visits=levels.visits, stopped=stopped, levels=levels,
                seconds=self.seconds + monotonic() - started,
            )  # fmt: skip

        bookmark = journal.bookmark(name, lambda: now("interrupted").stored())
        tell("sampling")
        with stop_requests() as stop_requested, own_programs():
            while not stopped:
                at = monotonic()
                if stop_requested():
                    stopped = "interrupted"
                elif total is not None and time >= total:
                    stopped = "passes"
                elif budget.time_limit is not None and time >= _HALVES and at + longest > began + budget.time_limit:
                    stopped = "time_limit"
                if stopped:
                    break
                positions = self._moved(levels)
                if levels.interrupted:
                    stopped = "interrupted"
                    break
                store.append(positions)
                time += 1
                if bookmark.due():
                    bookmark.keep()
                if time == self.time + 1:
                    # The first tick compiles.
                    continue
                longest = max(longest, monotonic() - at)
                shares = [0.0 if total is None else (time - self.time) / (total - self.time)]
                if budget.time_limit is not None:
                    shares.append((monotonic() - started) / max(began + budget.time_limit - started, 1e-9))
                tell("sampling", max(shares), f"{time} draws a chain")
        if not time:
            interrupt("Interrupted before the first draw; nothing was sampled.")
        return now(stopped)

    def _moved(self, levels: Levels) -> np.ndarray:
        try:
            return levels.tick()
        except Diverged as error:
            raise Diverged(
                "a chain left the finite numbers although its steps suit the curvature where chains were before: the "
                "posterior bends more sharply elsewhere. Use a smoother activation or a narrower prior, or lv.run with "
                f"smaller steps. What happened: {str(error).split(':')[0]}.",
                error.ledger,
            ) from error
