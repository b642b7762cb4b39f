"""`lv.run`: chains of a kernel that the user has chosen, and the ledger that they leave."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from langevin import kernels
from langevin.anchor import Anchor
from langevin.coordinates import Coordinates, Preconditioned, Whitened
from langevin.data.files import path_of
from langevin.data.subsample import Blocks, Epochs, Full, Subsample, WithoutReplacement, WithReplacement
from langevin.display import showing, tell
from langevin.engine.books import Checkpoint
from langevin.engine.checks import whole_number
from langevin.engine.describe import Words
from langevin.engine.draws import DrawBook
from langevin.engine.going import Engine, Going
from langevin.engine.ledger import Ledger, RowBook
from langevin.engine.manifest import Manifest, Probe
from langevin.engine.prepared import Prepared
from langevin.engine.run import Run, begun
from langevin.engine.setup import prepare
from langevin.gradients import SAGA, SVRG, ControlVariate, Minibatch
from langevin.limits import interrupt
from langevin.observables import Marginals, Moments
from langevin.saving.journal import journal
from langevin.saving.packing import storable
from langevin.schedules import Constant, Polynomial, Power, Schedule
from langevin.target import Target

PyTree = Any

_SGLD, _MINIBATCH = kernels.SGLD(), Minibatch()
# What the journal calls them.
STEPS = "steps"

storable(
    *(getattr(kernels, name) for name in kernels.__all__),
    *(Anchor, Blocks, Checkpoint, Constant, ControlVariate, Coordinates, DrawBook, Epochs, Full, Manifest, Marginals),
    *(Minibatch, Moments, Polynomial, Power, Preconditioned, Probe, RowBook, SAGA, SVRG, Whitened, WithReplacement),
    *(WithoutReplacement, Words),
)


def run(
    target: Target,
    data: PyTree,
    theta_0: PyTree,
    *,
    schedule: Schedule,
    num_steps: int,
    kernel: Any = _SGLD,
    gradient: Any = _MINIBATCH,
    subsample: Subsample | None = None,
    coordinates: Coordinates | None = None,
    observables: Mapping[str, Any] | None = None,
    chains: int | Sequence[int] = 1,
    seed: int = 0,
    anchor: Anchor | None = None,
    weight_power: float = 1.0,
    keep: int = 0,
    layout: str | None = None,
    guard: int = 1,
    progress: bool | None = None,
    resume: Ledger | None = None,
    block_steps: int | None = None,
    engine: Engine | None = None,
    checkpoint: str | Path | None = None,
) -> Ledger:
    """Runs chains of a kernel on a posterior and returns the ledger of their weighted sums.

    `chains` is a number or a list of chain numbers: chain k moves in the same way alone or among others
    of the same layout, on one core or on several.
    `anchor=lv.laplace(...)` adds the Poisson correction and the estimate of the bias. `keep` caps the kept draws of a
    chain. `resume` continues an earlier ledger of the same call up to `num_steps` transitions in all. `block_steps`
    caps the transitions of one dispatch; it changes no result. `layout` is "chain", "wide" or None (the faster one;
    see `Program`). `engine=lv.Processes()` or `lv.Ray()` spreads the chains over processes or machines, without any
    change in the numbers. Array-valued schedule parameters add leading axes to every result, with common random
    numbers.

    `coordinates=lv.Preconditioned.by(matrix)` moves in units of a matrix, `lv.Whitened.by(anchor)` in those of the
    posterior, from draws of the Laplace approximation and in antithetic pairs. There a step from the far tail, the
    outer 1e-4 of the chi-square law of |z|^2, sees `guard` minibatches (of `WithReplacement`) in place of one, and
    sqrt(guard) of them in the outer 1e-2.

    `checkpoint="runs/x"` keeps the run in a folder every few seconds: the same call goes on from there, after a crash
    or to a larger `num_steps`, and ends with the same bits.

    Cost: num_steps * n datum visits a chain. Memory does not grow with num_steps. Ctrl-C returns the partial ledger.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.LinearGaussian.simulate(seed=1)
        >>> anchor = lv.laplace(model.target, model.data, 0.0)
        >>> ledger = lv.run(model.target, model.data, model.theta_0, subsample=lv.WithoutReplacement(10),
        ...                 schedule=lv.Constant(0.01), num_steps=2000, chains=4, anchor=anchor)
        >>> lv.estimate(ledger, method="corrected")["theta.mean"].status
        'ok'
    """
    if resume is not None and checkpoint is not None:
        raise ValueError("resume and checkpoint exclude each other, got both. A checkpoint goes on by itself.")
    parts = {
        "schedule": schedule, "kernel": kernel, "gradient": gradient, "subsample": subsample,
        "coordinates": coordinates, "observables": observables, "chains": chains, "seed": seed, "anchor": anchor,
        "weight_power": weight_power, "keep": keep, "layout": layout, "guard": guard,
    }  # fmt: skip
    with showing(progress):
        call = prepare(target, data, theta_0, **parts)
        going = begun(call, engine)
        if resume is not None:
            _check_same(resume, call)
            going.restore(resume.checkpoint, resume.num_steps)
        num_steps = whole_number("num_steps", num_steps, 1)
        if block_steps is not None:
            block_steps = whole_number("block_steps", block_steps, 1)
        arguments = {**parts, "num_steps": num_steps, "data": path_of(call.manifest.data)}
        remedy = "Go on by repeating the call of lv.run."
        with journal(checkpoint, lambda: call.manifest, arguments, theta_0, remedy) as kept:
            left = kept.left(STEPS)
            if left is not None:
                going.restore(_with_structure(left["left"], call), left["m"])
            if num_steps < going.m:
                raise ValueError(f"num_steps counts all transitions: it must be at least {going.m}, got {num_steps}.")
            bookmark = kept.bookmark(STEPS, lambda: {"num_steps": num_steps, **_state(going)})
            before, steps = going.m, max(num_steps - going.m, 1)
            tell("sampling")
            going.advance(
                num_steps,
                watch=lambda m: tell("sampling", (m - before) / steps, f"m = {m:,} of {num_steps:,}"),
                block_steps=block_steps,
                bookmark=bookmark,
            )
            if not going.m:
                interrupt("Interrupted during the set-up, before the first step; nothing was sampled.")
            # For good: a later call may go on to more steps.
            if kept.keeps:
                bookmark.keep()
        return going.ledger()


def _state(going: Going) -> dict[str, Any]:
    """What a file holds of a run; the device state as bare leaves, whatever a kernel makes its state of."""
    left = going.ledger().checkpoint
    return {"m": going.m, "left": left._replace(carry=tuple(jax.tree.leaves(left.carry)))}


def _with_structure(left: Checkpoint, call: Prepared) -> Checkpoint:
    """The checkpoint of a file with its leaves put where those of a run that begins are."""
    fresh = Run(call)
    fresh.start()
    structure: Any = jax.tree.structure(fresh.carry())
    return left._replace(carry=structure.unflatten(left.carry))


def _check_same(ledger: Any, call: Prepared) -> None:
    """Raises unless a ledger of the same call can be resumed."""
    if not isinstance(ledger, Ledger) or ledger.checkpoint is None:
        raise ValueError(
            f"resume must be a Ledger as lv.run returned it, unstacked, got {ledger!r}. Resume each part by itself."
        )
    differs = ledger.manifest.difference(call.manifest)
    if differs is not None:
        raise ValueError(
            f"resume must continue the same call, but {differs}, then and now. "
            f"Pass what the first call had, or start a new run."
        )
