"""Kernels of this library, each driven through the engine of `lv.run` from the mode, with its books as the answer."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic, process_time
from typing import Any

import numpy as np

import langevin as lv
from langevin.analysis.statuses import STATUSES
from langevin.compare.contestant import Build, Replicate
from langevin.compare.found import Found, from_draws, measured
from langevin.compare.problem import Problem
from langevin.engine.draws import equal_places
from langevin.engine.run import Run
from langevin.engine.setup import prepare
from langevin.pairs import richardson_romberg

CHAINS = 4
_PLAIN = lv.Minibatch()
# Draws of a chain from which points are read where no distribution functions are streamed.
KEPT = 10_000
# Steps of all chains that a first run is set for, before the pace is known.
_FIRST_STEPS = 100_000.0
_FEW, _ENDLESS = 64, 2**40


@dataclass(frozen=True)
class Setting:
    """What a sampler runs with; `visits` are those of its set-up, anchor included."""

    kernel: Any
    schedule: Any
    visits: float
    gradient: Any = _PLAIN
    subsample: Any = None
    coordinates: Any = None
    # Kernels that see no gradients have no use for the correction.
    anchored: bool = True
    # The kernel takes its step from a run of its own beforehand, whose gradients are known only afterwards.
    adapting_steps: int = 0


# (problem, anchor, seed, steps of all chains that fit into the time) -> Setting
Settle = Callable[[Problem, lv.Anchor, int, float], Setting]


def built(settle: Settle, method: str = "raw", pair: bool = False) -> Build:
    """A contestant's `build` from its settings; `pair` runs the kernel at twice the step along with it."""

    def build(problem: Problem, seconds: float) -> Replicate:
        pace = {"steps": _FIRST_STEPS}

        def begin(seed: int) -> _Going:
            anchor = lv.laplace(problem.target, problem.data, problem.theta_0)
            setting = settle(problem, anchor, seed, pace["steps"])
            return _Going(problem, anchor, setting, method, pair, seed, seconds, pace)

        return partial(measured, begin)

    return build


class _Going:
    """A run, or two at once, that goes on by the clock."""

    def __init__(
        self, problem: Problem, anchor: lv.Anchor, setting: Setting, method: str, pair: bool, seed: int, seconds: float,
        pace: dict[str, float],
    ) -> None:  # fmt: skip
        self._problem, self._anchor, self._setting, self._method = problem, anchor, setting, method
        self._seconds, self._pace, self._spent = seconds, pace, 0.0
        observables: dict[str, Any] = {"theta": lv.Moments()}
        if method == "corrected":
            observables["marginals"] = lv.Marginals()
        kernels = [setting.kernel, lv.Coarse(setting.kernel)] if pair else [setting.kernel]
        self._runs = [
            Run(
                prepare(
                    problem.target, problem.data, anchor.mode, kernel=kernel, schedule=setting.schedule,
                    gradient=setting.gradient, subsample=setting.subsample, coordinates=setting.coordinates,
                    observables=observables, chains=CHAINS, seed=seed,
                    anchor=anchor if setting.anchored else None, weight_power=1.0,
                    keep=0 if method == "corrected" else KEPT, layout=None, guard=1,
                )
            )
            for kernel in kernels
        ]  # fmt: skip

    @property
    def visits(self) -> float:
        """Of the set-up and of all chains; steps of an adaptation cost what those of the run cost on average."""
        sampling = sum(run.visits for run in self._runs)
        m = max(self._runs[0].m, 1)
        return self._setting.visits + sampling + self._setting.adapting_steps * sampling / (m * CHAINS)

    def advance(self, seconds: float, visits: float) -> bool:
        """See `Chain`: a few steps first, to compile and to learn their cost, then as far as the limits allow."""
        began, first, *others = process_time(), *self._runs
        m, left = first.m, visits - self.visits
        steps = _ENDLESS if m else _FEW
        if m and np.isfinite(left):
            steps = max(int(left / (self.visits - self._setting.visits) * m), 1)
        first.advance(m + steps, deadline=monotonic() + seconds / len(self._runs))
        for other in others:
            other.advance(first.m)
        if m:
            self._spent += process_time() - began
            self._pace["steps"] = CHAINS * (first.m - _FEW) / max(self._spent, 1e-6) * self._seconds
        return True

    def look(self) -> Found:
        """See `Chain`; predictions are read from the kept draws, as those of others are."""
        ledgers = [run.ledger() for run in self._runs]
        if self._problem.predict is not None:
            draws = ledgers[0].draws
            if draws is None:
                raise ArithmeticError("no draws in the time")
            equal = equal_places(draws.weight, len(draws.weight))
            return from_draws(self._problem, draws.theta[:, equal].astype(np.float64))
        if len(ledgers) == 2:
            found = richardson_romberg(ledgers[0], ledgers[1])
            points = _extrapolated(ledgers[0], ledgers[1])
        else:
            found = lv.estimate(ledgers[0], self._method)
            points = lv.quantiles(ledgers[0], (0.025, 0.975))
        return told(found["theta.mean"], found["theta.sd"], points)


def _extrapolated(fine: lv.Ledger, coarse: lv.Ledger) -> lv.Estimate:
    """Points of a pair: 2 fine - coarse; as for the moments, of which the bar of a point has the larger part."""
    one, two = (lv.quantiles(ledger, (0.025, 0.975)) for ledger in (fine, coarse))
    return replace(one, value=2.0 * one.value - two.value, stderr=2.0 * one.stderr)


def told(mean: lv.Estimate, sd: lv.Estimate, points: lv.Estimate) -> Found:
    """Estimates of the library as the table wants them."""
    return Found(
        mean.value, sd.value, points.value, mean.interval(), sd.interval(), points.interval(),
        status=worst({mean.status, sd.status}),
    )  # fmt: skip


def worst(statuses: set[str]) -> str:
    """The worst of some statuses."""
    return min(statuses - {"ok"}, key=list(STATUSES).index, default="ok")
