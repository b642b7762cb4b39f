"""What one transition evaluates: gradient estimates in either layout, and its contribution to the open row."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from langevin import random
from langevin.engine.program import Program
from langevin.random import Clock

# A jax.Array, a tracer of one, or on the way in a NumPy array.
Array = Any
PyTree = Any


class Parts(NamedTuple):
    """The arrays that stay the same through a run."""

    kernel: Any
    gradient: Any
    data: PyTree
    keys: dict[str, Array]
    anchor: Array
    covariance: Array
    frame: Any
    borders: Array
    references: tuple[Array, ...]
    traces: tuple[Array, ...]


def chain_gradient(program: Program, parts: Parts, theta: Array, page: Any, k: Array, at: Array) -> Array:
    """Gradient estimate of one chain; the observations of the minibatch are vector lanes.

    Transition `at` of the block is entry k of the page of draws, or entry `at` of what the host gathered.
    """
    layout = program.layout
    if program.custom_gradient:
        u = parts.gradient.draw(page[k])
        return layout.ravel(parts.gradient.estimate(layout.unravel(theta), parts.data, u))
    base = layout.ravel(parts.gradient.base(program.target, layout.unravel(theta)))
    if not program.num_data:
        return base
    return base + _minibatch_term(program, parts, theta, page, k, at)


def whitened_gradient(
    program: Program, parts: Parts, z: Array, page: Any, k: Array, at: Array, clock: Clock, keys: dict[str, Array]
) -> tuple[Array, dict[str, Array]]:
    """Gradient estimate of one chain in the whitened coordinates z; whether z is far out, and the guard's extra rounds.

    Outside the bulk the guard is called: several minibatches in place of one, `program.guard` of them far out and the
    square root of that in between. They go through the same code, round by round, so that it is compiled once; a chain
    that stays in the bulk is the same to the bit with or without a guard.
    """
    frame, layout = parts.frame, program.layout
    theta, square = frame.theta(z), jnp.sum(z * z)
    out, far = square > parts.borders[0], square > parts.borders[1]
    seen = {"far": far.astype(z.dtype), "rounds": jnp.zeros((), z.dtype)}
    base = parts.gradient.whitened_base(program.target, theta, z, frame, layout)
    if not program.num_data:
        return base, seen
    if program.guard == 1:
        term = _minibatch_term(program, parts, theta, page, k, at)
        return base + frame.pull(term), seen
    first_rows = program.subsample.rows(page, k, program.page, program.num_data)

    def guard_rows(round: Array) -> Array:
        words = random.pairs(keys["guard"], clock.scaled(program.guard).plus(round), 1, program.batch_size)
        return random.bounded(*words, program.num_data)

    def add(round: Array, total: Array) -> Array:
        rows = lax.cond(round == 0, lambda: first_rows, lambda: guard_rows(round))
        batch = jax.tree.map(lambda leaf: leaf.at[rows].get(mode="promise_in_bounds"), parts.data)
        return total + _scaled_term(program, parts, theta, batch)

    rounds = jnp.where(far, program.guard, jnp.where(out, program.half_guard, 1))
    term = lax.fori_loop(0, rounds, add, jnp.zeros_like(z)) / rounds.astype(z.dtype)
    return base + frame.pull(term), {**seen, "rounds": (rounds - 1).astype(z.dtype)}


def _minibatch_term(program: Program, parts: Parts, theta: Array, page: Any, k: Array, at: Array) -> Array:
    if program.host_gather:
        n = program.batch_size
        batch = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, at * n, n), page)
    else:
        batch = program.subsample.batch(parts.data, page, k, program.page, program.num_data)
    return _scaled_term(program, parts, theta, batch)


def _scaled_term(program: Program, parts: Parts, theta: Array, batch: PyTree) -> Array:
    def log_likelihood(t: PyTree) -> Array:
        return jnp.sum(jax.vmap(program.target.log_likelihood, (None, 0))(t, batch))

    layout = program.layout
    term = layout.ravel(parts.gradient.term(log_likelihood, layout.unravel(theta)))
    return (program.num_data / program.batch_size) * term


def wide_gradient(program: Program, parts: Parts, theta: Array, page: Array, k: Array, at: Array) -> Array:
    """Gradient estimates of all chains; chains are vector lanes, observations are summed in turn."""
    layout = program.layout

    def base(t: Array) -> Array:
        return layout.ravel(parts.gradient.base(program.target, layout.unravel(t)))

    prior = jax.vmap(base, -1, -1)(theta)
    if not program.num_data:
        return prior

    def term(t: Array, datum: PyTree) -> Array:
        def log_likelihood(s: PyTree) -> Array:
            return program.target.log_likelihood(s, datum)

        return layout.ravel(parts.gradient.term(log_likelihood, layout.unravel(t)))

    def add(row_of, j: Array, total: Array) -> Array:
        row = row_of(j)
        datum = jax.tree.map(lambda leaf: leaf.at[row].get(mode="promise_in_bounds"), parts.data)
        return total + jax.vmap(term, (-1, 0 if row.ndim else None), -1)(theta, datum)

    total = jnp.zeros_like(theta)
    for count, row_of in program.subsample.walk(page, k, program.page, program.num_data):
        total = lax.fori_loop(0, count, partial(add, row_of), total, unroll=2)
    return prior + (program.num_data / program.batch_size) * total


def full_log_density(program: Program, parts: Parts):
    """theta -> (log density, gradient) on all the data, for the exact kernels."""

    def log_density(theta: Array) -> Array:
        return program.target.log_density(program.layout.unravel(theta), parts.data)

    return jax.value_and_grad(log_density)


def contributions(program: Program, parts: Parts, at: Array, grad: Array, delta: Array, omega: Array) -> PyTree:
    """What one transition of one chain adds to its open row, taken at the left end point theta_{m-1}."""
    layout = program.layout
    theta = parts.frame.theta(at) if program.whitened else at
    sums: dict[str, PyTree] = {
        "values": tuple(
            omega * o.value(layout, theta, reference)
            for (_, o), reference in zip(program.observables, parts.references, strict=True)
        )
    }
    if program.corrected:
        s = parts.frame.push(grad) if program.whitened else jnp.dot(parts.covariance, grad)
        sums["corrections"] = tuple(
            omega * o.correction(layout, theta, s, parts.anchor, trace)
            for (_, o), trace in zip(program.observables, parts.traces, strict=True)
        )
    if program.gradient_outer:
        # delta^2 E[g g'] is what drives the bias of the raw average.
        sums["outer"] = delta**2 * grad[:, None] * grad[None, :]
    return sums
