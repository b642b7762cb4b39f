"""Copies of data for workers do not outlive their driver for long, however it ends."""

import os
import subprocess
import sys
import tempfile

import numpy as np
import pytest

from langevin.engine.processes import ProcessCrew
from langevin.engine.sharing import SharedFolder

OWNER = """
import sys, numpy as np
from langevin.engine.sharing import SharedFolder
folder = SharedFolder()
np.save(folder.next(), np.ones(9))
print(folder.next().parent, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_what_a_killed_driver_has_left_is_removed_by_the_next(place):
    other = subprocess.Popen([sys.executable, "-c", OWNER], stdin=-1, stdout=-1, text=True)
    left = other.stdout.readline().strip()
    SharedFolder().close()
    # Its owner is alive.
    assert sorted(os.listdir(left)) == ["0.npy", "owner.lock"]
    other.kill()
    other.communicate()
    assert os.path.exists(left)
    crew = ProcessCrew(1, 9.0)
    assert not os.path.exists(left)
    leaf = crew.store(np.arange(3.0))
    assert leaf.path.startswith(str(place)) and leaf.open().tolist() == [0.0, 1.0, 2.0]
    crew.close()
    assert os.listdir(place) == []


def test_nothing_of_others_is_removed(place):
    """A folder of that name without a lock, one with more in it than arrays, and a link."""
    (place / "langevin-processes-new").mkdir()
    (place / "langevin-processes-more").mkdir()
    (place / "langevin-processes-more" / "owner.lock").touch()
    (place / "langevin-processes-more" / "thesis.txt").touch()
    (place / "precious").mkdir()
    (place / "precious" / "owner.lock").touch()
    (place / "precious" / "x.npy").touch()
    (place / "langevin-processes-link").symlink_to(place / "precious")
    SharedFolder().close()
    assert (place / "langevin-processes-new").exists() and (place / "langevin-processes-more" / "thesis.txt").exists()
    assert sorted(os.listdir(place / "precious")) == ["owner.lock", "x.npy"]
