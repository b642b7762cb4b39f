"""Programs kept on disk: a second process compiles nothing, and nothing about the folder can break a run."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from langevin import startup

REPORT = """
import collections, hashlib, json, sys
import jax, jax.numpy as jnp, numpy as np
counts = collections.Counter()
jax.monitoring.register_event_listener(lambda name, **_: counts.update([name.split("/")[-1]]))
import langevin as lv
x = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
target = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, r: -0.5 * jnp.sum((t - r) ** 2) - jnp.sum(t**4))
plan = lv.plan(target, x, np.zeros(2), passes=1)
parts = (plan.anchor.theta, plan.anchor.precision, plan.pilot.spread, plan.survey.modes, np.array(plan.pilot.ess))
inside = dict(counts)
jax.jit(lambda t: t + 1.0)(np.ones(3)).block_until_ready()   # the user's own: neither looked up nor kept
print(json.dumps({
    "asked": inside.get("compile_requests_use_cache", 0),
    "found": inside.get("cache_hits", 0),
    "kept": inside.get("cache_misses", 0),
    "kept outside": counts.get("cache_misses", 0) - inside.get("cache_misses", 0),
    "digest": hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest(),
}))
"""


def report(**environment):
    clean = {name: value for name, value in os.environ.items() if name != "LANGEVIN_NO_CACHE"}
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", REPORT],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    # A slow machine is told how far the work has come.
    assert all(line.startswith("langevin: ") for line in found.stderr.splitlines()), found.stderr
    return json.loads(found.stdout)


def programs(folder):
    return sorted((Path(folder) / "langevin" / "programs").iterdir())


def test_a_second_process_compiles_nothing_and_finds_the_same_bits(tmp_path):
    first, second = (report(XDG_CACHE_HOME=str(tmp_path)) for _ in range(2))
    assert first["kept"] == first["asked"] == len(programs(tmp_path)) > 0
    assert second["found"] == second["asked"] == first["asked"] and second["kept"] == 0
    assert first["kept outside"] == second["kept outside"] == 0
    without = report(XDG_CACHE_HOME=str(tmp_path / "other"), LANGEVIN_NO_CACHE="1")
    assert without["kept"] == 0 and not (tmp_path / "other").exists()
    assert first["digest"] == second["digest"] == without["digest"]


@pytest.mark.slow
def test_processes_share_the_folder(tmp_path):
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: report(XDG_CACHE_HOME=str(tmp_path)), range(3)))
    assert len({one["digest"] for one in found}) == 1
    assert len(programs(tmp_path)) == found[0]["asked"]  # no drafts are left


@pytest.mark.slow
def test_damaged_files_are_replaced(tmp_path):
    first = report(XDG_CACHE_HOME=str(tmp_path))
    whole, cut, *_ = programs(tmp_path)
    whole.write_bytes(b"\0" * 100)
    cut.write_bytes(cut.read_bytes()[:-10])
    again, healed = (report(XDG_CACHE_HOME=str(tmp_path)) for _ in range(2))
    assert again["kept"] == 2 and healed["kept"] == 0
    assert first["digest"] == again["digest"] == healed["digest"]


def test_a_user_s_own_folder_wins(tmp_path):
    report(XDG_CACHE_HOME=str(tmp_path / "ours"), JAX_COMPILATION_CACHE_DIR=str(tmp_path / "theirs"))
    assert not (tmp_path / "ours" / "langevin" / "programs").exists() or not programs(tmp_path / "ours")


def test_without_a_folder_to_write_to_everything_is_compiled(tmp_path):
    (tmp_path / "file").write_text("")
    found = report(XDG_CACHE_HOME=str(tmp_path / "file"))
    assert found["found"] == found["kept"] == 0


def test_the_oldest_programs_go_first(tmp_path, monkeypatch):
    monkeypatch.setattr(startup, "_MOST_BYTES", 1000)
    for age, name in enumerate(["new", "used", "old", "oldest"]):
        folder = startup._Folder(tmp_path)
        folder.put(name, bytes(300))
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    assert startup._Folder(tmp_path).get("old") == bytes(300)  # reading makes it young
    startup._Folder(tmp_path).put("one more", b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old", "one more"]


@pytest.mark.parametrize("content", [b"", b"abc", b"\0\0\0\1value"])
def test_what_was_not_written_whole_is_not_read(tmp_path, content):
    folder = startup._Folder(tmp_path)
    (tmp_path / "key").write_bytes(content)
    assert folder.get("key") is None and folder.get("unknown") is None
    folder.put("key", b"value")
    assert folder.get("key") == b"value"
