"""Runs in whose workers something happens, and the same runs where nothing does."""

import os
import signal
import time

import jax
import numpy as np

import langevin as lv
from langevin.engine.remote import RemoteRun
from tests.invariance.cases import CASES, run

CASE = {name: value for name, value in CASES["whitened, guarded"].items() if name != "schedule"}
STEPS = 6000


class Mishap:
    """Steps of 0.5 that do something in the first worker to come past m = 3000, and nothing in the driver."""

    def __init__(self, what, folder):
        self.what, self.flag, self.driver = what, str(folder / "happened"), os.getpid()

    def __call__(self, m):
        if os.getpid() != self.driver and m.max() > 3000 and self._first():
            self.what()
        return np.full(m.shape, 0.5)

    def _first(self):
        try:
            os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


def die():
    os.kill(os.getpid(), 9)


def hang():
    time.sleep(3600)


def run_with(what, folder, **more):
    """The run, and whether what was to happen has happened."""
    mishap = Mishap(what, folder)
    ledger = run(CASE, STEPS, chains=4, schedule=lv.Custom(mishap), **more)
    return ledger, os.path.exists(mishap.flag)


def pressed_at(monkeypatch, segment):
    """Ctrl-C in the driver once so many segments of a run on workers are over."""
    collected, collect = [], RemoteRun._collect

    def pressed(self, *arguments):
        collect(self, *arguments)
        collected.append(self.m)
        if len(collected) == segment:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(RemoteRun, "_collect", pressed)


def run_on(source, **more):
    target = lv.Target(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
    parts = {"subsample": lv.WithReplacement(2), "schedule": lv.Constant(0.01), "progress": False}
    return lv.run(target, source, 0.0, num_steps=64, chains=2, **parts, **more)


def saved(path, values):
    """Data in a file, which each worker opens by itself."""
    np.save(path, np.asarray(values, np.float32))
    return lv.DataSource.of(path)


def listening():
    """Addresses on which processes of this machine listen, as hexadecimal digits of the kernel's tables."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as lines:
            fields = [line.split() for line in lines][1:]
        found |= {(entry[1], entry[9]) for entry in fields if entry[3] == "0A"}
    return found


def loopback(address):
    """Whether a hexadecimal address of these tables is of the loopback interface."""
    return address.split(":")[0] in (
        "0100007F",
        "0000000000000000FFFF00000100007F",
        "00000000000000000000000001000000",
    )


def same_leaves(first, second):
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)
