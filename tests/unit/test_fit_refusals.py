"""`lv.fit` and its command: what does nothing is refused, what says nothing is left out, and remedies are valid."""

import re

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import langevin as lv
from langevin.regression.preparing import prepared
from langevin.regression.reading import Question
from langevin.regression.tables import as_table

pandas = pytest.importorskip("pandas")
pytest.importorskip("formulaic")

RNG = np.random.default_rng(2)
N = 200
TABLE = pandas.DataFrame({"x": RNG.standard_normal(N), "g": RNG.choice(["a", "b"], N), "n": 5})
TABLE["y"] = TABLE.x + RNG.standard_normal(N)
TABLE["k"] = RNG.integers(0, 6, N)


def question(formula, family="gaussian", **more):
    names = ("priors", "weights", "offset", "trials", "levels", "source")
    return Question(formula, family, **{**dict.fromkeys(names), "missing": "refuse", "groups": "integrate", **more})


def changed(name, row, value):
    return TABLE.assign(**{name: TABLE[name].astype(float).where(TABLE.index != row, value)})


@pytest.mark.parametrize(
    ("formula", "more", "message"),
    [
        (["y", "x"], {}, "formula must be text, got ['y', 'x']. Try \"y ~ x1 + C(x2)\"."),
        ("k ~ x", {"family": "poisson", "trials": "n"}, "trials must be None for family 'poisson'"),
        ("y ~ x", {"levels": ("a", "b")}, "levels must be None for family 'gaussian'"),
        ("y ~ x", {"groups": "sample"}, "groups='sample' needs groups, got 'y ~ x'. Add a term such as (1 | town)"),
        ("k ~ x", {"family": "binomial"}, "trials must be given for family 'binomial', got None. Name their column"),
        ("y ~ x", {"weights": "g"}, "weights must hold numbers"),
        ("y ~ x", {"weights": np.zeros(N)}, "with a weight above 0, got none"),
    ],
)
def test_arguments_that_will_not_do(formula, more, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        lv.fit(TABLE, formula, **more)


@pytest.mark.parametrize(
    ("table", "asked", "message"),
    [
        (changed("n", 7, 2.5), question("k ~ x", "binomial", trials="n"), "at least 1, got 2.5 in row 7."),
        (changed("k", 9, 6), question("k ~ x", "binomial", trials="n"), "got 6 of 5 in row 9. Mend"),
        (changed("y", 3, -np.inf), question("y ~ x", missing="drop"), "'y' must hold finite numbers, got -inf in row"),
        (changed("x", 4, np.inf), question("y ~ x"), "'x' must hold finite numbers, got inf in row 4"),
        (changed("y", 4, np.inf), question("x ~ g", weights="y"), "'y' must hold finite numbers, got inf in row 4"),
        (TABLE.assign(late=1 + TABLE.k % 2), question("late ~ x", "bernoulli"), "must be 0 and 1; others are levels"),
        (TABLE.assign(late=2 * (TABLE.k % 2) - 1), question("late ~ x", "bernoulli"), "levels=[-1, 1], or"),
    ],
)  # fmt: skip
def test_rows_that_will_not_do_are_named(table, asked, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        prepared(asked, table)


def test_rows_keep_their_numbers_when_others_are_dropped():
    table = changed("k", 9, 6).assign(x=TABLE.x.where(TABLE.index > 1), n=5.0)
    with pytest.raises(ValueError, match="got 6 of 5 in row 9"):
        prepared(question("k ~ x", "binomial", trials="n", missing="drop"), table.set_index("g"))


def test_infinite_numbers_may_stand_in_a_transform():
    assert prepared(question("y ~ np.exp(-x)"), changed("x", 4, np.inf)).model.names[1] == "np.exp(-x)"


@pytest.mark.parametrize(
    "as_levels",
    [
        lambda y: (y, (1, 2)),
        lambda y: (y, ("1", "2")),
        lambda y: (y.astype(float), ("1", "2")),
        lambda y: (y.astype("category"), None),
        lambda y: (y.astype(str), None),
    ],
)
def test_two_numbers_are_levels_where_that_is_said(as_levels):
    values, levels = as_levels(1 + TABLE.k % 2)
    ready = prepared(question("late ~ x", "bernoulli", levels=levels), TABLE.assign(late=values))
    assert_array_equal(ready.data["y"], TABLE.k % 2)
    assert [str(one)[0] for one in ready.model.levels] == ["1", "2"]


def test_rows_without_weight_are_left_out():
    weights = np.where(np.arange(N) % 4 == 0, 0.0, 2.0)
    found = prepared(question("y ~ x", weights=weights), TABLE)
    rest = prepared(question("y ~ x", weights=weights[weights > 0]), TABLE[weights > 0])
    for name, values in rest.data.items():
        assert_array_equal(found.data[name], values)
    assert found.model.priors == rest.model.priors


def test_numbers_and_words_alone_are_one_row():
    assert as_table({"x": 1.0, "g": "a"}).to_dict("list") == {"x": [1.0], "g": ["a"]}
    assert len(as_table({"x": [1.0, 2.0], "g": "a"})) == 2


def test_a_lazy_frame_is_to_be_collected():
    class LazyFrame:
        def collect(self):
            raise AssertionError

    with pytest.raises(ValueError, match=r"got LazyFrame\. Call \.collect\(\) on it first\."):
        lv.fit(LazyFrame(), "y ~ x")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a table and a fit of it."""
    folder = tmp_path_factory.mktemp("refusals")
    TABLE.to_csv(folder / "t.csv", index=False)
    lv.fit(TABLE, "y ~ x + g", passes=20, checkpoint=folder / "run")
    return folder


def test_predictions_that_will_not_do(place):
    fit = lv.load(place / "run")
    assert fit.predict({"x": 1.0, "g": "a"})["mean"].shape == (1,)
    for new, more, message in [
        ({"x": [1.0], "g": ["a"]}, {"draws": 1}, "at least 2, got 1. Try draws=400."),
        ({"x": [1.0], "g": ["a"]}, {"trials": [3]}, "trials must be None for family 'gaussian'"),
        ({"x": ["one"], "g": ["a"]}, {}, "got text in 'x', which held numbers then. Convert it"),
        ({"x": [1.0], "g": [3]}, {}, "got numbers in 'g', which held text then"),
        ({"g": ["a"]}, {}, "data must have the columns that were fitted, got a table without 'x'. Columns"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=re.escape(message)):
            fit.predict(new, **more)


def test_the_command_has_valid_remedies(place):
    testing = pytest.importorskip("typer.testing")
    from langevin.cli import app

    def invoke(*arguments):
        return testing.CliRunner().invoke(app, [str(one) for one in arguments])

    other = invoke("fit", place / "t.csv", "y ~ x", "--passes", 20, "--out", place / "run")
    said = f"--out must be new or of the same call, got {place / 'run'}, which holds the fit of 'y ~ x + g', family "
    assert other.exit_code == 2 and f"{said}'gaussian'. Choose another folder." in other.output
    TABLE.assign(g=RNG.choice(["a", "b", "c"], N)).to_csv(place / "more.csv", index=False)
    levels = invoke("fit", place / "more.csv", "y ~ x + g", "--passes", 20, "--out", place / "run")
    assert levels.exit_code == 2 and "'gaussian', to data with other levels or columns. Choose" in levels.output
    loud = invoke("fit", place / "t.csv", "y ~ z", "--debug")
    assert loud.exit_code == 2 and "Traceback" in loud.output
    assert "a folder of them, or one that langevin import" in re.sub(r"[│\s]+", " ", invoke("fit", "--help").output)


def test_a_report_that_cannot_be_written_is_named_by_its_own_name(place):
    testing = pytest.importorskip("typer.testing")
    pytest.importorskip("altair")
    from langevin.cli import app

    (place / "file").write_text("")
    found = testing.CliRunner().invoke(app, ["report", str(place / "run"), "--out", str(place / "file" / "x.html")])
    assert found.exit_code == 2 and "x.html: Not a directory. Try another." in found.output
