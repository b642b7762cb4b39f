"""The compiled half of `coupling`: Brownian paths, the chains on them, and their distances to the reference."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from langevin import random
from langevin.data.source import DataSource
from langevin.data.subsample import Full, Subsample
from langevin.engine.checks import require
from langevin.kernels import SGLD
from langevin.kernels.pytrees import kinds
from langevin.precision import isolated
from langevin.startup import compiled
from langevin.target import Layout, Target

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
PyTree = Any

# Streams of their own, so that no draw is shared with a run of the same seed; a chain of M steps has _MINIBATCH + M.
_BROWNIAN, _MINIBATCH = 16, 17


class Grid(NamedTuple):
    """The fine grid: this many equal cells on [0, time]."""

    time: float
    cells: int

    def ends(self, count: int, alpha: float) -> Integers:
        """Fine indices of T_0 ... T_count for steps proportional to k^-alpha."""
        sums = np.cumsum(np.arange(1, count + 1, dtype=np.float64) ** -alpha)
        ends = np.concatenate([[0], np.rint(self.cells * (sums / sums[-1]))]).astype(np.int64)
        if not np.all(np.diff(ends)):
            raise ValueError(
                f"refine must leave every step a cell of the fine grid, but with alpha={alpha} and {count} steps "
                f"the last ones are shorter than time/{self.cells}. Try a larger refine or a smaller alpha."
            )
        return ends


class Problem(NamedTuple):
    """What a gradient is made of; all but the data is static."""

    target: Target
    layout: Layout
    subsample: Subsample | None
    num_data: int
    full: PyTree
    prepared: PyTree

    @classmethod
    def of(cls, target: Target, layout: Layout, source: DataSource | None, subsample: Subsample | None) -> Problem:
        likelihood = None if target.log_likelihood is None else isolated(target.log_likelihood)
        apart = Target(isolated(target.log_prior), likelihood)
        arrays = None if source is None else source.arrays
        apart.check(layout.unravel(np.zeros(layout.size)), arrays)
        num_data = 0 if source is None else source.num_data
        if subsample is None or isinstance(subsample, Full):
            return cls(apart, layout, None, num_data, arrays, None)
        require(isinstance(subsample, Subsample), "subsample", subsample, "a way to draw minibatches, or None", "None")
        if source is None:
            raise ValueError(f"subsample must be None here, got {subsample!r}: there are no data.")
        subsample.check(num_data)
        return cls(apart, layout, subsample, num_data, arrays, subsample.prepare(source))


class Group(NamedTuple):
    """Some paths: their errors, the largest |entry| of each reference, and the first of them as they are."""

    at_mesh: Floats
    everywhere: Floats
    at_end: Floats
    largest: Floats
    brownian: Floats
    reference: Floats
    chains: list[Floats]

    @classmethod
    def run(
        cls,
        problem: Problem,
        kernel: Any,
        start: Floats,
        grid: Grid,
        counts: list[int],
        ends: list[Integers],
        numbers: Integers,
        keep: int,
        seed: int,
    ) -> Group:
        """Brownian motion, reference and all chains of the paths with these numbers, the path axis second."""
        normals = np.asarray(_normals(random.stream_keys(seed, numbers, _BROWNIAN).T, (grid.cells + 1, start.size)))
        # Leimkuhler-Matthews asks for a noise before the first step; nothing of W belongs to it.
        eta_0, w = normals[:, 0], _brownian(normals[:, 1:], grid)

        def chain(kernel: Any, subsample: Subsample | None, ends: Integers, count: int, keys: Any) -> jax.Array:
            data = problem.full if subsample is None else problem.prepared
            origin = () if subsample is None else subsample.origin(0, problem.num_data)
            static = (problem.target, problem.layout, subsample, problem.num_data)
            return _chain(
                *static, kinds(kernel), kernel, data, start, eta_0, w, ends, grid.time / grid.cells, count, keys, origin
            )

        keys = [random.stream_keys(seed, numbers, _MINIBATCH + count).T for count in counts]
        reference = chain(SGLD(), None, np.arange(grid.cells + 1), grid.cells, keys[0])
        errors, kept = [], []
        for i, count in enumerate(counts):
            # All chains have the shape of the reference, so that one compilation serves them.
            padded = np.concatenate([ends[i], np.full(grid.cells - count, grid.cells)])
            theta = chain(kernel, problem.subsample, padded, count, keys[i])
            errors.append([np.asarray(part) for part in _errors(theta, reference, padded, count, *_cells(ends[i]))])
            kept.append(_first_paths(np.asarray(theta)[: count + 1], numbers, keep))
        at_mesh, everywhere, at_end = (np.stack(parts) for parts in zip(*errors, strict=True))
        return cls(
            at_mesh=at_mesh,
            everywhere=everywhere,
            at_end=at_end,
            largest=np.abs(np.asarray(reference)).max(axis=(0, 2)),
            brownian=_first_paths(w, numbers, keep),
            reference=_first_paths(np.asarray(reference), numbers, keep),
            chains=kept,
        )


def _first_paths(array: Floats, numbers: Integers, keep: int) -> Floats:
    """A copy of the paths that are kept, path axis first."""
    return np.moveaxis(array[:, : np.count_nonzero(numbers < keep)], 1, 0).copy()


@partial(jax.jit, static_argnums=1)
def _normals(keys: Any, shape: tuple[int, ...]) -> jax.Array:
    def of_path(key: jax.Array) -> jax.Array:
        return jax.random.normal(jax.random.wrap_key_data(key, impl="threefry2x32"), shape, jnp.float64)

    return jax.vmap(of_path)(keys)


def _brownian(normals: Floats, grid: Grid) -> Floats:
    """W on the fine grid, shape (cells + 1, paths, d), from normals of shape (paths, cells, d)."""
    w = np.zeros((grid.cells + 1, normals.shape[0], normals.shape[2]))
    np.cumsum(np.moveaxis(normals, 0, 1) * np.sqrt(grid.time / grid.cells), axis=0, out=w[1:])
    return w


@compiled(static_argnums=(0, 1, 2, 3, 4))
def _chain(
    target: Target,
    layout: Layout,
    subsample: Subsample | None,
    num_data: int,
    _: tuple[type, ...],
    kernel: Any,
    data: PyTree,
    start: Any,
    eta_0: Any,
    w: Any,
    ends: Any,
    width: Any,
    count: Any,
    keys: Any,
    origin: tuple[Any, ...],
) -> jax.Array:
    """theta_0 ... theta_count of every path; what follows in the (len(ends), paths, d) array is undefined."""

    def gradient(flat: jax.Array, key: jax.Array, k: jax.Array) -> jax.Array:
        theta = layout.unravel(flat)
        if subsample is None:
            return layout.ravel(target.grad(theta, data))
        clock = random.Clock(k.astype(jnp.uint32) + 1, jnp.uint32(0))
        page = subsample.draw(key, clock, k, origin, 1, num_data)
        batch = subsample.batch(data, page, jnp.int32(0), 1, num_data)
        return layout.ravel(target.minibatch_grad(theta, batch, num_data))

    def transition(k: jax.Array, carry: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
        state, kept = carry
        delta = (ends[k + 1] - ends[k]) * width
        eta = (w[ends[k + 1]] - w[ends[k]]) / jnp.sqrt(delta)
        grad = jax.vmap(gradient, (0, 0, None))(state.theta, keys, k)
        state = jax.vmap(kernel.step, (0, 0, 0, None))(state, grad, eta, delta)
        return state, kept.at[k + 1].set(state.theta)

    theta = jnp.broadcast_to(start, eta_0.shape)
    kept = jnp.zeros((ends.shape[0], *theta.shape)).at[0].set(theta)
    return lax.fori_loop(0, count, transition, (jax.vmap(kernel.init)(theta, eta_0), kept))[1]


def _cells(ends: Integers) -> tuple[Integers, Floats]:
    """For every fine time t: which step of the chain it lies in, and where, (t - T_{k-1})/delta_k."""
    fine = np.arange(ends[-1] + 1)
    step = np.minimum(np.searchsorted(ends, fine, side="right") - 1, ends.size - 2)
    return step, (fine - ends[step]) / np.diff(ends)[step]


@jax.jit
def _errors(
    chain: jax.Array, reference: jax.Array, ends: Any, count: Any, step: Any, place: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Largest distance of each path at the chain's times and at all times, and the difference at the end."""
    distance = jnp.linalg.norm(chain - reference[ends], axis=-1)
    at_mesh = jnp.max(jnp.where((jnp.arange(ends.shape[0]) <= count)[:, None], distance, 0.0), axis=0)
    x = place[:, None, None]
    interpolated = (1 - x) * chain[step] + x * chain[step + 1]
    everywhere = jnp.max(jnp.linalg.norm(interpolated - reference, axis=-1), axis=0)
    return at_mesh, everywhere, chain[count] - reference[-1]
