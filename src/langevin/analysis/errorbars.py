"""Error bars from batch means: batches of whole rows, equal in time, and what their influence values say.

Array axes throughout: (groups, chains of a group, batches, values). A group is what one estimate is made of:
all chains when pooled, one chain otherwise.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FEWEST_BATCHES = 4
# One or two chains are cut into 20 batches each: t with 19 degrees of freedom is 7% wider than the normal
# quantile, and a batch is still long. More chains share 40, the number that the kurtosis rule below was
# calibrated with.
_BATCHES_OF_ONE_CHAIN = 20
_BATCHES_IN_ALL = 40
_SINGLE_ROWS = 12
# Means over b relaxation times have 1 - 1/b of the variance of independent ones: 5 costs a tenth of the bar.
RELAXATIONS = 5.0
# Chance that `transient` fires on Gaussian batches without one, over all values of an estimate.
TRANSIENT_LEVEL = 1e-3


def t_quantile(probability: float, df: Array) -> Array:
    """Quantile of Student's t; what `scipy.stats` gives, which takes over a second to import."""
    from scipy.special import stdtrit

    return np.asarray(stdtrit(df, probability))


class Rows(NamedTuple):
    """Sums of delta, delta^2 and omega over the rows of one schedule setting, each (rows,)."""

    delta: Array
    delta2: Array
    omega: Array

    @property
    def time(self) -> float:
        """T_m of one chain."""
        return float(self.delta.sum())

    @property
    def step(self) -> Array:
        """Mean step of each row: exact for omega = delta, else up to the change of delta within a row."""
        return self.delta2 / self.delta


@dataclass(frozen=True)
class Batches:
    """Sums over batches of one observable: `sums` (groups, chains, k, values) of omega (phi - reference).

    `omega` (k,) is the weight of each batch of one chain and `step` (k,) its mean step sum(omega delta) /
    sum(omega).
    """

    sums: Array
    omega: Array
    step: Array

    @property
    def count(self) -> int:
        """Batches of one group."""
        return int(self.sums.shape[1] * self.sums.shape[2])

    @property
    def total(self) -> float:
        """Weight of one group, Omega_m times its number of chains."""
        return float(self.omega.sum() * self.sums.shape[1])

    @property
    def mean(self) -> Array:
        """Weighted mean of each group, (groups, values)."""
        return self.sums.sum(axis=(1, 2)) / self.total

    @property
    def influence(self) -> Array:
        """What each batch adds to the error of the mean: (sums - omega mean) / total, zero in all."""
        return (self.sums - self.omega[:, None] * self.mean[:, None, None]) / self.total

    @property
    def spread(self) -> float:
        """Range of the mean steps over their average: 0 for constant steps."""
        return float(np.ptp(self.step) / self.step.mean())


def edges(sum_delta: Array, count: int) -> NDArray[np.int64]:
    """First rows of `count` batches of equal time, to within a row; every batch holds at least one row.

    Cost: one search a batch. Assumes count <= number of rows.
    """
    time = np.concatenate([[0.0], np.cumsum(sum_delta)])
    wanted = time[-1] * np.arange(count) / count
    right = np.searchsorted(time, wanted)
    left = np.maximum(right - 1, 0)
    nearest = np.where(wanted - time[left] < time[right] - wanted, left, right)
    # Rows that differ widely in time could be wanted twice: shift later, then make room at the end.
    index = np.arange(count)
    nearest = np.maximum.accumulate(nearest - index) + index
    return np.minimum(nearest, len(sum_delta) - count + index)


def batch_count(rows: int, chains: int, fewest: int, relaxations: float | None) -> int:
    """Batches of one chain: 20 if alone, 40 in all for several, at least `fewest` if there are rows enough.

    `relaxations` is the length of a chain in relaxation times, if it matters and is known: a batch gets at
    least five.
    """
    count = min(_BATCHES_OF_ONE_CHAIN, max(fewest, -(-_BATCHES_IN_ALL // chains)))
    if relaxations is not None:
        count = min(count, max(int(relaxations / RELAXATIONS), FEWEST_BATCHES))
    # Two rows a batch keep them equal in time to a third; a short run takes single rows instead, because
    # fewer than a dozen batches cost more in the t quantile than uneven ones do.
    return min(count, max(rows // 2, min(_SINGLE_ROWS, rows)))


def batch(sums: Array, rows: Rows, count: int, pool: bool) -> Batches:
    """Row sums (chains, rows, values) cut into `count` batches a chain. Cost: one pass over the rows."""
    first = edges(rows.delta, count)
    by_batch = np.add.reduceat(sums, first, axis=1)
    omega = np.add.reduceat(rows.omega, first)
    step = np.add.reduceat(rows.omega * rows.step, first) / omega
    return Batches(by_batch[None] if pool else by_batch[:, None], omega, step)


class Bar(NamedTuple):
    """Standard error, degrees of freedom, kurtosis and skewness of the influence values, each (groups, values)."""

    stderr: Array
    df: Array
    kurtosis: Array
    skewness: Array


def bar(influence: Array, lost: int = 1) -> Bar:
    """Error bar of a sum of K influence values that `lost` fitted coefficients have centred.

        SE^2 = K/(K - lost) sum f^2 (1 + max(kurt - 3, 0)/40)^2,   df = clip(2K/(kurt - 1), 3, K - lost)

    A variance estimated from K values of kurtosis kurt has relative variance (kurt - 1)/K, that of a
    chi-square with 2K/(kurt - 1) degrees of freedom; the factor makes up for skew that K values cannot show.
    Cost: K a value. Assumes nearly independent batches.
    """
    values = influence.reshape(influence.shape[0], -1, influence.shape[-1])
    count = values.shape[1]
    free = count - lost
    # Products: NumPy takes a hundred times as long for a cube by `**`.
    squares = values * values
    square = np.sum(squares, axis=1)
    if free < 1:
        nothing = np.full(square.shape, np.nan)
        return Bar(nothing, nothing, nothing, nothing)
    fourth = np.sum(squares * squares, axis=1)
    # A constant observable has no error and no shape: call it Gaussian.
    positive = np.where(square > 0, square, 1.0)
    kurtosis = np.where(square > 0, count * fourth / positive**2, 3.0)
    skewness = np.sqrt(count) * np.sum(squares * values, axis=1) / (positive * np.sqrt(positive))
    stderr = np.sqrt(count / free * square) * (1.0 + np.maximum(kurtosis - 3.0, 0.0) / 40.0)
    df = np.clip(2.0 * count / np.maximum(kurtosis - 1.0, 1e-9), min(3.0, free), free)
    return Bar(stderr, df, kurtosis, skewness)


def unskewed(t: Array, skewness: Array, count: Array) -> Array:
    """The studentised error w of a mean of K values at which Hall's transformation takes the value t.

        t = w + g w^2/(3 sqrt K) + g^2 w^3/(27 K) + g/(6 sqrt K),   g their skewness

    A mean of skewed values and its own standard error are small together: to first order w has the law of
    t - g (2 t^2 + 1)/(6 sqrt K), t Student's, and misses on one side. The cubic is monotone, so that it has an inverse.
    """
    shifted = t / np.sqrt(count) - skewness / (6.0 * count)
    root = np.cbrt(1.0 + skewness * shifted)
    return np.sqrt(count) * 3.0 * shifted / (root**2 + root + 1.0)


def lag_one(means: Array) -> Array:
    """Autocorrelation of neighbouring batch means over its standard error, (groups, values).

    Without correlation it has mean -1/k and variance about 1/(chains k).
    """
    centred = means - means.mean(axis=2, keepdims=True)
    square = np.sum(centred**2, axis=(1, 2))
    cross = np.sum(centred[:, :, 1:] * centred[:, :, :-1], axis=(1, 2))
    chains, k = means.shape[1:3]
    rho = np.where(square > 0, cross / np.where(square > 0, square, 1.0), -1.0 / k)
    return (rho + 1.0 / k) * np.sqrt(chains * k)


def transient(means: Array, omega: Array, step: Array, trend: bool) -> NDArray[np.bool_]:
    """Whether the first batch lies far from what the later ones predict, per group and value.

        t = (y_1 - prediction) / (s sqrt((1/w_1 + x_1'(X'WX)^-1 x_1) r / chains))
        r = max(1, step_1 / mean of the later steps)^2

    The prediction is the later batches' mean, or with `trend` their regression on the step, so that a bias
    that falls with the step is no alarm. r allows for noise of variance proportional to the step, as
    corrected values have. Fires with probability TRANSIENT_LEVEL an estimate for Gaussian batches (values:
    Bonferroni). Needs 6 batches a chain.
    """
    chains, k, values = means.shape[1:]
    if k < 6:
        return np.zeros((len(means), values), dtype=bool)
    columns = np.stack([np.ones(k), step], axis=1) if trend else np.ones((k, 1))
    weight = omega / omega.mean()
    x, w, y = columns[1:], weight[1:], means[:, :, 1:]
    gram = np.linalg.inv((x.T * w) @ x)
    fitted = np.einsum("pj,gcjv->gcpv", gram @ (x.T * w), y)
    residual = (y - np.einsum("jp,gcpv->gcjv", x, fitted)) * np.sqrt(w)[:, None]
    surprise = (means[:, :, 0] - np.einsum("p,gcpv->gcv", columns[0], fitted)).mean(axis=1)
    free = chains * (k - 1 - x.shape[1])
    squares = residual * residual
    square, fourth = np.sum(squares, axis=(1, 2)), np.sum(squares * squares, axis=(1, 2))
    kurtosis = chains * (k - 1) * fourth / np.maximum(square, 1e-150) ** 2
    factor = (1.0 / weight[0] + columns[0] @ gram @ columns[0]) * max(1.0, step[0] / step[1:].mean()) ** 2
    spread = np.sqrt(square / free * factor / chains)
    df = np.clip(2.0 * free / np.maximum(kurtosis - 1.0, 1e-9), 3.0, free)
    return np.abs(surprise) > t_quantile(1.0 - TRANSIENT_LEVEL / (2 * values), df) * spread
