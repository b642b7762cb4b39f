"""Chains on processes: the numbers of the local run, whatever happens to a worker, and never a wait without end."""

import os
import subprocess
import sys
from threading import Lock

import jax
import numpy as np
import pytest

import langevin as lv
from langevin.data.travel import NpyLeaf, Parcel
from langevin.engine.books import Checkpoint
from langevin.engine.remote import Lost, load_extra
from langevin.engine.worker import versions
from tests.cluster.mishaps import die, hang, pressed_at, run_on, run_with, same_leaves, saved
from tests.invariance.cases import CASES, assert_same, four_chains, numbers, run
from tests.invariance.crashes import saved_always

TWO = lv.Processes(workers=2)


def test_a_worker_killed_midway_changes_no_bit(tmp_path):
    local, happened = run_with(die, tmp_path)
    assert not happened
    ledger, happened = run_with(die, tmp_path, engine=TWO)
    assert happened
    assert_same(numbers(ledger), numbers(local))
    assert ledger.manifest.difference(local.manifest) is None  # another schedule object with the same content
    assert ledger.checkpoint.spent == local.checkpoint.spent


@pytest.mark.slow
def test_a_folder_goes_from_workers_to_this_process_and_back(tmp_path, monkeypatch):
    case = CASES["whitened, guarded"]
    with saved_always(monkeypatch):
        run(case, 60, chains=4, block_steps=20, checkpoint=tmp_path, engine=TWO)
        run(case, 120, chains=4, checkpoint=tmp_path)
        ledger = run(case, chains=4, checkpoint=tmp_path, engine=TWO)
    assert_same(numbers(ledger), numbers(four_chains(case)))


def test_the_state_of_all_chains_is_that_of_its_parts():
    left = four_chains(CASES["whitened, guarded"]).checkpoint
    parts = [left.select(np.array(at), spent) for at, spent in (([0, 1, 2], left.spent), ([3], 0.0))]
    again = Checkpoint.stacked(parts)
    assert again.spent == left.spent and same_leaves(again.carry, left.carry)
    assert again.rows.m == left.rows.m and again.draws.cap == left.draws.cap
    for one, other in ((again.rows._whole, left.rows._whole), (again.rows._tail, left.rows._tail)):
        assert same_leaves(one, other)
    assert same_leaves(again.draws._kept, left.draws._kept)
    # A part taken from the wrong place would be noticed.
    assert not same_leaves(Checkpoint.stacked(parts[::-1]).carry, left.carry)


def test_data_of_another_run_under_the_same_path_are_refused(tmp_path):
    source = saved(tmp_path / "x.npy", [1.0, 2.0, 3.0])
    parcel = Parcel.of(source, store=None)
    assert np.array_equal(parcel.open().arrays, source.arrays)
    saved(tmp_path / "x.npy", [1.0, 2.0, 4.0])
    with pytest.raises(OSError, match=r"x\.npy could not be opened: .* does not hold the data"):
        parcel.open()


def test_what_was_stored_is_recognised(tmp_path):
    source = lv.DataSource.of(np.arange(1000.0))
    parcel = Parcel.of(source, lambda array: NpyLeaf.of(array, tmp_path / "x.npy"))
    assert np.array_equal(parcel.open().arrays, source.arrays)
    NpyLeaf.of(source.arrays[::-1], tmp_path / "x.npy")
    with pytest.raises(ValueError, match=r"x\.npy are not those of the run"):
        parcel.open()


def test_arrays_in_memory_are_mapped_by_workers_not_copied(tmp_path):
    source = lv.DataSource.of({"x": np.ones((5, 2)), "y": np.arange(5)})
    files = iter(range(2))
    parcel = Parcel.of(source, lambda array: NpyLeaf.of(array, tmp_path / f"{next(files)}.npy"))
    opened = parcel.open()
    assert opened.fingerprint == source.fingerprint
    assert all(isinstance(leaf, np.memmap) and not leaf.flags.writeable for leaf in jax.tree.leaves(opened.arrays))


@pytest.mark.parametrize("engine", [lv.Processes, lv.Ray])
def test_engines_refuse_what_cannot_be(engine):
    for bad in ({"workers": 0}, {"workers": 1.5}, {"timeout": 0}, {"timeout": np.nan}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            engine(**bad)
    with pytest.raises(ValueError, match=r"engine must be where chains go, got 2"):
        run(CASES["no data"], engine=2)
    with pytest.raises(ValueError, match=rf"engine must be where chains go, .* Try engine=lv\.{engine.__name__}\(\)\."):
        run(CASES["no data"], engine=engine)
    with pytest.raises(ValueError, match="engine must be where chains go"):
        lv.sample(lv.Target(lambda t: -0.5 * t**2), None, 0.0, passes=20, engine=engine)


def test_what_cannot_be_sent_is_named():
    case, lock = {**CASES["no data"], "theta_0": 0.5}, Lock()
    case["target"] = lv.Target(lambda t: -0.5 * t**2)
    held = lv.Target(lambda t: (lock, -0.5 * t**2)[1])
    with pytest.raises(ValueError, match=r"target must be something that can be sent .* pickle '_thread\.lock'"):
        run({**case, "target": held}, chains=2, engine=TWO)
    with pytest.raises(ValueError, match=r"schedule must be something that can be sent"):
        run({**case, "schedule": lv.Custom(lambda m: (lock, 0.0 * m + 0.1)[1])}, chains=2, engine=TWO)


def test_a_missing_extra_is_named():
    with pytest.raises(ImportError, match=r"lv.Ray needs no_such_module: pip install 'langevin\[ray\]'"):
        load_extra("no_such_module", "lv.Ray", "ray")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["epochs", "SVRG, UBU", "SAGA, whitened, BAOAB", "MALA", "custom gradient"])
def test_chains_on_processes_move_as_in_one(name):
    case = CASES[name]
    assert_same(numbers(run(case, chains=4, engine=TWO)), numbers(four_chains(case)))


@pytest.mark.slow
def test_chains_as_vector_lanes_move_as_in_one_process():
    case = {**CASES["with replacement"], "chains": 40}
    assert_same(numbers(run(case, engine=lv.Processes(workers=3))), numbers(run(case)))


@pytest.mark.slow
def test_runs_go_on_here_or_there():
    case = CASES["whitened, guarded"]
    part = run(case, 100, chains=4, engine=TWO)
    assert_same(numbers(run(case, chains=4, resume=part)), numbers(four_chains(case)))
    part = run(case, 100, chains=4)
    assert_same(numbers(run(case, chains=4, resume=part, engine=TWO)), numbers(four_chains(case)))


@pytest.mark.slow
def test_a_density_in_float64_stays_one():
    with jax.enable_x64(True):
        case = {**CASES["MALA"], "chains": 4}
        assert_same(numbers(run(case, engine=TWO)), numbers(run(case)))


@pytest.mark.slow
def test_sample_gives_the_same_result_and_can_be_extended():
    model = lv.models.Logistic.simulate(seed=1)
    local = lv.sample(model.target, model.data, model.theta_0, precision=0.01)
    result = lv.sample(model.target, model.data, model.theta_0, precision=0.01, engine=TWO)
    assert_same(numbers(result.session.ledger), numbers(local.session.ledger))
    assert result.mean.stderr.tolist() == local.mean.stderr.tolist() and result.status == "ok"
    longer, longer_local = result.extend(passes=20), local.extend(passes=20)
    assert_same(numbers(longer.session.ledger), numbers(longer_local.session.ledger))


@pytest.mark.slow
def test_sample_runs_exactly_on_processes():
    target = lv.Target(lambda t: -0.25 * t["x"] ** 4 - 0.5 * (t["y"] - t["x"]) ** 2)
    theta_0 = {"x": 0.1, "y": 0.0}
    local = lv.sample(target, None, theta_0, passes=20_000, method="exact")
    result = lv.sample(target, None, theta_0, passes=20_000, method="exact", engine=TWO)
    assert_same(numbers(result.session.ledger), numbers(local.session.ledger))


@pytest.mark.slow
def test_a_worker_that_cannot_open_its_data_names_them(tmp_path):
    source = saved(tmp_path / "gone.npy", [1.0, 2.0, 3.0])
    (tmp_path / "gone.npy").unlink()
    with pytest.raises(OSError, match=r"the data at .*gone\.npy could not be opened") as caught:
        run_on(source, engine=TWO)
    assert "worker 0" in caught.value.__notes__[0]


@pytest.mark.slow
def test_a_worker_that_hangs_is_given_up(tmp_path):
    with pytest.raises(Lost, match=r"has not answered for 20 s"):
        run_with(hang, tmp_path, engine=lv.Processes(workers=2, timeout=20))


@pytest.mark.slow
def test_a_segment_that_no_worker_survives_ends_the_run(tmp_path):
    def fall(m):
        if os.getpid() != driver:
            os._exit(3)
        return np.full(m.shape, 0.5)

    driver = os.getpid()
    with pytest.raises(Lost, match=r"ended 4 times during the same segment, last with exit code 3"):
        run({**CASES["no data"], "schedule": lv.Custom(fall)}, engine=lv.Processes(workers=1))


@pytest.mark.slow
def test_divergence_is_told_with_the_rows_before_it():
    case = {**CASES["no data"], "schedule": lv.Custom(lambda m: np.where(m < 120_000, 0.01, 30.0))}
    with pytest.raises(lv.Diverged, match=r"chain . left the finite numbers .* m = 1(19|20)\d\d\d,") as caught:
        run(case, 200_000, chains=2, engine=TWO)
    assert "No row was whole" in str(caught.value) or caught.value.ledger.num_steps <= 120_000


@pytest.mark.slow
def test_ctrl_c_returns_what_there_is_and_the_rest_follows(monkeypatch):
    case = CASES["whitened, guarded"]
    pressed_at(monkeypatch, 3)
    part = run(case, 10_000, chains=4, engine=TWO)
    assert part.interrupted and 0 < part.num_steps < 10_000
    assert_same(numbers(run(case, 10_000, chains=4, resume=part)), numbers(run(case, 10_000, chains=4)))


SCRIPT = """
import langevin as lv
class Steps:
    def __call__(self, m):
        print("printed by a worker")
        return 0 * m + 0.1
prior = lambda t: -0.5 * t**2
ledger = lv.run(lv.Target(prior), None, 0.0, schedule=lv.Custom(Steps()), num_steps=100, chains=2,
                engine=lv.Processes(workers=2), progress=False)
print(ledger.num_steps)
"""


@pytest.mark.slow
def test_a_script_needs_no_guard_and_its_functions_may_print(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[-1] == "100", done.stderr
    assert "printed by a worker" in done.stderr


def test_versions_are_told():
    assert versions()["jax"] == jax.__version__
