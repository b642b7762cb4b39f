"""Embarrassingly parallel Monte Carlo: the posterior as a product of subposteriors, from draws of each shard.

Shard s samples p_s(theta) ~ prior(theta)^(1/S) prod_{i in s} p(x_i | theta) by itself (`subposterior`), sends its draws
once, and the functions here make the product of them. One message a shard; none of them is exact beyond its own
assumption, and none can say how wrong it is.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Combined:
    """Mean (d,) and covariance (d, d) of a combined posterior, and its draws (T, d) with weights, where it has any.

    Example:
        >>> import numpy as np
        >>> Combined.of(np.array([[0.0], [4.0]]), weight=np.array([3.0, 1.0])).mean
        array([1.])
    """

    mean: Array
    covariance: Array
    draws: Array | None = None
    weight: Array | None = None

    @property
    def sd(self) -> Array:
        """Standard deviations."""
        return np.sqrt(np.diag(self.covariance))

    @classmethod
    def of(cls, draws: Array, weight: Array | None = None) -> "Combined":
        """The weighted moments of draws."""
        share = np.full(len(draws), 1.0 / len(draws)) if weight is None else weight / weight.sum()
        mean = share @ draws
        centred = draws - mean
        return cls(mean, centred.T @ (share[:, None] * centred), draws, share)


def parametric(draws: Sequence[ArrayLike]) -> Combined:
    """The product of Gaussians fitted to each shard's draws.

        Sigma = (sum_s Sigma_s^-1)^-1,    mu = Sigma sum_s Sigma_s^-1 mu_s

    Cost: one pass over the draws. Exact for Gaussian subposteriors, up to the error of their moments; biased where a
    shard's posterior is skewed, as those of few data are. Neiswanger, Wang and Xing, *Asymptotically exact,
    embarrassingly parallel MCMC* (2014), section 3.1.

    Example:
        >>> import numpy as np
        >>> one, other = np.array([[-1.0], [1.0]]), np.array([[1.0], [3.0]])
        >>> parametric([one, other]).mean
        array([1.])
    """
    means, precisions = _gaussians(_checked(draws))
    covariance = np.linalg.inv(precisions.sum(axis=0))
    return Combined(covariance @ np.einsum("sij,sj->i", precisions, means), covariance)


def consensus(draws: Sequence[ArrayLike]) -> Combined:
    """Weighted averages of one draw from each shard: consensus Monte Carlo.

        theta_t = (sum_s W_s)^-1 sum_s W_s theta_st,    W_s = Sigma_s^-1

    Cost: one pass over the draws. Exact for Gaussian subposteriors; elsewhere it keeps some of their skewness, without
    being their product. Scott et al., *Bayes and big data: the consensus Monte Carlo algorithm* (2016).

    Example:
        >>> import numpy as np
        >>> one, other = np.array([[-1.0], [1.0]]), np.array([[1.0], [3.0]])
        >>> consensus([one, other]).draws.ravel()
        array([0., 2.])
    """
    parts = _checked(draws)
    _, precisions = _gaussians(parts)
    count = min(len(part) for part in parts)
    total = sum(part[:count] @ weight for part, weight in zip(parts, precisions, strict=True))
    return Combined.of(total @ np.linalg.inv(precisions.sum(axis=0)))


def nonparametric(draws: Sequence[ArrayLike], seed: int = 0) -> Combined:
    """The product of kernel density estimates: a mixture of T^S Gaussians, sampled by independent Metropolis in Gibbs.

        w = prod_s N(theta_s | mean, h^2 I),    theta ~ N(mean, h^2/S I),    mean = average of one draw theta_s a shard,

    h = t^(-1/(4+d)) at sweep t, in units in which the parametric product has the covariance I/S (so that shards of like
    data have the covariance I). Cost: T sweeps of S proposals, O(S) numbers each. Asymptotically exact as T grows; in
    practice the index chain hardly moves where shards overlap little, and the kernels widen what it finds. Neiswanger,
    Wang and Xing (2014), section 3.2, algorithm 1.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> nonparametric([rng.normal(size=(500, 1)), rng.normal(size=(500, 1))]).draws.shape
        (500, 1)
    """
    parts = _checked(draws)
    centre, root, units = _in_units(parts)
    rng = np.random.default_rng(seed)
    found = []
    for h, picked in sweeps(units, rng, lambda theta, h, s, t: 0.0, _widths(units)):
        spread = h / np.sqrt(len(parts)) * rng.standard_normal(root.shape[0])
        found.append(picked.mean(axis=0) + spread)
    return Combined.of(centre + np.array(found) @ root.T)


def semiparametric(draws: Sequence[ArrayLike], seed: int = 0) -> Combined:
    """The parametric product times kernel estimates of what each shard's density has beyond its Gaussian.

        W = w N(mean | mu, Sigma + h^2/S I) / prod_s N(theta_s | mu_s, Sigma_s)
        theta ~ N(Sigma_h (S/h^2 mean + Sigma^-1 mu), Sigma_h),    Sigma_h = (S/h^2 I + Sigma^-1)^-1

    with w, mean and h as in `nonparametric`, and mu, Sigma those of `parametric`. Cost: T sweeps of S proposals, O(d^2)
    each. Leaves a Gaussian as it is where the kernels are wide, and follows the draws where they are narrow.
    Neiswanger, Wang and Xing (2014), section 3.3.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> semiparametric([rng.normal(size=(500, 1)), rng.normal(size=(500, 1))]).draws.shape
        (500, 1)
    """
    parts = _checked(draws)
    shards, d = len(parts), parts[0].shape[1]
    centre, root, units = _in_units(parts)
    rng = np.random.default_rng(seed)
    # In these units the parametric product is N(0, I/S).
    found = []
    for h, picked in sweeps(units, rng, beyond_gaussian(units), _widths(units)):
        narrow = 1.0 / (shards / h**2 + shards)
        found.append(narrow * shards / h**2 * picked.mean(axis=0) + np.sqrt(narrow) * rng.standard_normal(d))
    return Combined.of(centre + np.array(found) @ root.T)


def beyond_gaussian(units: list[Array]) -> Callable[[Array, float, int, int], float]:
    """log W - log w of `semiparametric`, where the parametric product is N(0, I/S), up to a constant."""
    shards, (means, precisions) = len(units), _gaussians(units)
    own = [-0.5 * np.einsum("ti,ij,tj->t", u - m, p, u - m) for u, m, p in zip(units, means, precisions, strict=True)]

    def beyond(mean: Array, h: float, s: int, t: int) -> float:
        return float(-0.5 * shards * (mean @ mean) / (1.0 + h**2) - own[s][t])

    return beyond


def _widths(units: list[Array]) -> Array:
    """h = t^(-1/(4+d)), one for each draw."""
    count, d = units[0].shape
    return np.arange(1.0, count + 1.0) ** (-1.0 / (4 + d))


def sweeps(
    units: list[Array],
    rng: np.random.Generator,
    beyond: Callable[[Array, float, int, int], float],
    widths: Array,
) -> Iterator[tuple[float, Array]]:
    """Sweep after sweep of Metropolis steps on which draw of each shard is taken: (h, the draws taken) after each.

    log w = -(sum over s of |theta_s - mean|^2) / (2 h^2), and `beyond(mean, h, s, t)` is what the weight has beside,
    up to what does not change with draw t of shard s.
    """
    shards, count = len(units), len(units[0])
    square = [np.sum(part**2, axis=1) for part in units]
    at = rng.integers(count, size=shards)
    picked = np.stack([part[t] for part, t in zip(units, at, strict=True)])
    mean = picked.mean(axis=0)
    for h in widths.tolist():
        proposed, log_uniform = rng.integers(count, size=shards), np.log(rng.random(shards))
        for s, t in enumerate(proposed.tolist()):
            old = int(at[s])
            there = mean + (units[s][t] - picked[s]) / shards
            # sum |theta_s - mean|^2 = sum |theta_s|^2 - S |mean|^2
            closer = square[s][old] - square[s][t] - shards * (mean @ mean - there @ there)
            ratio = 0.5 * closer / h**2 + beyond(there, h, s, t) - beyond(mean, h, s, old)
            if log_uniform[s] < ratio:
                picked[s], at[s], mean = units[s][t], t, there
        yield h, picked


def _in_units(parts: list[Array]) -> tuple[Array, Array, list[Array]]:
    """Centre c and root R of units u, theta = c + R u, in which the parametric product has covariance I/S; the draws.

    All shards in the same number.
    """
    product = parametric(parts)
    root = np.asarray(np.linalg.cholesky(len(parts) * product.covariance), np.float64)
    count = min(len(part) for part in parts)
    inverse = np.asarray(np.linalg.inv(root), np.float64)
    return product.mean, root, [(part[:count] - product.mean) @ inverse.T for part in parts]


def _gaussians(parts: list[Array]) -> tuple[Array, Array]:
    """Means (S, d) and precisions (S, d, d) of the draws of each shard."""
    covariances = [np.atleast_2d(np.cov(part, rowvar=False)) for part in parts]
    return np.stack([part.mean(axis=0) for part in parts]), np.linalg.inv(np.stack(covariances))


def _checked(draws: Sequence[ArrayLike]) -> list[Array]:
    parts = [np.asarray(part, np.float64) for part in draws]
    shapes = [part.shape for part in parts]
    good = len(parts) > 0 and all(part.ndim == 2 and part.shape[1] == parts[0].shape[-1] for part in parts)
    if not good or any(len(part) <= part.shape[1] or not np.all(np.isfinite(part)) for part in parts):
        raise ValueError(
            f"draws must be one finite array (T, d) for each shard, T larger than d, got shapes {shapes}. "
            f"Try [result.draws.theta for result in results] with the chains on one axis."
        )
    return parts
