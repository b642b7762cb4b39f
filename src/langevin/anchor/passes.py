"""Passes over the data in float64: value, gradient and curvature of the log density, a chunk of rows at a time."""

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from langevin.data.files import reading
from langevin.data.source import ArraySource
from langevin.limits import checkpoint
from langevin.startup import COMPILED_QUICKLY, COMPILED_SOON, compiled
from langevin.target import Layout, Target, arithmetic, numbers

PyTree = Any
# Value, gradient, and the Hessian's products with the directions if there are any.
Parts = list[np.ndarray]
# Rows times parameters that one device call takes, or rows times their own numbers where these are more.
_CHUNK_FLOATS = 2**20
# Rows differentiated at once. Small matrix products stay on one core, so that no sum depends on the number of cores;
# and a few rows of a chunk cost little more than those rows.
_BLOCK = 256
# Where a datum is a group that quadrature goes through many times, blocks are small enough to stay in the cache.
_BLOCK_FLOATS = 2**18
# Up to so many rows times parameters, compiling with optimisation takes longer than it saves.
_SMALL = 2**19
# Directions of Hessian products at once: with the rows of a block they stand behind every number that a likelihood
# computes on its way.
_DIRECTIONS = 512
# Chunks under way at once, each in a thread; their sums are added in order, so that no bit depends on this.
_THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


class Helpers(Protocol):
    """Those who go through chunks of a pass elsewhere."""

    def serve(self, passes: "Passes") -> bool:
        """Whether they have the model and the data of these passes."""

    def go_through(
        self, passes: "Passes", flat: np.ndarray, directions: np.ndarray | None
    ) -> Iterator[tuple[Parts, Parts]]:
        """Parts of the log prior, and of the log likelihood of some rows after the other, in order."""

    def answers(self, passes: "Passes") -> int:
        """Into how many parts they cut a pass."""


_helpers: ContextVar[Helpers | None] = ContextVar("helpers", default=None)


@contextmanager
def helped(helpers: Helpers) -> Iterator[None]:
    """Passes inside are shared with helpers where they can be."""
    token = _helpers.set(helpers)
    try:
        yield
    finally:
        _helpers.reset(token)


class Passes:
    """Derivatives at flat float64 points, and what they cost in datum visits.

    `rows` restricts the likelihood to these rows, scaled by N/n. Every chunk has the same shape, so that a function is
    compiled once: the last one reaches back over rows that were seen, and leaves them out. `doing` is what the user is
    told meanwhile.
    """

    def __init__(
        self,
        target: Target,
        source: Any,
        layout: Layout,
        rows: np.ndarray | None = None,
        doing: str = "looking for the posterior mode",
    ) -> None:
        self.target, self.layout, self.doing, self.cost, self.scale = target, layout, doing, 0, 1.0
        self.source = source
        self.num_rows = 0 if source is None else source.num_data
        # The subsample of large data shares the program of the whole.
        work = (
            self.num_rows * layout.size * arithmetic(target.log_likelihood, None if source is None else source.arrays)
        )
        self.differentiate = partial(_quickly if work <= _SMALL else _soon, target, layout)
        if rows is not None:
            self.source = ArraySource(source.take(rows), len(rows))
            self.num_rows, self.scale = len(rows), source.num_data / len(rows)

    def parts(self, flat: np.ndarray, order: int) -> tuple[Parts, Parts]:
        """[value, gradient, Hessian], up to `order`, of the log prior and of the log likelihood. Cost: all rows."""
        if order < 2:
            return self.along(flat, None)
        d = self.layout.size
        number = -(-d // _DIRECTIONS)
        width = -(-d // number)
        # Equal blocks, so that one program serves: the last one reaches back.
        starts = [min(k * width, d - width) for k in range(number)]
        before, blocks = self.cost, []
        for start in starts:
            blocks.append(self.along(flat, np.eye(width, d, start)))
        self.cost = before + max(self.num_rows, 1)
        return _stacked([prior for prior, _ in blocks], starts), _stacked([both[1] for both in blocks], starts)

    def along(self, flat: np.ndarray, directions: np.ndarray | None) -> tuple[Parts, Parts]:
        """[value, gradient, products of the Hessian with the directions] of both. Cost: all rows."""
        helpers = _helpers.get()
        if helpers is not None and helpers.serve(self):
            return self._along_with(helpers, flat, directions)
        if self.source is None:
            self.cost += 1
            checkpoint(self.doing)
            prior = [np.asarray(part) for part in self.differentiate(flat, directions, None, 0, 0)[0]]
            return prior, [np.zeros_like(part) for part in prior]
        found: list[Parts] = []

        def chunk(batch: PyTree, seen: int) -> Any:
            prior, likelihood = self.differentiate(flat, directions, batch, seen, self.chunk)
            if not found:
                found.append(prior)
            return likelihood

        likelihood = self.over(chunk, directions is not None)
        return [np.asarray(part) for part in found[0]], likelihood

    def _along_with(self, helpers: Helpers, flat: np.ndarray, directions: np.ndarray | None) -> tuple[Parts, Parts]:
        """The same from rows that others have gone through, whose parts are added in order."""
        self.cost += self.num_rows
        prior: Parts = []
        total: Any = None
        for number, found in enumerate(helpers.go_through(self, flat, directions)):
            self._tell(number / helpers.answers(self), directions is not None)
            prior, total = found[0], _added(total, found[1])
        return prior, total

    def chunk_at(self, flat: np.ndarray, directions: np.ndarray | None, number: int) -> tuple[Parts, Parts]:
        """Parts of the log prior, and of the log likelihood of one chunk, by its number."""
        first = min(number * self.chunk, self.num_rows - self.chunk)
        batch, seen = self.source.slice(first, first + self.chunk), number * self.chunk - first
        return jax.tree.map(np.asarray, self.differentiate(flat, directions, batch, seen, self.chunk))

    def total(self, flat: np.ndarray, order: int) -> Parts:
        """[value, gradient, Hessian] of the log density, up to `order`."""
        return [p + q for p, q in zip(*self.parts(flat, order), strict=True)]

    def over(self, chunk: Callable[[PyTree, int], Any], curvature: bool = False) -> Any:
        """The sum of `chunk(batch, seen)` over the data, in order; the first `seen` rows of a batch do not count."""
        self.cost += self.num_rows
        total, waiting, double = None, deque[Future](), jax.config.read("jax_enable_x64")

        def work(batch: PyTree, seen: int) -> Any:
            # A thread has a setting of its own.
            with jax.enable_x64(double):
                return jax.tree.map(np.asarray, chunk(batch, seen))

        with reading(self.source), ThreadPoolExecutor(_THREADS) as threads:
            for number, (batch, seen) in enumerate(self._chunks()):
                self._tell(number / self.num_chunks, curvature)
                waiting.append(threads.submit(work, batch, seen))
                # The first one alone: it may have to trace the model, which is for one thread at a time.
                if number == 0 or len(waiting) > _THREADS:
                    total = _added(total, waiting.popleft().result())
            for part in waiting:
                total = _added(total, part.result())
        return jax.tree.map(lambda part: self.scale * part, total)

    def _tell(self, share: float, curvature: bool) -> None:
        words = f"{share:.0%} of a pass over the data"
        checkpoint(self.doing, note=f"{words} for the curvature" if curvature else words)

    def _chunks(self) -> Iterator[tuple[PyTree, int]]:
        size = self.chunk
        for start in range(0, self.num_rows, size):
            first = min(start, self.num_rows - size)
            yield self.source.slice(first, first + size), start - first

    def way_out(self, flat: np.ndarray) -> str:
        """What to do about a start without a finite density: look at rows that have none, or start elsewhere."""
        if self.source is not None:
            values = jax.vmap(self.target.log_likelihood, (None, 0))(
                self.layout.unravel(jnp.asarray(flat)), self.source.slice(0, self.chunk)
            )
            lost = np.flatnonzero(~np.isfinite(values))
            if 0 < len(lost) < self.chunk:
                return (
                    f"{len(lost)} of {self.chunk:,} rows have a log likelihood of {float(values[lost[0]])} there, row "
                    f"{lost[0]} first: look whether their values lie within its support, or start from another theta_0."
                )
        return "Start from another theta_0."

    @property
    def num_chunks(self) -> int:
        """Device calls of one pass."""
        return -(-self.num_rows // self.chunk)

    @property
    def chunk(self) -> int:
        """Rows of one device call."""
        return min(self.whole_chunk, self.num_rows)

    @property
    def whole_chunk(self) -> int:
        """Rows of one device call where there are enough."""
        each = 1 if self.source is None else numbers(self.target.log_likelihood, self.source.arrays)
        return chunk_size(max(self.layout.size, each))


def _added(total: Any, part: Any) -> Any:
    return part if total is None else jax.tree.map(np.add, total, part)


def _stacked(blocks: list[Parts], starts: list[int]) -> Parts:
    """Value, gradient and the whole Hessian from blocks of its rows that begin at these."""
    value, grad = blocks[0][:2]
    if len(blocks) == 1:
        return blocks[0]
    hessian = np.empty((len(grad), len(grad)))
    for start, block in zip(starts, blocks, strict=True):
        hessian[start : start + len(block[2])] = block[2]
    return [value, grad, hessian]


def chunk_size(floats: int) -> int:
    """Rows of one chunk, each of which stands for so many floats: whole blocks, unless it is smaller than one."""
    size = int(np.clip(_CHUNK_FLOATS // floats, 16, 16384))
    return size if size < _BLOCK else size // _BLOCK * _BLOCK


def block_size(target: Target, batch: PyTree) -> int:
    """Rows that are differentiated at once."""
    return int(np.clip(_BLOCK_FLOATS // arithmetic(target.log_likelihood, batch), 1, _BLOCK))


def log_prior(target: Target, layout: Layout) -> Callable[[jax.Array], jax.Array]:
    """The log prior of a flat vector."""
    return lambda t: target.log_prior(layout.unravel(t))


def log_likelihood(target: Target, layout: Layout, batch: PyTree, kept: Any) -> Callable[[jax.Array], jax.Array]:
    """The log likelihood of a flat vector, summed over the rows that are kept."""

    def total(t: jax.Array) -> jax.Array:
        values = jax.vmap(target.log_likelihood, (None, 0))(layout.unravel(t), batch)
        return jnp.sum(lax.select(kept, values, lax.full_like(values, 0.0)))

    return total


def differentiate(
    target: Target, layout: Layout, flat: Any, directions: Any, batch: PyTree, first: Any, stop: Any
) -> tuple[list, list]:
    """Parts of the log prior, and of the log likelihood summed over rows first ... stop-1 of the batch."""
    prior = _parts(log_prior(target, layout), flat, directions)
    if batch is None:
        return prior, []
    num_rows = jax.tree.leaves(batch)[0].shape[0]
    size = min(block_size(target, batch), num_rows)

    def add(block: Any, total: list) -> list:
        start = lax.min(block * size, num_rows - size)
        rows = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, size), batch)
        number = start + lax.iota(start.dtype, size)
        kept = (number >= lax.max(block * size, first)) & (number < stop)
        parts = _parts(log_likelihood(target, layout, rows, kept), flat, directions)
        return [a + b for a, b in zip(total, parts, strict=True)]

    zero = [lax.full_like(part, 0.0) for part in prior]
    return prior, lax.fori_loop(first // size, (stop + size - 1) // size, add, zero)


def _parts(function: Callable[[jax.Array], jax.Array], flat: jax.Array, directions: Any) -> list:
    if directions is None:
        return list(jax.value_and_grad(function)(flat))

    def grad(t: jax.Array) -> tuple:
        value, slope = jax.value_and_grad(function)(t)
        return slope, value

    def along(direction: jax.Array) -> tuple:
        return jax.jvp(grad, (flat,), (direction,), has_aux=True)

    slope, products, value = jax.vmap(along, out_axes=(None, 0, None))(directions)
    return [value, slope, products]


_quickly = compiled(static_argnums=(0, 1), compiler_options=COMPILED_QUICKLY)(differentiate)
_soon = compiled(static_argnums=(0, 1), compiler_options=COMPILED_SOON)(differentiate)
