"""Chains at two step sizes side by side: what they estimate together has no bias to first order."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from langevin.coordinates import Preconditioned
from langevin.data.source import DataSource
from langevin.data.subsample import Full, Subsample, WithReplacement
from langevin.engine.run import Run
from langevin.engine.setup import prepare
from langevin.gradients import Minibatch
from langevin.kernels import BAOAB
from langevin.schedules import Constant
from langevin.target import Layout, Target

PyTree = Any
# Momentum is forgotten at this rate, in units of the prior's width: longer memory takes a free direction no farther.
FRICTION = 1.0


@dataclass(frozen=True)
class Pair:
    """Two step sizes, h and `ratio` h, in time units of the prior's width, with n data a step.

    Gradient noise biases an average in proportion to h (`order` 1); with all the data in every step what is left is
    BAOAB's own bias, of order h^2. So with a = average at h and b = average at ratio h

        value = a - (b - a) share,    share = 1/(ratio^order - 1),

    and (b - a) share estimates the bias of a.
    """

    step: float
    batch_size: int
    full: bool
    ratio: int

    @property
    def order(self) -> int:
        """The power of h that the bias begins with."""
        return 2 if self.full else 1

    @property
    def share(self) -> float:
        """What part of the difference between the levels is bias of the lower one."""
        return 1.0 / (self.ratio**self.order - 1.0)

    @property
    def steps(self) -> tuple[float, float]:
        """The two step sizes."""
        return self.step, self.ratio * self.step

    @property
    def ticks(self) -> tuple[int, int]:
        """Steps of each level in about one unit of time; of the lower one a multiple of those of the upper one."""
        upper = max(round(1.0 / self.steps[1]), 1)
        return self.ratio * upper, upper


class Levels:
    """Runs of chains at the two step sizes of a pair, advanced together, one unit of time after the other."""

    def __init__(
        self, target: Target, source: DataSource, theta_0: PyTree, scale: np.ndarray, pair: Pair, starts: np.ndarray,
        seed: int, stage: int,
    ) -> None:  # fmt: skip
        """`starts` has shape (2, chains, d); a stage has random numbers of its own."""
        self.pair = pair
        self._layout, count = Layout.of(theta_0), starts.shape[1]
        self.runs = [
            _run(target, source, theta_0, scale, step, pair, starts[k], seed, (2 * stage + k) * count)
            for k, step in enumerate(pair.steps)
        ]
        self.time = 0

    def tick(self) -> np.ndarray:
        """Goes on for one unit of time; where the chains are then, (2, chains, d). Raises `Diverged`."""
        self.time += 1
        for run, steps in zip(self.runs, self.pair.ticks, strict=True):
            run.advance(self.time * steps, block_steps=steps)
        return self.positions

    def stored(self) -> dict[str, Any]:
        """Where both levels can go on, after whole units of time."""
        return {"time": self.time, "runs": tuple({"m": run.m, "left": run.checkpoint()} for run in self.runs)}

    def restore(self, stored: dict[str, Any]) -> None:
        """Goes to where such levels stood."""
        self.time = stored["time"]
        for run, one in zip(self.runs, stored["runs"], strict=True):
            run.restore(one["left"], one["m"])

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the last tick early."""
        return any(run.interrupted for run in self.runs)

    @property
    def positions(self) -> np.ndarray:
        """Where the chains are, float32, (2, chains, d)."""
        found = [run.call.coordinates.theta(run.carry().state.theta[0]) for run in self.runs]
        return np.stack(found).astype(np.float32)

    @property
    def visits(self) -> float:
        """Datum visits so far."""
        return sum(run.visits for run in self.runs)


def _run(
    target: Target, source: DataSource, theta_0: PyTree, scale: np.ndarray, step: float, pair: Pair,
    starts: np.ndarray, seed: int, first: int,
) -> Run:  # fmt: skip
    friction = FRICTION * step
    subsample: Subsample = Full() if pair.full else WithReplacement(pair.batch_size)
    return Run(
        prepare(
            target, source, theta_0, kernel=BAOAB(friction=friction), gradient=Minibatch(), subsample=subsample,
            # BAOAB takes steps of h = sqrt(delta tanh(friction / 2)).
            schedule=Constant(step**2 / np.tanh(0.5 * friction)),
            coordinates=Preconditioned.by(scale**2), observables={"log_prior": target.log_prior},
            chains=list(range(first, first + len(starts))), seed=seed, anchor=None, weight_power=1.0, keep=0,
            layout="chain", guard=1, starts=starts.astype(np.float64), short=True,
        )
    )  # fmt: skip
