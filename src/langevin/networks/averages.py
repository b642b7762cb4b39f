"""Averages of any function over kept draws, batch by batch: as fast as the function itself."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from langevin.analysis.errorbars import batch_count
from langevin.data.source import as_source
from langevin.precision import in_float32, isolated, wide_setting
from langevin.startup import compiled
from langevin.target import Layout

Array = Any
PyTree = Any
# Rows of new data that are looked at together: their activations should fit into the caches.
_ROWS = 4096


class BatchMeans(NamedTuple):
    """Means of a function and of its square over batches of draws, each (levels, chains, batches, *shape of values)."""

    mean: np.ndarray
    square: np.ndarray


def batch_means(draws: np.ndarray, layout: Layout, phi: Callable[..., Any], data: PyTree = None) -> BatchMeans:
    """Batch means of phi(theta), or of phi(theta, datum) for every datum of `data`, over (draws, levels, chains, d).

    Draws are cut into batches of equal length, the oldest few left out. Cost: one evaluation of phi a draw; memory does
    not grow with the number of draws.
    """
    count, levels, chains, _ = draws.shape
    batches = batch_count(count, chains, 4, None)
    length = count // batches
    if length < 1 or batches < 1:
        raise ValueError(f"an expectation needs at least one kept draw a batch, and there are {count}. Extend the run.")
    kept = draws[count - length * batches :].reshape(batches, length, levels, chains, -1)
    function = isolated(phi, 32) if wide_setting() else phi
    if data is None:
        return _finite(BatchMeans(*_evaluated(function, layout, kept, None)))
    source = as_source(data)
    parts = []
    size = min(_ROWS, source.num_data)
    for at in range(0, source.num_data, size):
        # Always the same number of rows, the last one repeated: one compiled program serves all.
        rows = source.take(np.minimum(np.arange(at, at + size), source.num_data - 1))
        found = _evaluated(function, layout, kept, rows)
        parts.append([part[:, :, :, : source.num_data - at] for part in found])
    return _finite(BatchMeans(*(np.concatenate(part, axis=3) for part in zip(*parts, strict=True))))


def _finite(found: BatchMeans) -> BatchMeans:
    bad = ~np.isfinite(found.mean)
    if bad.any():
        raise ValueError(
            f"phi must be finite where the posterior is, got NaN or infinity in {bad.sum()} of {bad.size} "
            f"averages over batches of draws. Check it for logarithms and roots of negative numbers, and for 0/0."
        )
    return found


@in_float32
def _evaluated(phi: Callable[..., Any], layout: Layout, kept: np.ndarray, rows: PyTree) -> list[np.ndarray]:
    batches, length, levels, chains, _ = kept.shape
    places = list(np.ndindex(levels, chains, batches))
    device_rows = jax.device_put(rows)

    @in_float32
    def one(place: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        level, chain, batch = place
        sums = _sums(phi, layout, np.ascontiguousarray(kept[batch, :, level, chain]), device_rows)
        return np.asarray(sums[0], np.float64) / length, np.asarray(sums[1], np.float64) / length

    # The first one compiles.
    found = [one(places[0])]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found += list(pool.map(one, places[1:]))
    return [np.stack(part).reshape(levels, chains, batches, *part[0].shape) for part in zip(*found, strict=True)]


@compiled(static_argnums=(0, 1))
def _sums(phi: Callable[..., Any], layout: Layout, thetas: Array, rows: PyTree) -> tuple[Array, Array]:
    """Sums of phi and of its square over these draws."""

    def value(theta: Array) -> Array:
        tree = layout.unravel(theta)
        found = phi(tree) if rows is None else jax.vmap(phi, (None, 0))(tree, rows)
        return jnp.asarray(found, jnp.float32)

    def add(sums: tuple[Array, Array], theta: Array) -> tuple[tuple[Array, Array], None]:
        found = value(theta)
        return (sums[0] + found, sums[1] + found * found), None

    like = jax.eval_shape(value, thetas[0])
    blank = jnp.zeros(like.shape, like.dtype)
    return lax.scan(add, (blank, blank), thetas)[0]
