"""Checkpoints that do not fit, are damaged, forged, in use or cannot be written: a clear word, and nothing is lost."""

import json
import os
import signal
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.engine import manifest
from langevin.saving.folder import Folder, _digest
from langevin.saving.journal import Bookmark
from tests.invariance.cases import assert_same
from tests.invariance.crashes import everything, saved_always

RNG = np.random.default_rng(5)
X = RNG.standard_normal((200, 2)).astype(np.float32)
NORMAL = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, x: -0.5 * jnp.sum((x - t) ** 2))
WIDER = lv.Target(lambda t: -0.25 * jnp.sum(t**2), NORMAL.log_likelihood)
START = np.array([0.1, -0.2])


def sampled(target=NORMAL, data=X, theta_0=START, **more):
    return lv.sample(target, data, theta_0, **{"passes": 100, "chains": 2, "progress": False, **more})


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder with two checkpoints on the way, and the result without any."""
    folder = tmp_path_factory.mktemp("kept") / "run"
    with pytest.MonkeyPatch.context() as monkeypatch, saved_always(monkeypatch):
        stopped_at(monkeypatch, folder, 3)
    return folder, everything(sampled())


def stopped_at(monkeypatch, folder, save, sampled=sampled, **more):
    """A run with Ctrl-C during its save of this number."""
    saves, keep = [], Bookmark.keep

    def pressed(self):
        saves.append(1)
        keep(self)
        if len(saves) == save:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(Bookmark, "keep", pressed)
        return sampled(checkpoint=folder, **more)


def copied(folder, to):
    to.mkdir()
    for entry in folder.iterdir():
        (to / entry.name).write_bytes(entry.read_bytes())
    return to


def test_ctrl_c_saves_and_says_how_to_go_on(monkeypatch, tmp_path, capsys):
    with saved_always(monkeypatch):
        result = stopped_at(monkeypatch, tmp_path, 2)
    assert result.partial and 0 < result.session.steps
    assert f"Saved in {tmp_path}. Go on with lv.resume({str(tmp_path)!r}, target, data), or" in capsys.readouterr().err
    assert lv.load(tmp_path).partial and lv.load(tmp_path).session.steps == result.session.steps
    assert_same(everything(lv.resume(tmp_path, NORMAL, X)), everything(sampled()))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"passes": 101}, r"but passes is 100\.0 and 101\.0"),
        ({"passes": None, "precision": 0.1}, "but passes is 100.0 and None"),
        ({"method": "minibatch"}, "but method is 'auto' and 'minibatch'"),
        ({"chains": 4}, r"but chains is \(0, 1\) and \(0, 1, 2, 3\)"),
        ({"seed": 1}, "but seed is 0 and 1"),
        ({"theta_0": START + 1e-7}, "but the reference point"),
        ({"theta_0": np.zeros(3)}, "must accept theta|theta_0 must have the structure"),
        ({"data": X[:-1]}, r"but the data are arrays float32 \(200, 2\) .* and arrays float32 \(199, 2\)"),
        ({"data": X + (np.arange(200) == 150)[:, None]}, "but the data are arrays"),
        ({"target": WIDER}, "but the target's gradient"),
    ],
)
def test_another_call_is_refused_and_the_first_difference_named(kept, changed, named):
    before = {entry.name: entry.read_bytes() for entry in kept[0].iterdir()}
    with pytest.raises(ValueError, match=named):
        sampled(**changed, checkpoint=kept[0])
    assert {entry.name: entry.read_bytes() for entry in kept[0].iterdir()} == before


def test_resume_refuses_other_data_other_targets_and_other_numerics(kept, monkeypatch):
    with pytest.raises(ValueError, match="but the data are"):
        lv.resume(kept[0], NORMAL, X + 1.0)
    with pytest.raises(ValueError, match="but the target's gradient"):
        lv.resume(kept[0], WIDER, X)
    with pytest.raises(ValueError, match="data must not be None"):
        lv.resume(kept[0], NORMAL)
    monkeypatch.setattr(manifest, "_NUMERICS", 99)
    with pytest.raises(ValueError, match=r"but versions is 'numerics \d+ on jax .*' and 'numerics 99 on jax"):
        lv.resume(kept[0], NORMAL, X)
    # Going on without the promise of the same bits is another matter.
    assert lv.load(kept[0], NORMAL, X).extend(passes=1).passes > 0


def test_a_run_of_parts_is_not_taken_for_a_sample(kept, tmp_path):
    parts = {"subsample": lv.Full(), "schedule": lv.Constant(1e-3), "num_steps": 32, "progress": False}
    with pytest.raises(ValueError, match=r"calls of two functions"):
        lv.run(NORMAL, X, START, **parts, checkpoint=kept[0])
    ledger = lv.run(NORMAL, X, START, **parts, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"must lead to a run of lv\.sample"):
        lv.load(tmp_path)
    with pytest.raises(ValueError, match="exclude each other"):
        lv.run(NORMAL, X, START, **parts, checkpoint=tmp_path, resume=ledger)


def test_a_saved_result_is_no_checkpoint(kept, tmp_path):
    lv.load(kept[0]).save(tmp_path)
    with pytest.raises(ValueError, match="a saved result"):
        lv.resume(tmp_path, NORMAL, X)
    with pytest.raises(ValueError, match="a saved result"):
        sampled(checkpoint=tmp_path)


@pytest.mark.parametrize("which", ["record", "arrays", "both"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(kept, tmp_path, which):
    folder = copied(kept[0], tmp_path / "copy")
    record, before = (json.loads((folder / name).read_bytes()) for name in ("run.json", "run-before.json"))
    (own,) = set(record["arrays"].values()) - set(before["arrays"].values())
    if which == "record":
        (folder / "run.json").write_bytes((folder / "run.json").read_bytes()[:-9])
    else:
        os.truncate(folder / own, 1000)
    if which == "both":
        (folder / "run-before.json").unlink()
        with pytest.raises(ValueError, match=rf"{own} is missing or damaged"):
            lv.resume(folder, NORMAL, X)
        return
    # Heard twice: by who reads the settings, and by who takes over.
    with pytest.warns(RuntimeWarning, match="Went back to the checkpoint before it"):
        again = lv.resume(folder, NORMAL, X)
    assert_same(everything(again), kept[1])
    assert_same(everything(lv.load(folder)), kept[1])


def test_data_are_opened_where_they_were(monkeypatch, tmp_path, kept, capsys):
    np.save(tmp_path / "x.npy", X)
    with saved_always(monkeypatch):
        stopped_at(monkeypatch, tmp_path / "run", 2, data=tmp_path / "x.npy")
    assert f"lv.resume({str(tmp_path / 'run')!r}, target), or" in capsys.readouterr().err
    assert_same(everything(lv.resume(tmp_path / "run", NORMAL)), kept[1])
    np.save(tmp_path / "x.npy", X[::-1])
    with pytest.raises(ValueError, match="but the data are"):
        lv.resume(tmp_path / "run", NORMAL)
    # In memory or in a file, what counts is what they are.
    assert_same(everything(lv.resume(tmp_path / "run", NORMAL, X)), kept[1])


@pytest.mark.slow
def test_a_fit_goes_on_where_its_call_is_repeated(monkeypatch, tmp_path):
    pytest.importorskip("formulaic")
    table = {"x": X[:, 0], "y": X[:, 1]}

    def fitted(**more):
        return lv.fit(table, "y ~ x", passes=50, chains=2, progress=False, **more)

    with saved_always(monkeypatch):
        assert stopped_at(monkeypatch, tmp_path, 2, sampled=fitted).partial
    assert_same(everything(fitted(checkpoint=tmp_path)), everything(fitted()))


def test_two_processes_do_not_share_a_folder(kept, tmp_path):
    folder = copied(kept[0], tmp_path / "copy")
    script = "import sys, langevin.saving.folder as f, pathlib\n"
    script += "with f.Folder(pathlib.Path(sys.argv[1])).locked(): print('mine', flush=True); sys.stdin.read()"
    other = subprocess.Popen([sys.executable, "-c", script, folder], stdin=-1, stdout=-1, text=True)
    assert other.stdout is not None and other.stdout.readline() == "mine\n"
    try:
        with pytest.raises(ValueError, match=f"{folder}, where another run is writing"):
            lv.resume(folder, NORMAL, X)
        assert lv.load(folder).partial
    finally:
        other.kill()
        other.communicate()
    # The lock dies with its process.
    assert_same(everything(lv.resume(folder, NORMAL, X)), kept[1])


def mounted(path, options):
    path.mkdir()
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("only root may mount")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")


def test_a_full_disk_and_a_read_only_one(kept, tmp_path):
    disk = tmp_path / "disk"
    mounted(disk, "size=8m")
    try:
        folder = copied(kept[0], disk / "run")
        (disk / "junk").write_bytes(b"\0" * (os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize))
        # From the beginning: an error before any work.
        with pytest.raises(OSError, match=r"could not be saved.*No space left"):
            sampled(checkpoint=disk / "new")
        with pytest.raises(OSError, match=r"could not be saved.*No space left"):
            lv.resume(folder, NORMAL, X)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(OSError, match=r"could not be saved.*Read-only"):
            sampled(checkpoint=disk / "new")
        with pytest.raises(OSError, match=r"could not be saved.*Read-only"):
            lv.resume(folder, NORMAL, X)
        assert lv.load(folder).partial
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        (disk / "junk").unlink()
        assert_same(everything(lv.resume(folder, NORMAL, X)), kept[1])
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_disk_that_fills_up_on_the_way_does_not_stop_the_run(monkeypatch, tmp_path):
    write, saves = Folder.write, []

    def full(self, *arguments, **keywords):
        saves.append(1)
        if 3 < len(saves):
            raise OSError(28, "the run could not be saved: no space", str(self.path))
        return write(self, *arguments, **keywords)

    with saved_always(monkeypatch), monkeypatch.context() as patched:
        patched.setattr(Folder, "write", full)
        with pytest.warns(RuntimeWarning, match="no space.* The run goes on, and tries again"):
            result = sampled(checkpoint=tmp_path)
    expected = everything(sampled())
    assert_same(everything(result), expected)
    assert_same(everything(lv.resume(tmp_path, NORMAL, X)), expected)


def test_a_folder_from_elsewhere_leads_nowhere_else(kept, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    folder = copied(kept[0], tmp_path / "copy")
    (folder / "unfinished.partial").symlink_to(precious)
    assert_same(everything(lv.resume(folder, NORMAL, X)), kept[1])
    (folder / "lock").unlink()
    (folder / "lock").symlink_to(tmp_path / "made")
    with pytest.raises(OSError, match="could not be saved"):
        lv.resume(folder, NORMAL, X)
    assert precious.read_text() == "mine" and not (tmp_path / "made").exists()


@pytest.mark.parametrize("several", [False, True])
def test_a_record_from_elsewhere_imports_no_table(kept, tmp_path, several):
    """An import would make a folder beside whatever table the record names."""
    (tmp_path / "precious").mkdir()
    table = tmp_path / "precious" / "table.csv"
    table.write_text("a,b\n" + "\n".join(f"{a},{b}" for a, b in X.tolist()))
    folder = copied(kept[0], tmp_path / "copy")
    record = json.loads((folder / "run.json").read_bytes())
    del record["digest"]
    record["found"]["call"]["arguments"]["data"] = [str(table)] if several else str(table)
    (folder / "run.json").write_text(json.dumps({**record, "digest": _digest(record)}))
    with pytest.raises(ValueError, match=r"data must not be None.*Pass the observations"):
        lv.resume(folder, NORMAL)
    assert os.listdir(tmp_path / "precious") == ["table.csv"]
    assert_same(everything(lv.resume(folder, NORMAL, X)), kept[1])


def test_something_else_is_not_overwritten(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(ValueError, match="holds something else"):
        sampled(checkpoint=tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["thesis.txt"]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        lv.resume(tmp_path / "nowhere", NORMAL, X)
