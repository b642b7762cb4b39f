"""Regressions of tables in files: read some rows at a time they are those of the same table in memory."""

import jax
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import langevin as lv
from langevin.mixed.groups import Groups
from langevin.regression import files, streamed
from langevin.regression.preparing import prepared
from langevin.regression.reading import Question

RNG = np.random.default_rng(8)
N = 900
TABLE = pandas.DataFrame(
    {
        "x": RNG.normal(3.0, 2.0, N),
        "colour": RNG.choice(["red", "green", "blue"], N),
        "floor": RNG.integers(0, 4, N),
        "town": RNG.integers(0, 12, N),
        "n": RNG.integers(1, 5, N),
        "y": RNG.integers(0, 2, N),
    }
)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(files, "FROM_BYTES", 0)


@pytest.fixture
def path(tmp_path):
    pq.write_table(pa.Table.from_pandas(TABLE), tmp_path / "t.parquet", row_group_size=128)
    return tmp_path / "t.parquet"


def asked(formula, family="bernoulli", **more):
    rest = {"priors": None, "weights": None, "offset": None, "trials": None, "levels": None, "source": None}
    return Question(formula=formula, family=family, missing="refuse", groups="integrate", **{**rest, **more})


def alike(question, path):
    """The numbers, centres and priors of a table in a file and of the same one in memory."""
    streaming, memory = prepared(question, path), prepared(question, TABLE)
    found, expected = streaming.data.arrays, memory.data.arrays if isinstance(memory.data, Groups) else memory.data
    assert sorted(found) == sorted(expected)
    kept = np.asarray(found["mask"]) if "mask" in found else np.ones(N, bool)
    for name, values in expected.items():
        assert_allclose(np.asarray(found[name])[kept], np.asarray(values)[kept], rtol=2e-6, atol=2e-6, err_msg=name)
    assert {k: str(v) for k, v in streaming.model.priors.items()} == {k: str(v) for k, v in memory.model.priors.items()}
    assert_allclose(streaming.model.centre, memory.model.centre, rtol=1e-12)
    assert_allclose(streaming.model.spreads, memory.model.spreads)
    assert streaming.model.names == memory.model.names and streaming.model.levels == memory.model.levels
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-6), streaming.theta_0, memory.theta_0)
    return streaming


@pytest.mark.parametrize(
    "question",
    [
        asked("y ~ x + colour + C(floor)", weights="n"),
        asked("y ~ x + (1 + x | town)", offset="x"),
        asked("n ~ scale(x) + C(colour) + (1 | town)", "poisson"),
        asked("colour ~ x", "categorical"),
        asked("floor ~ x", "ordinal"),
        asked("y ~ x + (1 | colour)", "binomial", trials="n"),
    ],
    ids=lambda question: question.formula,
)
def test_numbers_are_those_of_the_table_in_memory(question, path):
    alike(question, path)


def test_sampled_groups_start_where_they_do_in_memory(path):
    question = asked("y ~ x + (1 | town)")
    alike(Question(**{**vars(question), "groups": "sample"}), path)


def test_groups_keep_their_labels_and_sizes(path):
    found = prepared(asked("y ~ x + (1 | town)"), path).data
    labels, sizes = np.unique(TABLE.town, return_counts=True)
    assert_array_equal(found.labels, labels)
    assert_array_equal(found.sizes, sizes)
    assert_array_equal(np.asarray(found.arrays["mask"]).sum(axis=1), sizes)
    assert found.numbers([3]).tolist() == [3]


def test_the_numbers_go_when_they_are_no_longer_used(path):
    ready = prepared(asked("y ~ x"), path)
    folder = ready.data.path
    assert folder.parent == path.parent and folder.exists()
    del ready
    assert not folder.exists()
    # What a process left that was killed goes with the next table.
    (path.parent / f"{path.name}.numbers-999999999.abc").mkdir()
    prepared(asked("y ~ x"), path)
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_level_that_comes_late_and_once_is_a_column(tmp_path):
    table = TABLE.assign(colour=["red"] * (N - 1) + ["violet"], floor=[7] + [1] * (N - 1))
    pq.write_table(pa.Table.from_pandas(table), tmp_path / "t.parquet", row_group_size=100)
    names = prepared(asked("y ~ C(floor) + colour"), tmp_path / "t.parquet").model.names
    assert names == ("Intercept", "C(floor)[T.7]", "colour[T.violet]")


@pytest.mark.parametrize("formula", ["y ~ center(x)", "y ~ poly(x, 2) + colour", "y ~ bs(x, df=4)"])
def test_transforms_learn_from_all_rows(formula, path, monkeypatch):
    monkeypatch.setattr(streamed, "_SAMPLE", 40)
    streaming, memory = (prepared(asked(formula), one) for one in (path, TABLE))
    assert streaming.model.names == memory.model.names
    new = TABLE.head(5)
    assert_allclose(streaming.model.design.matrices(new)[0], memory.model.design.matrices(new)[0], rtol=1e-9)


def test_a_sample_that_is_too_large_is_thinned_and_keeps_every_level(path, monkeypatch):
    monkeypatch.setattr(streamed, "_SAMPLE", 40)
    model = prepared(asked("y ~ x + C(floor) + colour"), path).model
    assert set(model.design.names) >= {"C(floor)[T.3]", "colour[T.red]"}
    # Centres come from the sample, close to the means; priors and checks from all rows.
    assert 0 < abs(model.centre[1] - TABLE.x.mean()) < 1.5
    assert_allclose(model.priors["x"].numbers[1], 2.5 / TABLE.x.std(ddof=0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.where(np.arange(N) == 700, np.nan, 1.0)}, "'x' in row 700 of .*missing='drop'"),
        ({"y": 1}, "'y' must hold 0 or 1"),
        ({"n": 3.0}, "'n' is zero or a combination of the ones before it"),
    ],
)
def test_bad_rows_are_named(tmp_path, change, message):
    pq.write_table(pa.Table.from_pandas(TABLE.assign(**change)), tmp_path / "t.parquet", row_group_size=128)
    with pytest.raises(ValueError, match=message):
        prepared(asked("y ~ x + n"), tmp_path / "t.parquet")
    assert [one.name for one in tmp_path.iterdir()] == ["t.parquet"]


def test_arrays_beside_files_and_columns_that_are_not_there_are_refused(path):
    with pytest.raises(ValueError, match="weights must name a column of the files"):
        prepared(asked("y ~ x", weights=np.ones(N)), path)
    with pytest.raises(ValueError, match="got 'late'"):
        prepared(asked("late ~ x"), path)


def test_csv_files_folders_and_imported_folders_give_the_same_fit(path, tmp_path):
    question = asked("y ~ x + colour")
    expected = prepared(question, path)
    (tmp_path / "parts").mkdir()
    TABLE[:500].to_csv(tmp_path / "parts" / "a.csv", index=False)
    TABLE[500:].to_csv(tmp_path / "parts" / "b.csv", index=False)
    lv.import_data(path, tmp_path / "imported", columns={"x": "x", "colour": "colour", "y": "y"})
    for place in (
        tmp_path / "parts",
        [tmp_path / "parts" / "a.csv", tmp_path / "parts" / "b.csv"],
        tmp_path / "imported",
    ):
        found = prepared(question, place)
        assert found.model.names == expected.model.names
        # Imported rows are shuffled.
        for name in ("x", "y"):
            both = (np.asarray(one.data.arrays[name], float) for one in (found, expected))
            assert_allclose(*(np.sort(part, axis=0) for part in both), rtol=1e-5, atol=1e-5)


def test_integers_of_a_csv_file_may_turn_out_to_be_other_numbers(tmp_path, monkeypatch):
    TABLE.assign(x=[1] * (N - 1) + [2.5]).to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.setattr("langevin.data.tables._CSV_BYTES", 4096)
    assert 1.0 < prepared(asked("y ~ x + n"), tmp_path / "t.csv").model.centre[1] < 1.01


def test_a_fit_of_a_file_agrees_with_that_of_the_table(path):
    streaming, memory = (lv.fit(one, "y ~ x + (1 | town)", family="bernoulli", precision=0.2) for one in (path, TABLE))
    assert streaming.status == memory.status == "ok"
    score = (streaming.mean.value - memory.mean.value) / np.hypot(streaming.mean.stderr, memory.mean.stderr)
    assert np.all(np.abs(score) < 5)
    assert_array_equal(streaming.latent([3]).groups, [3])


SIZES = ["red", "green", "blue"]
KINDS = TABLE.assign(
    size=pandas.Categorical(TABLE.colour, SIZES, ordered=True),
    level=TABLE.floor.astype("Int64").where(TABLE.index % 300 != 299),
    sunny=(TABLE.y > 0).astype("boolean").where(TABLE.index % 200 != 199),
    name=TABLE.colour.astype("string"),
)


@pytest.mark.parametrize(
    ("formula", "family"),
    [
        ("x ~ size", "gaussian"),
        ("size ~ x", "ordinal"),
        ("x ~ C(level) + sunny", "gaussian"),
        ("x ~ name", "gaussian"),
        ("x ~ 1 + (1 | sunny)", "gaussian"),
        ("level ~ x", "ordinal"),
    ],
)
def test_kinds_of_columns_are_those_of_the_table_in_memory(formula, family, tmp_path):
    pq.write_table(pa.Table.from_pandas(KINDS), tmp_path / "t.parquet", row_group_size=128)
    question = Question(**{**vars(asked(formula, family)), "missing": "drop"})
    streaming, memory = (prepared(question, one) for one in (tmp_path / "t.parquet", KINDS))
    assert (streaming.model.names, streaming.model.levels) == (memory.model.names, memory.model.levels)
    assert streaming.dropped == memory.dropped
    assert_allclose(streaming.model.centre, memory.model.centre)


def test_text_without_an_order_is_no_ordinal_response(path, tmp_path):
    lv.import_data(path, tmp_path / "imported")
    for place in (path, tmp_path / "imported", TABLE.assign(colour=TABLE.colour.astype("category"))):
        with pytest.raises(ValueError, match="levels must be given for an ordinal response in words"):
            prepared(asked("colour ~ x", "ordinal"), place)


def test_text_far_down_a_csv_file_is_not_a_missing_value(tmp_path, monkeypatch):
    TABLE.assign(x=[*TABLE.x[:-1].astype(str), "none"]).to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.setattr("langevin.data.tables._CSV_BYTES", 4096)
    question = Question(**{**vars(asked("y ~ x")), "missing": "drop"})
    with pytest.raises(ValueError, match=f"'x' must hold numbers.*got 'none' in row {N - 1}"):
        prepared(question, tmp_path / "t.csv")


def test_rows_without_weight_are_left_out_whole_pieces_too(tmp_path):
    weight = np.where((np.arange(N) < 256) | (np.arange(N) % 3 == 0), 0.0, 2.0)
    table = TABLE.assign(w=weight)
    pq.write_table(pa.Table.from_pandas(table), tmp_path / "t.parquet", row_group_size=128)
    question = asked("y ~ x + (1 | town)", weights="w")
    streaming, memory = (prepared(question, one) for one in (tmp_path / "t.parquet", table[weight > 0]))
    assert_array_equal(streaming.data.sizes, memory.data.sizes)
    assert_allclose(streaming.model.centre, memory.model.centre)
    assert {k: str(v) for k, v in streaming.model.priors.items()} == {k: str(v) for k, v in memory.model.priors.items()}
