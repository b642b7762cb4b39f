"""From a user's call to a program: checks every argument and lays out what the device needs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from langevin import random
from langevin.anchor import Anchor
from langevin.coordinates import Coordinates, chi_square_beyond
from langevin.data.prefetch import BUFFER_BYTES, FROM_BYTES, on_device
from langevin.data.source import as_source
from langevin.data.subsample import Subsample, WithReplacement
from langevin.engine.checks import (
    check_anchor,
    check_resolution,
    check_start,
    checked_coordinates,
    checked_guard,
    checked_kernel,
    checked_subsample,
    read_chains,
    require,
    whole_number,
)
from langevin.engine.evaluate import Parts, typical
from langevin.engine.ledger import Column
from langevin.engine.manifest import Manifest
from langevin.engine.prepared import Prepared
from langevin.engine.program import BASE_ROW, MOST_OUTER, Program, Source, choose_layout, choose_page
from langevin.gradients import CustomGradient, DatumGradient, StatefulGradient
from langevin.kernels import DensityKernel, ExactKernel, Kernel
from langevin.kernels.pytrees import as_pytree, kinds
from langevin.observables import Function, Marginals, Moments, named
from langevin.precision import apart, for_float32, wide_setting
from langevin.schedules import Schedule
from langevin.target import Layout, Target

PyTree = Any

# Transitions of one dispatch at most, floats of its row buffer and of its kept draws at most.
_CAPACITY = 8192
_ROW_FLOATS, _KEPT_FLOATS = 2**20, 2**17
# Mass beyond the bulk and in the far tail of a Gaussian: the guard is called half in the one, in full in the other.
TAILS = (1e-2, 1e-4)
_MANY_PARAMETERS = 500


def prepare(target: Target, data: PyTree, theta_0: PyTree, **parts: Any) -> Prepared:
    """Checks the arguments of `run` and builds its program; for a `short` run, compiling counts more than speed.

    `starts`: a flat theta for each chain. All in float32, whatever the user's setting, but densities of exact kernels,
    which are in float64 where that is the user's setting or `wide`.
    """
    require(isinstance(target, Target), "target", target, "an lv.Target", "lv.Target(log_prior, log_likelihood)")
    # Exact kernels compare densities: whoever has set x64 may need all digits for that.
    double = isinstance(parts["kernel"], DensityKernel) and (parts.get("wide", False) or wide_setting())
    narrow = apart(target) if double else for_float32(target)
    with jax.enable_x64(False):
        prepared = _prepare(target, narrow, data, theta_0, double=double, **parts)
        return replace(prepared, arguments={"theta_0": theta_0, **parts})


def _prepare(
    original: Target,
    target: Target,
    data: PyTree,
    theta_0: PyTree,
    *,
    schedule: Schedule,
    kernel: Any,
    gradient: Any,
    subsample: Subsample | None,
    coordinates: Coordinates | None,
    observables: Mapping[str, Any] | None,
    chains: int | Sequence[int],
    seed: int,
    anchor: Anchor | None,
    weight_power: float,
    keep: int,
    layout: str | None,
    guard: int,
    double: bool,
    starts: np.ndarray | None = None,
    short: bool = False,
    wide: bool = False,
) -> Prepared:
    require(isinstance(schedule, Schedule), "schedule", schedule, "a step-size law", "lv.Polynomial(a=1.0, b=50.0)")
    number = isinstance(weight_power, (int, float)) and 0 < weight_power < np.inf
    require(number, "weight_power", weight_power, "a positive finite number", "1.0, the paper's pi_m")
    require(layout in (None, "chain", "wide"), "layout", layout, "'chain', 'wide' or None", "None")
    kernel = checked_kernel(kernel)
    chain_numbers = read_chains(chains)
    seed = whole_number("seed", seed, 0, 2**64 - 1)
    keep = whole_number("keep", keep, 0, try_this=1000)
    require(keep != 1, "keep", keep, "0 or at least 2 (a single draw may fall beyond the end)", "1000")
    shape = Layout.of(theta_0)
    source = None if data is None else as_source(data)
    # Data of a target without a likelihood are for a gradient that brings its own.
    own = isinstance(gradient, CustomGradient) and not isinstance(kernel, DensityKernel)
    judged = None if own and target.log_likelihood is None else source
    target.check(theta_0, None if judged is None else judged.arrays)
    subsample = checked_subsample(subsample, gradient, kernel, source)
    coordinates = checked_coordinates(coordinates, shape, anchor)
    guard = checked_guard(guard, coordinates, subsample)
    check_anchor(anchor, gradient, shape)
    judged_by_parts = isinstance(kernel, DensityKernel) and not isinstance(kernel, ExactKernel)
    require(anchor is None or not judged_by_parts, "anchor", anchor, f"None: {kernel!r} sees no gradients", "None")
    # An exact kernel looks at its own start.
    if not coordinates.paired and not isinstance(kernel, ExactKernel):
        check_start(target, shape, theta_0, judged)
    if anchor is not None:
        check_resolution(anchor)
    program = _program(
        target, shape, source, kernel, gradient, subsample, coordinates, observables, len(chain_numbers), anchor, keep,
        layout, double,
    )  # fmt: skip
    theta = np.asarray(shape.flat(theta_0), np.float32)
    centre = theta if anchor is None else anchor.theta.astype(np.float32)
    starts = np.tile(theta, (len(chain_numbers), 1)) if starts is None else starts
    if isinstance(kernel, Kernel):
        kernel.check(coordinates, starts)
    parts, columns = _parts(program, source, kernel, gradient, coordinates, anchor, centre)
    return Prepared(
        program=program,
        parts=parts,
        keys=stream_keys(program, coordinates, chain_numbers, seed),
        # Paired chains draw their own.
        starts=starts.astype(np.float32) if coordinates.paired else coordinates.z(starts).astype(np.float32),
        kernel=kernel,
        coordinates=coordinates,
        schedule=schedule,
        weight_power=float(weight_power),
        chains=chain_numbers,
        columns=columns,
        anchor=anchor,
        cost_per_step=_cost(program, kernel, gradient),
        guard=guard,
        keep=keep,
        host_source=source if program.host_gather else None,
        short=short,
        manifest=Manifest.of(
            original,
            source,
            shape,
            centre,
            {
                "anchor": anchor,
                "chains": tuple(chain_numbers.tolist()),
                "seed": seed,
                "schedule": schedule,
                "weight_power": float(weight_power),
                "kernel": kernel,
                "gradient": gradient,
                "subsample": subsample,
                "coordinates": coordinates,
                "observables": program.observables,
                "keep": keep,
                "layout": program.layout_kind,
                "guard": guard,
            },
        ),
        arguments={},
    )


def _program(
    target, shape, source, kernel, gradient, subsample, coordinates, observables, num_chains, anchor, keep, layout,
    double,
) -> Program:  # fmt: skip
    exact = isinstance(kernel, DensityKernel)
    kind: Source = "exact" if exact else "datum" if isinstance(gradient, DatumGradient) else (
        "stateful" if isinstance(gradient, StatefulGradient) else "custom")  # fmt: skip
    num_data = 0 if source is None else source.num_data
    batch_size = subsample.size(num_data) if subsample is not None else num_data
    rounds = coordinates.paired and kind == "datum" and isinstance(subsample, WithReplacement)
    one_by_one = kind != "datum" or coordinates.paired
    lanes = layout if layout is not None else choose_layout(num_chains, shape.size, batch_size, gradient, one_by_one)
    if lanes == "wide" and one_by_one:
        raise ValueError(
            "layout must be 'chain' for exact kernels, paired coordinates and gradients with a memory or randomness of "
            "their own, got 'wide'."
        )
    pairs = named({"theta": Moments()} if observables is None else observables)
    size = sum(o.size(shape) for _, o in pairs) * (2 if anchor is not None else 1)
    size += shape.size**2 if anchor is not None and shape.size <= MOST_OUTER else 0
    capacity = _CAPACITY
    while capacity > 64 and capacity // BASE_ROW * size * num_chains > _ROW_FLOATS:
        capacity //= 2
    gathers = lanes == "chain" and kind == "datum" and subsample is not None and source.bytes > FROM_BYTES
    host_gather = gathers and subsample.gathers(source)
    if host_gather:
        gathered = batch_size * num_chains * source.bytes // num_data
        while capacity > 16 and capacity * gathered > BUFFER_BYTES:
            capacity //= 2
    # An epoch's position is counted from the start of the block in 32 bits.
    while capacity > 1 and capacity * batch_size + num_data >= 2**32:
        capacity //= 2
    noises = 1 if exact else kernel.noises
    draws = 0 if kind in ("exact", "custom") or rounds or not num_data else 2 * batch_size
    return Program(
        target=target,
        layout=shape,
        subsample=subsample,
        observables=pairs,
        num_data=num_data,
        layout_kind=lanes,
        source=kind,
        double=double,
        noises=noises,
        corrected=anchor is not None,
        rounds=rounds,
        host_gather=host_gather,
        # One slot more than the host asks for: it takes the writes between two strides.
        kept=min(keep, max(_KEPT_FLOATS // (shape.size * num_chains), 16)) + 1 if keep else 0,
        capacity=capacity,
        page=choose_page(num_chains if lanes == "wide" else 1, draws + noises * shape.size, lanes == "wide"),
        kinds=kinds((as_pytree(kernel), as_pytree(gradient), coordinates)),
    )


def stream_keys(program: Program, coordinates: Coordinates, chains: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Random streams of every chain; paired chains share them, one with the noise turned around."""
    streams = {"noise": random.NOISE, "start": random.START}
    if program.source == "exact":
        streams["accept"] = random.ACCEPT
    elif program.source == "custom":
        streams["custom"] = random.CUSTOM
    streams["subsample"] = random.SUBSAMPLE
    lanes = chains // 2 if coordinates.paired else chains
    sign = 1.0 - 2.0 * (chains % 2) if coordinates.paired else np.ones(len(chains))
    keys = {name: random.stream_keys(seed, lanes, stream).T for name, stream in streams.items()}
    return {**keys, "sign": sign.astype(np.float32)}


def _parts(program, source, kernel, gradient, coordinates, anchor, centre) -> tuple[Parts, dict[str, Column]]:
    # What the guard reads beside the rows that the host gathers stays where it is: on a CPU nothing is copied.
    data = None if source is None or (program.host_gather and not program.rounds) else source.aligned()
    if program.subsample is not None and not program.host_gather:
        data = program.subsample.prepare(source)
    references = [o.reference(program.layout, centre, anchor) for _, o in program.observables]
    hessians = [o.hessian(anchor) if program.gradient_outer else None for _, o in program.observables]
    traces = [None if anchor is None else o.trace(anchor) for _, o in program.observables]
    columns = {
        name: Column(
            shape=o.shape(program.layout) if isinstance(o, Function) else (o.size(program.layout),),
            reference=np.asarray(reference, np.float64),
            pairs=o.pairs(program.layout.size) if isinstance(o, Moments) else None,
            trace=trace,
            hessian=None if q is None else coordinates.curvature(q),
            marginals=isinstance(o, Marginals),
        )
        for (name, o), reference, trace, q in zip(program.observables, references, traces, hessians, strict=True)
    }

    def single(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda part: np.asarray(part, np.float32), tree)

    parts = Parts(
        kernel=as_pytree(kernel),
        gradient=as_pytree(gradient),
        coordinates=coordinates.on_device(),
        data=jax.tree.map(on_device, data),
        newton=() if anchor is None else single(coordinates.newton(anchor)),
        anchor=None if anchor is None else centre,
        borders=_borders(program.layout.size) if coordinates.paired else None,
        references=tuple(references),
        traces=tuple(single(trace) for trace in traces if trace is not None),
        typical=typical(program, data, centre),
    )
    return parts, columns


def _borders(dimension: int) -> np.ndarray:
    """|z|^2 where the bulk of a standard normal vector ends and where its far tail begins.

    |z|^2 is so narrow in many dimensions that variances a few percent off the approximation's, which the correction
    takes care of, would put every step beyond: there the borders leave room for 10%.
    """
    room = 1.1 if dimension > _MANY_PARAMETERS else 1.0
    return (room * np.array([chi_square_beyond(tail, dimension) for tail in TAILS])).astype(np.float32)


def _cost(program: Program, kernel: Any, gradient: Any) -> int:
    """Datum visits of one transition of one chain; one for a target without data. Some runs count theirs as they go."""
    if program.source == "custom":
        return int(gradient.cost(program.num_data))
    return (program.batch_size if program.num_data else 1) * (kernel.gradients if program.source == "exact" else 1)
