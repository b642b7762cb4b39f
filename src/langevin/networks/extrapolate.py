"""From batch means at two step sizes to an estimate: extrapolated, with its bar and its status."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from langevin.analysis.errorbars import Batches, bar
from langevin.analysis.judge import judge
from langevin.analysis.statuses import words, worse
from langevin.analysis.value import Estimate
from langevin.networks.averages import BatchMeans
from langevin.networks.levels import Pair
from langevin.sampling.mixing import MOST_R_HAT

Array = NDArray[np.float64]
# Chance that chains that have met are called apart, over all values of an estimate.
_APART_LEVEL = 1e-3
# Draws that a batch must be worth: then batch means are nearly normal and nearly independent.
_FEWEST_DRAWS = 4.0
# An average that the larger steps move by more than this many posterior sds is out of reach of a straight line.
_MOST_DIFFERENCE = 1.0


@dataclass(frozen=True)
class Extrapolated:
    """What two levels say of some values, all flat: see `Pair` for the formulas.

    `bias` is what was taken off the lower level's average; `sd` the posterior standard deviation.
    """

    value: Array
    bias: Array
    sd: Array
    means: Array

    @classmethod
    def of(cls, found: BatchMeans, pair: Pair) -> "Extrapolated":
        """From batch means (2, chains, batches, *values)."""
        mean = found.mean.reshape(*found.mean.shape[:3], -1)
        square = found.square.reshape(mean.shape)
        lower, upper = mean.mean(axis=(1, 2))
        variance = np.maximum(square[0].mean(axis=(0, 1)) - lower**2, 0.0)
        bias = pair.share * (upper - lower)
        return cls(lower - bias, bias, np.sqrt(variance), mean)

    def influence(self, pair: Pair) -> Array:
        """What each batch adds to the error of the value, (1, 2 chains batches, values)."""
        _, chains, batches, _ = self.means.shape
        weight = np.array([1.0 + pair.share, -pair.share])[:, None, None, None]
        centred = self.means - self.means.mean(axis=(1, 2), keepdims=True)
        return (weight * centred / (chains * batches)).reshape(1, -1, centred.shape[-1])


def relative_bias(found: BatchMeans, pair: Pair) -> float:
    """Root mean square over all values of the lower level's bias, in posterior sds, beyond what chance would show."""
    seen = Extrapolated.of(found, pair)
    _, chains, batches, _ = seen.means.shape
    noise = pair.share**2 * np.sum(seen.means.var(axis=(1, 2), ddof=1) / (chains * batches), axis=0)
    some = seen.sd > 0.0
    if not some.any():
        return 0.0
    return float(np.sqrt(max(np.mean((seen.bias[some] ** 2 - noise[some]) / seen.sd[some] ** 2), 0.0)))


def estimated(found: BatchMeans, pair: Pair, typical: float) -> Estimate:
    """The estimate of every value; `typical` is the relative bias over many values, see `relative_bias`.

    What the straight line leaves is of second order: ratio h^2 times a coefficient of the size of the square of the
    first one, in posterior sds. The interval has room for ratio typical |bias|.
    """
    seen = Extrapolated.of(found, pair)
    _, chains, batches, _ = seen.means.shape
    spread = bar(seen.influence(pair), lost=2)
    remainder = pair.ratio * typical * np.abs(seen.bias)
    lower = Batches(seen.means[:1], np.ones(batches), np.full(batches, pair.step))
    codes = judge(
        lower, seen.means[:1], spread, beyond=(remainder > spread.stderr[0])[None], uncorrected=False, trend=False,
        settling=True, inflation=None, noisy=not pair.full, reused=False, relaxations=None, stuck=False,
        negligible=np.False_,
    )  # fmt: skip
    statuses = words(codes)[0]
    statuses = worse(statuses, "gradient_noise", np.abs(seen.bias) / pair.share > _MOST_DIFFERENCE * seen.sd)
    with np.errstate(divide="ignore", invalid="ignore"):
        worth = seen.sd**2 / seen.means[0].var(axis=(0, 1), ddof=1)
    short = (worth < _FEWEST_DRAWS) | (r_hat(seen.means, seen.sd) > MOST_R_HAT)
    statuses = worse(statuses, "too_few_batches", short)
    apart = not_met(seen.means)
    statuses = worse(statuses, "not_mixed", apart)
    shape = found.mean.shape[3:]

    def shaped(values: Array) -> Array:
        return values.reshape(shape)

    return Estimate(
        value=shaped(seen.value),
        stderr=shaped(np.where(apart, np.nan, spread.stderr[0])),
        df=shaped(spread.df[0]),
        bias=shaped(remainder),
        sigma2=shaped(spread.stderr[0] ** 2 * chains * batches),
        kurtosis=shaped(spread.kurtosis[0]),
        skewness=shaped(spread.skewness[0]),
        statuses=statuses.reshape(shape),
        T_m=np.array(float(batches)),
        B_m=np.array(float(batches * pair.step)),
        num_batches=np.array(2 * chains * batches),
    )


def not_met(means: Array) -> NDArray[np.bool_]:
    """Where chains of a level differ by more than their batches say.

        F = batches var(chain means) / mean variance of batch means within chains

    with as many degrees of freedom below as the kurtosis of the batch means leaves (see `errorbars.bar`): a few
    excursions in one of the chains have another word.
    """
    from scipy.special import fdtri

    _, chains, batches, values = means.shape
    if batches < 2:
        return np.zeros(values, bool)
    level = 1.0 - _APART_LEVEL / (2 * values)
    found = np.zeros(values, bool)
    for one in means:
        centred = one - one.mean(axis=1, keepdims=True)
        within = np.sum(centred**2, axis=(0, 1)) / (chains * (batches - 1.0))
        between = batches * one.mean(axis=1).var(axis=0, ddof=1)
        kurtosis = np.mean(centred**4, axis=(0, 1)) / np.maximum(np.mean(centred**2, axis=(0, 1)), 1e-150) ** 2
        free = np.clip(2.0 * chains * batches / np.maximum(kurtosis - 1.0, 1e-9), 3.0, chains * (batches - 1.0))
        most = fdtri(chains - 1.0, free, level)
        found |= between > most * within
    return found


def r_hat(means: Array, sd: Array) -> Array:
    """sqrt(1 + B/W) of every value at the lower level: B the variance of means of half chains, W the posterior's."""
    half = means.shape[2] // 2
    halves = np.concatenate([means[0, :, :half].mean(axis=1), means[0, :, -half:].mean(axis=1)])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(1.0 + np.where(sd > 0, halves.var(axis=0, ddof=1) / sd**2, 0.0))
