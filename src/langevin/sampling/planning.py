"""`lv.plan`: what `lv.sample` would run, and what error to expect, before the budget is spent."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import Any

import numpy as np

from langevin.anchor import Anchor, laplace
from langevin.data.source import DataSource, as_source
from langevin.engine.checks import read_chains, require, whole_number
from langevin.limits import set_up
from langevin.mixed.error import quadrature_error
from langevin.pilot import Pilot, pilot
from langevin.sampling.budget import Budget
from langevin.sampling.rules import WANTED_STEPS, Rules
from langevin.sampling.troubles import Trouble, before
from langevin.survey import Survey, survey
from langevin.target import Target

PyTree = Any
# Neighbouring corrected values at a whitened step near 1 are correlated by about a quarter: variance x 5/3.
_MEMORY = 5.0 / 3.0
# How much a pair's second moment feels that, measured on logistic regressions.
_STRAYED = 2.5


@dataclass(frozen=True, eq=False)
class Plan:
    """The choices of `lv.sample` and the measurements behind them; print it to read it.

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
    setup_cost: int
    setup_seconds: float
    # What more nodes would change in means and sds, (2, d), in posterior sds; None without latent effects.
    quadrature: np.ndarray | None = None

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

    @cached_property
    def troubles(self) -> tuple[Trouble, ...]:
        """What stands against a trustworthy answer already, each with its status and a remedy."""
        return before(self.anchor, self.pilot, self.survey, self.rules, self.num_steps)

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
    chains: int | Sequence[int] = 4,
    seed: int = 0,
) -> Plan:
    """What `lv.sample` would run with these arguments, and what error to expect; samples nothing.

    Finds the anchor, measures the pilot's numbers at Laplace draws and looks for other modes. Cost: `setup_cost`.
    Raises `OutOfTime` where that takes longer than `time_limit`, and `Interrupted`, a KeyboardInterrupt, after Ctrl-C.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.Logistic.simulate(seed=1)
        >>> plan = lv.plan(model.target, model.data, model.theta_0, passes=20)
        >>> plan.rules.order
        'cv2'
    """
    began = monotonic()
    require(isinstance(target, Target), "target", target, "an lv.Target", "lv.Target(log_prior, log_likelihood)")
    budget = Budget(passes, time_limit, precision).checked()
    numbers = _in_pairs(read_chains(chains))
    seed = whole_number("seed", seed, 0, 2**64 - 1)
    with set_up(None if budget.time_limit is None else began + budget.time_limit):
        return made(target, None if data is None else as_source(data), theta_0, budget, numbers, seed)


def _in_pairs(chains: np.ndarray) -> np.ndarray:
    """The chain numbers, if they are one or complete pairs 2k and 2k + 1."""
    pairs = np.unique(chains // 2, return_counts=True)[1]
    require(len(chains) == 1 or np.all(pairs == 2), "chains", chains.tolist(), "1 or even: they go in pairs", "4")
    return chains


def made(
    target: Target, source: DataSource | None, theta_0: PyTree, budget: Budget, chains: np.ndarray, seed: int
) -> Plan:
    """The plan for checked arguments."""
    began = monotonic()
    anchor = laplace(target, source, theta_0, seed=seed)
    measured = pilot(target, source, anchor, seed)
    modes = survey(target, source, anchor, seed)
    num_data = 0 if source is None else source.num_data
    rules = Rules.of(anchor, measured, num_data)
    steps: int | None = None
    size = rules.batch_size(float(WANTED_STEPS * len(chains)))
    if budget.passes is not None:
        fitting, recorded = rules.fit(budget.passes * max(num_data, 1))
        # Where the clock or a precision may end the run first, minibatches start small and grow when it goes on.
        alone = budget.time_limit is None and budget.precision is None
        size, steps = (fitting, max(int(recorded / len(chains)), 1)) if alone else (min(size, fitting), None)
    return Plan(
        anchor=anchor,
        pilot=measured,
        survey=modes,
        rules=rules,
        budget=budget,
        batch_size=size,
        num_steps=steps,
        chains=chains,
        seed=seed,
        setup_cost=anchor.cost + measured.cost + modes.cost,
        quadrature=quadrature_error(target, source, anchor, seed),
        setup_seconds=monotonic() - began,
    )
