"""Runs that are extended in a folder: killed at any moment they go on to the bits of an extension in memory."""

import shutil
import signal
from time import monotonic

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.saving.folder import Folder
from langevin.saving.journal import Bookmark, Journal
from tests.invariance.cases import assert_same
from tests.invariance.crashes import Crash, dies_at, everything, saved_always

RNG = np.random.default_rng(5)
X = RNG.standard_normal((200, 2)).astype(np.float32)
NORMAL = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, x: -0.5 * jnp.sum((x - t) ** 2))
SKEWED = lv.Target(lambda t: jnp.sum(2.0 * t - jnp.exp(t)))
CASES = {
    "minibatch": (NORMAL, X, {"passes": 100, "chains": 2}, {"passes": 200}),
    "exact": (SKEWED, None, {"precision": 0.2, "chains": 2}, {"precision": 0.1}),
}
START = np.array([0.1, -0.2])


def sampled(which, **more):
    target, data, budget, _ = CASES[which]
    return lv.sample(target, data, START, progress=False, **budget, **more)


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    """Its name, a folder with a run that is over, and the run extended in memory."""
    folder = tmp_path_factory.mktemp("kept") / "run"
    sampled(request.param, checkpoint=folder)
    return request.param, folder, everything(sampled(request.param).extend(progress=False, **CASES[request.param][3]))


def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "run")


def extended(which, folder, **more):
    """The script of a user, which is simply run again."""
    return sampled(which, checkpoint=folder).extend(progress=False, **{**CASES[which][3], **more})


def crashed(monkeypatch, moment, work):
    with saved_always(monkeypatch), dies_at(monkeypatch, moment) as calls:
        try:
            work()
        except Crash:
            pass
    return calls


@pytest.mark.parametrize("moment", [5, 14, 23])
def test_an_extension_that_died_goes_on_to_the_same_bits(case, moment, monkeypatch, tmp_path):
    which, folder, expected = case
    folder = copy(folder, tmp_path)
    target, data, *_ = CASES[which]
    before = lv.load(folder).session.steps
    crashed(monkeypatch, moment, lambda: extended(which, folder))
    again = shutil.copytree(folder, tmp_path / "again")
    assert_same(everything(extended(which, folder)), expected)
    # The call before is where it was, for the next run of the script.
    assert sampled(which, checkpoint=folder).session.steps == before
    if Journal.of(Folder(again)).under_way is not None:
        assert lv.load(again).session.steps > before
        assert_same(everything(lv.resume(again, target, data, progress=False)), expected)
    assert_same(everything(lv.resume(folder, target, data, progress=False)), expected)


def test_a_run_from_memory_goes_on_in_a_folder_of_its_own(case, monkeypatch, tmp_path):
    which, _, expected = case
    target, data, _, more = CASES[which]
    result = sampled(which)
    calls = crashed(monkeypatch, 10**9, lambda: result.extend(progress=False, checkpoint=tmp_path / "all", **more))
    assert_same(everything(lv.load(tmp_path / "all")), expected)
    # Blocks are as long as the clock says: another run may have some saves more or less.
    moment = len(calls) // 2
    crashed(monkeypatch, moment, lambda: result.extend(progress=False, checkpoint=tmp_path / "own", **more))
    assert Journal.of(Folder(tmp_path / "own")).under_way is not None
    again = shutil.copytree(tmp_path / "own", tmp_path / "again")
    assert_same(everything(lv.resume(tmp_path / "own", target, data, progress=False)), expected)
    fresh = sampled(which).extend(progress=False, checkpoint=again, **more)
    assert_same(everything(fresh), expected)
    assert_same(everything(lv.load(again)), expected)


def test_extensions_of_extensions_are_kept_one_after_the_other(tmp_path):
    twice = sampled("minibatch").extend(passes=50).extend(passes=60)
    kept = sampled("minibatch", checkpoint=tmp_path / "run").extend(passes=50).extend(passes=60)
    assert_same(everything(kept), everything(twice))
    assert_same(everything(lv.load(tmp_path / "run")), everything(twice))
    assert_same(everything(lv.resume(tmp_path / "run", NORMAL, X)), everything(twice))


def pressed_at(monkeypatch, save, work):
    """The work with Ctrl-C during its save of this number."""
    saves, keep = [], Bookmark.keep

    def pressed(self):
        saves.append(1)
        keep(self)
        if len(saves) == save:
            signal.raise_signal(signal.SIGINT)

    with saved_always(monkeypatch), monkeypatch.context() as patched:
        patched.setattr(Bookmark, "keep", pressed)
        return work()


def test_ctrl_c_keeps_an_extension_until_another_is_asked_for(monkeypatch, tmp_path, capsys):
    result = sampled("minibatch", checkpoint=tmp_path / "run")
    partial = pressed_at(monkeypatch, 2, lambda: result.extend(passes=200, progress=False))
    assert partial.partial and f"Saved in {tmp_path / 'run'}. Go on with lv.resume" in capsys.readouterr().err
    assert Journal.of(Folder(tmp_path / "run")).under_way is not None
    # In memory: what was interrupted stays for lv.resume.
    assert partial.extend(passes=10, progress=False).session.steps > partial.session.steps
    whole = shutil.copytree(tmp_path / "run", tmp_path / "whole")
    expected = everything(sampled("minibatch").extend(passes=200, progress=False))
    assert_same(everything(lv.resume(whole, NORMAL, X, progress=False)), expected)
    other = result.extend(passes=20, progress=False)
    assert Journal.of(Folder(tmp_path / "run")).under_way is None
    assert_same(everything(lv.load(tmp_path / "run")), everything(other))


def test_a_run_that_was_interrupted_itself_is_not_lost(monkeypatch, tmp_path):
    folder = tmp_path / "run"
    partial = pressed_at(monkeypatch, 2, lambda: sampled("minibatch", checkpoint=folder))
    with pytest.raises(ValueError, match=r"must have no other work under way|does not hold it as it was"):
        partial.extend(passes=10, checkpoint=folder)
    assert partial.extend(passes=10).passes > partial.passes
    assert_same(everything(sampled("minibatch", checkpoint=folder)), everything(sampled("minibatch")))


def test_a_folder_of_another_run_is_refused(tmp_path):
    one, other = sampled("minibatch"), sampled("minibatch", seed=1, checkpoint=tmp_path / "run")
    with pytest.raises(ValueError, match=r"checkpoint must be new or of this run, got .* Choose another folder"):
        one.extend(passes=10, checkpoint=tmp_path / "run")
    assert_same(everything(lv.load(tmp_path / "run")), everything(other))


def test_seconds_of_earlier_processes_count_towards_a_limit(monkeypatch, tmp_path):
    result = sampled("minibatch", checkpoint=tmp_path / "run")
    pressed_at(monkeypatch, 2, lambda: result.extend(time_limit=3600, progress=False))
    journal, seen = Journal.of(Folder(tmp_path / "run")), []
    monkeypatch.setattr("langevin.sampling.session.Session._spent", lambda self, budget, began, *_: seen.append(began))
    with pytest.raises(AttributeError):
        lv.resume(tmp_path / "run", NORMAL, X)
    spent = journal[journal.under_way]["seconds"] - result.session.seconds
    assert spent > 0.0 and monotonic() - seen[0] >= spent
