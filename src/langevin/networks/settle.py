"""Before a run of many parameters: units, starts, steps, a burn-in, and how many data a step should see."""

from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import numpy as np

from langevin.data.source import DataSource
from langevin.errors import Diverged
from langevin.limits import checkpoint
from langevin.networks.averages import batch_means
from langevin.networks.extrapolate import relative_bias
from langevin.networks.levels import Levels, Pair
from langevin.networks.units import longest_step, prior_scale
from langevin.target import Layout, Target

PyTree = Any
# Streams of random numbers of their own.
_STREAM = 0x4E4554
# The larger step over the longest stable one. The curvature changes as a chain moves, by less than this allows for.
_SAFE = 0.5
# Minibatches need a long lever, since the difference between the levels is known no better than the averages; the
# bias of second order of full gradients needs a shorter one for the same share of it.
_RATIO, _RATIO_FULL = 4, 2
# Data a step while nothing is known, and the fewest.
_FIRST_BATCH, _SMALLEST_BATCH = 256, 32
# From this share of the data on, a step sees all of them: gradients without noise then cost no more.
_LARGEST_SHARE = 0.5
# Bias of the lower level, in posterior sds, that a straight line through two levels takes off well: at 0.1 a network
# on the breast cancer data kept less than 0.03 after it.
_WANTED_BIAS, _LEAST_BIAS = 0.07, 0.03
# Units of time of a window of the burn-in, and windows; of the pilot; half a window at the start is the descent itself.
_WINDOW, _FEWEST_WINDOWS, _MOST_WINDOWS = 8, 3, 16
_PILOT = 24
# Shares of a time limit that burn-in and pilot may take.
_BURN_IN_SHARE, _SETTLE_SHARE = 0.25, 0.4
# Rows whose log likelihood is watched.
_PROBE_ROWS = 256
# How often steps are halved where chains leave the finite numbers.
_HALVINGS = 6


@dataclass(frozen=True, eq=False)
class Settled:
    """What is known before the run: `scale` are the units of length, `longest` the longest stable step in them.

    `starts` (2, chains, d) is where the chains stand, `pair` how they go on, `probes` the rows that are watched,
    `cost` in datum visits. `noise` is the bias that the pilot saw at `_FIRST_BATCH` data a step, in posterior sds (0
    with all the data). `stages` counts the random streams used so far, `shorter` is what steps were multiplied by where
    chains left the finite numbers.
    """

    scale: np.ndarray
    longest: float
    pair: Pair
    starts: np.ndarray
    probes: np.ndarray
    cost: float
    noise: float
    stages: int
    seconds: float
    shorter: float = 1.0


def settle(
    target: Target, source: DataSource, theta_0: PyTree, chains: int, seed: int, deadline: float | None
) -> Settled:
    """Chains from starts of their own, led to where the posterior is."""
    began = monotonic()
    layout, rng = Layout.of(theta_0), np.random.default_rng([seed, _STREAM])
    flat = layout.flat(theta_0)
    target.check(theta_0, source.arrays)
    scale = prior_scale(target, layout, flat, rng)
    # As far apart as draws of the prior: whether the chains meet says something then.
    starts = (flat + scale * rng.standard_normal((2, chains, layout.size))).astype(np.float32)
    probes = rng.permutation(source.num_data)[:_PROBE_ROWS]
    found = Settled(scale, np.inf, Pair(1.0, 1, True, _RATIO_FULL), starts, probes, 0.0, 0.0, 0, 0.0)
    work = _Work(target, source, theta_0, layout, seed, rng, began, deadline)
    found = work.burn_in(found)
    if not found.pair.full:
        found = work.pilot(found)
    return replace(found, seconds=monotonic() - began)


@dataclass(frozen=True, eq=False)
class _Work:
    target: Target
    source: DataSource
    theta_0: PyTree
    layout: Layout
    seed: int
    rng: np.random.Generator
    began: float
    deadline: float | None

    def burn_in(self, found: Settled) -> Settled:
        """Windows of a few units of time, each with steps for where the chains are, until the likelihood is level."""
        seen: list[np.ndarray] = []
        while len(seen) < _FEWEST_WINDOWS or (len(seen) < _MOST_WINDOWS and not _level(seen)):
            if seen and self._late(_BURN_IN_SHARE):
                break
            found, draws = self._window(self._measured(found), _WINDOW, _BURN_IN_SHARE)
            seen.append(self._log_likelihood(draws, found.probes))
        return self._measured(found)

    def pilot(self, found: Settled) -> Settled:
        """Chooses the data of a step by the bias that the pilot's two levels show: it falls as 1/n."""
        found, draws = self._window(found, _PILOT, _SETTLE_SHARE)
        means = batch_means(draws, self.layout, self.target.log_likelihood, self.source.take(found.probes))
        noise = relative_bias(means, found.pair)
        size = int(np.ceil(found.pair.batch_size * max(noise, _LEAST_BIAS) / _WANTED_BIAS))
        pair = replace(found.pair, batch_size=max(size, _SMALLEST_BATCH))
        if size > _LARGEST_SHARE * self.source.num_data:
            pair = self._full(found.longest)
        return replace(found, pair=pair, noise=noise)

    def _window(self, found: Settled, ticks: int, share: float) -> tuple[Settled, np.ndarray]:
        """Some units of time of both levels, fewer where this share of the time is over, and the draws of them.

        Steps are halved where chains leave the finite numbers, and stay so.
        """
        for halving in range(_HALVINGS + 1):
            levels = Levels(
                self.target, self.source, self.theta_0, found.scale, found.pair, found.starts, self.seed, found.stages
            )
            draws: list[np.ndarray] = []
            try:
                while len(draws) < ticks and not (draws and self._late(share)):
                    checkpoint("bringing the chains to the posterior", note=f"{len(draws)} of {ticks} units of time")
                    draws.append(levels.tick())
                break
            except Diverged:
                if halving == _HALVINGS:
                    raise
                shorter = replace(found.pair, step=0.5 * found.pair.step)
                found = replace(found, pair=shorter, longest=0.5 * found.longest, shorter=0.5 * found.shorter)
        cost = found.cost + levels.visits
        return replace(found, starts=draws[-1], cost=cost, stages=found.stages + 1), np.stack(draws)

    def _late(self, share: float) -> bool:
        if self.deadline is None:
            return False
        return monotonic() - self.began > share * (self.deadline - self.began)

    def _measured(self, found: Settled) -> Settled:
        """With steps for the curvature where the chains are."""
        checkpoint("measuring the curvature")
        at = found.starts[:, 0]
        longest = found.shorter * longest_step(self.target, self.source, self.layout, found.scale, at, self.rng)
        return replace(found, longest=longest, pair=self._pair(longest))

    def _pair(self, longest: float) -> Pair:
        if _FIRST_BATCH > _LARGEST_SHARE * self.source.num_data:
            return self._full(longest)
        return Pair(_SAFE * longest / _RATIO, _FIRST_BATCH, False, _RATIO)

    def _full(self, longest: float) -> Pair:
        return Pair(_SAFE * longest / _RATIO_FULL, self.source.num_data, True, _RATIO_FULL)

    def _log_likelihood(self, draws: np.ndarray, probes: np.ndarray) -> np.ndarray:
        """Mean log likelihood of the probes over the second half of a window, (2, chains)."""
        late = draws[len(draws) // 2 :]
        means = batch_means(late, self.layout, self.target.log_likelihood, self.source.take(probes)).mean
        return means.mean(axis=(2, 3))


def _level(seen: list[np.ndarray]) -> bool:
    """Whether the last window is no higher than the one before, but for what the chains scatter by."""
    rise = seen[-1] - seen[-2]
    return bool(rise.mean() < 2.0 * rise.std(ddof=1) / np.sqrt(rise.size))
