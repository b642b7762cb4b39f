"""Where the data lie: what is copied, how often, and on which device; each in a process of its own."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from langevin.data.prefetch import on_device
from langevin.data.source import ArraySource

ROWS, COLUMNS = 1_000_000, 50  # 200 MB of float32

# Prints how far the anonymous memory rises above its level before the data are wrapped, as a share of the data's bytes.
PEAK = """
import json, sys, threading, time
import jax.numpy as jnp, numpy as np
import langevin as lv

def anonymous():
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("RssAnon"))

form, path, subsample = sys.argv[1:]
target = lv.Target(lambda t: -0.5 * t**2, lambda t, x: -0.5 * jnp.mean(x - t) ** 2)
run = lambda data, subsample: lv.run(
    target, data, jnp.float32(0), subsample=subsample, schedule=lv.Constant(1e-9), num_steps=20)
run(np.ones((10, 50), np.float32), lv.Full())  # what JAX itself takes is there before the count begins
data = {
    "read-only map": lambda: np.load(path, mmap_mode="r"),
    "rows of a map": lambda: np.asarray(np.load(path, mmap_mode="r"))[64:],
    "array": lambda: np.load(path),
    "float64": lambda: np.load(path).astype(np.float64),
}[form]()
before, levels, done = anonymous(), [], threading.Event()
def watch():
    while not done.wait(0.002):
        levels.append(anonymous())
watcher = threading.Thread(target=watch)
watcher.start()
ledger = run(data, {"gathered": lv.WithoutReplacement(10), "all": lv.Full()}[subsample])
done.set()
watcher.join()
print(json.dumps((max(levels) - before) / (ROWS * COLUMNS * 4)))
""".replace("ROWS", str(ROWS)).replace("COLUMNS", str(COLUMNS))


def fresh(script, *arguments, **environment):
    """What a new Python process prints last, read as JSON."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "x.npy"
    np.save(path, np.ones((ROWS, COLUMNS), np.float32))
    return str(path)


# In units of the data's bytes in float32. Half a unit leaves room for buffers and temporaries, not for a copy.
LIMITS = {
    ("read-only map", "gathered"): 0.5,
    ("rows of a map", "all"): 0.5,
    ("array", "gathered"): 0.5,
    ("array", "all"): 1.5,
    ("float64", "all"): 1.5,
}
QUICK = {("read-only map", "gathered"), ("float64", "all")}


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="anonymous memory is read from /proc")
@pytest.mark.parametrize(
    ("form", "subsample"),
    [pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow) for case in LIMITS],
)
def test_large_data_are_copied_only_where_they_must_be_and_once(form, subsample, path):
    assert fresh(PEAK, form, path, subsample) < LIMITS[form, subsample]


def at(offset, writeable):
    """100 float32 that start `offset` bytes after a 64-byte border."""
    raw = np.zeros(400 + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    array = raw[start : start + 400].view(np.float32)
    array.flags.writeable = writeable
    return array


@pytest.mark.parametrize("writeable", [True, False])
def test_memory_on_the_border_is_handed_over_as_it_is(writeable):
    array = at(0, writeable)
    assert on_device(array).unsafe_buffer_pointer() == array.ctypes.data


def test_memory_off_the_border_is_copied_once_for_all_runs_on_a_source():
    array = at(16, True)
    source = ArraySource.of(array)
    one, other = (on_device(source.aligned()).unsafe_buffer_pointer() for _ in range(2))
    assert source.arrays is array and one == other != array.ctypes.data


DEVICES = """
import json
import jax, jax.numpy as jnp, numpy as np
import langevin as lv
from langevin.data.prefetch import FROM_BYTES, on_device

target = lv.Target(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)

def seen():
    "The device of the data, and runs on data that it holds and on data that the host gathers."
    runs = [
        lv.run(target, np.linspace(0, 1, size, dtype=np.float32), jnp.float32(0), subsample=lv.WithoutReplacement(10),
               schedule=lv.Constant(1e-9), num_steps=100).values["theta"].tolist()
        for size in (4000, FROM_BYTES // 4 + 1)]
    return [next(iter(on_device(np.ones(3)).devices())).id, runs]

first, second = jax.devices()
found = [seen()]
with jax.default_device(second):
    found.append(seen())
jax.config.update("jax_default_device", second)
print(json.dumps([*found, seen()]))
"""


def test_a_run_happens_on_the_default_device():
    first, within, configured = fresh(DEVICES, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert (first[0], within[0], configured[0]) == (0, 1, 1)
    assert first[1] == within[1] == configured[1]
