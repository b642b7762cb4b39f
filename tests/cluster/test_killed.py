"""kill -9 of a driver with workers and a checkpoint: they end, their data go, and the run goes on to the same bits."""

import os
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest

import langevin as lv
from tests.invariance.cases import assert_same
from tests.invariance.crashes import everything

pytestmark = pytest.mark.slow

SCRIPT = """
import sys, langevin as lv
from langevin.engine import remote
from langevin.saving import journal
journal._SECONDS, journal._SHARE = 0.02, 1.0
remote._KEPT_SECONDS, remote._SEGMENT_SECONDS = 0.02, 0.02
model = lv.models.Logistic.simulate(num_data=20_000, dimension=5, seed=1)
lv.sample(model.target, model.data, model.theta_0, passes=300, progress=False, checkpoint=sys.argv[1],
          engine=lv.Processes(workers=2))
print("done", flush=True)
"""


def children(process):
    with open(f"/proc/{process}/task/{process}/children") as listed:
        return [int(child) for child in listed.read().split()]


def alive(process):
    try:
        with open(f"/proc/{process}/stat") as state:
            return state.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def waited_for(condition, seconds=120.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.timeout(1200)
def test_a_killed_driver_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model = lv.models.Logistic.simulate(num_data=20_000, dimension=5, seed=1)
    expected = everything(lv.sample(model.target, model.data, model.theta_0, passes=300, progress=False))
    rng = np.random.default_rng(int.from_bytes(os.urandom(4)))
    folder, midway = tmp_path / "run", 0
    for _ in range(3):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        driver = subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder)], stdout=-1, env=environment)
        waited_for(lambda driver=driver: driver.poll() is not None or len(children(driver.pid)) == 2)
        workers = children(driver.pid) if driver.poll() is None else []
        time.sleep(rng.uniform(2.0, 8.0))
        driver.send_signal(signal.SIGKILL)
        driver.communicate()
        midway += driver.returncode == -signal.SIGKILL
        waited_for(lambda workers=workers: not any(map(alive, workers)))
    again = lv.resume(folder, model.target, model.data, progress=False, engine=lv.Processes(workers=2))
    assert_same(everything(again), expected)
    assert midway > 0 and not list(tmp_path.glob("langevin-processes-*"))
