"""A run that died at any moment, the save itself included, goes on from its checkpoint to the same bits."""

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.engine.run import Run
from tests.invariance.cases import CASES, STEPS, assert_same, four_chains, numbers, run
from tests.invariance.crashes import Crash, dies_at, everything, saved_always

MODEL = lv.models.Logistic.simulate(seed=1)
SKEWED = lv.Target(lambda t: jnp.sum(2.0 * t - jnp.exp(t)))
WHICH = {
    "passes": (MODEL.target, MODEL.data, MODEL.theta_0, {"passes": 30}),
    "precision": (MODEL.target, MODEL.data, MODEL.theta_0, {"precision": 0.003}),
    "exact": (SKEWED, None, np.zeros(2), {"precision": 0.2, "chains": 2}),
}
# The others differ in what is compiled, and in the leaves of the state.
CHEAP = ("epochs", "custom gradient")
_REFERENCE = {}


def sampled(which, **more):
    target, data, theta_0, settings = WHICH[which]
    return lv.sample(target, data, theta_0, progress=False, **settings, **more)


def uninterrupted(which):
    if which not in _REFERENCE:
        _REFERENCE[which] = everything(sampled(which))
    return _REFERENCE[which]


def resumed(which, folder):
    target, data, _, _ = WHICH[which]
    return lv.resume(folder, target, data, progress=False)


def crashed(monkeypatch, moment, work):
    """The calls of the disk that came before the crash; all of them where it came too late."""
    with saved_always(monkeypatch), dies_at(monkeypatch, moment) as calls:
        try:
            work()
        except Crash:
            pass
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("which", WHICH)
def test_a_crash_at_any_call_of_the_disk_changes_no_bit(which, monkeypatch, tmp_path):
    expected = uninterrupted(which)
    total = len(crashed(monkeypatch, 10**9, lambda: sampled(which, checkpoint=tmp_path / "all")))
    assert total > 40
    assert_same(everything(resumed(which, tmp_path / "all")), expected)
    seen = set()
    for moment in np.random.default_rng(0).integers(6, total, size=12):
        folder = tmp_path / str(moment)
        calls = crashed(monkeypatch, int(moment), lambda folder=folder: sampled(which, checkpoint=folder))
        seen |= set(calls[moment : moment + 1])
        # Dies once more on its way, and is then let go on to the end.
        crashed(monkeypatch, 20, lambda folder=folder: resumed(which, folder))
        assert_same(everything(resumed(which, folder)), expected)
    assert seen == {"fsync", "replace"}


def test_what_was_found_is_not_looked_for_again(monkeypatch, tmp_path):
    expected = uninterrupted("exact")
    crashed(monkeypatch, 10**9, lambda: _until_first_step(monkeypatch, tmp_path))

    def twice(*arguments, **keywords):
        raise AssertionError("the set-up was made twice")

    for name in ("laplace", "survey", "pilot"):
        monkeypatch.setattr(f"langevin.sampling.planning.{name}", twice)
    monkeypatch.setattr("langevin.sampling.warmup._Window", twice)
    assert_same(everything(resumed("exact", tmp_path)), expected)


def _until_first_step(monkeypatch, folder):
    def dead(self, *arguments, **keywords):
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr("langevin.sampling.pace.Pace.go", dead)
        sampled("exact", checkpoint=folder)


def test_the_same_call_goes_on_and_a_run_that_is_over_is_not_run_again(monkeypatch, tmp_path):
    crashed(monkeypatch, 60, lambda: sampled("passes", checkpoint=tmp_path))
    assert_same(everything(sampled("passes", checkpoint=tmp_path)), uninterrupted("passes"))
    monkeypatch.setattr(Run, "advance", lambda *arguments, **keywords: pytest.fail("it went on"))
    assert_same(everything(sampled("passes", checkpoint=tmp_path)), uninterrupted("passes"))
    assert_same(everything(resumed("passes", tmp_path)), uninterrupted("passes"))
    assert_same(everything(lv.load(tmp_path)), uninterrupted("passes"))


@pytest.mark.parametrize("name", [*CHEAP, *(pytest.param(n, marks=pytest.mark.slow) for n in CASES if n not in CHEAP)])
def test_a_run_of_parts_goes_on_from_its_folder(name, monkeypatch, tmp_path):
    case = CASES[name]
    with saved_always(monkeypatch):
        crashed(monkeypatch, 30, lambda: run(case, chains=4, block_steps=30, checkpoint=tmp_path))
        again = run(case, chains=4, checkpoint=tmp_path)
    assert_same(numbers(again), numbers(four_chains(case)))


def test_a_run_of_parts_goes_on_to_more_steps(tmp_path):
    case = CASES["epochs"]
    run(case, 50, chains=4, checkpoint=tmp_path)
    assert_same(numbers(run(case, STEPS, chains=4, checkpoint=tmp_path)), numbers(four_chains(case)))
    ledger = lv.resume(tmp_path, case["target"], case["data"])
    assert_same(numbers(ledger), numbers(four_chains(case)))
    with pytest.raises(ValueError, match=f"must be at least {STEPS}, got 50"):
        run(case, 50, chains=4, checkpoint=tmp_path)


def test_parts_that_a_file_cannot_hold_go_on_where_the_call_is_repeated(tmp_path):
    case = CASES["control variate, anchor, Leimkuhler-Matthews"]
    run(case, 50, chains=4, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"Repeat the call of lv\.run"):
        lv.resume(tmp_path, case["target"], case["data"])
    changed = {**case, "observables": {"theta": lv.Moments(), "sin": lambda theta: jnp.cos(theta)}}
    with pytest.raises(ValueError, match="but observables is"):
        run(changed, STEPS, chains=4, checkpoint=tmp_path)
