"""How each shard pulls on a chain: its expected gradient, fitted by a line over the Laplace approximation."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from langevin.anchor import Anchor
from langevin.anchor.passes import Passes, block_size
from langevin.anchor.roots import push
from langevin.data.sharded import Sharded
from langevin.data.source import DataSource, as_source
from langevin.gradients import DatumGradient
from langevin.limits import set_up
from langevin.precision import apart
from langevin.shards.pieces import split
from langevin.shards.stays import Drifts
from langevin.startup import COMPILED_SOON, compiled, own_programs
from langevin.target import Layout, Target

PyTree = Any
# Apart from all streams of random numbers that data may have been simulated from.
_STREAM = 0x50554C4C
# Whoever has the shards of a source: what `pull_of_shard` finds in each of them, in order, or None for other data.
Pulls = Callable[[DataSource, Any, Anchor], Iterator[Any] | None]
_owners: ContextVar[Pulls | None] = ContextVar("owners", default=None)


@contextmanager
def pulled_by(owners: Pulls) -> Iterator[None]:
    """Makes `with_drifts` inside ask the owners of the shards."""
    token = _owners.set(owners)
    try:
        yield
    finally:
        _owners.reset(token)


def with_drifts(
    subsample: Sharded, target: Target, data: PyTree | DataSource, gradient: DatumGradient, anchor: Anchor
) -> Sharded:
    """The same subsampler, with what `lv.estimate` needs to know the bias of its long stays.

        D_s(theta) = base(theta) + term(all data of shard s, theta) / q_s,    fitted by a line over N(anchor, Sigma)

    The line is that of least squares over 2 d + 24 antithetic pairs of Laplace draws; what it leaves of D_s is kept
    beside it. Plain gradients of a Gaussian model are linear; those of control variates of second order have nothing
    there but what the shards differ in beyond their Hessians. Cost: 4 d + 48 passes over the data; from each shard as
    many vectors and a matrix (`pull_of_shard`), whatever its size. Needs a dense anchor.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.LinearGaussian.simulate(num_data=100, seed=1)
        >>> anchor = lv.laplace(model.target, model.data, model.theta_0)
        >>> gradient = lv.ControlVariate(anchor)
        >>> halves = lv.shards.with_drifts(lv.Sharded(5, sizes=(50, 50), stay=10), model.target, model.data, gradient,
        ...                                anchor)
        >>> ledger = lv.run(model.target, model.data, model.theta_0, subsample=halves, gradient=gradient, anchor=anchor,
        ...                 schedule=lv.Constant(0.01), num_steps=4000, chains=4)
        >>> lv.estimate(ledger, method="corrected")["theta.mean"].status
        'ok'
    """
    if not isinstance(gradient, DatumGradient) or isinstance(gradient, type):
        raise ValueError(
            f"gradient must be lv.Minibatch() or lv.ControlVariate(anchor), got {gradient!r}: of others it is not "
            f"known how a shard pulls."
        )
    if not anchor.dense:
        raise ValueError("anchor must hold the whole curvature, got one in blocks. Long stays stay `uncorrected` here.")
    source, owners = as_source(data), _owners.get()
    told = None if owners is None else owners(source, gradient, anchor)
    if told is None:
        told = (pull_of_shard(target, shard, gradient, anchor) for shard in split(source, subsample.sizes))
    found = list(told)
    return replace(subsample, drifts=fitted(target, gradient, anchor, subsample, found))


def halves(dimension: int) -> np.ndarray:
    """One draw z ~ N(0, I) of each pair, (2 d + 24, d): the same for all shards, wherever they are."""
    return np.random.default_rng([_STREAM, dimension]).standard_normal((2 * dimension + 24, dimension))


def points(anchor: Anchor) -> np.ndarray:
    """anchor + L z and then anchor - L z, (4 d + 48, d)."""
    z = halves(anchor.layout.size)
    return anchor.theta + push(anchor.root, np.concatenate([z, -z]))


@set_up()
def pull_of_shard(target: Target, shard: DataSource, gradient: Any, anchor: Anchor) -> tuple[np.ndarray, np.ndarray]:
    """The gradient's terms summed over the rows of a shard at every one of the points, (points, d); N_s times the
    sum of their squares minus the square of their sum, averaged over the points, (d, d). Cost: a pass for each point.
    """
    with own_programs(), jax.enable_x64(True):
        passes = Passes(apart(target), shard, anchor.layout, doing="measuring the pull of a shard")
        total, square = passes.over(partial(_terms, passes.target, anchor.layout, gradient, points(anchor)))
    return total, shard.num_data * square.mean(axis=0) - np.einsum("pi,pj->ij", total, total) / len(total)


@compiled(static_argnums=(0, 1), compiler_options=COMPILED_SOON)
def _terms(target: Target, layout: Layout, gradient: Any, at: Any, batch: PyTree, seen: Any) -> Any:
    rows = jax.tree.leaves(batch)[0].shape[0]
    size = min(block_size(target, batch), rows)

    def at_point(point: Any) -> Any:
        def term(datum: PyTree, kept: Any) -> Any:
            found = gradient.term(lambda theta: target.log_likelihood(theta, datum), layout.unravel(point))
            return lax.select(kept, layout.ravel(found), lax.full_like(point, 0.0))

        def add(block: Any, total: tuple) -> tuple:
            # Small products stay on one core: no sum depends on how many there are where the shard is.
            start = lax.min(block * size, rows - size)
            some = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, size), batch)
            number = start + lax.iota(start.dtype, size)
            terms = jax.vmap(term)(some, number >= lax.max(block * size, seen))
            return total[0] + terms.sum(axis=0), total[1] + terms.T @ terms

        zero = lax.full_like(point, 0.0)
        return lax.fori_loop(0, -(-rows // size), add, (zero, jnp.outer(zero, zero)))

    return lax.map(at_point, at)


@compiled(static_argnums=(0, 1), compiler_options=COMPILED_SOON)
def _bases(target: Target, layout: Layout, gradient: Any, at: Any) -> Any:
    return lax.map(lambda point: layout.ravel(gradient.base(target, layout.unravel(point))), at)


@set_up()
def fitted(
    target: Target, gradient: Any, anchor: Anchor, subsample: Sharded, found: Sequence[tuple[np.ndarray, np.ndarray]]
) -> Drifts:
    """Lines through what the shards said at the points."""
    z, visits = halves(anchor.layout.size), subsample.visits[:, None, None]
    pairs, d = z.shape
    with own_programs(), jax.enable_x64(True):
        base = np.asarray(_bases(apart(target), anchor.layout, gradient, points(anchor)))
    terms, noise = (np.stack(part) for part in zip(*found, strict=True))
    drift = base + terms / visits
    even, odd = 0.5 * (drift[:, :pairs] + drift[:, pairs:]), 0.5 * (drift[:, :pairs] - drift[:, pairs:])
    offset = even.mean(axis=1)
    by_z = np.stack([np.linalg.lstsq(z, part, rcond=None)[0].T for part in odd])
    # What the lines leave, beyond what all shards leave together.
    left = np.stack(
        [(even - offset[:, None]) / np.sqrt(pairs - 1), (odd - z @ np.swapaxes(by_z, 1, 2)) / np.sqrt(pairs - d)]
    )
    left = left - np.sum(visits * left, axis=1, keepdims=True)
    slope = by_z @ np.linalg.inv(push(anchor.root, np.eye(d)).T)
    return Drifts(
        centre=np.asarray(anchor.theta),
        offset=offset,
        slope=slope,
        noise=noise / visits**2,
        rest=np.einsum("s,kspi,kspj->ij", subsample.visits, left, left),
        cost=2 * pairs * sum(subsample.sizes),
    )
