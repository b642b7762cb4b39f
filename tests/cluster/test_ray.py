"""Chains on Ray actors, on the loopback interface: the numbers of the local run, whatever happens to a worker."""

import os

import pytest

import langevin as lv
from langevin.engine.remote import Lost
from tests.cluster.mishaps import die, hang, listening, loopback, pressed_at, run_on, run_with, saved
from tests.invariance.cases import CASES, assert_same, four_chains, numbers, run

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def engine():
    """Two workers on a Ray that these tests share; `lv.Ray()` uses what is there."""
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    before = listening()
    ray = pytest.importorskip("ray")
    crew = lv.Ray(workers=2).crew()
    yield lv.Ray(workers=2, timeout=120), before
    crew.close()
    assert not ray.is_initialized()


def test_a_worker_killed_midway_changes_no_bit(engine, tmp_path):
    local, _ = run_with(die, tmp_path)
    ledger, happened = run_with(die, tmp_path, engine=engine[0])
    assert happened
    assert_same(numbers(ledger), numbers(local))


def test_nothing_listens_beyond_this_machine(engine):
    new = [address for address, _ in listening() - engine[1]]
    assert new and all(map(loopback, new))


def test_a_worker_that_cannot_open_its_data_names_them(engine, tmp_path):
    source = saved(tmp_path / "gone.npy", [1.0, 2.0, 3.0])
    (tmp_path / "gone.npy").unlink()
    with pytest.raises(OSError, match=r"the data at .*gone\.npy could not be opened"):
        run_on(source, engine=engine[0])


def test_a_worker_that_hangs_is_given_up(engine, tmp_path):
    with pytest.raises(Lost, match=r"has not answered for 20 s"):
        run_with(hang, tmp_path, engine=lv.Ray(workers=2, timeout=20))


def test_more_workers_than_the_cluster_has_room_for_are_not_waited_for(engine):
    with pytest.raises(Lost, match=r"has not answered for 5 s; the cluster has 2 CPUs"):
        run(CASES["no data"], chains=8, engine=lv.Ray(workers=8, timeout=5))


def test_ctrl_c_returns_what_there_is_and_the_rest_follows(engine, monkeypatch):
    case = CASES["whitened, guarded"]
    with monkeypatch.context() as patched:
        pressed_at(patched, 3)
        part = run(case, 10_000, chains=4, engine=engine[0])
    assert part.interrupted and 0 < part.num_steps < 10_000
    assert_same(
        numbers(run(case, 10_000, chains=4, resume=part, engine=engine[0])), numbers(run(case, 10_000, chains=4))
    )


@pytest.mark.parametrize("name", ["SAGA, whitened, BAOAB", "MALA"])
def test_chains_on_actors_move_as_in_one_process(engine, name):
    case = CASES[name]
    assert_same(numbers(run(case, chains=4, engine=engine[0])), numbers(four_chains(case)))


def test_chains_travel_between_actors_that_own_shards(engine):
    case = CASES["sharded"]
    assert_same(numbers(run(case, 30, chains=4, engine=engine[0])), numbers(run(case, 30, chains=4)))


def test_sample_by_address_shares_its_set_up_and_has_the_same_bits(engine, monkeypatch):
    import ray

    monkeypatch.setattr("langevin.engine.helpers._WORTHWHILE", 0)
    there = lv.Ray(address=ray.get_runtime_context().gcs_address, workers=2, timeout=120)
    model = lv.models.Logistic.simulate(seed=1)
    local = lv.sample(model.target, model.data, model.theta_0, passes=20)
    result = lv.sample(model.target, model.data, model.theta_0, passes=20, engine=there)
    assert result.plan.anchor == local.plan.anchor
    assert_same(numbers(result.session.ledger), numbers(local.session.ledger))
