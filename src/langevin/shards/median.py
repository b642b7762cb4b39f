"""The M-posterior: the geometric median of what the shards say, deaf to a minority of them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from langevin.shards.products import Array, Combined, _checked
from langevin.target import Target

# Rounds of Weiszfeld's algorithm at most, and the change of a weight that ends it.
_ROUNDS, _CHANGE = 1000, 1e-10
# Draws of a shard that distances are computed from: n^2 kernels for each pair of shards.
_DRAWS = 500


def powered(target: Target, shards: int) -> Target:
    """The target of one of `shards` shards for `m_posterior`: its likelihood to the power `shards`, the whole prior.

    Each then is as wide as the posterior of all the data.

    Example:
        >>> import langevin as lv
        >>> target = lv.Target(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
        >>> lv.shards.powered(target, 4).log_likelihood(0.0, 1.0)
        -2.0
    """
    return Target(target.log_prior, lambda theta, datum: shards * target.log_likelihood(theta, datum))


def m_posterior(draws: Sequence[ArrayLike]) -> Combined:
    """The geometric median of the shards' posteriors in the space of a Gaussian kernel.

        argmin_Q sum_s |Q - Q_s|,    <Q, P> = E[exp(-|X - Y|^2 / (2 h^2))],  X ~ Q, Y ~ P independent

    by Weiszfeld's algorithm: Q = sum_s w_s Q_s, w_s proportional to 1/|Q - Q_s|. The draws are those of `powered`
    targets, h the root of the median squared distance of draws, in units of their average sds. A minority of bad shards
    cannot move it far; shards that differ for good reasons are not averaged out, so it is no approximation of the
    posterior there. Cost: S^2 500^2 kernels. Minsker, Srivastava, Lin and Dunson, *Scalable and robust Bayesian
    inference via the median posterior* (2014).

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> good, bad = rng.normal(size=(4, 300, 1)), 50.0 + rng.normal(size=(300, 1))
        >>> bool(abs(m_posterior([*good, bad]).mean[0]) < 1.0)
        True
    """
    parts = _checked(draws)
    weight = weiszfeld(gram(parts))
    whole = np.concatenate(parts)
    each = np.concatenate([np.full(len(part), w / len(part)) for part, w in zip(parts, weight, strict=True)])
    return Combined.of(whole, each)


def gram(parts: Sequence[Array]) -> Array:
    """<Q_s, Q_r> of the empirical laws, (S, S)."""
    scale = np.mean([part.std(axis=0) for part in parts], axis=0)
    few = [part[np.linspace(0, len(part) - 1, min(_DRAWS, len(part))).astype(int)] / scale for part in parts]
    square = [[np.sum((a[:, None] - b[None]) ** 2, axis=-1) for b in few] for a in few]
    width = np.median(np.concatenate([block.ravel() for row in square for block in row]))
    return np.array([[np.mean(np.exp(-0.5 * block / width)) for block in row] for row in square])


def weiszfeld(products: Array) -> Array:
    """Weights w of the geometric median sum_s w_s v_s of vectors with these inner products.

    |Q - Q_s|^2 = w'Gw - 2 (Gw)_s + G_ss,    w_s <- (1/|Q - Q_s|) / sum_r (1/|Q - Q_r|)
    """
    weight = np.full(len(products), 1.0 / len(products))
    for _ in range(_ROUNDS):
        ahead = products @ weight
        square = weight @ ahead - 2.0 * ahead + np.diag(products)
        # Where the median is one of the vectors its distance is 0: then its weight tends to 1.
        inverse = 1.0 / np.sqrt(np.maximum(square, 1e-24))
        new = inverse / inverse.sum()
        if np.max(np.abs(new - weight)) < _CHANGE:
            return new
        weight = new
    return weight
