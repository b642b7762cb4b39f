"""Runs for many parameters that died on their way go on to the same bits, and are read while they are under way."""

import shutil

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.networks import store as stores
from langevin.networks.levels import Levels
from langevin.networks.walk import Walk
from langevin.saving.folder import Folder
from langevin.saving.journal import Journal
from tests.invariance.crashes import Crash, dies_at, saved_always

RNG = np.random.default_rng(2)
X = RNG.standard_normal((60, 3)).astype(np.float32)
DATA = {"x": X, "y": np.sin(X[:, 0]) + 0.3 * RNG.standard_normal(60).astype(np.float32)}
START = {"w": np.zeros((3, 4)), "v": np.zeros(4)}


def net(theta, x):
    return jnp.tanh(x @ theta["w"]) @ theta["v"]


TARGET = lv.Target(
    lambda theta: -0.5 * (jnp.sum(theta["w"] ** 2) + jnp.sum(theta["v"] ** 2)),
    lambda theta, d: -0.5 * ((d["y"] - net(theta, d["x"])) / 0.3) ** 2,
)


def sampled(**more):
    how = {"passes": 4000, "chains": 2, "method": "sghmc", "progress": False, **more}
    return lv.sample(TARGET, DATA, START, **how)


@pytest.fixture(scope="module", autouse=True)
def few_draws():
    """The store thins its draws on the way."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stores, "_MOST_DRAWS", 16)
        patched.setattr(stores, "_FEWEST_DRAWS", 16)
        yield


@pytest.fixture(scope="module")
def expected(few_draws):
    found = sampled()
    assert found.walk.store.stride > 1
    return found


def assert_same(found, expected):
    np.testing.assert_array_equal(found.draws, expected.draws)
    for name in ("value", "stderr", "statuses"):
        np.testing.assert_array_equal(getattr(found.fit, name), getattr(expected.fit, name))
    assert found.passes == expected.passes and found.setup_passes == expected.setup_passes
    assert found.walk.stopped == expected.walk.stopped and found.status == expected.status


def crashed(monkeypatch, moment, folder):
    with saved_always(monkeypatch), dies_at(monkeypatch, moment) as calls:
        try:
            sampled(checkpoint=folder)
        except Crash:
            pass
    return calls


def test_a_run_that_died_goes_on_to_the_same_bits(expected, monkeypatch, tmp_path):
    total = len(crashed(monkeypatch, 10**9, tmp_path / "all"))
    assert_same(lv.load(tmp_path / "all", TARGET, DATA), expected)
    under_way = 0
    for moment in (total // 2, total - 9):
        folder = tmp_path / str(moment)
        crashed(monkeypatch, moment, folder)
        journal = Journal.of(Folder(folder))
        if journal.under_way is not None:
            under_way += 1
            now = lv.load(folder, TARGET, DATA)
            assert now.partial and 0 < now.walk.time <= expected.walk.time
        again = shutil.copytree(folder, tmp_path / f"{moment} again")
        assert_same(lv.resume(folder, TARGET, DATA, progress=False), expected)
        assert_same(sampled(checkpoint=again), expected)
    assert under_way == 2


def test_a_run_that_is_over_is_not_run_again_and_goes_on(expected, monkeypatch, tmp_path):
    sampled(checkpoint=tmp_path)
    again = lv.load(tmp_path, TARGET, DATA)
    longer = expected.extend(passes=300, progress=False)
    np.testing.assert_array_equal(again.extend(passes=300, progress=False).draws, longer.draws)
    monkeypatch.setattr(Levels, "tick", None)
    assert_same(sampled(checkpoint=tmp_path), sampled(checkpoint=tmp_path))


def test_shorter_steps_after_a_divergence_are_kept(monkeypatch, tmp_path):
    step, moved = sampled(passes=1).walk.settled.pair.step, Walk._moved

    def diverging(self, levels):
        if self.settled.pair.step == step and levels.time == 5:
            raise lv.Diverged("chain 0 left the finite numbers: for a test", None)
        return moved(self, levels)

    monkeypatch.setattr(Walk, "_moved", diverging)
    expected = sampled(passes=2000)
    assert expected.walk.settled.pair.step == 0.5 * step
    with saved_always(monkeypatch):
        assert_same(sampled(passes=2000, checkpoint=tmp_path), expected)
    monkeypatch.setattr(Walk, "_moved", None)
    assert_same(lv.resume(tmp_path, TARGET, DATA, progress=False), expected)
    assert_same(lv.load(tmp_path, TARGET, DATA), expected)


def test_other_calls_are_refused_and_reading_needs_the_model(tmp_path):
    sampled(checkpoint=tmp_path, passes=100)
    with pytest.raises(
        ValueError, match=r"checkpoint must be new or of the same call, got .* passes is 100\.0 and 200\.0"
    ):
        sampled(checkpoint=tmp_path, passes=200)
    with pytest.raises(ValueError, match="but method is 'sghmc' and 'auto'"):
        lv.sample(TARGET, DATA, START, passes=100, chains=2, progress=False, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"target and data must be given: .* Call lv\.load\(path, target, data\)"):
        lv.load(tmp_path)
    with pytest.raises(ValueError, match="target and data must be those of the saved run, but the data are"):
        lv.load(tmp_path, TARGET, {**DATA, "y": DATA["y"] + 1})
    with pytest.raises(ValueError, match=r"log_likelihood must accept theta .* a datum .*'inputs'.*: KeyError: 'x'"):
        lv.load(tmp_path, TARGET, {"inputs": X, "y": DATA["y"]})
    with pytest.raises(ValueError, match=r"data must be given for method='sghmc', .* Pass the observations"):
        lv.resume(tmp_path, TARGET)
    with pytest.raises(ValueError, match="engine must be None for networks"):
        lv.resume(tmp_path, TARGET, DATA, engine=lv.Processes())
