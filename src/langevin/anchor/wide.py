"""The anchor in many dimensions: curvature by blocks, a dense one for each small leaf of theta, diagonals else."""

from copy import copy
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langevin.anchor.approximation import Anchor
from langevin.anchor.climb import adam, lbfgs, needs_minibatches, num_passes
from langevin.anchor.curvature import Curvature, inverse_root, named
from langevin.anchor.passes import Passes, log_likelihood, log_prior
from langevin.anchor.roots import pull
from langevin.errors import AnchorError
from langevin.startup import compiled
from langevin.target import Layout, Target

PyTree = Any
_MOST_IN_A_BLOCK = 256
# Products of rows, parameters and directions that the curvature of one leaf may take: a few seconds on two cores.
_MOST_PRODUCTS = 2e9
# Squared gradients of one datum each take a product of rows and parameters: all rows up to a minute on two cores.
_MOST_SQUARES, _FEWEST_ROWS = 2e10, 64
_MOST_BASIS = 1e8
_DIRECTIONS, _PROBES = 32, 16
# A Hessian diagonal below this share of the squared gradients is not that of a mode.
_LEAST_SHARE = 0.01


def wide_anchor(
    target: Target, source: Any, layout: Layout, flat: np.ndarray, max_steps: int, rng: np.random.Generator
) -> Anchor:
    """The mode by L-BFGS (after Adam when passes are dear) and a block-diagonal root of the inverse curvature.

    A leaf of at most 256 entries has its dense Hessian, on as many random rows as are affordable. A larger one has the
    diagonal: of the Hessian where all rows are affordable, and else, or where this is not positive, of the prior's
    Hessian plus the sum of squared per-datum gradients over all rows. Some rows would not do: a group effect that they
    leave out would be as wide as its prior. Memory: O(d). Cost: up to 1000 passes, 10 at the largest sizes.
    """
    passes = Passes(target, source, layout)
    start = flat
    value, grad = passes.total(flat, 1)
    if not (np.isfinite(value) and np.all(np.isfinite(grad))):
        raise AnchorError(
            f"theta_0 must have a finite log density and gradient, got {float(value)}. {passes.way_out(flat)}"
        )
    scale = first_scale(passes, source, flat, rng)
    if needs_minibatches(passes):
        flat = adam(passes, flat, scale, rng)
    flat = lbfgs(passes, flat, (scale,), num_passes(passes))
    _refuse_runaway(passes, start, flat)
    root, positive = _root(passes, source, flat, rng)
    # Whitened by the curvature at the mode, a second climb is short: most often it ends where it starts.
    flat = lbfgs(passes, flat, root, min(max_steps, num_passes(passes)))
    flat = flat.astype(np.float32).astype(np.float64)
    prior, likelihood = passes.parts(flat, 1)
    if not np.all(np.isfinite(prior[1] + likelihood[1])):
        raise AnchorError(
            "no posterior mode: the climb left the region where the log density is finite. Use a proper prior, or "
            "start elsewhere."
        )
    return Anchor(
        theta=flat,
        root=root,
        covariance=None,
        precision=None,
        likelihood_grad=None if source is None else likelihood[1],
        likelihood_hessian=None,
        layout=layout,
        cost=passes.cost,
        gradient_norm=float(np.linalg.norm(pull(root, prior[1] + likelihood[1]))),
        positive=positive,
    )


def _refuse_runaway(passes: Passes, start: np.ndarray, flat: np.ndarray) -> None:
    """From a proper mode the log density falls along the ray from theta_0; without one it goes on rising."""
    here, beyond = (float(passes.total(start + far * (flat - start), 1)[0]) for far in (1.0, 10.0))
    if beyond >= here and not np.array_equal(start, flat):
        raise AnchorError(
            f"no posterior mode: the log density keeps rising, from {here:.6g} to {beyond:.6g}, ten times as far from "
            f"theta_0. The data may be perfectly separable under a flat prior; use a proper prior."
        )


def some_rows(passes: Passes, source: Any, number: float, rng: np.random.Generator) -> Passes:
    """So many random rows, or all."""
    number = int(min(number, passes.num_rows))
    if source is None or number == passes.num_rows:
        same = copy(passes)
        same.cost = 0
        return same
    rows = np.sort(rng.choice(passes.num_rows, max(number, 1), replace=False, shuffle=False))
    return Passes(passes.target, source, passes.layout, rows)


def first_scale(passes: Passes, source: Any, flat: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Standard deviations for want of better ones: from the prior's curvature and the squared gradients at theta_0."""
    curvature = np.abs(_prior_diagonal(passes, 0, passes.layout.size, flat, rng)) + _squares(passes, source, flat, rng)
    return 1.0 / np.sqrt(np.where(curvature > 0.0, curvature, 1.0))


def _root(passes: Passes, source: Any, flat: np.ndarray, rng: np.random.Generator) -> tuple[tuple, bool]:
    """The blocks of L, and whether the Hessian itself was positive in all of them."""
    squares = _squares(passes, source, flat, rng)
    blocks, positive, stop = [], True, 0
    for shape in passes.layout.shapes:
        start, stop = stop, stop + prod(shape)
        few = some_rows(passes, source, _MOST_PRODUCTS / ((stop - start) * passes.layout.size), rng)
        if stop - start <= _MOST_IN_A_BLOCK:
            block, sound = _dense_block(few, start, stop, flat)
        else:
            prior = _prior_diagonal(passes, start, stop, flat, rng)
            block, sound = _diagonal_block(few, start, stop, flat, prior, squares[start:stop])
        passes.cost += few.cost
        positive = positive and sound
        blocks.append(block)
    return tuple(blocks), positive


def _dense_block(few: Passes, start: int, stop: int, flat: np.ndarray) -> tuple[np.ndarray, bool]:
    hessian = np.asarray(_prior_block(few.target, few.layout, start, stop, flat))
    if few.source is not None:
        hessian = hessian + few.over(partial(_block, few.target, few.layout, start, stop, flat))
    curvature = Curvature.of(-0.5 * hessian - 0.5 * hessian.T)
    return inverse_root(curvature.tamed()), curvature.positive


def _diagonal_block(
    few: Passes, start: int, stop: int, flat: np.ndarray, prior: np.ndarray, squares: np.ndarray
) -> tuple[np.ndarray, bool]:
    total, stand_in = prior + squares, np.abs(prior) + squares
    if few.source is None:
        total = prior
    elif few.scale == 1.0:
        total = prior - few.over(partial(_diagonal, few.target, few.layout, start, stop, flat))
    if not np.all(stand_in > 0.0):
        raise AnchorError(
            f"not determined: {named(start + np.flatnonzero(stand_in <= 0.0), few.layout)}, on which the log density "
            f"does not depend. Give a proper prior."
        )
    sound = total >= _LEAST_SHARE * stand_in
    return 1.0 / np.sqrt(np.where(sound, total, stand_in)), bool(np.all(total > 0.0))


def _squares(passes: Passes, source: Any, flat: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sum over the data of the squared gradients of one datum each; from random rows where all are too many."""
    if source is None:
        return np.zeros(passes.layout.size)
    few = some_rows(passes, source, max(_MOST_SQUARES / passes.layout.size, _FEWEST_ROWS), rng)
    squares = few.over(partial(_squared_grads, passes.target, passes.layout, flat))
    passes.cost += few.cost
    return squares


def _prior_diagonal(passes: Passes, start: int, stop: int, flat: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The diagonal of minus the prior's Hessian; beyond d = 10 000 from random signs, exact for independent priors."""
    arguments = (passes.target, passes.layout, start, stop, flat)
    if (stop - start) * passes.layout.size <= _MOST_BASIS:
        return -np.asarray(_prior_basis(*arguments))
    signs = rng.integers(0, 2, size=(_PROBES, stop - start)) * 2.0 - 1.0
    return -np.asarray(_prior_probes(*arguments, signs))


@compiled(static_argnums=(0, 1, 2, 3))
def _prior_block(target: Target, layout: Layout, start: int, stop: int, flat: jax.Array) -> jax.Array:
    return _part_hessian(log_prior(target, layout), start, stop, flat)


@compiled(static_argnums=(0, 1, 2, 3))
def _block(target: Target, layout: Layout, start: int, stop: int, flat: Any, batch: PyTree, seen: Any) -> jax.Array:
    return _part_hessian(log_likelihood(target, layout, batch, _kept(batch, seen)), start, stop, flat)


def _part_hessian(function: Any, start: int, stop: int, flat: jax.Array) -> jax.Array:
    return jax.hessian(lambda part: function(flat.at[start:stop].set(part)))(flat[start:stop])


@compiled(static_argnums=(0, 1, 2, 3))
def _prior_basis(target: Target, layout: Layout, start: int, stop: int, flat: jax.Array) -> jax.Array:
    return _part_diagonal(log_prior(target, layout), start, stop, flat)


@compiled(static_argnums=(0, 1, 2, 3))
def _diagonal(target: Target, layout: Layout, start: int, stop: int, flat: Any, batch: PyTree, seen: Any) -> jax.Array:
    return _part_diagonal(log_likelihood(target, layout, batch, _kept(batch, seen)), start, stop, flat)


def _kept(batch: PyTree, seen: Any) -> Any:
    return jnp.arange(jax.tree.leaves(batch)[0].shape[0]) >= seen


def _part_diagonal(function: Any, start: int, stop: int, flat: jax.Array) -> jax.Array:
    """Entries start ... stop-1 of the Hessian's diagonal, some directions at a time: no matrix is stored."""

    def entry(j: jax.Array) -> jax.Array:
        # Forward twice: a gradient would compute d numbers to give one.
        unit = jnp.zeros_like(flat).at[j].set(1.0)
        return jax.jvp(lambda t: jax.jvp(function, (t,), (unit,))[1], (flat,), (unit,))[1]

    return jax.lax.map(entry, jnp.arange(start, stop), batch_size=_DIRECTIONS)


@compiled(static_argnums=(0, 1, 2, 3))
def _prior_probes(target: Target, layout: Layout, start: int, stop: int, flat: jax.Array, signs: Any) -> jax.Array:
    grad = jax.grad(log_prior(target, layout))

    def probe(sign: jax.Array) -> jax.Array:
        along = jax.jvp(grad, (flat,), (jnp.zeros_like(flat).at[start:stop].set(sign),))[1]
        return sign * along[start:stop]

    return jnp.mean(jax.lax.map(probe, signs), axis=0)


@compiled(static_argnums=(0, 1))
def _squared_grads(target: Target, layout: Layout, flat: Any, batch: PyTree, seen: Any) -> jax.Array:
    def grad(datum: PyTree) -> jax.Array:
        return jax.grad(lambda t: target.log_likelihood(layout.unravel(t), datum))(flat)

    grads = jax.vmap(grad)(batch)
    return jnp.sum(jnp.where(_kept(batch, seen)[:, None], grads**2, 0.0), axis=0)
