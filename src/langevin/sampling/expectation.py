"""Expectations after the run: any function of theta, from kept draws and the gradients kept with them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langevin.analysis.averages import NEGLIGIBLE, estimate
from langevin.analysis.excursions import MOST_UNSEEN, unseen
from langevin.analysis.statuses import worse
from langevin.analysis.value import Estimate, quieter
from langevin.anchor import Anchor
from langevin.coordinates import times, transposed_times
from langevin.data.source import as_source
from langevin.display import tell
from langevin.engine.ledger import Column, Ledger
from langevin.mistakes import check_indices, ignored, traced
from langevin.observables import Function
from langevin.precision import in_float32
from langevin.startup import compiled
from langevin.target import Layout

PyTree = Any
Array = Any
# Numbers that the sums of one evaluation of phi may hold, and draws that are evaluated as one vector operation.
_MOST_FLOATS, _LANES = 2**22, 64
# Draws of a chain are added up into so many rows at most before they leave the device: ten batches of eight.
_MOST_ROWS = 80
# Equal numbers, weighted and added in float32, differ by less than this.
_ROUNDING = 1e-5


def expectation(ledger: Ledger, phi: Callable[..., Any], data: PyTree = None) -> Estimate:
    """The expectation of phi(theta) with its error bar; with data, of phi(theta, datum) for every datum.

    A kept draw stands for the steps of its stride: neighbours are rows of a ledger of its own, which goes through the
    same analysis. Cost: about three evaluations of phi a draw.
    """
    if not callable(phi):
        raise ValueError(f"phi must be a function of theta, got {phi!r}. Try phi=lambda theta: jnp.exp(theta[0]).")
    if data is None:
        return _of_rows(ledger, phi, None)
    source = as_source(data)
    draws: Any = ledger.draws
    chains, count = draws.theta.shape[:2]
    rows = max(1, _MOST_FLOATS // (chains * max(min(count, _MOST_ROWS), _LANES // chains)))
    rows = -(-source.num_data // -(-source.num_data // rows))
    # Parts of one size, so that one program serves: the last one reaches back, and what was seen is left out.
    starts = [min(at, source.num_data - rows) for at in range(0, source.num_data, rows)]
    parts = []
    for at in starts:
        tell("averaging over the rows", at / source.num_data)
        parts.append(_of_rows(ledger, phi, source.slice(at, at + rows)))
    seen = [rows * k - at for k, at in enumerate(starts)]

    def joined(name: str) -> Any:
        arrays = [getattr(part, name) for part in parts]
        return None if arrays[0] is None else np.concatenate([array[k:] for array, k in zip(arrays, seen, strict=True)])

    names = ("value", "stderr", "df", "bias", "sigma2", "kurtosis", "skewness", "statuses", "laplace")
    return replace(parts[0], **{name: joined(name) for name in names})


@in_float32
def _of_rows(ledger: Ledger, phi: Callable[..., Any], arrays: PyTree) -> Estimate:
    anchor, draws = ledger.anchor, ledger.draws
    if draws is None or anchor is None:
        raise ValueError("expectation needs kept draws and an anchor, and this run has none. Use lv.sample.")
    _check_phi(phi, anchor, arrays)
    shape = _observable(phi, arrays).shape(anchor.layout)
    size = int(np.prod(shape))
    chains, count, d = draws.theta.shape
    # tr(Sigma Q) takes d directions; without a dense Hessian there are too many, and the model is rough anyway.
    root = anchor.root[0].T if anchor.dense else None
    s = times(anchor.root, transposed_times(anchor.root, draws.grad.astype(np.float64)))
    # Whole rows only: what is missing in the last one weighs nothing. They leave the device draw by draw where these
    # numbers are few.
    length = -(-count // _MOST_ROWS)
    num_rows = -(-count // length)
    piece = 1 if chains * num_rows * length * size <= _MOST_FLOATS else length
    places = np.minimum(np.arange(num_rows * length), count - 1)
    every = np.where(np.arange(num_rows * length) < count, draws.weight[places], 0.0)
    weight = every.reshape(num_rows, length)

    def in_pieces(values: np.ndarray) -> np.ndarray:
        return values[:, places].reshape(-1, piece, d).astype(np.float32)

    single = anchor.theta.astype(np.float32), in_pieces(draws.theta), in_pieces(s)
    weights = np.tile(every, chains).reshape(-1, piece).astype(np.float32)
    found = _evaluate(phi, anchor.layout, arrays, None if root is None else root.astype(np.float32), *single, weights)
    reference, trace, value, correction, bad = (np.asarray(part, np.float64) for part in found)
    if bad.any():
        raise ValueError(
            f"phi must be finite where the posterior is, got NaN or infinity at {bad.sum():.0f} of {chains * count} "
            f"draws. Check it for logarithms and roots of negative numbers, and for 0/0."
        )
    value, correction = (sums.reshape(chains, -1, size) for sums in (value, correction))
    row_weight = weight.sum(axis=1)
    rows = replace(
        ledger,
        sum_delta=row_weight,
        sum_delta2=np.sum(weight * ledger.schedule.delta(draws.m)[places].reshape(weight.shape), axis=1),
        sum_omega=row_weight,
        values={"phi": value.reshape(chains, num_rows, -1, size).sum(axis=2)},
        corrections={"phi": correction.reshape(chains, num_rows, -1, size).sum(axis=2)},
        outer=None,
        columns={"phi": Column(shape, reference, None, trace if anchor.dense else None, None)},
        draws=None,
    )
    raw = estimate(rows, "raw")["phi"]
    found = quieter(estimate(rows, "corrected")["phi"], raw, ledger.exact)
    beyond = _beyond(rows, value, correction, every.reshape(-1, piece).sum(axis=1), found.value == raw.value)
    missed = beyond > MOST_UNSEEN * found.stderr
    found = replace(
        found,
        bias=np.where(missed, np.hypot(found.bias, beyond), found.bias),
        statuses=worse(found.statuses, "rare_excursions", missed),
    )
    # No draw differs from another: a rare event that never came has no error bar, and certainly not zero.
    scale = np.abs(found.value - reference.reshape(found.value.shape))
    same = (raw.stderr <= _ROUNDING * scale) & (ledger.exact | (found.statuses == "uncorrected"))
    return replace(
        found, stderr=np.where(same, np.nan, found.stderr), statuses=worse(found.statuses, "too_few_batches", same)
    )


def _beyond(ledger: Ledger, value: Array, correction: Array, weight: Array, plain: Array) -> Array:
    """About what the averages would gain from a draw larger than all that came, of the plain values or the corrected.

    Of the latter less than nobody minds counts as nothing: residues of a correction have tails too.
    """
    there = weight > 0.0
    values, corrected = (
        (ledger.units(sums)[:, there] / weight[there, None]).reshape(-1, value.shape[-1])
        for sums in (value, value + correction)
    )
    residue = unseen(corrected)
    residue = np.where(residue > NEGLIGIBLE * np.std(value[:, there] / weight[there, None], axis=(0, 1)), residue, 0.0)
    return np.asarray(np.where(plain, unseen(values).reshape(plain.shape), residue.reshape(plain.shape)))


def _check_phi(phi: Callable[..., Any], anchor: Anchor, arrays: PyTree) -> None:
    """Raises where phi looks beyond theta, or not at theta at all: the latter is a constant without an error."""
    datum = () if arrays is None else (jax.tree.map(lambda leaf: leaf[0], arrays),)
    jaxpr, _ = traced("phi", phi, (anchor.mode, *datum))
    check_indices("phi", jaxpr, lambda k: None)
    if not jaxpr.jaxpr.outvars:
        raise ValueError("phi must return an array or a tree of them, got None. Try lambda theta: theta ** 2.")
    if ignored(jaxpr, range(len(anchor.layout.shapes))):
        raise ValueError(
            "phi must depend on theta, but its value is the same for every theta. Use its first argument, e.g. "
            "result.expectation(lambda theta: theta ** 2)."
        )


def _observable(phi: Callable[..., Any], arrays: PyTree) -> Function:
    return Function(phi if arrays is None else lambda theta: jax.vmap(phi, (None, 0))(theta, arrays), "phi")


@compiled(static_argnums=(0, 1))
def _evaluate(
    phi: Callable[..., Any],
    layout: Layout,
    arrays: PyTree,
    root: Array,
    anchor: Array,
    theta: Array,
    s: Array,
    weight: Array,
) -> tuple[Array, Array, Array, Array, Array]:
    """phi at the anchor and its trace tr(Sigma Q); of every piece of draws (pieces, piece, d) the weighted sums.

    They are sums of phi's centred value, of its correction, and of draws where it is not finite.
    """
    function = _observable(phi, arrays)

    def flat(t: Array) -> Array:
        return function.value(layout, t, jnp.zeros(()))

    reference = function.reference(layout, anchor, None)
    trace = jnp.zeros_like(reference) if root is None else function.trace_along(layout, anchor, root)
    # A phi that has no Taylor polynomial at the anchor (as log |theta|) is centred at 0, and not corrected.
    smooth = jnp.isfinite(reference) & jnp.isfinite(trace)
    reference, trace = jnp.where(smooth, reference, 0.0), jnp.where(smooth, trace, 0.0)

    d = anchor.size
    # The correction is linear in s and in u s': with all of phi's derivatives at hand a row of draws takes one product.
    derivatives = None
    if root is not None and reference.size * d * d <= _MOST_FLOATS:
        derivatives = jax.jacfwd(flat)(anchor), jax.jacfwd(jax.jacfwd(flat))(anchor).reshape(-1, d * d)

    def corrected(theta: Array, s: Array, weight: Array) -> Array:
        if root is None:
            return jnp.zeros_like(reference)
        if derivatives is None:
            return weight @ jax.vmap(lambda t, s: function.correction(layout, t, s, anchor, trace))(theta, s)
        b, q = derivatives
        products = jnp.einsum("k,ki,kj->ij", weight, theta - anchor, s)
        return b @ (weight @ s) + 0.5 * (q @ products.ravel() + weight.sum() * trace)

    def row(at: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        theta, s, weight = at
        value = jax.vmap(lambda t: function.value(layout, t, reference))(theta)
        bad = ~jnp.isfinite(value).all(axis=1) & (weight > 0.0)
        return weight @ value, jnp.where(smooth, corrected(theta, s, weight), 0.0), bad.sum()

    lanes = max(_LANES // theta.shape[1], 1)
    return reference, trace, *jax.lax.map(row, (theta, s, weight), batch_size=lanes)
