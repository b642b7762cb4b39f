"""A run of `lv.sample` under way: goes on, segment by segment, until a limit of its budget is reached."""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from time import monotonic
from typing import Any

import jax
import numpy as np

from langevin.analysis.estimate import estimate
from langevin.data.source import DataSource
from langevin.data.subsample import Full, Subsample, WithReplacement
from langevin.engine.interrupt import stop_requests
from langevin.engine.ledger import Ledger
from langevin.engine.program import BASE_ROW, device_row_steps
from langevin.engine.run import run
from langevin.errors import Diverged
from langevin.gradients import ControlVariate, Minibatch
from langevin.kernels import LeimkuhlerMatthews
from langevin.observables import Moments
from langevin.sampling.budget import Budget
from langevin.sampling.plan import Plan
from langevin.sampling.rules import LEAST_STEPS
from langevin.target import Layout, Target

# Kept draws of a chain, fewer where theta is long: they are what `expectation` and quantiles are made of.
_KEPT_DRAWS, _KEPT_FLOATS = 1000, 2**22
# A first few steps compile and warm up; how long the next ones take tells what fits into the rest of the time.
_WARM_UP_STEPS = 32
_FOR_EVER = np.iinfo(np.int64).max
_WORTH_COMPILING = 1.2
# A bound farther from the mode than this moves a mean by less than 1e-4 sds.
_BOUND_SDS = 4.0
# Share of the remaining time that one segment may plan to use, and the time that is not worth another segment.
_SHARE_OF_TIME, _LEAST_SECONDS = 0.8, 0.02
# One stage of a run for a precision is at most so many times as long as all before it: its forecast is rough.
_LONGEST_STAGE = 8.0
# Room for the scatter of the error bar itself, so that the next stage is likely the last.
_MARGIN = 1.1
# More steps shrink neither a bias nor the noise of the gradient; and there is an end to patience, in least numbers of
# steps.
_HOPELESS, _PATIENCE = {"bias_dominates", "gradient_noise"}, 10_000


@dataclass(frozen=True, eq=False)
class Session:
    """What is needed to go on: the posterior, the plan, and the books so far.

    `budget` is what it was last allowed to spend, `outside` the share of points within reach where the prior is zero;
    `stopped` says what ended the run.
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

    @property
    def steps(self) -> int:
        """Steps that each chain has recorded."""
        return 0 if self.ledger is None else self.ledger.num_steps

    @property
    def cost(self) -> int:
        """Datum visits of the sampling so far, the guard's included."""
        return 0 if self.ledger is None else self.ledger.cost

    @cached_property
    def accuracy(self) -> tuple[set[str], float]:
        """Statuses of the means and sds, and the widest half-width of their 95% intervals in posterior sds."""
        assert self.ledger is not None
        found = estimate(self.ledger, "corrected")
        mean, sd = found["theta.mean"], found["theta.sd"]
        halves = [0.5 * np.ptp(np.stack(part.interval()), axis=0) / sd.value for part in (mean, sd)]
        return {mean.status, sd.status}, float(np.max(halves))

    @property
    def reached(self) -> float:
        """The precision that the run has reached so far."""
        return self.accuracy[1]

    def to(self, steps: int, progress: bool | None) -> "Session":
        """The session with each chain at `steps` steps, or fewer if Ctrl-C was pressed."""
        began = monotonic()
        assert self.target is not None
        try:
            ledger = self._run(self.target, steps, progress)
        except Diverged as error:
            raise Diverged(
                "the chains could not be kept finite: the posterior falls off faster than its Gaussian approximation, "
                "or bends away from it. Reparametrise it, use NUTS, or lv.run with much smaller steps. "
                f"What happened: {str(error).split(':')[0]}.",
                error.ledger,
            ) from error
        outside = _outside(self.target, ledger)
        return replace(self, ledger=ledger, outside=outside, seconds=self.seconds + monotonic() - began)

    def _run(self, target: Target, steps: int, progress: bool | None) -> Ledger:
        plan, rules = self.plan, self.plan.rules
        gradient: Any = Minibatch()
        if rules.order in ("cv1", "cv2"):
            gradient = ControlVariate(plan.anchor, order=1 if rules.order == "cv1" else 2)
        subsample: Subsample | None = None
        if rules.num_data:
            subsample = Full() if self.batch_size == rules.num_data else WithReplacement(self.batch_size)
        return run(
            target,
            self.source,
            plan.anchor.mode,
            schedule=rules.schedule(plan.delta_0),
            num_steps=steps,
            kernel=LeimkuhlerMatthews(),
            gradient=gradient,
            subsample=subsample,
            observables={"theta": Moments()},
            chains=plan.chains.tolist(),
            seed=plan.seed,
            anchor=plan.anchor,
            keep=int(np.clip(_KEPT_FLOATS // (rules.dimension * len(plan.chains)), 16, _KEPT_DRAWS)),
            whiten=True,
            guard=rules.guard(self.batch_size),
            progress=progress,
            resume=self.ledger,
        )

    def spend(self, budget: Budget, began: float, progress: bool | None) -> "Session":
        """Goes on until the first limit is reached; passes count from the run's first step, seconds from `began`.

        Segments end at row borders, where the batch size may grow for a longer run.
        """
        now = _Pace(replace(self, budget=budget), budget, began)
        # One request for the whole of it: Ctrl-C between two segments must not lose the rows.
        with stop_requests() as stop_requested:
            while True:
                goal, reason = now.next_goal()
                if goal <= now.session.steps:
                    return replace(now.session, stopped=reason)
                now.advance(goal, progress)
                if stop_requested():
                    return replace(now.session, stopped="interrupted")


def _outside(target: Target, ledger: Ledger) -> float:
    """Share of kept draws, and of points beside them, where the prior is zero.

    Gradients cannot see a hard bound, and a chain walks through it.
    """
    anchor, draws = ledger.anchor, ledger.draws
    if anchor is None or draws is None:
        return 0.0
    thetas = draws.theta.reshape(-1, draws.theta.shape[-1])
    if anchor.dense:
        # Each parameter four sds up and down, the others along: a bound there is met by one draw in 30,000 only.
        reach = _BOUND_SDS * anchor.covariance / anchor.sd[:, None]
        thetas = np.concatenate([thetas, anchor.theta + reach, anchor.theta - reach])
    values = _log_priors(target, anchor.layout, thetas.astype(np.float32))
    return float(np.mean(~np.isfinite(values)))


@partial(jax.jit, static_argnums=(0, 1))
def _log_priors(target: Target, layout: Layout, thetas: Any) -> Any:
    return jax.lax.map(lambda theta: target.log_prior(layout.unravel(theta)), thetas, batch_size=64)


class _Pace:
    """How far to go next, by each limit of the budget."""

    def __init__(self, session: Session, budget: Budget, began: float) -> None:
        self.session, self.budget, self.began = session, budget, began
        self.rate: float | None = None
        self.overhead = 0.0

    def advance(self, goal: int, progress: bool | None) -> None:
        """Runs to the goal with a batch size that fits it, and takes the time."""
        size = self._size(goal)
        if size > self.session.batch_size:
            row = device_row_steps(max(self.session.steps, 1))
            if self.session.steps % row:
                # An interrupted run may have stopped inside a row.
                self.session = self.session.to(-(-self.session.steps // row) * row, progress)
            self.session, self.rate = replace(self.session, batch_size=size), None
        warm = self.session.steps + _WARM_UP_STEPS
        if self.budget.time_limit is not None and self.rate is None:
            goal = min(goal, warm + _WARM_UP_STEPS)
            if goal > warm:
                started = monotonic()
                self.session = self.session.to(warm, progress)
                self.overhead = max(self.overhead, monotonic() - started)
        started, done = monotonic(), self.session.steps
        self.session = self.session.to(goal, progress)
        self.rate = (monotonic() - started) / (goal - done)

    def _size(self, goal: int) -> int:
        """Batch size for a run of `goal` steps; it never shrinks, and a little more is not worth compiling anew."""
        session, rules = self.session, self.session.plan.rules
        size = rules.batch_size(float(goal * len(session.plan.chains)))
        return size if session.ledger is None or size > _WORTH_COMPILING * session.batch_size else session.batch_size

    def next_goal(self) -> tuple[int, str]:
        """Steps to go to, a whole number of rows, and the limit that says so."""
        goal, reason = min((self._by_passes(), "passes"), (self._by_time(), "time_limit"), self._by_precision())
        row = device_row_steps(max(goal, 1))
        least = row if self.session.ledger is None else 0
        return max(goal // row * row, least), reason

    def _by_passes(self) -> int:
        if self.budget.passes is None:
            return _FOR_EVER
        session, chains = self.session, len(self.session.plan.chains)
        total = self.budget.passes * session.plan.num_data
        room, size = total - session.cost, session.batch_size
        if session.ledger is not None:
            # What is left, with the size that a run of that length asks for.
            size = max(size, self._size(session.steps + self._affordable(room, size, chains)))
        return session.steps + self._affordable(room, size, chains)

    def _affordable(self, room: float, size: int, chains: int) -> int:
        """Steps a chain that `room` datum visits pay for, the guard's calls included.

        How many rounds it adds is known after a first half of the run. Their number scatters: three standard deviations
        stay in reserve, and what is left of that is spent by the next, shorter segment.
        """
        if room <= 0:
            return 0
        session, rules = self.session, self.session.plan.rules
        guard = rules.guard(size)
        extra, share = rules.extra_rounds(size), 0.5 if guard > 1 else 1.0
        if session.ledger is not None:
            # Too low where the minibatches were smaller before: never less than on a Gaussian.
            measured = session.cost / (max(size, 1) * session.steps * chains) - 1.0
            extra, share = max(extra, measured) if guard > 1 else 0.0, 1.0
        each = max(size, 1) * (1.0 + extra)
        # A stay in the far tail is a few calls of `guard` rounds.
        reserve = 3.0 * size * np.sqrt(3.0 * guard * extra * share * room / each)
        steps = int((share * room - reserve) / (chains * each))
        # The last rows one by one: few of them are hit by a call.
        return steps if steps >= BASE_ROW else min(int(room / (chains * each)), BASE_ROW)

    def _by_time(self) -> int:
        if self.budget.time_limit is None:
            return _FOR_EVER
        left = self.budget.time_limit - (monotonic() - self.began)
        if self.session.ledger is None:
            # A run without a single row would have nothing to say.
            return 2 * _WARM_UP_STEPS
        if left < _LEAST_SECONDS:
            return self.session.steps
        if self.rate is None:
            return self.session.steps + 2 * _WARM_UP_STEPS
        goal = self.session.steps + int(_SHARE_OF_TIME * left / max(self.rate, 1e-9))
        if left > 3.0 * self.overhead:
            return goal
        # Too late to compile for larger minibatches: go as far as these are good for.
        most = self.session.plan.rules.most_recorded(self.session.batch_size) / len(self.session.plan.chains)
        return int(min(goal, max(most, self.session.steps)))

    def _by_precision(self) -> tuple[int, str]:
        if self.budget.precision is None:
            return _FOR_EVER, "precision"
        session = self.session
        least = -(-LEAST_STEPS // BASE_ROW) * BASE_ROW
        if any(trouble.refused for trouble in session.plan.troubles):
            return least, "precision out of reach"
        if session.steps < least:
            return least, "precision"
        statuses, worst = session.accuracy
        hopeless = bool(statuses & _HOPELESS) and session.steps >= _LONGEST_STAGE * least
        if hopeless or session.steps >= _PATIENCE * least:
            return session.steps, "precision out of reach"
        if worst <= self.budget.precision:
            return session.steps, "precision"
        # A bar that is not known yet (NaN) asks for the longest stage.
        longer = np.fmin((worst / self.budget.precision) ** 2 * _MARGIN, _LONGEST_STAGE)
        return int(np.ceil(session.steps * longer)) + 256, "precision"
