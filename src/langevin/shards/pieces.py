"""Shards and the data that they make up together; the posterior of one shard."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from langevin.data.source import ArraySource, DataSource, as_source
from langevin.target import Target

PyTree = Any


def joined(shards: Sequence[PyTree]) -> PyTree:
    """The data of all shards, one after the other: what `lv.Sharded` counts its rows in. Cost: a copy.

    Example:
        >>> import numpy as np
        >>> joined([np.arange(3), np.arange(2)])
        array([0, 1, 2, 0, 1])
    """
    return jax.tree.map(lambda *parts: np.concatenate([np.asarray(part) for part in parts]), *shards)


def split(data: PyTree | DataSource, sizes: Sequence[int]) -> list[ArraySource]:
    """The shards of these sizes as sources of their own; nothing is copied."""
    source = as_source(data)
    stops = np.cumsum(sizes)
    return [ArraySource(source.slice(int(b - n), int(b)), int(n)) for n, b in zip(sizes, stops, strict=True)]


def subposterior(target: Target, shards: int) -> Target:
    """The target of one of `shards` shards: the whole likelihood of its data, and its share prior^(1/shards).

    The product of the densities of all shards is the posterior.

    Example:
        >>> import langevin as lv
        >>> target = lv.Target(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
        >>> lv.shards.subposterior(target, 4).log_prior(2.0)
        -0.5
    """
    return Target(lambda theta: target.log_prior(theta) / shards, target.log_likelihood)
