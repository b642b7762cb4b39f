"""Passes over the data that workers share: the same bits as passes made here."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.anchor import passes as module
from langevin.data.travel import NpyLeaf
from langevin.engine import helpers
from langevin.engine.helpers import shared_set_up
from langevin.engine.remote import Crew
from langevin.engine.worker import Host

RNG = np.random.default_rng(5)
X = RNG.normal(size=(3001, 4)).astype(np.float32)
TARGET = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, x: lv.log_sigmoid(jnp.dot(x, t) + x[0]))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(module, "_CHUNK_FLOATS", 4 * 256)
    monkeypatch.setattr(helpers, "_WORTHWHILE", 0)
    monkeypatch.setattr(helpers, "_CHUNKS", 2)


class Here(Crew):
    """Workers in this process, which count what they are asked for; answers may be tampered with."""

    size = 2
    elsewhere = True

    def __init__(self, folder, tampered=lambda parts: parts):
        self.folder, self.tampered, self.asked = folder, tampered, [0, 0]

    def crew(self):
        return self

    def begin(self, prepared):
        raise NotImplementedError

    def store(self, array):
        return NpyLeaf.of(array, self.folder / "x.npy")

    def start(self, job):
        return Inside(self, job)

    def close(self):
        self.asked.append("closed")


class Inside:
    def __init__(self, crew, job):
        self.crew, self.number, self.host, self.pending = crew, job.number, Host(job), deque()

    def ask(self, request):
        self.crew.asked[self.number] += 1
        self.pending.append(request)

    def answer(self):
        with jax.enable_x64(False):  # a worker has a setting of its own
            return self.crew.tampered(self.host.answer(self.pending.popleft(), lambda: None))


@pytest.fixture(autouse=True)
def own_setting():
    """A worker sets the precision of its process, which is this one here."""
    before = jax.config.read("jax_enable_x64")
    yield
    jax.config.update("jax_enable_x64", before)


def test_the_anchor_has_the_same_bits(tmp_path):
    source, engine = lv.DataSource.of(X), Here(tmp_path)
    with shared_set_up(engine, TARGET, source):
        shared = lv.laplace(TARGET, source, np.zeros(4))
    alone = lv.laplace(TARGET, source, np.zeros(4))
    assert min(engine.asked[:2]) > 0 and engine.asked[2] == "closed"
    assert shared == alone and shared.cost == alone.cost


def test_a_pass_that_misses_a_chunk_would_be_noticed(tmp_path):
    source, engine = lv.DataSource.of(X), Here(tmp_path, lambda parts: parts[:1])
    with shared_set_up(engine, TARGET, source):
        shared = lv.laplace(TARGET, source, np.zeros(4))
    assert shared != lv.laplace(TARGET, source, np.zeros(4))


def test_what_fails_in_a_worker_is_raised_here(tmp_path):
    source, engine = lv.DataSource.of(X), Here(tmp_path)
    with pytest.raises(OSError, match=r"x\.npy could not be opened"), shared_set_up(engine, TARGET, source):
        store = engine.store
        engine.store = lambda array: NpyLeaf(store(array).path.replace("x.npy", "gone/x.npy"))
        lv.laplace(TARGET, source, np.zeros(4))


def test_data_of_others_are_left_alone(tmp_path):
    source, engine = lv.DataSource.of(X), Here(tmp_path)
    with shared_set_up(engine, TARGET, source):
        lv.laplace(TARGET, lv.DataSource.of(X[:500]), np.zeros(4))
    assert engine.asked[:2] == [0, 0]
