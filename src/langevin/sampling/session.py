"""A run of `lv.sample` under way: goes on, stage by stage, until a limit of its budget is reached."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Any

import jax
import numpy as np

from langevin.data.source import DataSource
from langevin.engine.going import Engine, Going
from langevin.engine.ledger import Ledger
from langevin.engine.run import begun
from langevin.errors import Diverged
from langevin.limits import interrupt, set_up, stop_requests
from langevin.precision import in_float32
from langevin.sampling.accuracy import accuracy
from langevin.sampling.budget import Budget
from langevin.sampling.choice import allowed_passes
from langevin.sampling.mixing import after_exact
from langevin.sampling.pace import SETTLED_BY_MORE, ExactPace, Pace
from langevin.sampling.planning import Plan
from langevin.sampling.strategies import Tuned, exact_call, minibatch_call
from langevin.sampling.tails import moments
from langevin.sampling.travel import several
from langevin.sampling.warmup import last_positions, warm_up
from langevin.saving.journal import Journal
from langevin.startup import COMPILED_QUICKLY, compiled, own_programs
from langevin.target import Layout, Target

# How often an exact run whose paths broke off is made again, and with which part of its step.
_RETRIES, _SHORTER = 2, 0.25
# What a session is, but for the target, the data and the device.
_STORED = ("plan", "batch_size", "budget", "ledger", "seconds", "goal", "outside", "stopped", "tuned")
# A bound farther from the mode than this moves a mean by less than 1e-4 sds; points are looked at so many at a time.
_BOUND_SDS, _POINTS = 4.0, 512


@dataclass(frozen=True, eq=False)
class Session:
    """What is needed to go on: the posterior, the plan, and the books so far.

    `budget` is what it was last allowed to spend, `batch_size` the data that a step of the bulk saw last, `goal` where
    the stage ends that was begun last, `outside` the share of points within reach where the prior is zero; `stopped`
    says what ended the run. `run` is the device's side of it, prepared once, and kept for what follows. `tuned` is what
    the warm-up of an exact run found, None for one on minibatches. `engine` is where the chains go, `folder` where the
    run is kept.
    """

    target: Target | None
    source: DataSource | None
    plan: Plan
    batch_size: int
    budget: Budget
    ledger: Ledger | None = None
    seconds: float = 0.0
    goal: int = 0
    outside: float = 0.0
    stopped: str = ""
    tuned: Tuned | None = None
    engine: Engine | None = None
    folder: Path | None = None
    run: Going | None = field(default=None, repr=False)

    @property
    def steps(self) -> int:
        """Steps that each chain has recorded."""
        return 0 if self.ledger is None else self.ledger.num_steps

    @cached_property
    def accuracy(self) -> tuple[set[str], float]:
        """Statuses of the means and sds, and the widest 95% interval of means, sds and quantiles in posterior sds."""
        assert self.ledger is not None
        several_modes = self.tuned is not None and several(self.tuned.modes)
        return accuracy(self.ledger, several_modes, self.plan.survey.outskirts)

    @property
    def reached(self) -> float:
        """The precision that the run has reached so far."""
        return self.accuracy[1]

    @property
    def moves(self) -> dict[str, np.ndarray]:
        """What is known to move means and sds, (2, d) each, in posterior sds."""
        return self.plan.moves(self.tuned is not None)

    def prepared(self) -> Going:
        """The run, ready to go on from the ledger."""
        assert self.target is not None
        run = self.run
        if run is None and self.tuned is not None:
            run = begun(exact_call(self.target, self.source, self.plan, self.tuned), self.engine)
        elif run is None:
            run = begun(minibatch_call(self.target, self.source, self.plan, self.batch_size), self.engine)
        if self.ledger is not None and run.m != self.ledger.num_steps:
            run.restore(self.ledger.checkpoint, self.ledger.num_steps)
        if self.tuned is None:
            run.rounds = self.plan.rules.rounds(self.batch_size)
        return run

    def exactly(self, began: float, journal: Journal) -> "Session":
        """An exact run of the same plan from its beginning: warm-up and sampling."""
        assert self.target is not None
        plan, started = self.plan, monotonic()
        limit = plan.budget.time_limit
        with set_up(None if limit is None else began + limit):
            tuned, seconds = journal.found("warm-up", lambda: (self._warmed_up(journal), monotonic() - started))
        spent = self.seconds + seconds
        budget = replace(plan.budget, passes=allowed_passes(plan, plan.budget))
        fresh = replace(self, tuned=tuned, ledger=None, run=None, seconds=spent, batch_size=plan.rules.num_data)
        done = fresh.spend(budget, began, journal, "run exactly")
        for retry in range(_RETRIES):
            assert done.ledger is not None and done.tuned is not None
            found = after_exact(done.ledger, plan.survey, tuned.modes, tuned.moments, plan.budget.precision)
            words = {trouble.status for trouble in found} - SETTLED_BY_MORE
            if done.stopped in ("interrupted", "time_limit") or words != {"divergences"}:
                break
            # Paths that broke off ask for shorter steps; a chain that goes on from where it was need not settle.
            smaller = replace(done.tuned, delta=_SHORTER * done.tuned.delta, starts=last_positions(done.ledger))
            anew = replace(done, tuned=smaller, ledger=None, goal=0, run=None)
            done = anew.spend(budget, began, journal, f"run exactly, shorter steps {retry + 1}")
        return done

    def _warmed_up(self, journal: Journal) -> Tuned:
        assert self.target is not None
        tuned = warm_up(self.target, self.source, self.plan, journal)
        if not tuned.anchor.dense:
            return tuned
        return replace(tuned, moments=moments(self.target, self.source, tuned.anchor, self.plan.seed))

    def spend(self, budget: Budget, began: float, journal: Journal, name: str) -> "Session":
        """Goes on until the first limit is reached; passes count from the run's first step, seconds from `began`.

        At the border of a stage the batch size may change for a longer run. The journal knows the work by its `name`.
        """
        if name in journal:
            return self.again(journal[name])
        left = journal.left(name)
        going = self if left is None else self.again(left)
        done = going._spent(budget, began, journal, name)
        if journal.keeps:
            (journal.keep if done.stopped == "interrupted" else journal.enter)(name, done.stored())
        return done

    def stored(self) -> dict[str, Any]:
        """What a file holds of it: all but target, data and device; see `again`."""
        stored = {name: getattr(self, name) for name in _STORED}
        assert self.ledger is not None
        return {**stored, "ledger": replace(self.ledger, manifest=self.ledger.manifest.remembered)}

    def again(self, stored: dict[str, Any]) -> "Session":
        """The session that was stored, with the target and the data of this one."""
        again = replace(self, **stored, run=None)
        assert again.ledger is not None
        manifest = again.ledger.manifest
        if self.target is not None:
            manifest = replace(manifest, target=self.target, data=self.source)
        return replace(again, ledger=replace(again.ledger, manifest=manifest))

    def _spent(self, budget: Budget, began: float, journal: Journal, name: str) -> "Session":
        started = monotonic()

        def now(stopped: str) -> "Session":
            ledger = run.ledger()
            return replace(
                self,
                budget=budget,
                batch_size=pace.batch_size,
                goal=pace.goal,
                ledger=ledger,
                # An exact kernel keeps within bounds by itself.
                outside=0.0 if ledger.exact else _outside(run.program.target, ledger),
                seconds=self.seconds + monotonic() - started,
                stopped=stopped,
                run=run,
            )

        # One request for the whole of it: Ctrl-C between two stages must not lose the rows.
        with stop_requests() as stop_requested, own_programs():
            run = self.prepared()
            kind, modes = (Pace, None) if self.tuned is None else (ExactPace, self.tuned.modes)
            pace = kind(self.plan, budget, run, began, self.batch_size, self.goal, modes)
            try:
                bookmark = journal.bookmark(name, lambda: now("interrupted").stored())
                with run.held():
                    stopped = pace.go(stop_requested, bookmark)
            except Diverged as error:
                raise Diverged(
                    "the chains could not be kept finite: the posterior falls off faster than its Gaussian "
                    "approximation, or bends away from it. Reparametrise it, sample with method='exact', or lv.run "
                    f"with much smaller steps. What happened: {str(error).split(':')[0]}.",
                    error.ledger,
                ) from error
            if not run.m:
                interrupt("Interrupted during the set-up, before the first step; nothing was sampled.")
            # The budget may be spent by now: the result is whole, but whoever pressed Ctrl-C must learn that it came.
            return now("interrupted" if stop_requested() else stopped)


@in_float32
def _outside(target: Target, ledger: Ledger) -> float:
    """Share of kept draws, and of points beside them, where the prior is zero.

    Gradients cannot see a hard bound, and a chain walks through it.
    """
    anchor, draws = ledger.anchor, ledger.draws
    if anchor is None or draws is None:
        return 0.0
    points = draws.theta.reshape(-1, draws.theta.shape[-1])
    if anchor.dense:
        # Each parameter four sds up and down, the others along: a bound there is met by one draw in 30,000 only.
        reach = _BOUND_SDS * anchor.covariance / anchor.sd[:, None]
        points = np.concatenate([points, anchor.theta + reach, anchor.theta - reach])
    # Always the same number of points: one compiled program serves runs of any length.
    padded = np.resize(points, (-(-len(points) // _POINTS) * _POINTS, points.shape[1])).astype(np.float32)
    values = [_log_priors(target, anchor.layout, part) for part in padded.reshape(-1, _POINTS, points.shape[1])]
    return float(np.mean(~np.isfinite(np.concatenate(values)[: len(points)])))


@compiled(static_argnums=(0, 1), compiler_options=COMPILED_QUICKLY)
def _log_priors(target: Target, layout: Layout, thetas: Any) -> Any:
    return jax.vmap(lambda theta: target.log_prior(layout.unravel(theta)))(thetas)
