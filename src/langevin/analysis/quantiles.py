"""Posterior quantiles from kept draws, with error bars from the batches of their indicator."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from langevin.analysis import errorbars
from langevin.analysis.value import Estimate

if TYPE_CHECKING:
    from langevin.engine.ledger import Ledger

Array = NDArray[np.float64]
_FEWEST_BEYOND = 10


def weighted_quantiles(x: Array, weight: Array, probabilities: Array) -> Array:
    """Quantiles of a weighted sample (n,): linear between midpoints of the sorted weights. Cost: a sort."""
    order = np.argsort(x, kind="stable")
    mass = weight[order] / weight.sum()
    return np.interp(probabilities, np.cumsum(mass) - 0.5 * mass, x[order])


def quantiles(ledger: "Ledger", probabilities: ArrayLike = (0.025, 0.5, 0.975)) -> Estimate:
    """Quantiles of every flat parameter, (probabilities, d), chains pooled, from draws kept with `keep=`.

        stderr = (Q(p + s) - Q(p - s)) / 2,    s the batch-means error of the share of draws below Q(p)

    Woodruff's inversion: no density is estimated. Cost: d sorts. An indicator has no smooth Poisson solution,
    so the values keep the bias of the raw average: status `uncorrected` at best, but for exact kernels.
    Assumes one schedule setting.
    """
    draws = ledger.draws
    if draws is None:
        raise ValueError("quantiles need kept draws, and this ledger has none. Use lv.run(..., keep=1000).")
    if ledger.schedule.batch_shape:
        raise ValueError(f"quantiles take one schedule setting, got a batch of shape {ledger.schedule.batch_shape}.")
    p = np.atleast_1d(np.asarray(probabilities, dtype=np.float64))
    if not np.all((p > 0) & (p < 1)):
        raise ValueError(f"probabilities must lie in (0, 1), got {p.tolist()}. Try (0.025, 0.5, 0.975).")
    chains, count, d = draws.theta.shape
    theta, weight = draws.theta.astype(np.float64), draws.weight
    pooled, every = theta.reshape(-1, d), np.tile(weight, chains)
    value = np.stack([weighted_quantiles(pooled[:, k], every, p) for k in range(d)], axis=1)
    below = ledger.units((theta[:, :, None, :] <= value).reshape(chains, count, -1) * weight[:, None])
    # A kept draw stands for its stride, of total weight `weight`: that is a row, and its time for the paper's
    # weights.
    k = errorbars.batch_count(count, len(below), errorbars.FEWEST_BATCHES, None)
    batches = errorbars.batch(below, errorbars.Rows(weight, weight**2, weight), k, pool=True)
    bar = errorbars.bar(batches.influence)
    s = bar.stderr.reshape(value.shape)
    ends = [
        np.stack([weighted_quantiles(pooled[:, k], every, p + side * s[:, k]) for k in range(d)], axis=1)
        for side in (-1.0, 1.0)
    ]
    # A quantile with less than ten draws beyond it, or an error beyond the range, is not known from these draws.
    beyond = np.minimum(p, 1.0 - p)[:, None]
    known = (beyond * chains * count >= _FEWEST_BEYOND) & (s < beyond)
    stderr = np.where(known, 0.5 * (ends[1] - ends[0]), np.nan)
    enough = known & (batches.count >= errorbars.FEWEST_BATCHES)
    word = "ok" if ledger.exact else "uncorrected"
    time = float(ledger.sum_delta.sum())
    return Estimate(
        value=value,
        stderr=stderr,
        df=bar.df.reshape(value.shape),
        bias=np.full(value.shape, np.nan),
        sigma2=stderr**2 * chains * time,
        kurtosis=bar.kurtosis.reshape(value.shape),
        # That of an indicator says nothing of a quantile.
        skewness=np.zeros(value.shape),
        statuses=np.where(enough, word, "too_few_batches"),
        T_m=np.asarray(time),
        B_m=np.asarray(ledger.sum_delta2.sum() / np.sqrt(time)),
        num_batches=np.asarray(batches.count),
    )
