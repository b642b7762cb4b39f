"""Saved runs: a directory of one JSON file and one file of arrays. Reading them runs no code of theirs."""

import errno
import hashlib
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile

import numpy as np
from numpy.lib.npyio import NpzFile

from langevin.data.source import as_source
from langevin.engine.checks import require
from langevin.sampling.packing import FORMAT, Packer, Unpacker, pack_layout, unpack_layout
from langevin.sampling.result import Result
from langevin.sampling.session import Session
from langevin.target import Target

PyTree = Any

_RECORD = "run.json"
_UNFINISHED = "unfinished.partial"
# What a session is, but for the target and the data.
_SAVED = ("plan", "batch_size", "budget", "ledger", "seconds", "outside", "stopped", "tuned")
# Arrays are named by their content: a record can only ever meet the arrays that it was written with.
_ARRAYS = re.compile(r"arrays-([0-9a-f]{16})\.npz")


def save(session: Session, path: Path) -> None:
    """Writes a run to the directory `path`, in place of an earlier run that was saved there.

    The arrays get a name of their own; then the JSON file that names them replaces the old one in a single rename:
    after a crash at any moment `load` finds the old run or the new one, whole. Cost: 64 datum visits.
    """
    _check_free(path)
    packer: Any = Packer()
    run = {name: getattr(session, name) for name in _SAVED}
    run["ledger"] = replace(run["ledger"], manifest=run["ledger"].manifest.remembered())
    record = {
        "format": FORMAT,
        "langevin": version("langevin"),
        "theta": pack_layout(session.plan.anchor.layout),
        "run": packer.plain(run, "run"),
    }
    try:
        path.mkdir(exist_ok=True)
        unfinished = path / _UNFINISHED
        _fill(unfinished, lambda file: np.savez(file, **packer.arrays))
        record["arrays"] = f"arrays-{_file_digest(unfinished)}.npz"
        _publish(unfinished, path / record["arrays"])
        record["digest"] = _digest(record)
        _fill(unfinished, lambda file: file.write(json.dumps(record, indent=1, allow_nan=False).encode()))
        _publish(unfinished, path / _RECORD)
        _force_to_disk(path.parent)
    except OSError as error:
        said = f"the run could not be saved (an earlier one there is untouched): {error.strerror}"
        raise OSError(error.errno, said, str(path)) from error
    finally:
        _sweep(path)


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
    record = _read_record(path)
    layout = unpack_layout(record["theta"], theta_0)
    arrays = _read_arrays(path / record["arrays"])
    try:
        session = Session(target=None, source=None, **Unpacker(arrays, layout).made(record["run"], "run"))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{path} was written by langevin {record['langevin']}, and this version ({version('langevin')}) cannot "
            f"make a run of it ({type(error).__name__}: {error}). Use that version."
        ) from error
    return Result(session if target is None else _with_target(session, target, data))


def _with_target(session: Session, target: Target, data: PyTree) -> Session:
    """The session ready to go on; raises if target or data are not those of the run."""
    require(isinstance(target, Target), "target", target, "an lv.Target", "lv.Target(log_prior, log_likelihood)")
    source = None if data is None else as_source(data)
    assert session.ledger is not None
    then = session.ledger.manifest
    target.check(session.plan.anchor.mode, None if source is None else source.arrays)
    now = replace(then, target=target, data=source)
    differs = then.difference(now)
    if differs is not None:
        raise ValueError(
            f"target and data must be those of the saved run, but {differs}, saved and given. "
            f"Pass the same ones, or load without target and data to read only."
        )
    return replace(session, target=target, source=source, ledger=replace(session.ledger, manifest=now))


def _check_free(path: Path) -> None:
    """Raises unless `path` can become a saved run without harm to anything else."""
    taken = path.exists() or path.is_symlink()
    if path.is_dir():
        taken = not _is_run(path) and not all(_is_ours(entry.name) for entry in path.iterdir())
    if taken:
        raise ValueError(f"path must be new or a saved run, got {path}, which holds something else. Try another path.")


def _is_ours(name: str) -> bool:
    return name == _UNFINISHED or _ARRAYS.fullmatch(name) is not None


def _is_run(path: Path) -> bool:
    try:
        _parsed(path / _RECORD)
    except (OSError, ValueError):
        return False
    return True


def _parsed(file: Path) -> dict[str, Any]:
    """The record as it stands in the file; raises ValueError if it is none."""
    record = json.loads(file.read_bytes())
    if not isinstance(record, dict) or not {"format", "langevin"} <= record.keys():
        raise ValueError("the marks of a saved run are missing")
    return record


def _read_record(path: Path) -> dict[str, Any]:
    """The record of a saved run, checked."""
    file = path / _RECORD
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "path must lead to a saved run, and there is nothing", str(path))
    if not file.is_file():
        raise ValueError(f"path must be a directory that Result.save wrote, got {path}, which has no {_RECORD}.")
    try:
        record = _parsed(file)
    except ValueError as error:
        raise ValueError(f"{file} is damaged, or not of a saved run: {error}. Restore it from a copy.") from error
    if record["format"] != FORMAT:
        raise ValueError(
            f"{path} has format {record['format']}, written by langevin {record['langevin']}; this version "
            f"({version('langevin')}) reads format {FORMAT}. Use that version."
        )
    if record.pop("digest", None) != _digest(record):
        raise ValueError(f"{file} is damaged: its content does not fit its digest. Restore it from a copy.")
    return record


def _read_arrays(file: Path) -> dict[str, np.ndarray]:
    try:
        named = _ARRAYS.fullmatch(file.name)
        if named is None or _file_digest(file) != named[1]:
            raise ValueError("its content does not fit its name")
        with open(file, "rb") as opened, NpzFile(opened, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, BadZipFile) as error:
        raise ValueError(f"{file} is missing or damaged: {error}. Restore it from a copy.") from error


def _digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()[:16]


def _file_digest(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:16]


def _fill(file: Path, write: Callable[[BinaryIO], Any]) -> None:
    with open(file, "wb") as opened:
        write(opened)
        opened.flush()
        os.fsync(opened.fileno())


def _publish(unfinished: Path, file: Path) -> None:
    """Gives a finished file its name: whoever looks finds the whole file, power cuts included."""
    os.replace(unfinished, file)
    _force_to_disk(file.parent)


def _force_to_disk(folder: Path) -> None:
    # Only POSIX systems can open a directory.
    if os.name == "posix":
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _sweep(path: Path) -> None:
    """Removes what earlier and failed saves have left: files of ours that the record does not name."""
    with suppress(OSError):
        named = _parsed(path / _RECORD).get("arrays") if (path / _RECORD).exists() else None
        for entry in list(path.iterdir()):
            if _is_ours(entry.name) and entry.name != named:
                entry.unlink()
