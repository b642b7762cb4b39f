"""The set-up of a run on shards, made by their owners: the same bits as made here, shard by shard."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.anchor import passes, search
from langevin.data import files
from langevin.data.travel import NpyLeaf, Parcel
from langevin.engine.remote import Lost
from langevin.engine.travelling import spread
from langevin.shards import owners
from tests.cluster.test_helpers import Here, Inside

RNG = np.random.default_rng(5)
SIZES = (1501, 300, 700)
X = RNG.normal(size=(sum(SIZES), 4)).astype(np.float32)
TARGET = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, x: lv.log_sigmoid(jnp.dot(x, t) + x[0]))
SHARDED = lv.Sharded(5, sizes=SIZES, stay=10)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Shards of several chunks, and a search that begins with a subsample."""
    monkeypatch.setattr(passes, "_CHUNK_FLOATS", 4 * 256)
    monkeypatch.setattr(search, "_SUBSAMPLE", 256)
    before = jax.config.read("jax_enable_x64")
    yield
    jax.config.update("jax_enable_x64", before)


def made(data=X, engine=None, subsample=SHARDED):
    """Anchor and drifts."""
    with lv.shards.owned(subsample, TARGET, data, engine=engine) as source:
        anchor = lv.laplace(TARGET, source, np.zeros(4 if subsample is SHARDED else 20))
        return anchor, lv.shards.with_drifts(subsample, TARGET, source, lv.ControlVariate(anchor), anchor)


def assert_same(found, expected):
    assert found[0] == expected[0] and found[0].cost == expected[0].cost
    for name, value in expected[1].drifts._asdict().items():
        np.testing.assert_array_equal(getattr(found[1].drifts, name), value, err_msg=name)


@pytest.fixture(scope="module")
def here():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(passes, "_CHUNK_FLOATS", 4 * 256)
        patched.setattr(search, "_SUBSAMPLE", 256)
        return made()


class Files(Here):
    """Workers in this process, each with files of its own."""

    def store(self, array):
        self.folder.joinpath(str(len(self.asked))).mkdir(exist_ok=True)
        self.asked.append(array.shape)
        return NpyLeaf.of(array, self.folder / str(len(self.asked) - 1) / "x.npy")


def test_owners_find_the_bits_of_the_set_up_in_one_place(here, tmp_path):
    engine = Files(tmp_path)
    assert_same(made(engine=engine), here)
    # The first of two workers has two shards, the second one; each its own rows alone. Then they are gone.
    assert engine.asked[0] == 2 * engine.asked[1] > 6
    assert engine.asked[2:] == [(1801, 4), (700, 4), "closed"]


def test_the_numbers_are_those_of_passes_over_all_the_data_but_for_the_order_of_sums(here):
    anchor = lv.laplace(TARGET, X, np.zeros(4))
    drifts = lv.shards.with_drifts(SHARDED, TARGET, X, lv.ControlVariate(anchor), anchor).drifts
    np.testing.assert_array_equal(here[0].theta, anchor.theta)
    np.testing.assert_allclose(here[0].precision, anchor.precision, rtol=1e-12)
    np.testing.assert_allclose(here[1].drifts.slope, drifts.slope, rtol=1e-6)


def test_files_are_opened_by_each_owner(here, tmp_path):
    np.save(tmp_path / "rows.npy", X)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "FROM_BYTES", 0)
        assert_same(made(str(tmp_path / "rows.npy"), Here(tmp_path)), here)
    # Nothing was sent.
    assert not (tmp_path / "x.npy").exists()


def test_an_owner_of_other_rows_would_be_noticed(here, tmp_path, monkeypatch):
    # The control: shards whose owner leaves a row out.
    begun = owners.ShardWork.__init__

    def forgetful(self, *of):
        begun(self, *of)
        self._shards = [s if s.num_data != 300 else lv.DataSource.of(s.arrays[1:]) for s in self._shards]

    monkeypatch.setattr(owners.ShardWork, "__init__", forgetful)
    with pytest.raises(AssertionError):
        assert_same(made(engine=Files(tmp_path)), here)


def test_other_data_are_left_alone(tmp_path):
    engine = Files(tmp_path)
    with lv.shards.owned(SHARDED, TARGET, X, engine=engine):
        alone = lv.laplace(TARGET, X[:500], np.zeros(4))
        half = lv.Sharded(5, sizes=(200, 300), stay=10)
        lv.shards.with_drifts(half, TARGET, X[:500], lv.Minibatch(), alone)
    assert engine.asked == [0, 0, "closed"]


def test_what_is_no_sharding_of_the_data_is_refused():
    with pytest.raises(ValueError, match=r"subsample must be an lv\.Sharded"), lv.shards.owned(lv.Full(), TARGET, X):
        pass
    with pytest.raises(ValueError, match="sizes must add up to the data"):
        with lv.shards.owned(lv.Sharded(5, sizes=(10,)), TARGET, X):
            pass


@pytest.mark.slow
@pytest.mark.parametrize("engine", [lv.Processes(workers=2), lv.Processes(workers=3)], ids=["two", "three"])
def test_processes_own_the_shards(engine, monkeypatch):
    monkeypatch.undo()
    # So large that products of a whole chunk would be spread over cores, of which a worker has one.
    many = np.random.default_rng(0).normal(size=(60_000, 20)).astype(np.float32)
    halves = lv.Sharded(5, sizes=(25_000, 20_000, 15_000), stay=10)
    sent, parcel = [], Parcel.of
    monkeypatch.setattr(owners.Parcel, "of", lambda source, store: (sent.append(source), parcel(source, store))[1])
    expected = made(many, None, halves)
    assert not sent
    assert_same(made(many, engine, halves), expected)
    assert sum(source.num_data for source in sent) == len(many) and len(sent) == engine.workers


class Gone(Files):
    """Workers of whom the second cannot open its shards."""

    def store(self, array):
        leaf = super().store(array)
        return NpyLeaf(leaf.path + ".gone") if len(array) == SIZES[2] else leaf


def test_an_owner_that_cannot_open_its_shard_is_named_by_it(tmp_path):
    with pytest.raises(OSError, match=r"x\.npy\.gone could not be opened") as caught:
        made(engine=Gone(tmp_path))
    assert "It was about shard 2, rows 1801 to 2500 of the data." in caught.value.__notes__
    with pytest.raises(OSError, match=r"x\.npy\.gone could not be opened") as caught:
        lv.run(TARGET, X, np.zeros(4), subsample=SHARDED, schedule=lv.Constant(1e-4), num_steps=400, chains=4,
               engine=Travelling(tmp_path), progress=False)  # fmt: skip
    assert "It was about shard 2, rows 1801 to 2500 of the data." in caught.value.__notes__


class Travelling(Gone):
    """The same for chains that travel."""

    def begin(self, prepared):
        return spread(prepared, self.crew)


def test_answers_to_a_task_that_was_lost_are_not_taken_for_those_of_the_next(here, tmp_path, monkeypatch):
    engine, lost, answer = Files(tmp_path), iter([True]), Inside.answer

    def silent(self):
        if next(lost, False):
            raise Lost("worker 0 has not answered")
        return answer(self)

    monkeypatch.setattr(Inside, "answer", silent)
    with lv.shards.owned(SHARDED, TARGET, X, engine=engine) as source:
        with pytest.raises(Lost, match="has not answered") as caught:
            lv.laplace(TARGET, source, np.ones(4))
        assert "It was about shard 0, rows 0 to 1500 of the data." in caught.value.__notes__
        assert lv.laplace(TARGET, source, np.zeros(4)) == here[0]
    assert engine.asked.count("closed") == 2


def test_a_time_limit_is_for_one_shard(here, tmp_path, monkeypatch):
    # Each task is one request, however many shards a worker has: whole passes would have to fit into the limit.
    asked, answer = [], owners.ShardWork.answer
    monkeypatch.setattr(
        owners.ShardWork,
        "answer",
        lambda self, request, kept: asked.append(len(self._shards)) or answer(self, request, kept),
    )
    engine = Files(tmp_path)
    assert_same(made(engine=engine), here)
    assert asked.count(2) == 2 * asked.count(1) > 3
