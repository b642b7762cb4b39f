"""Posterior quantiles with error bars: streamed distribution functions where a run has them, else kept draws."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from langevin.analysis import errorbars
from langevin.analysis.averages import Setting, only
from langevin.analysis.statuses import worse
from langevin.analysis.value import MUCH, Estimate

if TYPE_CHECKING:
    from langevin.engine.ledger import Ledger

Array = NDArray[np.float64]
_FEWEST_BEYOND = 10
# Halvings of the grid's range in the search for a quantile, to rounding.
_HALVINGS = 60
# Chance that spacings of independent draws from a smooth density look like a gap, for one side of one quantile.
_GAP_LEVEL = 1e-6


class Linear(NamedTuple):
    """Quantiles (probabilities, d) with linearised bars, and what it takes to turn the distribution function around.

    `share` is the standard error of F at the quantile, `inverse` takes probabilities (probabilities, d) to quantiles,
    `time` is that of all chains, `draws` their number where quantiles come from draws.
    """

    found: Estimate
    share: Array
    inverse: Callable[[Array], Array]
    time: float
    draws: float = np.inf


def quantiles(ledger: "Ledger", probabilities: ArrayLike = (0.025, 0.5, 0.975)) -> Estimate:
    """Quantiles of every flat parameter, (probabilities, d), chains pooled.

    From the sums of `lv.Marginals()`, whose bars shrink with the run, where the ledger has them; else from draws kept
    with `keep=`, whose values keep the bias of the raw average: status `uncorrected` at best. Exact kernels have no
    bias, and may be far from Gaussian between the points of a grid: theirs come from draws, where there are any.
    Cost: a few passes over the rows, or d sorts. Assumes one schedule setting.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.Logistic.simulate(seed=1)
        >>> result = lv.sample(model.target, model.data, model.theta_0, passes=20)
        >>> lv.quantiles(result.ledger, (0.025, 0.975)).value.shape
        (2, 3)
    """
    try:
        p = np.atleast_1d(np.asarray(probabilities, dtype=np.float64))
    except (TypeError, ValueError):
        p = np.empty(0)
    if p.ndim != 1 or not p.size:
        raise ValueError(f"probabilities must be numbers in (0, 1), got {probabilities!r}. Try (0.025, 0.5, 0.975).")
    return _across_gaps(linear(ledger, p), p[:, None])


def linear(ledger: "Ledger", p: Array) -> Linear:
    """Quantiles as if the density were the same all along their bars: `quantiles` looks at whether it is."""
    if ledger.schedule.batch_shape:
        raise ValueError(f"quantiles take one schedule setting, got a batch of shape {ledger.schedule.batch_shape}.")
    if not np.all((p > 0) & (p < 1)):
        raise ValueError(f"probabilities must lie in (0, 1), got {p.tolist()}. Try (0.025, 0.5, 0.975).")
    name = next((name for name, column in ledger.columns.items() if column.marginals), None)
    if name is None or (ledger.exact and ledger.draws is not None):
        return _from_draws(ledger, p)
    return _from_sums(ledger, name, p)


def _across_gaps(linear: Linear, p: Array) -> Estimate:
    """Bars that reach across a gap in the density, where a share of probability that nobody can tell lies beyond it.

    With s the error of the share F(q), t its 99% quantile and x = t s/p, Woodruff's interval ends at Q(p - t s). Where
    F is log-concave, as it is for every log-concave density,

        q - Q(p - t s) <= -log(1 - x)/x  t s/f(q),

    since log F lies below its tangent at q; likewise upwards with 1 - F and x = t s/(1 - p). s/f is the linearised
    bar. An end farther out than that, and than spacings of draws vary by chance, lies beyond a gap: the 95% interval
    then reaches as far as the end. Sums of m spacings have a ratio with the law of F(2m, 2m), and one s holds
    m = p (1 - p)/s independent draws.
    """
    from scipy.special import fdtri

    found, s = linear.found, linear.share
    with np.errstate(divide="ignore", invalid="ignore"):
        m = np.minimum(p * (1.0 - p) / s, linear.draws * s)
        chance = np.maximum(fdtri(2.0 * m, 2.0 * m, 1.0 - _GAP_LEVEL), MUCH)
        reach = errorbars.t_quantile(0.995, found.df)
        far = np.zeros_like(found.value)
        for side, room in ((-1.0, p), (1.0, 1.0 - p)):
            x = reach * s / room
            # Beyond the last draws nothing is known of the density, and nothing is said here.
            inside = (x > 0.0) & (x < 1.0)
            length = np.abs(linear.inverse(np.where(inside, p + side * reach * s, p)) - found.value)
            most = -np.log1p(-np.where(inside, x, 0.0)) / x * reach * found.stderr * chance
            far = np.where(inside & (length > most), np.maximum(far, length), far)
        stderr = np.fmax(found.stderr, far / errorbars.t_quantile(0.975, found.df))
    gap = stderr > found.stderr
    return replace(
        found,
        stderr=np.where(gap, stderr, found.stderr),
        sigma2=np.where(gap, stderr**2 * linear.time, found.sigma2),
        # What the batches of a share are skewed by says nothing of a gap.
        skewness=np.where(gap, 0.0, found.skewness),
    )


def _from_sums(ledger: "Ledger", name: str, p: Array) -> Linear:
    """Solves F(c) = p with F = Phi + phi t, t = (F - Phi)/phi interpolated between the points of the grid.

        stderr = sd stderr(F(c)) / f(c),    f the slope of F

    t is cubic in c for a posterior of small skewness and kurtosis: a cubic through the four nearest points is enough.
    """
    from scipy.special import ndtri

    from langevin.observables import Marginals

    grid, column = Marginals.GRID, ledger.columns[name]
    setting = Setting(ledger, (), "corrected", pool=True)
    batches = setting.batches(name)
    d = len(ledger.names)
    centre, sd = column.reference
    density = np.exp(-0.5 * grid**2) / np.sqrt(2.0 * np.pi)
    t = batches.mean[0].reshape(d, -1) / density
    c = _solved(np.broadcast_to(p[:, None], (len(p), d)), t, grid)
    step = 1e-4
    slope = (_distribution(c + step, t, grid) - _distribution(c - step, t, grid)) / (2.0 * step)
    # Influence values of F(c), in units of the value.
    weight = _weights(c, grid) * (np.exp(-0.5 * c**2)[..., None] / np.exp(-0.5 * grid**2))
    influence = np.einsum("gckjv,pjv->gckpj", batches.influence.reshape(*batches.influence.shape[:3], d, -1), weight)
    # A quantile beyond the grid, or where the estimated density is not positive, is not known.
    known = (np.abs(c) < grid[-1] - 0.01) & (slope > 0.0)
    scaled = -sd * influence / np.where(known, slope, np.nan)
    value = centre + sd * c
    laplace = centre + sd * ndtri(p)[:, None]
    found = setting.entry(
        batches, value.reshape(1, -1), scaled.reshape(*scaled.shape[:3], -1), None, laplace.ravel(), value.shape,
        np.tile(sd, len(p)),
    )  # fmt: skip
    found = only(replace(found, statuses=worse(found.statuses, "too_few_batches", ~known)))
    share = errorbars.bar(influence.reshape(*influence.shape[:3], -1)).stderr.reshape(value.shape)
    return Linear(found, share, lambda at: centre + sd * _solved(at, t, grid), len(ledger.chains) * setting.rows.time)


def _solved(p: Array, t: Array, grid: Array) -> Array:
    """c with F(c) = p, both (probabilities, d); an end of the grid where it lies beyond."""
    low, high = np.full(p.shape, grid[0]), np.full(p.shape, grid[-1])
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        below = _distribution(middle, t, grid) < p
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)


def _weights(c: Array, grid: Array) -> Array:
    """Lagrange weights of the four points of the grid nearest to c, (*c.shape, grid)."""
    spacing = grid[1] - grid[0]
    first = np.clip(np.floor((c - grid[0]) / spacing).astype(int) - 1, 0, len(grid) - 4)
    near = first[..., None] + np.arange(4)
    x = grid[near]
    found = np.zeros((*c.shape, len(grid)))
    for k in range(4):
        others = [j for j in range(4) if j != k]
        w = np.prod([(c - x[..., j]) / (x[..., k] - x[..., j]) for j in others], axis=0)
        np.put_along_axis(found, near[..., k : k + 1], w[..., None], axis=-1)
    return found


def _distribution(c: Array, t: Array, grid: Array) -> Array:
    """F at c (probabilities, d) for t on the grid, (d, grid)."""
    from scipy.special import ndtr

    density = np.exp(-0.5 * c**2) / np.sqrt(2.0 * np.pi)
    return np.asarray(ndtr(c)) + density * np.einsum("pjv,jv->pj", _weights(c, grid), t)


def weighted_quantiles(x: Array, weight: Array, probabilities: Array) -> Array:
    """Quantiles of a weighted sample (n,): linear between midpoints of the sorted weights. Cost: a sort."""
    order = np.argsort(x, kind="stable")
    mass = weight[order] / weight.sum()
    return np.interp(probabilities, np.cumsum(mass) - 0.5 * mass, x[order])


def _from_draws(ledger: "Ledger", p: Array) -> Linear:
    """Woodruff's inversion: no density is estimated.

    stderr = (Q(p + s) - Q(p - s)) / 2,    s the batch-means error of the share of draws below Q(p)
    """
    draws = ledger.draws
    if draws is None:
        raise ValueError(
            "quantiles need sums or kept draws, and this ledger has none. Use lv.run(..., anchor=anchor, "
            "observables={'theta': lv.Moments(), 'marginals': lv.Marginals()}), or lv.run(..., keep=1000)."
        )
    chains, count, d = draws.theta.shape
    theta, weight = draws.theta.astype(np.float64), draws.weight
    pooled, every = theta.reshape(-1, d), np.tile(weight, chains)

    def inverse(at: Array) -> Array:
        return np.stack([weighted_quantiles(pooled[:, k], every, at[:, k]) for k in range(d)], axis=1)

    value = inverse(np.broadcast_to(p[:, None], (len(p), d)))
    below = ledger.units((theta[:, :, None, :] <= value).reshape(chains, count, -1) * weight[:, None])
    # A kept draw stands for its stride, of total weight `weight`: that is a row, and its time for the paper's
    # weights.
    k = errorbars.batch_count(count, len(below), errorbars.FEWEST_BATCHES, None)
    batches = errorbars.batch(below, errorbars.Rows(weight, weight**2, weight), k, pool=True)
    bar = errorbars.bar(batches.influence)
    s = bar.stderr.reshape(value.shape)
    ends = [inverse(p[:, None] + side * s) for side in (-1.0, 1.0)]
    # A quantile with less than ten draws beyond it, an error beyond the range, or batches that all agree (pairs whose
    # draws lie on either side of the median in turn) is not known from these draws.
    beyond = np.minimum(p, 1.0 - p)[:, None]
    known = (beyond * chains * count >= _FEWEST_BEYOND) & (s < beyond) & (s > 0.0)
    stderr = np.where(known, 0.5 * (ends[1] - ends[0]), np.nan)
    enough = known & (batches.count >= errorbars.FEWEST_BATCHES)
    word = "ok" if ledger.exact else "uncorrected"
    time = float(ledger.sum_delta.sum())
    found = Estimate(
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
    return Linear(found, s, inverse, chains * time, chains * count)
