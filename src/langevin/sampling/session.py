"""A run of `lv.sample` under way: goes on, stage by stage, until a limit of its budget is reached."""

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from time import monotonic
from typing import Any

import jax
import numpy as np

from langevin.coordinates import Whitened
from langevin.data.source import DataSource
from langevin.data.subsample import Full, Subsample, WithReplacement
from langevin.engine.ledger import Ledger
from langevin.engine.run import Run
from langevin.engine.setup import prepare
from langevin.errors import Diverged
from langevin.gradients import ControlVariate, Minibatch
from langevin.kernels import LeimkuhlerMatthews
from langevin.limits import interrupt, stop_requests
from langevin.observables import Marginals, Moments
from langevin.precision import in_float32
from langevin.sampling.accuracy import accuracy
from langevin.sampling.budget import Budget
from langevin.sampling.pace import Pace
from langevin.sampling.planning import Plan
from langevin.startup import COMPILED_QUICKLY, own_programs
from langevin.target import Layout, Target

# Kept draws of a chain, fewer where theta is long: they are what `expectation` is made of.
_KEPT_DRAWS, _KEPT_FLOATS = 1000, 2**22
# Up to this many parameters distribution functions are streamed: 34 numbers each in every row.
MOST_MARGINALS = 64
# A bound farther from the mode than this moves a mean by less than 1e-4 sds; points are looked at so many at a time.
_BOUND_SDS, _POINTS = 4.0, 512


@dataclass(frozen=True, eq=False)
class Session:
    """What is needed to go on: the posterior, the plan, and the books so far.

    `budget` is what it was last allowed to spend, `batch_size` the data that a step of the bulk saw last, `outside` the
    share of points within reach where the prior is zero; `stopped` says what ended the run. `run` is the device's side
    of it, prepared once, and kept for what follows.
    """

    target: Target | None
    source: DataSource | None
    plan: Plan
    batch_size: int
    budget: Budget
    ledger: Ledger | None = None
    seconds: float = 0.0
    outside: float = 0.0
    stopped: str = ""
    run: Run | None = field(default=None, repr=False)

    @property
    def steps(self) -> int:
        """Steps that each chain has recorded."""
        return 0 if self.ledger is None else self.ledger.num_steps

    @cached_property
    def accuracy(self) -> tuple[set[str], float]:
        """Statuses of the means and sds, and the widest 95% interval of means, sds and quantiles in posterior sds."""
        assert self.ledger is not None
        return accuracy(self.ledger)

    @property
    def reached(self) -> float:
        """The precision that the run has reached so far."""
        return self.accuracy[1]

    def prepared(self) -> Run:
        """The run, ready to go on from the ledger."""
        assert self.target is not None
        run = self.run if self.run is not None else Run(self._prepare(self.target))
        if self.ledger is not None and run.m != self.ledger.num_steps:
            run.restore(self.ledger.checkpoint, self.ledger.num_steps)
        run.rounds = self.plan.rules.rounds(self.batch_size)
        return run

    def _prepare(self, target: Target) -> Any:
        plan, rules = self.plan, self.plan.rules
        gradient: Any = Minibatch()
        if rules.order in ("cv1", "cv2"):
            gradient = ControlVariate(plan.anchor, order=1 if rules.order == "cv1" else 2)
        subsample: Subsample | None = None
        if rules.num_data:
            subsample = Full() if self.batch_size == rules.num_data else WithReplacement(rules.chunk)
        observables: dict[str, Any] = {"theta": Moments()}
        if rules.dimension <= MOST_MARGINALS:
            observables["marginals"] = Marginals()
        return prepare(
            target,
            self.source,
            plan.anchor.mode,
            schedule=rules.schedule(plan.delta_0),
            kernel=LeimkuhlerMatthews(),
            gradient=gradient,
            subsample=subsample,
            coordinates=Whitened.by(plan.anchor),
            observables=observables,
            chains=plan.chains.tolist(),
            seed=plan.seed,
            anchor=plan.anchor,
            weight_power=1.0,
            keep=int(np.clip(_KEPT_FLOATS // (rules.dimension * len(plan.chains)), 16, _KEPT_DRAWS)),
            layout=None,
            guard=1,
            short=True,
        )

    def spend(self, budget: Budget, began: float, progress: bool | None) -> "Session":
        """Goes on until the first limit is reached; passes count from the run's first step, seconds from `began`.

        At the border of a stage the batch size may change for a longer run.
        """
        started = monotonic()
        # One request for the whole of it: Ctrl-C between two stages must not lose the rows.
        with stop_requests() as stop_requested, own_programs():
            run = self.prepared()
            pace = Pace(self.plan, budget, run, began, self.batch_size)
            try:
                stopped = pace.go(progress, stop_requested)
            except Diverged as error:
                raise Diverged(
                    "the chains could not be kept finite: the posterior falls off faster than its Gaussian "
                    "approximation, or bends away from it. Reparametrise it, use NUTS, or lv.run with much smaller "
                    f"steps. What happened: {str(error).split(':')[0]}.",
                    error.ledger,
                ) from error
            if not run.m:
                interrupt("Interrupted during the set-up, before the first step; nothing was sampled.")
            ledger = run.ledger()
            outside = _outside(run.program.target, ledger)
            # The budget may be spent by now: the result is whole, but whoever pressed Ctrl-C must learn that it came.
            stopped = "interrupted" if stop_requested() else stopped
        return replace(
            self,
            budget=budget,
            batch_size=pace.batch_size,
            ledger=ledger,
            outside=outside,
            seconds=self.seconds + monotonic() - started,
            stopped=stopped,
            run=run,
        )


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


@partial(jax.jit, static_argnums=(0, 1), compiler_options=COMPILED_QUICKLY)
def _log_priors(target: Target, layout: Layout, thetas: Any) -> Any:
    return jax.vmap(lambda theta: target.log_prior(layout.unravel(theta)))(thetas)
