"""Saved results: `Result.save`, and what `lv.load` and `lv.resume` read."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from langevin.coordinates import Unpaired
from langevin.data.columns import MANIFEST
from langevin.data.source import as_source
from langevin.engine.block import Carry
from langevin.engine.checks import require
from langevin.engine.draws import Draws
from langevin.engine.entry import STEPS
from langevin.engine.ledger import Column, Ledger
from langevin.kernels.leimkuhler_matthews import LeimkuhlerMatthewsState
from langevin.kernels.nuts import NUTSState
from langevin.outskirts import Outskirts
from langevin.pilot import Pilot
from langevin.sampling.budget import Budget
from langevin.sampling.planning import Plan
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
    *(
        Budget,
        Carry,
        Column,
        Draws,
        Ledger,
        LeimkuhlerMatthewsState,
        NUTSState,
        Outskirts,
        Pilot,
        Plan,
        Rules,
        Survey,
        Tuned,
    ),
    *(Unpaired, Modes),
)


def save(session: Session, path: Path, beside: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Writes a run to the directory `path`, in place of an earlier run that was saved there.

    `beside`: further entries by name, for whoever wraps a run. Cost: at most 8192 datum visits.
    """
    journal = Journal(Folder(path), session.plan.anchor.layout)
    for name, value in {**beside, "run": session.stored()}.items():
        journal.enter(name, value)
    journal.save(keep_before=False)


def stored_session(journal: Journal, path: Path) -> Session:
    """The run of a folder, as far as it has come; it cannot go on."""
    stored = journal.last(lambda name: name.startswith("run"))
    if stored is None:
        raise ValueError(f"path must lead to a run of lv.sample, got {path}, where none has taken a step yet.")
    return Session(None, None, stored["plan"], stored["batch_size"], stored["budget"]).again(stored)


def stored_call(path: Path, theta_0: PyTree) -> dict[str, Any]:
    """The arguments of the call whose checkpoint is at `path`, but for the target; data by their path, or None."""
    journal = Journal.of(Folder(path), theta_0)
    if CALL not in journal:
        raise ValueError(f"path must lead to a checkpoint, got {path}, a saved result. Use lv.load, and extend it.")
    arguments = journal[CALL]["arguments"]
    if arguments is None:
        raise ValueError(
            f"path must lead to a call that a file can hold, got {path}, a run with functions or parts of your own. "
            f"Repeat the call of lv.run with checkpoint={str(path)!r} instead: it goes on."
        )
    theta = journal[CALL]["manifest"].layout.unravel(arguments["theta_0"])
    asked = {**arguments, "theta_0": theta, "data": _as_they_are(arguments["data"])}
    if journal.left(STEPS) is not None:
        # A run may have been told to go farther since.
        asked["num_steps"] = journal.left(STEPS)["num_steps"]
    return asked


def _as_they_are(path: Any) -> str | None:
    """The path of data that are opened where they are, as those of every run are.

    A record from elsewhere may name any file, and a table would be imported beside it: nothing is written there.
    """
    if not isinstance(path, str):
        return None
    where = Path(path)
    columns = where.suffix == ".npy" or (where / MANIFEST).exists() or any(where.glob("*.npy"))
    return path if columns or not where.exists() else None


def with_target(session: Session, target: Target, data: PyTree) -> Session:
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
