"""The hot loop: one compiled function that carries all chains through a block of transitions.

Written in primitives where JAX's operators look for negative numbers or take long to trace: a cached start is tracing.
Order of loops: schedule settings, chains (in the "chain" layout), pages of random numbers, ledger rows, transitions.
Data are an argument. Bounds are dynamic, so one compilation serves every block length.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from langevin import random
from langevin.engine.evaluate import (
    FullDensity,
    Here,
    Parts,
    contributions,
    gradient,
    posterior,
    round_rows,
    wide_gradient,
)
from langevin.engine.program import Program
from langevin.kernels.protocol import noise_shape
from langevin.random import Clock, entry, with_entry
from langevin.startup import COMPILED_QUICKLY, COMPILED_SOON, compiled

# A jax.Array, a tracer of one, or on the way in a NumPy array.
Array = Any
PyTree = Any


class Block(NamedTuple):
    """What one dispatch runs: `num_steps` transitions after transition `start`.

    `rounds`: minibatches of a step in the bulk, beyond it and in the far tail. `gathered` holds the minibatches that
    the host gathered, (chains, capacity * n, ...), or None.
    """

    start: Clock
    num_steps: Array
    num_chains: Array
    num_settings: Array
    origin: tuple[Array, ...]
    row_steps: Array
    row_offset: Array
    delta: Array
    omega: Array
    stride: Array
    stride_offset: Array
    rounds: Array
    gathered: PyTree


class Output(NamedTuple):
    """What a block leaves behind: row sums, kept draws and the last positions (the carry itself is donated onwards)."""

    rows: PyTree
    kept: PyTree
    theta: Array


class Carry(NamedTuple):
    """State of the chains, memory of the gradient and sums of the open row; leading axes (settings, chains)."""

    state: PyTree
    memory: PyTree
    sums: PyTree


def _draws(program: Program, keys: dict[str, Array], block: Block, offset: Array):
    """A page of random numbers for the transitions start + offset + 1 ... start + offset + page: (gradient's, eta)."""
    first, page = block.start.plus(offset + 1), program.page
    eta = keys["sign"] * random.normals(keys["noise"], first, page, program.noises * program.layout.size)
    if program.host_gather:
        return block.gathered, eta
    if program.source == "exact":
        return random.log_uniforms(keys["accept"], first, page), eta
    if program.source == "custom":
        words = random.pairs(keys["custom"], first, page, 1)
        return jax.random.wrap_key_data(jnp.stack(words, axis=-1), impl="threefry2x32"), eta
    if program.subsample is None or program.rounds:
        return jnp.zeros(page, jnp.int32), eta
    return program.subsample.draw(keys["subsample"], first, offset, block.origin, page, program.num_data), eta


def _advance_lanes(program: Program, parts: Parts, keys: dict[str, Array], block: Block, carry: Carry):
    """Runs the block for one chain ("chain") or for all of them as lanes ("wide", chains on the last axis)."""
    wide = program.layout_kind == "wide"
    estimate = partial(wide_gradient if wide else gradient, program, parts)
    contribute, move = partial(contributions, program, parts), parts.kernel.step
    if wide:
        contribute = jax.vmap(contribute, (-1, -1, None, None), -1)
        move = jax.vmap(move, (-1, -1, -1, None), -1)

    def transition(at: Array, chain: tuple, k: Array, page: PyTree, eta: Array):
        state, memory, sums, kept = chain
        delta, omega = entry(block.delta, at), entry(block.omega, at)
        noise = random.step_of(eta, k, program.page)
        if program.noises > 1:
            noise = noise.reshape(program.noises, -1, *noise.shape[1:])
        z = state.theta
        if program.source == "exact":
            grad = state.grad
            state = move(FullDensity(program, parts), state, noise, entry(page, k), delta)
            added = parts.kernel.counted(state, max(program.num_data, 1))
        else:
            here = Here(page, k, at, block.start.plus(at + 1), keys["subsample"], block.origin, block.rounds)
            grad, memory, added = estimate(z, memory, here)
            state = move(state, grad, noise, delta)
        added |= contribute(z, grad, delta, omega)
        sums = jax.tree.map(jnp.add, sums, added)
        if program.kept:
            slot = lax.div(block.stride_offset + at, block.stride)
            kept = {"theta": with_entry(kept["theta"], slot, z), "grad": with_entry(kept["grad"], slot, grad)}
        return state, memory, sums, kept

    def page(p: Array, carried):
        begin = p * program.page
        end = lax.min(begin + program.page, block.num_steps)
        drawn, eta = _draws(program, keys, block, begin)

        def row(inside):
            at, r, *chain, rows, kept = inside
            to_row_end = block.row_steps - lax.rem(block.row_offset + at, block.row_steps)
            stop = lax.min(at + to_row_end, end)
            state, memory, sums, kept = lax.fori_loop(
                at, stop, lambda i, chain: transition(i, chain, i - begin, drawn, eta), (*chain, kept)
            )
            whole = stop == at + to_row_end
            rows = jax.tree.map(lambda buffer, total: with_entry(buffer, r, total), rows, sums)
            sums = jax.tree.map(lambda total: lax.select(whole, lax.full_like(total, 0), total), sums)
            return stop, r + lax.convert_element_type(whole, jnp.int32), state, memory, sums, rows, kept

        return lax.while_loop(lambda inside: inside[0] < end, row, carried)

    blank = _blank_output(program, carry, axes=0)
    start = (jnp.int32(0), jnp.int32(0), *carry, blank.rows, blank.kept)
    pages = lax.div(block.num_steps + (program.page - 1), program.page)
    _, _, state, memory, sums, rows, kept = lax.fori_loop(0, pages, page, start)
    return Carry(state, memory, sums), Output(rows, kept, state.theta)


def _blank_output(program: Program, carry: Carry, axes: int) -> Output:
    """Empty buffers for what a block leaves behind; the carry's first `axes` axes lead."""

    def buffer(length: int, like: Array) -> Array:
        return lax.full((*like.shape[:axes], length, *like.shape[axes:]), 0, like.dtype)

    theta = carry.state.theta
    kept = {name: buffer(program.kept, theta) for name in ("theta", "grad")} if program.kept else {}
    rows = jax.tree.map(partial(buffer, program.row_capacity), carry.sums)
    return Output(rows, kept, jnp.zeros_like(theta))


def _for_each(function, inputs: PyTree, results: PyTree, places: Array, count: Array) -> PyTree:
    """`function` of the inputs at every one of the first `count` places, written into `results` at the same place.

    Like `lax.map`, but the compiler is not told the number of entries: a loop of one would be taken apart and compiled
    into other arithmetic, and a chain alone would differ in its last bits from the same chain among others.
    """

    def body(i: Array, results: PyTree) -> PyTree:
        at = entry(places, i)
        result = function(i, jax.tree.map(lambda leaf: entry(leaf, at), inputs))
        return jax.tree.map(lambda buffer, new: with_entry(buffer, at, new), results, result)

    return lax.fori_loop(0, count, body, results)


def _advance(program: Program, parts: Parts, keys: dict[str, Array], block: Block, carry: Carry):
    """Carries every chain of every schedule setting through the block: (new carry, output).

    `block.delta` and `block.omega` have a leading axis over settings; carry and output have (settings, chains).
    """
    settings, chains = carry.state.theta.shape[:2]

    def picked(tree: PyTree, at: Array) -> PyTree:
        return jax.tree.map(lambda leaf: entry(leaf, at), tree)

    def steps_of(setting: Array) -> Block:
        return block._replace(delta=picked(block.delta, setting), omega=picked(block.omega, setting))

    if program.layout_kind == "wide":

        def wide(i: Array, carry: Carry):
            last = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), (keys, carry))
            done = _advance_lanes(program, parts, last[0], steps_of(i), last[1])
            return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), done)

        blank = (carry, _blank_output(program, carry, axes=2))
        return _for_each(wide, carry, blank, jnp.arange(settings), block.num_settings)

    def one(i: Array, carry: Carry):
        chain = lax.rem(i, block.num_chains)
        here = steps_of(lax.div(i, block.num_chains))._replace(gathered=picked(block.gathered, chain))
        return _advance_lanes(program, parts, picked(keys, chain), here, carry)

    # One loop over chains and settings: every loop that hands all arrays on costs time to compile.
    lanes = jax.tree.map(lambda leaf: leaf.reshape(settings * chains, *leaf.shape[2:]), carry)
    every, count = lax.iota(jnp.int32, settings * chains), lax.broadcast(block.num_chains, (settings * chains,))
    places = lax.div(every, count) * chains + lax.rem(every, count)
    blank = (lanes, _blank_output(program, lanes, axes=1))
    done = _for_each(one, lanes, blank, places, block.num_settings * block.num_chains)
    return jax.tree.map(lambda leaf: leaf.reshape(settings, chains, *leaf.shape[1:]), done)


advance = compiled(static_argnums=0, donate_argnums=4)(_advance)
# The same arithmetic to the bit, compiled in half the time into code that is no faster where loops are large.
advance_soon = compiled(static_argnums=0, donate_argnums=4, compiler_options=COMPILED_SOON)(_advance)


def _block_rows(
    program: Program, keys: dict[str, Array], start: Clock, origin: tuple[Array, ...], rounds: Array
) -> Array:
    """Row numbers of the minibatches of a block for the host to gather, (chains, capacity * n).

    With rounds they are those of the bulk, round by round: capacity counts rounds then.
    """
    first, steps = start.plus(jnp.int32(1)), program.capacity

    def chain(key: Array) -> Array:
        if program.rounds:
            places = jnp.arange(steps)
            rows = jax.vmap(lambda i: round_rows(program, key, first.plus(i // rounds[0]), i % rounds[0]))(places)
        else:
            page = program.subsample.draw(key, first, jnp.int32(0), origin, steps, program.num_data)
            rows = jax.vmap(lambda k: program.subsample.rows(page, k, steps, program.num_data))(jnp.arange(steps))
        return rows.reshape(-1)

    return lax.map(chain, keys["subsample"])


block_rows = compiled(static_argnums=0)(_block_rows)
block_rows_soon = compiled(static_argnums=0, compiler_options=COMPILED_SOON)(_block_rows)


def added_by_a_step(program: Program, parts: Parts) -> PyTree:
    """Shapes of what one transition of one chain adds to its open row."""
    like, number = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((program.layout.size,), ()))
    return jax.eval_shape(partial(contributions, program), parts, like, like, number, number)


def initial_carry(
    program: Program, parts: Parts, keys: dict[str, Array], z: Array, settings: int, sums: PyTree
) -> Carry:
    """States before the first transition and empty sums of these shapes for z of shape (chains, d)."""
    state, memory = _initial_state(program, parts, keys, z, np.int32(len(z)))
    counted = ["visits"] if program.rounds or program.source == "stateful" else []
    if program.source == "exact":
        counted = list(parts.kernel.counted(state, program.num_data))
    sums = sums | {name: jax.ShapeDtypeStruct((), z.dtype) for name in counted}
    empty = jax.tree.map(lambda leaf: np.zeros((settings, len(z), *leaf.shape), leaf.dtype), sums)
    state, memory = jax.tree.map(lambda leaf: np.array(np.broadcast_to(leaf, (settings, *leaf.shape))), (state, memory))
    return Carry(state, memory, empty)


@compiled(static_argnums=0, compiler_options=COMPILED_QUICKLY)
def _initial_state(program: Program, parts: Parts, keys: dict[str, Array], z: Array, count: Array) -> tuple:
    one_of = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (keys, z))
    like = jax.eval_shape(partial(_initial_state_of_one, program), parts, *one_of)
    blank = jax.tree.map(lambda leaf: jnp.zeros((len(z), *leaf.shape), leaf.dtype), like)

    def one(_: Array, given: tuple) -> tuple[PyTree, PyTree]:
        return _initial_state_of_one(program, parts, *given)

    return _for_each(one, (keys, z), blank, jnp.arange(len(z)), count)


# Compiled by itself, so that its shapes and the loop share one tracing.
@compiled(compiler_options=None)
def _initial_state_of_one(program: Program, parts: Parts, keys: dict[str, Array], z: Array) -> tuple[PyTree, PyTree]:
    zero, d = Clock(jnp.uint32(0), jnp.uint32(0)), program.layout.size
    if parts.coordinates.paired:
        z = keys["sign"] * random.normals(keys["start"], zero, 1, d)
    if program.source == "exact":
        return parts.kernel.init(FullDensity(program, parts), z), ()
    eta = keys["sign"] * random.normals(keys["noise"], zero, 1, program.noises * d)
    state = parts.kernel.init(z, eta.reshape(noise_shape(parts.kernel, d)))
    if program.source != "stateful":
        return state, ()
    return state, parts.gradient.remember(posterior(program, parts), parts.coordinates.theta(z))
