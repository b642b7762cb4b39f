"""A saved run is the run: every number to the bit, also after going on; and no crash or damage goes unnoticed."""

import io
import json
import os
import resource
import zipfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.sampling import store
from langevin.sampling.packing import Packer, Unpacker, pack_layout, unpack_layout
from langevin.sampling.store import load
from langevin.target import Layout


class Pair(NamedTuple):
    a: Any
    b: Any


class Problem(NamedTuple):
    target: lv.Target
    data: Any
    result: lv.Result


def sampled(target: lv.Target, data: Any, theta_0: Any) -> Problem:
    return Problem(
        target, data, lv.sample(target, data, theta_0, passes=500 if data is None else 5, chains=2, progress=False)
    )


@pytest.fixture(scope="module")
def flat() -> Problem:
    model = lv.models.Logistic.simulate(seed=1)
    return sampled(model.target, model.data, model.theta_0)


@pytest.fixture(scope="module")
def nested() -> Problem:
    """Without data, in all the containers that a file can hold."""
    target = lv.Target(lambda theta: -jnp.sum(jnp.cosh(theta["b"][0])) - 0.5 * theta["a"]["x"][0] ** 2)
    return sampled(target, None, {"b": [jnp.ones(2), None], "a": {"x": (jnp.float32(0.3),)}})


def assert_same(one: Any, other: Any) -> None:
    """The same arrays to the bit, numbers and words, all the way down."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for item, twin in zip(one, other, strict=True):
            assert_same(item, twin)
    elif hasattr(one, "__dataclass_fields__"):
        for field in fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, float):
        assert one == other or (np.isnan(one) and np.isnan(other))
    else:
        assert one == other


def assert_alike(one: lv.Result, other: lv.Result) -> None:
    """Everything that a Result offers is the same to the bit."""
    assert str(one.plan) == str(other.plan)
    assert str(one) == str(other)
    assert one.explain() == other.explain()
    assert_same(one.summary(), other.summary())
    for name in ("mean", "sd", "covariance", "raw", "draws", "troubles", "passes", "seconds", "status", "plan"):
        assert_same(getattr(one, name), getattr(other, name))
    assert_same(one.quantiles(), other.quantiles())
    assert_same(one.expectation(_square), other.expectation(_square))


def _square(theta: Any) -> Any:
    return jnp.stack([jnp.sum(leaf**2) for leaf in jax.tree.leaves(theta)])


@pytest.mark.parametrize("which", ["flat", "nested"])
def test_a_loaded_run_is_the_same_to_the_bit(which, request, tmp_path):
    problem = request.getfixturevalue(which)
    problem.result.save(tmp_path / "run")
    again = load(tmp_path / "run")
    assert_alike(again, problem.result)
    assert again.plan.anchor.layout == problem.result.plan.anchor.layout
    assert jax.tree.structure(again.plan.anchor.mode) == jax.tree.structure(problem.result.plan.anchor.mode)


@pytest.mark.parametrize("which", ["flat", "nested"])
def test_going_on_after_load_is_going_on_without_it(which, request, tmp_path):
    problem = request.getfixturevalue(which)
    problem.result.save(str(tmp_path / "run"))
    again = load(str(tmp_path / "run"), problem.target, problem.data)
    passes = problem.result.passes
    one, other = (result.extend(passes=passes, progress=False) for result in (again, problem.result))
    assert one.session.steps > problem.result.session.steps
    assert_same(one.ledger.values, other.ledger.values)
    assert_same(one.draws, other.draws)
    assert_same(one.covariance, other.covariance)


def at(result, steps):
    """The result after as many steps: any number, where `extend` goes to the end of a row."""
    run = result.session.prepared()
    run.advance(steps, progress=False)
    return lv.Result(replace(result.session, ledger=run.ledger(), run=run))


def test_an_open_row_goes_on_too(flat, tmp_path):
    steps = flat.result.session.steps
    midway = at(flat.result, steps + 5)
    assert any(np.any(leaf) for leaf in jax.tree.leaves(midway.ledger.checkpoint.carry.sums))
    midway.save(tmp_path / "run")
    # Through a second file, written by one who never had the target.
    load(tmp_path / "run").save(tmp_path / "copy")
    again = load(tmp_path / "copy", flat.target, flat.data)
    one, other = (at(result, steps + 100) for result in (again, midway))
    assert_same(one.ledger.values, other.ledger.values)
    assert_same(one.draws, other.draws)
    assert_same(one.covariance, other.covariance)


@pytest.mark.parametrize(
    "theta",
    [
        1.0,
        np.ones((2, 3)),
        (1.0, None, [np.ones(2), {}]),
        {"b": {2: 1.0, 10: ()}, "a": ({"?": 2.0},)},
        [{"*": np.ones(0)}],
    ],
)
def test_plain_containers_come_back(theta):
    layout = Layout.of(theta)
    assert unpack_layout(json.loads(json.dumps(pack_layout(layout))), None) == layout


def test_odd_numbers_and_sharing_come_back():
    turned = np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1)
    parts = {"a": np.float32(0.1), "b": [float("inf"), -0.0, float("nan")], "c": (turned, turned), "d": turned[:, :1]}
    packer = Packer()
    plain = json.loads(json.dumps(packer.plain(parts, "p"), allow_nan=False))
    again = Unpacker({name: np.array(array, order="C") for name, array in packer.arrays.items()}, None).made(plain, "p")
    assert_same(again["a"], parts["a"])
    assert repr(again["b"]) == repr(parts["b"])
    assert_same(again["c"], parts["c"])
    assert again["c"][0] is again["c"][1]
    assert_same(again["d"], parts["d"])
    with pytest.raises(TypeError, match="no saved form is known for p, object"):
        packer.plain(object(), "p")


def test_other_containers_ask_for_theta_0(flat, tmp_path):
    flat.result.save(tmp_path / "run")
    session = load(tmp_path / "run").session
    anchor = replace(session.plan.anchor, layout=Layout.of([Pair(jnp.float32(0), jnp.ones(2))]))
    lv.Result(replace(session, plan=replace(session.plan, anchor=anchor))).save(tmp_path / "run")
    with pytest.raises(ValueError, match="theta_0 must be given"):
        load(tmp_path / "run")
    with pytest.raises(ValueError, match="theta_0 must have the structure"):
        load(tmp_path / "run", theta_0=[Pair(0.0, jnp.zeros(3))])
    again = load(tmp_path / "run", theta_0=[Pair(0.0, jnp.zeros(2))])
    assert isinstance(again.plan.anchor.mode[0], Pair)
    assert_same(again.mean, flat.result.mean)
    assert again.expectation(lambda theta: theta[0].a).value == again.expectation(_first).value


def _first(theta: Any) -> Any:
    return jax.tree.leaves(theta)[0]


def test_theta_0_must_fit_where_it_is_not_needed(flat, tmp_path):
    flat.result.save(tmp_path / "run")
    load(tmp_path / "run", theta_0=jnp.zeros(3))
    for wrong in (jnp.zeros(4), [jnp.zeros(3)]):
        with pytest.raises(ValueError, match="theta_0 must have the structure"):
            load(tmp_path / "run", theta_0=wrong)


def test_without_target_it_cannot_be_extended(flat, tmp_path):
    flat.result.save(tmp_path / "run")
    with pytest.raises(ValueError, match=r"lv\.load"):
        load(tmp_path / "run").extend(passes=1)
    with pytest.raises(ValueError, match="target must be given"):
        load(tmp_path / "run", data=flat.data)


def test_other_data_and_other_targets_are_refused(flat, tmp_path):
    flat.result.save(tmp_path / "run")
    x, y = (np.array(leaf) for leaf in jax.tree.leaves(flat.data))
    rebuild = jax.tree.structure(flat.data).unflatten
    for data in (None, rebuild([x[:-1], y[:-1]]), rebuild([x + 1, y])):
        with pytest.raises(ValueError, match=r"data (must|are)"):
            load(tmp_path / "run", flat.target, data)
    with pytest.raises(ValueError, match="target must be an"):
        load(tmp_path / "run", flat.target.log_prior, flat.data)
    for target in (
        lv.Target(lambda theta: 0.9 * flat.target.log_prior(theta), flat.target.log_likelihood),
        lv.Target(flat.target.log_prior, lambda theta, datum: flat.target.log_likelihood(theta[::-1], datum)),
    ):
        with pytest.raises(ValueError, match="must be those of the saved run, but the target"):
            load(tmp_path / "run", target, flat.data)


def test_the_path_must_lead_to_a_saved_run(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"no run\.json"):
        load(tmp_path)
    (tmp_path / "file").write_text("text")
    with pytest.raises(ValueError, match=r"file.*no run\.json"):
        load(tmp_path / "file")


def test_nothing_but_a_saved_run_is_replaced(flat, tmp_path):
    file, folder, foreign = tmp_path / "file", tmp_path / "folder", tmp_path / "foreign"
    file.write_text("precious")
    folder.mkdir()
    (folder / "thesis.txt").write_text("precious")
    foreign.mkdir()
    (foreign / "run.json").write_text('{"speed": 3}')
    for path in (file, folder, foreign):
        with pytest.raises(ValueError, match="path must be new or a saved run"):
            flat.result.save(path)
    assert file.read_text() == (folder / "thesis.txt").read_text() == "precious"
    assert sorted(os.listdir(folder)) == ["thesis.txt"]
    assert (foreign / "run.json").read_text() == '{"speed": 3}'
    with pytest.raises(FileNotFoundError, match="could not be saved"):
        flat.result.save(tmp_path / "no" / "such" / "folder")


def test_a_saved_run_is_replaced_and_its_neighbours_stay(flat, nested, tmp_path):
    flat.result.save(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    nested.result.save(tmp_path)
    assert_same(load(tmp_path).mean, nested.result.mean)
    assert len(os.listdir(tmp_path)) == 3


def _damages(content: bytes) -> list[bytes]:
    rng = np.random.default_rng(0)
    flips = []
    for at in [*rng.integers(len(content), size=40), 0, len(content) - 1]:
        changed = bytearray(content)
        changed[at] ^= 1 << rng.integers(7)
        flips.append(bytes(changed))
    return [b"", b"\0" * len(content), content[:-1], content[: len(content) // 2], content + content, *flips]


@pytest.mark.parametrize("which", ["run.json", "arrays"])
def test_damage_is_noticed_and_the_file_named(flat, tmp_path, which):
    flat.result.save(tmp_path)
    (file,) = (tmp_path / name for name in os.listdir(tmp_path) if name.startswith(which))
    whole = file.read_bytes()
    for damaged in _damages(whole):
        file.write_bytes(damaged)
        # White space between the words of JSON carries nothing.
        if which == "run.json" and _same_json(damaged, whole):
            continue
        with pytest.raises(ValueError, match=f"{file.name}|has format"):
            load(tmp_path)
    file.unlink()
    with pytest.raises(ValueError, match=file.name.replace(".", r"\.")):
        load(tmp_path)


def _same_json(one: bytes, other: bytes) -> bool:
    try:
        return json.loads(one) == json.loads(other)
    except ValueError:
        return False


def _rewritten(path: Path, change: Any = None, arrays: bytes | None = None) -> None:
    """A forged record whose digests are right."""
    record = json.loads((path / "run.json").read_bytes())
    del record["digest"]
    if arrays is not None:
        (path / "forged").write_bytes(arrays)
        record["arrays"] = f"arrays-{store._file_digest(path / 'forged')}.npz"
        os.replace(path / "forged", path / record["arrays"])
    if change is not None:
        change(record)
    (path / "run.json").write_text(json.dumps({**record, "digest": store._digest(record)}))


class _Trap:
    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["TRAP"],)


def test_pickles_are_refused(flat, tmp_path, monkeypatch):
    monkeypatch.setenv("TRAP", str(tmp_path / "sprung"))
    path = tmp_path / "run"
    flat.result.save(path)
    (stored,) = path.glob("*.npz")
    with np.load(stored) as arrays:
        content = dict(arrays)
    content["run/plan/chains"] = np.array([_Trap()], dtype=object)
    forged = io.BytesIO()
    np.savez(forged, **content)
    _rewritten(path, arrays=forged.getvalue())
    with pytest.raises(ValueError, match=r"arrays-.*pickle|arrays-.*allow_pickle"):
        load(path)
    with zipfile.ZipFile(path / json.loads((path / "run.json").read_text())["arrays"]) as archive:
        pickled = archive.read("run/plan/chains.npy")
    _rewritten(path, arrays=pickled)
    with pytest.raises(ValueError, match="arrays-"):
        load(path)
    assert not (tmp_path / "sprung").exists()


def test_only_known_kinds_are_built_and_only_inside(flat, tmp_path):
    flat.result.save(tmp_path)
    _rewritten(tmp_path, lambda record: record["run"]["plan"]["budget"].update({"is": "Popen"}))
    with pytest.raises(ValueError, match="cannot make a run of it"):
        load(tmp_path)
    _rewritten(tmp_path, lambda record: record.update(arrays="../elsewhere.npz"))
    with pytest.raises(ValueError, match=r"elsewhere\.npz is missing or damaged"):
        load(tmp_path)


def test_a_later_format_is_named(flat, tmp_path):
    flat.result.save(tmp_path)
    _rewritten(tmp_path, lambda record: record.update(format=3, langevin="7.0"))
    with pytest.raises(ValueError, match=r"format 3, written by langevin 7\.0"):
        load(tmp_path)


class _Crash(BaseException):
    pass


@pytest.mark.parametrize("moment", range(7))
def test_a_crash_leaves_the_old_run_or_the_new_one(flat, nested, tmp_path, monkeypatch, moment):
    flat.result.save(tmp_path)
    calls = 0

    def crashing(function: Any) -> Any:
        def called(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > moment:
                raise _Crash
            return function(*arguments)

        return called

    with monkeypatch.context() as broken:
        for name in ("fsync", "replace", "unlink"):
            broken.setattr(os, name, crashing(getattr(os, name)))
        # A dead process sweeps nothing.
        broken.setattr(store, "_sweep", lambda path: None)
        try:
            nested.result.save(tmp_path)
        except _Crash:
            pass
        assert calls == moment + 1
    # fsync, rename, fsync of the directory: twice; the fifth call is the rename of the record.
    assert_same(load(tmp_path).mean, (flat if moment < 5 else nested).result.mean)
    flat.result.save(tmp_path)
    assert_same(load(tmp_path).mean, flat.result.mean)
    assert len(os.listdir(tmp_path)) == 2


def test_a_crash_of_the_first_save_can_be_repeated(flat, tmp_path, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(store, "_sweep", lambda path: None)
        broken.setattr(store, "_file_digest", lambda file: (_ for _ in ()).throw(_Crash))
        with pytest.raises(_Crash):
            flat.result.save(tmp_path / "run")
    with pytest.raises(ValueError, match=r"no run\.json"):
        load(tmp_path / "run")
    flat.result.save(tmp_path / "run")
    assert_same(load(tmp_path / "run").mean, flat.result.mean)


@pytest.mark.parametrize("limit", [1000, 40_000])
def test_a_full_disk_leaves_the_old_run(flat, nested, tmp_path, limit):
    flat.result.save(tmp_path / "run")
    before = {name: (tmp_path / "run" / name).read_bytes() for name in os.listdir(tmp_path / "run")}
    allowed = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, allowed[1]))
    try:
        with pytest.raises(OSError, match=f"could not be saved.*{tmp_path / 'run'}"):
            nested.result.save(tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, allowed)
    assert {name: (tmp_path / "run" / name).read_bytes() for name in os.listdir(tmp_path / "run")} == before
