"""Processes that die in the middle of saving, simulated: from the k-th call of the disk on, every call fails."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import langevin as lv
from langevin.saving.folder import Folder
from tests.invariance.cases import numbers


class Crash(BaseException):
    """Nothing catches this but the test, as nothing outlives kill -9."""


@contextmanager
def saved_always(monkeypatch: Any) -> Iterator[None]:
    """Saves at every border and after every finding, however little time has passed."""
    with monkeypatch.context() as patched:
        patched.setattr("langevin.saving.journal._SECONDS", -1.0)
        patched.setattr("langevin.saving.journal._SHARE", float("inf"))
        yield


@contextmanager
def dies_at(monkeypatch: Any, moment: int) -> Iterator[list[str]]:
    """Raises `Crash` in the call of this number, and in all after it; yields the names of the calls."""
    calls: list[str] = []

    def dying(name: str) -> Callable[..., Any]:
        function = getattr(os, name)

        def called(*arguments: Any) -> Any:
            calls.append(name)
            if len(calls) > moment:
                raise Crash(name)
            return function(*arguments)

        return called

    with monkeypatch.context() as patched:
        for name in ("fsync", "replace"):
            patched.setattr(os, name, dying(name))
        # A dead process sweeps nothing.
        sweep = Folder._sweep
        patched.setattr(Folder, "_sweep", lambda folder: sweep(folder) if len(calls) <= moment else None)
        yield calls


def everything(result: lv.Result | lv.NetworkResult) -> dict[str, Any]:
    """Every number that a result offers, but for the seconds."""
    if isinstance(result, lv.NetworkResult):
        fit = {name: getattr(result.fit, name) for name in ("value", "stderr", "statuses")}
        return {**fit, "draws": result.draws, "passes": result.passes, "stopped": result.walk.stopped}
    summary = {f"summary {name}": column for name, column in result.summary().items()}
    told = {"batch": result.session.batch_size, "stopped": result.session.stopped, "because": result.plan.because}
    return {**numbers(result.ledger), **summary, **told, "quantiles": result.quantiles().value}
