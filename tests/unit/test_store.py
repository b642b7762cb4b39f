"""A saved run is the run: every number to the bit, also after going on; and no crash or damage goes unnoticed."""

import json
import os
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.loading import load
from langevin.saving.packing import Packer, Unpacker, pack_layout, unpack_layout
from langevin.target import Layout
from tests.unit.saved import Pair, assert_same


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
    run.advance(steps)
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
