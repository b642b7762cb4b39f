"""The rules behind `lv.sample`: step, batch size and number of steps from what the pilot measured.

Units are whitened: theta = anchor + L z, the posterior nearly N(0, I). kappa is the spread of the per-datum curvature,
V the variance of a one-datum gradient, S the steps that all chains will record.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from langevin.anchor import Anchor
from langevin.engine.setup import TAILS
from langevin.pilot import Pilot
from langevin.schedules import Power

# The steps delta_0 (1 + m/1000)^(-1/5) fall slowly enough to keep mixing, and do fall: the average is consistent.
_HORIZON, _ALPHA = 1000.0, 0.2
# Near-Gaussian: an importance ESS fraction of at least this for each dimension.
NEAR_GAUSSIAN = 0.98
# Below this importance ESS fraction of the Laplace draws no interval is given. Funnels have .01. Skewed posteriors
# that are answered well have .6 to .9, and from 200 draws less than .05 in one set-up of 200. The Pareto index of the
# weights is no help: from so few draws it exceeds 1 in 3% of the set-ups of good targets, in a third of a Cauchy's.
_LEAST_ESS = 0.05
# That of a single parameter, which is not a matter of chance: what skewed posteriors that are answered well have.
_LEAST_ESS_ALONE = 0.6
# Gradient noise may inflate the variance by half a percent at 4000 recorded steps, and less as the bars shrink.
_INFLATION, _AT_STEPS = 0.005, 4000
# A minibatch larger than this share of the data is better replaced by all of them; so are those of few data.
_LARGEST_SHARE, _FEW_DATA = 1 / 3, 50
# As many rows alike as the pilot may have missed with a chance of one in twenty, if it sees each once on average.
_ALIKE = 3.0
# A step from the far tail sees so many times as many data, one from beyond the bulk the square root of that.
GUARD_FACTOR = 100
# Steps that each chain should record at least, and when the posterior is not near-Gaussian.
LEAST_STEPS, LEAST_STEPS_SKEWED = 300, 1000
# Steps that a run takes where nothing else limits it. What a pair of chains leaves of a second moment is of degree four
# in z, at worst z^4 of one direction, with skewness 10 and excess kurtosis 204: by the Edgeworth expansion of Student's
# t an interval from S independent values of it covers .95 - 22/S. At delta = 1 two pairs are worth S = 2/1.53 values a
# step, so .895 at 300 steps and .933 at 1000; the allowances for kurtosis and skewness add .02 to .03.
WANTED_STEPS = 1000
# Rows of a minibatch that is compiled once; a step takes as many of them as its noise asks for. Near-Gaussian
# posteriors ask for three or more; a likelihood of many small operations costs as much for one row as for four.
CHUNK = 4
# Without a dense Hessian the minibatch size hardly matters at fixed cost; this one fills the vector lanes.
_LARGE_BATCH = 100

Order = Literal["exact", "plain", "cv1", "cv2"]


def least_ess(pilot: Pilot) -> float:
    """The effective share of the draws below which no interval is given."""
    return _LEAST_ESS_ALONE if pilot.by_parameter else _LEAST_ESS


@dataclass(frozen=True)
class Rules:
    """What the pilot says about steps and batches of one posterior; num_data = 0 for a target without data."""

    num_data: int
    dimension: int
    order: Order
    near_gaussian: bool
    curvature_spread: float
    noise: float

    @classmethod
    def of(cls, anchor: Anchor, pilot: Pilot, num_data: int) -> "Rules":
        """Second-order control variates where there is a dense Hessian, else the quieter of the first two orders."""
        dimension = anchor.layout.size
        per_direction = pilot.ess if pilot.by_parameter else pilot.ess ** (1.0 / dimension)
        near = pilot.ess >= least_ess(pilot) and per_direction >= NEAR_GAUSSIAN
        if not num_data:
            return cls(0, dimension, "exact", near, 0.0, 0.0)
        order: Order = "cv2" if anchor.dense else "cv1" if pilot.noise["cv1"] < pilot.noise["plain"] else "plain"
        spread = 0.0 if pilot.curvature_spread is None else pilot.curvature_spread
        # A row adds N (a - d/N)^2 to the spread of curvatures, a its own. Where three such rows would rule it, which a
        # sample may well have missed, nothing is known of the noise. A spread below 1 asks for nothing.
        beyond = max(pilot.heaviest - dimension / num_data, 0.0)
        unseen = _ALIKE * num_data * beyond**2 > max(spread, 1.0)
        return cls(num_data, dimension, order, near, spread, np.inf if unseen else pilot.noise[order])

    @property
    def least_steps(self) -> int:
        """Steps that a chain should record."""
        return LEAST_STEPS if self.near_gaussian else LEAST_STEPS_SKEWED

    @property
    def step_limit(self) -> float:
        """Largest whitened step: 1 near a Gaussian, where Leimkuhler-Matthews is exact, else a half."""
        return 1.0 if self.near_gaussian else 0.5

    def delta_0(self, recorded: float, batch_size: int) -> float:
        """First step of the schedule.

        With second-order control variates the batch size takes care of the noise. Else the noise stays, and
        (delta V/(4n))^2 + 4/(delta S), the relative MSE of a variance, is least at delta = (32 n^2/(V^2 S))^(1/3).
        """
        if self.order in ("exact", "cv2") or batch_size == self.num_data:
            return self.step_limit
        best = (32.0 * batch_size**2 / (self.noise**2 * max(recorded, 1.0))) ** (1.0 / 3.0)
        return min(self.step_limit, best)

    def schedule(self, delta_0: float) -> Power:
        """delta_m = delta_0 (1 + m/1000)^(-1/5)."""
        return Power(delta_0 * _HORIZON**_ALPHA, m_0=_HORIZON, alpha=_ALPHA)

    def inflation(self, delta: float, batch_size: int) -> float:
        """Relative excess delta V/(4n) of the posterior variance that the gradient noise leaves in the chain."""
        return 0.0 if batch_size == self.num_data else delta * self.noise / (4.0 * batch_size)

    def batch_size(self, recorded: float) -> int:
        """Smallest n for S recorded steps: stable in the tail, and noise below the shrinking bars.

        n >= kappa/(8/(3 delta) - 1),    n >= delta V/(4 tol),    tol = 0.005 min(1, sqrt(4000/S))

        With a fixed n a fixed inflation would overtake the bars. All the data (N) when n > N/3 or N <= 50.
        """
        N, delta = self.num_data, self.step_limit
        if not N or N <= _FEW_DATA:
            return N
        if self.order != "cv2":
            return min(_LARGE_BATCH, max(1, int(N * _LARGEST_SHARE)))
        tolerance = _INFLATION * min(1.0, np.sqrt(_AT_STEPS / max(recorded, 1.0)))
        least = float(
            np.max([self.curvature_spread / (8.0 / (3.0 * delta) - 1.0), delta * self.noise / (4.0 * tolerance), 1.0])
        )
        # Noise that cannot be measured, or has no bound: no minibatch is known to do.
        if not np.isfinite(least):
            return N
        size = -(-int(np.ceil(least)) // CHUNK) * CHUNK
        return N if size > N * _LARGEST_SHARE else size

    @property
    def chunk(self) -> int:
        """Data of one round of a step."""
        return CHUNK if self.order == "cv2" else self.batch_size(0.0)

    def rounds(self, batch_size: int) -> tuple[int, int, int]:
        """Minibatches of a step in the bulk, beyond it, and in the far tail; one where a step sees all the data."""
        if not self.num_data or batch_size == self.num_data:
            return 1, 1, 1
        rounds, guard = batch_size // self.chunk, self.guard(batch_size)
        return rounds, rounds * int(np.ceil(np.sqrt(guard))), rounds * guard

    def in_rounds(self, size: int) -> int:
        """`size` rounded up to whole rounds."""
        return -(-size // self.chunk) * self.chunk

    def guard(self, batch_size: int) -> int:
        """Minibatches of a step that has left the bulk, no more than go into the data.

        One without second-order control variates, whose noise alone explodes out there.
        """
        if self.order != "cv2" or batch_size >= self.num_data:
            return 1
        return min(GUARD_FACTOR, max(self.num_data // batch_size, 1))

    def step_cost(self, batch_size: int) -> float:
        """Datum visits that a step is expected to cost, with the guard's calls on a Gaussian."""
        return max(batch_size, 1) * (1.0 + self.extra_rounds(batch_size))

    def extra_rounds(self, batch_size: int) -> float:
        """Minibatches that the guard is expected to add to a step of a Gaussian."""
        guard = self.guard(batch_size)
        return TAILS[0] * (np.sqrt(guard) - 1.0) + TAILS[1] * (guard - np.sqrt(guard))

    def fit(self, visits: float) -> tuple[int, float]:
        """The fixed point (n, S) of n = batch_size(S) and S = visits/n: both depend on each other.

        `batch_size` grows with S, which falls with n, so the first n that is large enough for its own S is the one.
        """
        if not self.num_data:
            return 0, visits
        n = self.batch_size(0.0)
        while n < self.num_data and self.batch_size(visits / self.step_cost(n)) > n:
            n += CHUNK
            if n > self.num_data * _LARGEST_SHARE:
                n = self.num_data
        return n, visits / self.step_cost(n)
