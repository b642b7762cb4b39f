"""Runs that go on after their end: in memory, or in a folder from which `lv.resume` finishes what was begun."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from langevin.data.source import ArraySource
from langevin.limits import stop_requests
from langevin.sampling.budget import Budget
from langevin.sampling.session import Session
from langevin.sampling.store import stored_session, with_target
from langevin.saving.folder import Folder
from langevin.saving.journal import CALL, Journal, noted_entries
from langevin.target import Target

PyTree = Any

# How the pieces of work are called; what runs of `lv.sample` are called begins in the same way.
_RUN, _EXTENDED, _BEFORE = "run", "run extended", "seconds before the "


def extended(session: Session, asked: Budget, passes: float, checkpoint: str | Path | None) -> Session:
    """The run, gone on for as much as is asked beyond the `passes` so far.

    `checkpoint` is where it is kept, else where the run itself is: what was interrupted there is for `lv.resume`.
    """
    if session.target is None:
        raise ValueError("extend needs the target and the data: lv.load(path, target, data) before extending.")
    source = session.source
    if isinstance(source, ArraySource) and not source.unchanged:
        raise ValueError(
            "data must be as they were when sampling began, but their values were changed in place since. "
            "Call lv.sample anew, or give it a copy of arrays that you go on to change."
        )
    budget = asked if asked.passes is None else replace(asked, passes=asked.passes + passes)
    anew, own = replace(session, goal=0), None if session.stopped == "interrupted" else session.folder
    place = own if checkpoint is None else Path(checkpoint)
    if place is None:
        return anew.spend(budget, monotonic(), Journal(), _RUN)
    name = f"{_EXTENDED} from step {session.steps} by {asked.words()}"
    with _opened(place, session, name) as journal:
        return _spent(anew, budget, journal, name)


def finished(session: Session, path: Path) -> Session:
    """The last extension that the folder of a run knows, gone on with if it was left; the run itself without any."""
    journal = Journal.of(Folder(path))
    name = journal.last_name(_is_extension)
    if name is None:
        return session
    if name in journal:
        return session.again(journal[name])
    with Folder(path).locked() as folder, _saved(path):
        journal = Journal.of(folder)
        left = journal.left(name)
        return session if left is None else _spent(session, left["budget"], journal, name)


def kept_apart(path: Path, target: Target, data: PyTree, theta_0: PyTree) -> Session | None:
    """The run of a folder that knows an extension alone, and not the call before it; None of any other folder."""
    journal = Journal.of(Folder(path), theta_0)
    if not knows_extension_alone(journal):
        return None
    return with_target(stored_session(journal, path), target, data)


def knows_extension_alone(journal: Journal) -> bool:
    """Whether a run was extended into a folder of its own."""
    return CALL not in journal and journal.last_name(_is_extension) is not None


def _is_extension(name: str) -> bool:
    return name.startswith(_EXTENDED)


def _spent(session: Session, budget: Budget, journal: Journal, name: str) -> Session:
    # The clock counts what earlier processes have spent on it.
    before, left = journal.found(_BEFORE + name, lambda: session.seconds), journal.left(name)
    began = monotonic() - (0.0 if left is None else left["seconds"] - before)
    try:
        return session.spend(budget, began, journal, name)
    finally:
        journal.close()


@contextmanager
def _opened(path: Path, session: Session, name: str) -> Iterator[Journal]:
    """The journal of a folder that is new or holds this run, with nothing else under way."""
    assert session.ledger is not None
    with Folder(path).locked() as folder, _saved(path):
        if folder.taken:
            journal = Journal.of(folder)
            if not any(_same(journal[one], session) for one in journal.pieces if one.startswith(_RUN)):
                raise ValueError(
                    f"checkpoint must be new or of this run, got {path}, which does not hold it as it was before it "
                    f"was extended. Choose another folder."
                )
            left = journal.under_way
            if left is not None and not _is_extension(left):
                raise ValueError(
                    f"checkpoint must have no other work under way, got {path}, where the {left} was interrupted. "
                    f"Finish it with lv.resume, or choose another folder."
                )
            if left not in (None, name):
                # Whoever asks for another extension has given up on the one before.
                journal.forget(left)
        else:
            journal = Journal(folder, session.ledger.manifest.layout)
            for entry, value in {**noted_entries(), _RUN: session.stored()}.items():
                journal.enter(entry, value)
        # A folder that cannot be written is better known now than after hours of work.
        journal.save()
        yield journal


def _same(stored: Any, session: Session) -> bool:
    assert session.ledger is not None
    then = stored["ledger"]
    return then.num_steps == session.steps and then.manifest.difference(session.ledger.manifest) is None


@contextmanager
def _saved(path: Path) -> Iterator[None]:
    with stop_requests() as stop_requested:
        try:
            yield
        finally:
            if stop_requested():
                print(f"Saved in {path}. Go on with lv.resume, or repeat the call.", file=sys.stderr, flush=True)
