"""kill -9 at any moment, in set-up, while sampling and inside a save: going on ends with the same bits."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import langevin as lv
from tests.invariance.cases import assert_same
from tests.invariance.crashes import everything
from tests.invariance.killed import problem, script

pytestmark = pytest.mark.slow


def started(which, folder, home, *more):
    """A process that samples, as soon as it is about to begin."""
    environment = {name: value for name, value in os.environ.items() if name != "LANGEVIN_NO_CACHE"}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.invariance.killed", which, str(folder), *map(str, more)],
        stdout=subprocess.PIPE,
        text=True,
        env={**environment, "XDG_CACHE_HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def ended(process):
    process.communicate(timeout=600)
    return process.returncode


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("which", "kills"), [("in memory", 12), ("exact", 8), ("out of core", 10), ("extended", 8), ("network", 8)]
)
def test_killed_runs_go_on_to_the_same_bits(which, kills, tmp_path):
    target, data, *_ = problem(which, tmp_path / "x")
    expected = everything(script(which, tmp_path / "x", None))
    # The first time fills the cache of compiled programs, the second tells how long it takes.
    for name in ("cold", "warm"):
        process = started(which, tmp_path / name, tmp_path / "home")
        began = time.monotonic()
        assert ended(process) == 0
    took = time.monotonic() - began
    assert_same(everything(lv.resume(tmp_path / "warm", target, None if which == "out of core" else data)), expected)
    rng = np.random.default_rng(int.from_bytes(os.urandom(4)))
    midway = 0
    for kill in range(kills):
        folder = tmp_path / f"kill {kill}"
        if kill % 3 == 2:
            # By its own hand, inside a save.
            process = started(which, folder, tmp_path / "home", int(rng.integers(7, 60)))
        else:
            process = started(which, folder, tmp_path / "home")
            time.sleep(rng.uniform(0.0, took))
            process.send_signal(signal.SIGKILL)
        code = ended(process)
        assert code in (0, -signal.SIGKILL)
        midway += code != 0
        if (folder / "run.json").exists() and which != "extended":
            again = lv.resume(folder, target, None if which == "out of core" else data, progress=False)
        else:
            # Nothing was lost before the first save; and only the script knows how far it wants to go.
            again = script(which, folder, folder)
        assert_same(everything(again), expected)
    assert midway >= kills // 2
