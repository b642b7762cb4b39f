"""What one transition evaluates: gradient estimates in either layout, and its contribution to the open row."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from langevin import random
from langevin.coordinates import times
from langevin.engine.program import MOST_ROUNDS, Program
from langevin.gradients import AnchoredGradient, Posterior
from langevin.random import Clock
from langevin.startup import COMPILED_SOON, compiled

# A jax.Array, a tracer of one, or on the way in a NumPy array.
Array = Any
PyTree = Any
_MANY_DATA = 50_000


class Parts(NamedTuple):
    """The arrays that stay the same through a run.

    `newton` takes a gradient to the step Sigma grad; at the |z|^2 of `borders` the bulk ends and the far tail begins.
    `typical` is subtracted from the log likelihood of every datum where an exact kernel adds them up: in float32 the
    sum of 10^6 of them is known to 0.03, that of what is left to 10^-4.
    """

    kernel: Any
    gradient: Any
    coordinates: Any
    data: PyTree
    newton: tuple[Array, ...]
    anchor: Array
    borders: Array
    references: tuple[Array, ...]
    traces: tuple[Array, ...]
    typical: Array


class Here(NamedTuple):
    """Where a chain stands when it asks for a gradient: entry k of the page of draws, transition `at` of the block."""

    page: Any
    k: Array
    at: Array
    clock: Clock
    key: Array
    origin: tuple[Array, ...]
    rounds: Array


def gradient(program: Program, parts: Parts, z: Array, memory: PyTree, here: Here) -> tuple[Array, PyTree, dict]:
    """Gradient estimate of one chain in its coordinates, the gradient's memory after it, and what is counted."""
    if program.source == "custom":
        u = parts.gradient.draw(here.page[here.k])
        layout = program.layout
        grad = parts.gradient.estimate(layout.unravel(parts.coordinates.theta(z)), parts.data, u)
        return parts.coordinates.pull(layout.ravel(grad)), memory, {}
    theta = parts.coordinates.theta(z)
    if program.source == "stateful":
        rows = program.subsample.rows(here.page, here.k, program.page, program.num_data)
        grad, memory, visits = parts.gradient.refresh(posterior(program, parts), memory, theta, rows)
        return parts.coordinates.pull(grad), memory, {"visits": visits.astype(z.dtype)}
    base = _base(program, parts, z, theta)
    if not program.num_data:
        return base, memory, {}
    if program.rounds:
        term, counted = _in_rounds(program, parts, z, theta, here)
        return base + parts.coordinates.pull(term), memory, counted
    return base + parts.coordinates.pull(_minibatch_term(program, parts, theta, here)), memory, {}


def posterior(program: Program, parts: Parts) -> Posterior:
    """The posterior as gradients with a memory see it."""
    iid = program.subsample is None or program.subsample.iid
    return Posterior(program.target, program.layout, parts.data, program.num_data, iid)


def _base(program: Program, parts: Parts, z: Array, theta: Array) -> Array:
    """The part of the gradient that needs no data, in the chain's coordinates."""
    layout, coordinates, estimator = program.layout, parts.coordinates, parts.gradient
    if coordinates.paired and isinstance(estimator, AnchoredGradient) and estimator.anchored:
        return coordinates.pull(layout.ravel(estimator.beyond(program.target, layout.unravel(theta)))) - z
    return coordinates.pull(layout.ravel(estimator.base(program.target, layout.unravel(theta))))


def _in_rounds(program: Program, parts: Parts, z: Array, theta: Array, here: Here) -> tuple[Array, dict]:
    """The mean over the rounds of a step: `rounds` holds how many in the bulk, beyond it, and in the far tail.

    The rows of round r of transition m are a function of (key, m, r): a chain is the same to the bit whether the host
    gathers the rounds of the bulk or the loop does, and whatever the rounds of other steps. One loop goes through the
    same code round by round, so that it is compiled once.
    """
    square = jnp.sum(z * z)
    zone = (square > parts.borders[0]).astype(jnp.int32) + (square > parts.borders[1]).astype(jnp.int32)
    count = here.rounds[zone]

    def add(r: Array, total: Array) -> Array:
        def taken() -> PyTree:
            rows = round_rows(program, here.key, here.clock, r)
            return jax.tree.map(lambda leaf: leaf.at[rows].get(mode="promise_in_bounds"), parts.data)

        if not program.host_gather:
            return total + _scaled_term(program, parts, theta, taken(), here)
        place = here.at * here.rounds[0] + r
        # The rounds of a single step may be more than the buffer holds.
        there = (r < here.rounds[0]) & (place < program.capacity)
        batch = lax.cond(there, partial(_gathered, program, here.page, place), taken)
        return total + _scaled_term(program, parts, theta, batch, here)

    term = lax.fori_loop(0, count, add, jnp.zeros_like(z)) / count.astype(z.dtype)
    return term, {"visits": (program.batch_size * count).astype(z.dtype)}


def round_rows(program: Program, key: Array, clock: Clock, r: Array) -> Array:
    """Row numbers of round r of a transition."""
    words = random.pairs(key, clock.scaled(MOST_ROUNDS).plus(r), 1, program.batch_size)
    return random.bounded(*words, program.num_data)


def _gathered(program: Program, buffer: PyTree, place: Array) -> PyTree:
    n = program.batch_size
    return jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, place * n, n), buffer)


def _minibatch_term(program: Program, parts: Parts, theta: Array, here: Here) -> Array:
    if program.host_gather:
        batch = _gathered(program, here.page, here.at)
    else:
        batch = program.subsample.batch(parts.data, here.page, here.k, program.page, program.num_data)
    return _scaled_term(program, parts, theta, batch, here)


def _scaled_term(program: Program, parts: Parts, theta: Array, batch: PyTree, here: Here) -> Array:
    def log_likelihood(t: PyTree) -> Array:
        return jnp.sum(jax.vmap(program.target.log_likelihood, (None, 0))(t, batch))

    layout = program.layout
    term = layout.ravel(parts.gradient.term(log_likelihood, layout.unravel(theta)))
    return _scale(program, here) * term


def _scale(program: Program, here: Here) -> Any:
    return program.subsample.scale(here.key, here.origin, here.at, program.num_data)


def wide_gradient(program: Program, parts: Parts, z: Array, memory: PyTree, here: Here) -> tuple[Array, PyTree, dict]:
    """Gradient estimates of all chains; chains are vector lanes, observations are summed in turn."""
    layout = program.layout
    theta = jax.vmap(parts.coordinates.theta, -1, -1)(z)
    base = jax.vmap(partial(_base, program, parts), (-1, -1), -1)(z, theta)
    if not program.num_data:
        return base, memory, {}

    def term(t: Array, datum: PyTree) -> Array:
        def log_likelihood(s: PyTree) -> Array:
            return program.target.log_likelihood(s, datum)

        return layout.ravel(parts.gradient.term(log_likelihood, layout.unravel(t)))

    def add(row_of, j: Array, total: Array) -> Array:
        row = row_of(j)
        datum = jax.tree.map(lambda leaf: leaf.at[row].get(mode="promise_in_bounds"), parts.data)
        return total + jax.vmap(term, (-1, 0 if row.ndim else None), -1)(theta, datum)

    total = jnp.zeros_like(theta)
    for count, row_of in program.subsample.walk(here.page, here.k, program.page, program.num_data):
        total = lax.fori_loop(0, count, partial(add, row_of), total, unroll=2)
    scaled = _scale(program, here) * total
    return base + jax.vmap(parts.coordinates.pull, -1, -1)(scaled), memory, {}


class FullDensity:
    """z -> (log density, gradient) on all the data, and its parts; see `DatumDensity`."""

    def __init__(self, program: Program, parts: Parts) -> None:
        self._program, self._parts, self.num_data = program, parts, program.num_data

    def __call__(self, z: Array) -> tuple[Array, Array]:
        """In float64 where the program says so."""
        if not self._program.double:
            return jax.value_and_grad(self._value)(z)
        with jax.enable_x64(True):
            found = jax.value_and_grad(self._value)(z.astype(jnp.float64))
        return jax.tree.map(lambda part: part.astype(z.dtype), found)

    def _theta(self, z: Array) -> PyTree:
        return self._program.layout.unravel(self._parts.coordinates.theta(z))

    def _value(self, z: Array) -> Array:
        return self._program.target.log_density(self._theta(z), self._parts.data, self._parts.typical)

    def prior(self, z: Array) -> Array:
        """The log prior."""
        return self._program.target.log_prior(self._theta(z))

    def terms(self, z: Array, rows: Array) -> Array:
        """Log likelihoods of these rows."""
        batch = jax.tree.map(lambda leaf: leaf.at[rows].get(mode="promise_in_bounds"), self._parts.data)
        return jax.vmap(self._program.target.log_likelihood, (None, 0))(self._theta(z), batch)


def typical(program: Program, data: PyTree, theta: Array) -> np.ndarray:
    """The mean log likelihood of a datum at theta, where so many are added up that float32 would feel it; else 0."""
    if program.source != "exact" or program.num_data < _MANY_DATA:
        return np.zeros((), np.float32)
    each = jax.vmap(program.target.log_likelihood, (None, 0))
    mean = jax.jit(lambda theta, data: each(program.layout.unravel(theta), data).mean(), compiler_options=COMPILED_SOON)
    value = np.asarray(mean(theta, data), np.float32)
    return value if np.isfinite(value) else np.zeros((), np.float32)


# Compiled by itself, so that `added_by_a_step` and the loop share one tracing.
@compiled(compiler_options=None)
def contributions(program: Program, parts: Parts, z: Array, grad: Array, delta: Array, omega: Array) -> PyTree:
    """What one transition of one chain adds to its open row, taken at the left end point theta_{m-1}."""
    layout, theta = program.layout, parts.coordinates.theta(z)
    sums: dict[str, PyTree] = {
        "values": tuple(
            omega * o.value(layout, theta, reference)
            for (_, o), reference in zip(program.observables, parts.references, strict=True)
        )
    }
    if program.corrected:
        s = times(parts.newton, grad)
        sums["corrections"] = tuple(
            omega * o.correction(layout, theta, s, parts.anchor, trace)
            for (_, o), trace in zip(program.observables, parts.traces, strict=True)
        )
    if parts.borders is not None:
        sums["far"] = (jnp.sum(z * z) > parts.borders[1]).astype(z.dtype)
    if program.gradient_outer:
        # delta^2 E[g g'] is what drives the bias of the raw average.
        sums["outer"] = delta**2 * grad[:, None] * grad[None, :]
    return sums
