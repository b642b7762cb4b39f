"""Saved results: `Result.save`, `lv.load`, and what `lv.resume` reads of a call."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from langevin.coordinates import Unpaired
from langevin.data.source import as_source
from langevin.engine.block import Carry
from langevin.engine.checks import require
from langevin.engine.draws import Draws
from langevin.engine.entry import STEPS
from langevin.engine.ledger import Column, Ledger
from langevin.kernels.leimkuhler_matthews import LeimkuhlerMatthewsState
from langevin.kernels.nuts import NUTSState
from langevin.pilot import Pilot
from langevin.sampling.budget import Budget
from langevin.sampling.planning import Plan
from langevin.sampling.result import Result
from langevin.sampling.rules import Rules
from langevin.sampling.session import Session
from langevin.sampling.strategies import Tuned
from langevin.sampling.travel import Modes
from langevin.saving.folder import Folder
from langevin.saving.journal import CALL, Journal
from langevin.saving.packing import storable
from langevin.survey import Survey
from langevin.target import Target

PyTree = Any

storable(
    *(Budget, Carry, Column, Draws, Ledger, LeimkuhlerMatthewsState, NUTSState, Pilot, Plan, Rules, Survey, Tuned),
    *(Unpaired, Modes),
)


def save(session: Session, path: Path) -> None:
    """Writes a run to the directory `path`, in place of an earlier run that was saved there. Cost: 64 datum visits."""
    journal = Journal(Folder(path), session.plan.anchor.layout)
    journal.enter("run", session.stored())
    journal.save(keep_before=False)


def load(path: str | Path, target: Target | None = None, data: PyTree = None, *, theta_0: PyTree = None) -> Result:
    """Reads a run that `Result.save` wrote; every number is the same to the bit.

    With the target and the data of the run the result can be extended as if it had never been saved; they are checked
    against what is known of them. `theta_0`, any theta of the same structure, is needed only where theta is made of
    other containers than dict, list and tuple. Cost: 64 datum visits with a target, else none.

    Example:
        >>> import langevin as lv, tempfile
        >>> model = lv.models.Logistic.simulate(seed=1)
        >>> result = lv.sample(model.target, model.data, model.theta_0, passes=20)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result.save(folder)
        ...     again = lv.load(folder, model.target, model.data)
        >>> bool((again.mean.value == result.mean.value).all())
        True
    """
    path = Path(path)
    if target is None and data is not None:
        raise ValueError(
            "target must be given with data, got None. Pass both to extend the run, or neither to read it."
        )
    stored = Journal.of(Folder(path), theta_0).last(lambda name: name.startswith("run"))
    if stored is None:
        raise ValueError(f"path must lead to a run of lv.sample, got {path}, where none has taken a step yet.")
    session = Session(None, None, stored["plan"], stored["batch_size"], stored["budget"]).again(stored)
    return Result(session if target is None else _with_target(session, target, data))


def stored_call(path: Path, theta_0: PyTree) -> dict[str, Any]:
    """The arguments of the call whose checkpoint is at `path`, but for target and data."""
    journal = Journal.of(Folder(path), theta_0)
    if CALL not in journal:
        raise ValueError(f"path must lead to a checkpoint, got {path}, a saved result. Use lv.load, and extend it.")
    arguments = journal[CALL]["arguments"]
    if arguments is None:
        raise ValueError(
            f"path must lead to a call that a file can hold, got {path}, a run with functions or parts of your own. "
            f"Repeat the call of lv.run with checkpoint={str(path)!r} instead: it goes on."
        )
    asked = {**arguments, "theta_0": journal[CALL]["manifest"].layout.unravel(arguments["theta_0"])}
    if journal.left(STEPS) is not None:
        # A run may have been told to go farther since.
        asked["num_steps"] = journal.left(STEPS)["num_steps"]
    return asked


def _with_target(session: Session, target: Target, data: PyTree) -> Session:
    """The session ready to go on; raises if target or data are not those of the run."""
    require(isinstance(target, Target), "target", target, "an lv.Target", "lv.Target(log_prior, log_likelihood)")
    source = None if data is None else as_source(data)
    assert session.ledger is not None
    then = session.ledger.manifest
    target.check(session.plan.anchor.mode, None if source is None else source.arrays)
    now = replace(then, target=target, data=source)
    # Going on with another version is sound, though not to the same bits.
    differs = then.difference(now, but=["versions"])
    if differs is not None:
        raise ValueError(
            f"target and data must be those of the saved run, but {differs}, saved and given. "
            f"Pass the same ones, or load without target and data to read only."
        )
    return replace(session, target=target, source=source, ledger=replace(session.ledger, manifest=now))
