"""From a user's call to a program: checks every argument and lays out what the device needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langevin import random
from langevin.anchor import Anchor
from langevin.data.prefetch import BUFFER_BYTES, FROM_BYTES, on_device
from langevin.data.source import as_source
from langevin.data.subsample import Subsample
from langevin.engine.checks import (
    check_resolution,
    check_start,
    checked_guard,
    checked_subsample,
    is_kernel,
    read_chains,
    require,
    whole_number,
)
from langevin.engine.evaluate import Parts
from langevin.engine.ledger import Column
from langevin.engine.program import BASE_ROW, MOST_OUTER, Program, choose_layout, choose_page
from langevin.frame import Frame
from langevin.gradients import CustomGradient
from langevin.observables import Function, Moments, named
from langevin.schedules import Schedule
from langevin.target import Layout, Target

PyTree = Any

# Transitions of one dispatch at most, and floats of its row buffer at most.
_CAPACITY = 8192
_ROW_FLOATS = 2**22
# Mass beyond the bulk and in the far tail of a Gaussian: the guard is called half in the one, in full in the other.
TAILS = (1e-2, 1e-4)


@dataclass(frozen=True)
class Prepared:
    """A checked call: what is compiled, the arrays it runs on, and what the ledger needs to remember."""

    program: Program
    parts: Parts
    starts: jax.Array
    schedule: Schedule
    weight_power: float
    chains: np.ndarray
    columns: dict[str, Column]
    anchor: Anchor | None
    cost_per_step: int
    discretisation_bias: bool
    host_source: Any
    identity: dict[str, Any]


def prepare(
    target: Target,
    data: PyTree,
    theta_0: PyTree,
    *,
    schedule: Schedule,
    kernel: Any,
    gradient: Any,
    subsample: Subsample | None,
    observables: Mapping[str, Any] | None,
    chains: int | Sequence[int],
    seed: int,
    anchor: Anchor | None,
    weight_power: float,
    keep: int,
    layout: str | None,
    whiten: bool,
    guard: int,
) -> Prepared:
    """Checks the arguments of `run` and builds its program."""
    require(isinstance(target, Target), "target", target, "an lv.Target", "lv.Target(log_prior, log_likelihood)")
    require(isinstance(schedule, Schedule), "schedule", schedule, "a step-size law", "lv.Polynomial(a=1.0, b=50.0)")
    number = isinstance(weight_power, (int, float)) and 0 < weight_power < np.inf
    require(number, "weight_power", weight_power, "a positive finite number", "1.0, the paper's pi_m")
    require(is_kernel(kernel), "kernel", kernel, "a kernel", "lv.SGLD()")
    require(
        anchor is None or isinstance(anchor, Anchor),
        "anchor",
        anchor,
        "an lv.Anchor",
        "lv.laplace(target, data, theta_0)",
    )
    require(layout in (None, "chain", "wide"), "layout", layout, "'chain', 'wide' or None", "None")
    chain_numbers = read_chains(chains)
    seed = whole_number("seed", seed, 0, 2**64 - 1)
    keep = whole_number("keep", keep, 0, try_this=1000)
    require(keep != 1, "keep", keep, "0 or at least 2 (a single draw may fall beyond the end)", "1000")
    shape = Layout.of(theta_0)
    source = None if data is None else as_source(data)
    target.check(theta_0, None if source is None else source.arrays)
    subsample = checked_subsample(subsample, gradient, kernel, source)
    guard = checked_guard(guard, whiten, anchor, gradient, kernel, subsample)
    for used in (anchor, getattr(gradient, "anchor", None)):
        if used is not None and used.layout != shape:
            raise ValueError(
                "anchor must be of the same target: its parameters differ from theta_0. Call lv.laplace anew."
            )
    check_start(target, shape, anchor.mode if whiten and anchor is not None else theta_0, source)
    if anchor is not None:
        check_resolution(anchor)
    program = _program(
        target, shape, source, kernel, gradient, subsample, observables, len(chain_numbers), anchor, keep, layout,
        whiten, guard,
    )  # fmt: skip
    theta = np.asarray(shape.ravel(theta_0), np.float32)
    parts, columns = _parts(program, source, kernel, gradient, chain_numbers, seed, anchor, theta)
    return Prepared(
        program=program,
        parts=parts,
        starts=jnp.broadcast_to(theta, (len(chain_numbers), theta.size)),
        schedule=schedule,
        weight_power=float(weight_power),
        chains=chain_numbers,
        columns=columns,
        anchor=anchor,
        cost_per_step=_cost(program, kernel, gradient),
        discretisation_bias=getattr(kernel, "discretisation_bias", True),
        host_source=source if program.host_gather else None,
        identity={
            "target": target,
            "data": None if source is None else source.fingerprint,
            "anchor": anchor,
            "chains": chain_numbers.tolist(),
            "seed": seed,
            "schedule": schedule,
            "weight_power": float(weight_power),
            "kernel": kernel,
            "gradient": gradient,
            "subsample": subsample,
            "observables": program.observables,
            "keep": keep,
            "layout": program.layout_kind,
            "whiten": whiten,
        },
    )


def _program(
    target, shape, source, kernel, gradient, subsample, observables, num_chains, anchor, keep, layout, whiten, guard
) -> Program:
    exact, custom = hasattr(kernel, "target_acceptance"), isinstance(gradient, CustomGradient)
    num_data = 0 if source is None else source.num_data
    batch_size = subsample.size(num_data) if subsample is not None else num_data
    one_by_one = exact or custom or whiten
    kind = layout if layout is not None else choose_layout(num_chains, shape.size, batch_size, gradient, one_by_one)
    if kind == "wide" and one_by_one:
        raise ValueError(
            "layout must be 'chain' for exact kernels, whitened runs and gradients with their own randomness, "
            "got 'wide'."
        )
    pairs = named({"theta": Moments()} if observables is None else observables)
    size = sum(o.size(shape) for _, o in pairs) * (2 if anchor is not None else 1)
    size += shape.size**2 if anchor is not None and shape.size <= MOST_OUTER else 0
    capacity = _CAPACITY
    while capacity > 64 and capacity // BASE_ROW * size * num_chains > _ROW_FLOATS:
        capacity //= 2
    host_gather = kind == "chain" and subsample is not None and subsample.gathers and source.bytes > FROM_BYTES
    # The guard picks its rows inside the compiled loop.
    host_gather = host_gather and guard == 1
    if host_gather:
        gathered = batch_size * num_chains * source.bytes // num_data
        while capacity > 16 and capacity * gathered > BUFFER_BYTES:
            capacity //= 2
    # An epoch's position is counted from the start of the block in 32 bits.
    while capacity > 1 and capacity * batch_size + num_data >= 2**32:
        capacity //= 2
    draws = 0 if exact or custom or not num_data else 2 * batch_size
    return Program(
        target=target,
        layout=shape,
        subsample=subsample,
        observables=pairs,
        num_data=num_data,
        num_chains=num_chains,
        layout_kind=kind,
        exact=exact,
        corrected=anchor is not None,
        whitened=whiten,
        guard=guard,
        custom_gradient=custom,
        host_gather=host_gather,
        keep=keep,
        capacity=capacity,
        page=choose_page(num_chains if kind == "wide" else 1, draws + shape.size, kind == "wide"),
    )


def _parts(program, source, kernel, gradient, chains, seed, anchor, theta) -> tuple[Parts, dict[str, Column]]:
    data = None if source is None or program.host_gather else source.aligned()
    if program.subsample is not None and not program.host_gather:
        data = program.subsample.prepare(source)
    streams = {"noise": random.NOISE}
    if program.exact:
        streams["accept"] = random.ACCEPT
    elif program.custom_gradient:
        streams["custom"] = random.CUSTOM
    elif program.num_data:
        streams["subsample"] = random.SUBSAMPLE
    if program.whitened:
        streams |= {"start": random.START, "guard": random.GUARD}
    # Whitened chains go in antithetic pairs: the same random numbers, one with the noise turned around.
    lanes = chains // 2 if program.whitened else chains
    keys = {name: jnp.asarray(random.stream_keys(seed, lanes, stream).T) for name, stream in streams.items()}
    if program.whitened:
        keys["sign"] = jnp.asarray(1.0 - 2.0 * (chains % 2), jnp.float32)
    centre = jnp.asarray(theta if anchor is None else anchor.theta, jnp.float32)
    references = tuple(o.reference(program.layout, centre) for _, o in program.observables)
    hessians = [_second_derivatives(program, o, anchor) for _, o in program.observables]
    traces = [None if anchor is None else o.trace(anchor) for _, o in program.observables]
    columns = {
        name: Column(
            shape=o.shape(program.layout) if isinstance(o, Function) else (o.size(program.layout),),
            reference=np.asarray(reference, np.float64),
            pairs=o.pairs(program.layout.size) if isinstance(o, Moments) else None,
            trace=trace,
            hessian=q,
        )
        for (name, o), reference, trace, q in zip(program.observables, references, traces, hessians, strict=True)
    }
    parts = Parts(
        kernel=_as_pytree(kernel),
        gradient=_as_pytree(gradient),
        data=jax.tree.map(on_device, data),
        keys=keys,
        references=references,
        anchor=None if anchor is None else centre,
        covariance=None if anchor is None or program.whitened else jnp.asarray(anchor.covariance, jnp.float32),
        frame=Frame.of(anchor) if program.whitened else None,
        borders=_borders(program.layout.size) if program.whitened else None,
        traces=tuple(jnp.asarray(trace, jnp.float32) for trace in traces if trace is not None),
    )
    return parts, columns


def _borders(dimension: int) -> jax.Array:
    """|z|^2 where the bulk of a standard normal vector ends and where its far tail begins."""
    from scipy.special import gammainccinv

    return jnp.asarray(2.0 * gammainccinv(dimension / 2, np.array(TAILS)), jnp.float32)


def _second_derivatives(program: Program, observable: Any, anchor: Anchor | None) -> np.ndarray | None:
    """Q of an observable at the anchor in the coordinates in which the chain moves: L'QL for a whitened run."""
    if not program.gradient_outer or anchor is None:
        return None
    hessian = observable.hessian(anchor)
    if not program.whitened:
        return hessian
    return np.ascontiguousarray(anchor.root[0].T @ hessian @ anchor.root[0])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Static:
    """A user's part that JAX does not know as a pytree: compiled code depends on it as a whole."""

    part: Any = field(metadata={"static": True})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.part, name)


def _as_pytree(part: Any) -> Any:
    return _Static(part) if jax.tree.leaves(part) == [part] else part


def _cost(program: Program, kernel: Any, gradient: Any) -> int:
    """Datum visits of one transition of one chain; one for a target without data."""
    if program.custom_gradient:
        return int(gradient.cost(program.num_data))
    return (program.batch_size if program.num_data else 1) * getattr(kernel, "num_leapfrog", 1)
