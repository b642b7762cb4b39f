"""No crash, damage, forgery or full disk goes unnoticed, and none costs the run that was saved before."""

import io
import json
import os
import resource
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from langevin.loading import load
from langevin.saving import folder
from tests.unit.saved import assert_same


def _damages(content: bytes) -> list[bytes]:
    rng = np.random.default_rng(0)
    flips = []
    for at in [*rng.integers(len(content), size=40), 0, len(content) - 1]:
        changed = bytearray(content)
        changed[at] ^= 1 << rng.integers(7)
        flips.append(bytes(changed))
    return [b"", b"\0" * len(content), content[:-1], content[: len(content) // 2], content + content, *flips]


@pytest.mark.parametrize("which", ["run.json", "arrays"])
def test_damage_is_noticed_and_the_file_named(flat, tmp_path, which):
    flat.result.save(tmp_path)
    (file,) = (tmp_path / name for name in os.listdir(tmp_path) if name.startswith(which))
    whole = file.read_bytes()
    for damaged in _damages(whole):
        file.write_bytes(damaged)
        # White space between the words of JSON carries nothing.
        if which == "run.json" and _same_json(damaged, whole):
            continue
        with pytest.raises(ValueError, match=f"{file.name}|has format"):
            load(tmp_path)
    file.unlink()
    with pytest.raises(ValueError, match=file.name.replace(".", r"\.")):
        load(tmp_path)


def _same_json(one: bytes, other: bytes) -> bool:
    try:
        return json.loads(one) == json.loads(other)
    except ValueError:
        return False


def _rewritten(path: Path, change: Any = None, arrays: bytes | None = None) -> None:
    """A forged record whose digests are right."""
    record = json.loads((path / "run.json").read_bytes())
    del record["digest"]
    if arrays is not None:
        (path / "forged").write_bytes(arrays)
        record["arrays"]["run"] = f"arrays-{folder._file_digest(path / 'forged')}.npz"
        os.replace(path / "forged", path / record["arrays"]["run"])
    if change is not None:
        change(record)
    (path / "run.json").write_text(json.dumps({**record, "digest": folder._digest(record)}))


class _Trap:
    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["TRAP"],)


def test_pickles_are_refused(flat, tmp_path, monkeypatch):
    monkeypatch.setenv("TRAP", str(tmp_path / "sprung"))
    path = tmp_path / "run"
    flat.result.save(path)
    (stored,) = path.glob("*.npz")
    with np.load(stored) as arrays:
        content = dict(arrays)
    content["run/plan/chains"] = np.array([_Trap()], dtype=object)
    forged = io.BytesIO()
    np.savez(forged, **content)
    _rewritten(path, arrays=forged.getvalue())
    with pytest.raises(ValueError, match=r"arrays-.*pickle|arrays-.*allow_pickle"):
        load(path)
    with zipfile.ZipFile(path / json.loads((path / "run.json").read_text())["arrays"]["run"]) as archive:
        pickled = archive.read("run/plan/chains.npy")
    _rewritten(path, arrays=pickled)
    with pytest.raises(ValueError, match="arrays-"):
        load(path)
    assert not (tmp_path / "sprung").exists()


def test_only_known_kinds_are_built_and_only_inside(flat, tmp_path):
    flat.result.save(tmp_path)
    _rewritten(tmp_path, lambda record: record["found"]["run"]["plan"]["budget"].update({"is": "Popen"}))
    with pytest.raises(ValueError, match="cannot make a run of it"):
        load(tmp_path)
    for elsewhere in ("../elsewhere.npz", "../arrays-0123456789abcdef.npz", "/arrays-0123456789abcdef.npz"):
        _rewritten(tmp_path, lambda record, elsewhere=elsewhere: record["arrays"].update(run=elsewhere))
        with pytest.raises(ValueError, match=r"npz is missing or damaged: its content does not fit its name"):
            load(tmp_path)


def test_a_later_format_is_named(flat, tmp_path):
    flat.result.save(tmp_path)
    _rewritten(tmp_path, lambda record: record.update(format=99, langevin="7.0"))
    with pytest.raises(ValueError, match=r"format 99, written by langevin 7\.0"):
        load(tmp_path)


class _Crash(BaseException):
    pass


@pytest.mark.parametrize("moment", range(10))
def test_a_crash_leaves_the_old_run_or_the_new_one(flat, nested, tmp_path, monkeypatch, moment):
    flat.result.save(tmp_path)
    # What a save computes, once: its program goes to the cache on disk, by calls that are none of the save.
    _ = nested.result.ledger.manifest.remembered
    calls = 0

    def crashing(function: Any) -> Any:
        def called(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > moment:
                raise _Crash
            return function(*arguments)

        return called

    with monkeypatch.context() as broken:
        for name in ("fsync", "replace", "unlink"):
            broken.setattr(os, name, crashing(getattr(os, name)))
        # A dead process sweeps nothing.
        broken.setattr(folder.Folder, "_sweep", lambda self: None)
        try:
            nested.result.save(tmp_path)
        except _Crash:
            pass
        assert calls == moment + 1
    # unlink, fsync, rename, fsync of the directory: twice; the seventh call is the rename of the record.
    assert_same(load(tmp_path).mean, (flat if moment < 7 else nested).result.mean)
    flat.result.save(tmp_path)
    assert_same(load(tmp_path).mean, flat.result.mean)
    assert len(os.listdir(tmp_path)) == 2


def test_a_crash_of_the_first_save_can_be_repeated(flat, tmp_path, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(folder.Folder, "_sweep", lambda self: None)
        broken.setattr(folder, "_file_digest", lambda file: (_ for _ in ()).throw(_Crash))
        with pytest.raises(_Crash):
            flat.result.save(tmp_path / "run")
    with pytest.raises(ValueError, match=r"no run\.json"):
        load(tmp_path / "run")
    flat.result.save(tmp_path / "run")
    assert_same(load(tmp_path / "run").mean, flat.result.mean)


@pytest.mark.parametrize("limit", [1000, 40_000])
def test_a_full_disk_leaves_the_old_run(flat, nested, tmp_path, limit):
    flat.result.save(tmp_path / "run")
    before = {name: (tmp_path / "run" / name).read_bytes() for name in os.listdir(tmp_path / "run")}
    allowed = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, allowed[1]))
    try:
        with pytest.raises(OSError, match=f"could not be saved.*{tmp_path / 'run'}"):
            nested.result.save(tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, allowed)
    assert {name: (tmp_path / "run" / name).read_bytes() for name in os.listdir(tmp_path / "run")} == before
