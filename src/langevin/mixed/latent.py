"""Posterior of chosen groups' latent effects: what quadrature says given theta, averaged over the draws of theta."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from scipy.interpolate import PchipInterpolator
from scipy.special import ndtri

from langevin.analysis.value import Estimate
from langevin.anchor import Anchor
from langevin.factorisations import one_by_one
from langevin.mixed.groups import Groups, group_numbers
from langevin.mixed.marginal import Marginal
from langevin.precision import in_float32, isolated
from langevin.startup import COMPILED

if TYPE_CHECKING:
    from langevin.sampling.result import Result

Array = Any
PyTree = Any

PROBABILITIES = (0.025, 0.5, 0.975)
# Where distribution functions are taken, in sds about the mean that the mode of theta gives.
_GRID = np.linspace(-4.0, 4.0, 21)
# Groups evaluated together at every draw.
_AT_ONCE = 16
_FIELDS = ("value", "stderr", "df", "bias", "sigma2", "kurtosis", "skewness", "statuses")


@dataclass(frozen=True, eq=False)
class Latent:
    """Posterior of some groups' latent effects z; every number has its Monte Carlo error bar and a status.

    `mean` and `sd` have shape (groups, *shape of z), `quantiles` (3, groups, ...) for 2.5%, 50% and 97.5%. `groups`
    names the groups as they were asked for.
    """

    groups: np.ndarray
    mean: Estimate
    sd: Estimate
    quantiles: Estimate


@in_float32
def of_groups(result: "Result", groups: Any) -> Latent:
    """See `Result.latent`."""
    target, source = result.session.target, result.session.source
    if target is None or source is None:
        raise ValueError("latent needs the target and the data: lv.load(path, target, data).")
    if not isinstance(target.log_likelihood, Marginal):
        raise ValueError(
            "latent needs a target whose latent effects were integrated out, and this one has none. "
            "Use lv.Target(log_prior, lv.marginal(log_joint))."
        )
    names = np.atleast_1d(np.asarray(groups))
    numbers = source.numbers(names) if isinstance(source, Groups) else group_numbers(names, source.num_data)
    return latent(result.expectation, target.log_likelihood, result.plan.anchor, source.take(numbers), names)


def latent(
    expectation: Callable[..., Estimate], likelihood: Marginal, anchor: Anchor, arrays: PyTree, names: np.ndarray
) -> Latent:
    """The posterior of z in every group of `arrays`.

    Given theta the law of z_j has the mean, variance, skewness and kurtosis that the nodes' weights give, and between
    them an Edgeworth expansion; averaged over theta the mixture of these laws is the posterior. All of it are
    expectations of smooth functions of theta, so the bars are those of `Result.expectation`.
    """
    single: Marginal = isolated(likelihood, 32)  # type: ignore[assignment]
    count = len(names)
    mode = anchor.layout.unravel(anchor.theta.astype(np.float32))
    located = jax.jit(jax.vmap(lambda g: moments(single, mode, g)[:2]), compiler_options=COMPILED)
    with one_by_one():
        centre, scale = (np.asarray(part) for part in located(arrays))

    def standardised(theta: PyTree, datum: PyTree) -> Array:
        """First and second moments and distribution functions of (z - centre)/scale, (D, 2 + grid)."""
        group, centre, scale = datum
        mean, sd, skewness, kurtosis = moments(single, theta, group)
        mean, sd = (mean - centre) / scale, sd / scale
        t = (jnp.asarray(_GRID, mean.dtype) - mean[:, None]) / sd[:, None]
        below = edgeworth(t, skewness[:, None], kurtosis[:, None])
        return jnp.concatenate([mean[:, None], (sd**2 + mean**2)[:, None], below], axis=1)

    parts = []
    for start in range(0, count, _AT_ONCE):
        # Every part has the same shape, so that it is compiled once.
        rows = np.resize(np.arange(start, min(start + _AT_ONCE, count)), min(_AT_ONCE, count))
        parts.append(expectation(standardised, jax.tree.map(lambda leaf, r=rows: leaf[r], (arrays, centre, scale))))
    fields: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts])[:count] for name in _FIELDS}
    found = replace(parts[0], **fields, laplace=None)
    shape = (count, *likelihood.shape)
    mean, sd = mean_and_sd(found, scale, centre)
    return Latent(
        names,
        shaped(mean, shape),
        shaped(sd, shape),
        shaped(_quantiles(found, centre, scale), (len(PROBABILITIES), *shape)),
    )


def moments(likelihood: Marginal, theta: PyTree, group: PyTree) -> tuple[Array, Array, Array, Array]:
    """Mean, sd, skewness and excess kurtosis of each z_j given theta and the group."""
    z, weight = likelihood.weighted(theta, group)
    mean = weight @ z
    away = z - mean
    variance, third, fourth = (weight @ away**power for power in (2, 3, 4))
    return mean, jnp.sqrt(variance), third / variance**1.5, fourth / variance**2 - 3.0


def edgeworth(t: Array, skewness: Array, kurtosis: Array) -> Array:
    """Distribution function at t of a standardised variable with this skewness and excess kurtosis."""
    second, third, fifth = t**2 - 1.0, t**3 - 3.0 * t, t**5 - 10.0 * t**3 + 15.0 * t
    return norm.cdf(t) - norm.pdf(t) * (skewness / 6 * second + kurtosis / 24 * third + skewness**2 / 72 * fifth)


def mean_and_sd(found: Estimate, scale: np.ndarray, centre: np.ndarray) -> tuple[Estimate, Estimate]:
    """Of effects, from the first two entries (..., 2 and more): the moments of (effect - centre)/scale."""
    return _scaled(_entry(found, 0), scale, centre), _sd(found, scale)


def shaped(one: Estimate, shape: tuple[int, ...]) -> Estimate:
    """The same numbers in another shape."""
    return replace(one, **{name: getattr(one, name).reshape(shape) for name in _FIELDS})


def _entry(found: Estimate, index: Any) -> Estimate:
    return replace(found, **{name: getattr(found, name)[..., index] for name in _FIELDS})


def _scaled(one: Estimate, factor: np.ndarray, shift: np.ndarray) -> Estimate:
    size = np.abs(factor)
    return replace(
        one,
        value=shift + factor * one.value,
        stderr=size * one.stderr,
        bias=factor * one.bias,
        sigma2=size**2 * one.sigma2,
        skewness=np.sign(factor) * one.skewness,
    )


def _sd(found: Estimate, scale: np.ndarray) -> Estimate:
    """The sd from the second moment; the mean's own error, which hardly counts there, is added to be safe."""
    first, second = _entry(found, 0), _entry(found, 1)
    sd = np.sqrt(np.maximum(second.value - first.value**2, 1e-12))
    size = 0.5 * scale / sd
    stderr = size * (second.stderr + 2.0 * np.abs(first.value) * first.stderr)
    return replace(_scaled(second, size, np.zeros_like(size)), value=scale * sd, stderr=stderr, log_scale=True)


def _quantiles(found: Estimate, centre: np.ndarray, scale: np.ndarray) -> Estimate:
    """Where the distribution functions reach the probabilities: bars over the density there."""
    at, slope = np.empty((2, len(PROBABILITIES), *centre.shape))
    for where in np.ndindex(*centre.shape):
        # On the normal scale a distribution function is nearly a straight line.
        probit = ndtri(np.clip(found.value[(*where, slice(2, None))], 1e-6, 1.0 - 1e-6))
        rising = np.flatnonzero(np.diff(np.maximum.accumulate(probit), prepend=-np.inf) > 1e-6)
        inverse = PchipInterpolator(probit[rising], _GRID[rising])
        wanted = ndtri(PROBABILITIES)
        at[(slice(None), *where)] = inverse(wanted)
        slope[(slice(None), *where)] = inverse(wanted, 1) * np.sqrt(2 * np.pi) * np.exp(0.5 * wanted**2)
    nearest = 2 + np.abs(at[..., None] - _GRID).argmin(axis=-1)
    taken: dict[str, Any] = {
        name: np.take_along_axis(getattr(found, name)[None], nearest[..., None], -1)[..., 0] for name in _FIELDS
    }
    bars = _scaled(replace(found, **taken), -scale * slope, np.zeros_like(at))
    return replace(bars, value=centre + scale * at)
