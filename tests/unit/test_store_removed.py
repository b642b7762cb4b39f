"""A folder that someone clears while a run is writing there: the next save is whole again, and meets no other run."""

import os
import shutil

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.saving.folder import Folder
from langevin.saving.journal import Bookmark
from tests.invariance.cases import assert_same
from tests.invariance.crashes import everything, saved_always

X = np.random.default_rng(5).standard_normal((200, 2)).astype(np.float32)
NORMAL = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, x: -0.5 * jnp.sum((x - t) ** 2))
EMPTY = {"format": 0, "langevin": "", "arrays": {}}


def emptied(folder):
    shutil.rmtree(folder)


def without_arrays(folder):
    for file in folder.glob("arrays-*"):
        file.unlink()


@pytest.mark.parametrize("tidied", [emptied, without_arrays])
def test_what_was_removed_on_the_way_is_written_again(monkeypatch, tmp_path, tidied):
    """By one who clears a disk of old files, say: the next save must not rely on what is gone."""
    saves, keep, folder = [], Bookmark.keep, tmp_path / "run"

    def cleared(self):
        saves.append(1)
        if len(saves) == 3:
            tidied(folder)
        keep(self)
        if len(saves) == 3:
            assert lv.load(folder).partial and Folder(folder).busy

    with saved_always(monkeypatch), monkeypatch.context() as patched:
        patched.setattr(Bookmark, "keep", cleared)
        result = lv.sample(NORMAL, X, np.zeros(2), passes=100, chains=2, progress=False, checkpoint=folder)
    assert len(saves) > 3
    assert_same(everything(lv.load(folder)), everything(result))
    assert_same(everything(lv.resume(folder, NORMAL, X)), everything(result))


def test_a_folder_that_another_run_has_taken_is_left_to_it(tmp_path):
    folder = tmp_path / "run"
    with Folder(folder).locked() as first:
        shutil.rmtree(folder)
        with Folder(folder).locked():
            # What the other one is about to name.
            (folder / "unfinished.partial").write_bytes(b"")
            with pytest.raises(OSError, match="lock was removed, and another run is writing there now"):
                first.write({**EMPTY}, {}, keep_before=True)
            assert sorted(os.listdir(folder)) == ["lock", "unfinished.partial"]
        first.write({**EMPTY}, {}, keep_before=True)
        assert Folder(folder).busy and sorted(os.listdir(folder)) == ["lock", "run.json"]
