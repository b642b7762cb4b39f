"""`lv.plan`: what `lv.sample` would run, and what error to expect, before the budget is spent."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from time import monotonic
from typing import Any

import numpy as np

from langevin.anchor import Anchor, laplace, rough
from langevin.errors import AnchorError
from langevin.limits import set_up
from langevin.mixed.error import quadrature_error
from langevin.pilot import Pilot, pilot
from langevin.rounding import rounding_error
from langevin.sampling.budget import Budget
from langevin.sampling.call import Call
from langevin.sampling.choice import ASKED, affordable, choice, operations
from langevin.sampling.rules import WANTED_STEPS, Rules
from langevin.sampling.troubles import Trouble, before
from langevin.saving.journal import Journal
from langevin.survey import Survey, survey
from langevin.target import Layout, Target

PyTree = Any
# Neighbouring corrected values at a whitened step near 1 are correlated by about a quarter: variance x 5/3.
_MEMORY = 5.0 / 3.0
# How much a pair's second moment feels that, measured on logistic regressions.
_STRAYED = 2.5
# Posterior sds: what rounding moves by less is no reason for float64.
_SEEN = 1e-3
# How often the anchor moves to a heavier mode, and by how much: modes of one mass are told apart by rounding.
_MOST_MOVES, _HEAVIER = 3, 0.5
# Beyond this dimension an exact run needs the curvature at a mode.
MOST_ROUGH = 400


@dataclass(frozen=True, eq=False)
class Plan:
    """The choices of `lv.sample` and the measurements behind them; print it to read it.

    `method` is "minibatch" or "exact", `because` the reason.
    `batch_size` is N where every step sees all the data, 0 without data; `num_steps` a chain, None where the clock or
    the precision decides. `expected_mean_error` and `expected_sd_error` are predicted standard errors, in posterior
    sds, of the flat parameters. Costs in datum visits.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.Logistic.simulate(seed=1)
        >>> lv.plan(model.target, model.data, model.theta_0, passes=20).batch_size
        4
    """

    anchor: Anchor
    pilot: Pilot
    survey: Survey
    rules: Rules
    budget: Budget
    batch_size: int
    num_steps: int | None
    chains: np.ndarray
    seed: int
    method: str
    because: str
    setup_cost: int
    setup_seconds: float
    # Multiplications of the gradient of one datum: a product with each parameter and a few more, or a count of them.
    work: float
    # What more nodes would change in means and sds, (2, d), in posterior sds; None without latent effects.
    quadrature: np.ndarray | None = None
    # What float32 moves, (2, 2, d): means and sds of runs on minibatches, and of exact ones; in posterior sds.
    rounding: np.ndarray | None = None
    # What the search for a mode had to say where there is none: the anchor is theta_0 then.
    no_mode: str = ""

    @property
    def num_data(self) -> int:
        """N, or 1 for a target without data, where one pass is one gradient."""
        return max(self.rules.num_data, 1)

    @property
    def recorded(self) -> float:
        """Steps that all chains will record together; the least number where nothing else is known."""
        return float((WANTED_STEPS if self.num_steps is None else self.num_steps) * len(self.chains))

    @property
    def delta_0(self) -> float:
        """First whitened step."""
        return self.rules.delta_0(self.recorded, self.batch_size)

    @property
    def wide(self) -> bool:
        """Whether an exact run computes the density in float64, whatever the user's setting."""
        return self.rounding is not None and bool(np.any(self.rounding > _SEEN))

    def moves(self, exact: bool) -> dict[str, np.ndarray]:
        """What is known to move means and sds, (2, d) each, in posterior sds, of a run of either kind."""
        found = {} if self.quadrature is None else {"quadrature": self.quadrature}
        return found if exact or self.rounding is None else {**found, "rounding": self.rounding[0]}

    @cached_property
    def troubles(self) -> tuple[Trouble, ...]:
        """What stands against a trustworthy answer already, each with its status and a remedy."""
        return tuple(before(self.anchor, self.pilot, self.survey, self.rules, self.num_steps))

    @property
    def expected_mean_error(self) -> np.ndarray:
        """Predicted standard errors of the means over the posterior sds."""
        return np.sqrt(self._of_a_mean / self._pairs)

    @property
    def expected_sd_error(self) -> np.ndarray:
        """Predicted standard errors of the sds over the sds; that of a variance is twice as large."""
        # Odd values cancel in a pair, minibatch noise included, as far as its chains mirror each other: they stray by
        # about what is left in a mean.
        strayed = (_STRAYED * self._of_a_mean) ** 2
        return 0.5 * np.sqrt((_MEMORY * self.pilot.spread[1] + strayed) / self._pairs)

    @property
    def _pairs(self) -> float:
        return self.recorded / min(len(self.chains), 2)

    @property
    def _of_a_mean(self) -> np.ndarray:
        """Variance of a pair's corrected mean at one step: both of its chains have the same minibatch noise."""
        return _MEMORY * self.pilot.spread[0] + 4.0 * self.rules.inflation(1.0, self.batch_size)

    def __str__(self) -> str:
        from langevin.sampling.words import describe_plan

        return describe_plan(self)

    def __repr__(self) -> str:
        return (
            f"Plan(n={self.batch_size}, num_steps={self.num_steps}, chains={len(self.chains)}, {self.budget.words()})"
        )


def plan(
    target: Target,
    data: PyTree,
    theta_0: PyTree,
    *,
    passes: float | None = None,
    time_limit: float | None = None,
    precision: float | None = None,
    method: str = "auto",
    chains: int | Sequence[int] = 4,
    seed: int = 0,
) -> Plan:
    """What `lv.sample` would run with these arguments, and what error to expect; samples nothing.

    Finds the anchor, measures the pilot's numbers at Laplace draws and looks for other modes. Cost: `setup_cost`.
    `method` is as in `lv.sample`. Raises `OutOfTime` where that takes longer than `time_limit`, and `Interrupted`, a
    KeyboardInterrupt, after Ctrl-C.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.Logistic.simulate(seed=1)
        >>> plan = lv.plan(model.target, model.data, model.theta_0, passes=20)
        >>> plan.rules.order
        'cv2'
    """
    began = monotonic()
    limits = {"passes": passes, "time_limit": time_limit, "precision": precision}
    call = Call.checked(target, data, theta_0, **limits, method=method, chains=chains, seed=seed)
    return planned(call, began, Journal())


def planned(call: Call, began: float, journal: Journal) -> Plan:
    """The plan for a call that began then, within its time limit."""
    limit = call.budget.time_limit
    with set_up(None if limit is None else began + limit):
        return journal.found("plan", lambda: _made(call, began, journal))


def _made(call: Call, began: float, journal: Journal) -> Plan:
    anchor, piloted, surveyed, no_mode = _found(call, journal)
    budget, chains = call.budget, call.chains
    num_data = 0 if call.source is None else call.source.num_data
    rules = Rules.of(anchor, piloted, num_data)
    steps: int | None = None
    size = rules.batch_size(float(WANTED_STEPS * len(chains)))
    if budget.passes is not None:
        fitting, recorded = rules.fit(budget.passes * max(num_data, 1))
        # Where the clock or a precision may end the run first, minibatches start small and grow when it goes on.
        alone = budget.time_limit is None and budget.precision is None
        size, steps = (fitting, max(int(recorded / len(chains)), 1)) if alone else (min(size, fitting), None)
    chosen = Plan(
        anchor=anchor,
        pilot=piloted,
        survey=surveyed,
        rules=rules,
        budget=budget,
        batch_size=size,
        num_steps=steps,
        chains=chains,
        seed=call.seed,
        method=call.method,
        because=ASKED,
        setup_cost=anchor.cost + piloted.cost + surveyed.cost,
        quadrature=journal.found("quadrature", lambda: quadrature_error(call.target, call.source, anchor, call.seed)),
        rounding=journal.found("rounding", lambda: rounding_error(call.target, call.source, anchor, call.seed)),
        no_mode=no_mode,
        setup_seconds=monotonic() - began,
        work=anchor.layout.size + 10.0,
    )
    if call.method != "minibatch" and not affordable(chosen):
        chosen = replace(chosen, work=operations(call.target, call.source, anchor.layout))
    if call.method == "auto":
        method, because = choice(chosen)
        chosen = replace(chosen, method=method, because=because)
    return chosen


def _found(call: Call, journal: Journal) -> tuple[Anchor, Pilot, Survey, str]:
    """About the mode uphill from theta_0, or about the heaviest one that the survey finds; why there is none, if so."""
    target, source, seed = call.target, call.source, call.seed
    anchor, error, improper = journal.found("anchor", lambda: _searched(call, call.theta_0))
    if anchor is None:
        size = Layout.of(call.theta_0).size
        if call.method == "minibatch" or improper or size > MOST_ROUGH:
            raise AnchorError(error, improper)
        return rough(target, source, call.theta_0), Pilot.none(size), Survey.none(size), error
    seen, left = journal.found("survey", lambda: survey(target, source, anchor, seed)), []
    for move in range(1, _MOST_MOVES + 1):
        if not len(seen.log_mass) or seen.log_mass[0] <= _HEAVIER:
            break
        there = anchor.layout.unravel(seen.modes[0])
        heavier, _, _ = journal.found(f"anchor {move}", partial(_searched, call, there))
        if heavier is None:
            break
        spent = anchor.cost + seen.cost
        left.append(anchor.theta)
        anchor = replace(heavier, cost=heavier.cost + spent)
        # The mode that was left is one still, whether or not a start finds it again.
        seen = journal.found(f"survey {move}", partial(survey, target, source, anchor, seed, tuple(left)))
    return anchor, journal.found("pilot", lambda: pilot(target, source, anchor, seed)), seen, ""


def _searched(call: Call, start: PyTree) -> tuple[Any, str, bool]:
    """The mode uphill from a point; where there is none, what the search has to say, and whether that is final."""
    try:
        return laplace(call.target, call.source, start, seed=call.seed), "", False
    except AnchorError as error:
        return None, str(error), error.improper
