"""Saved fits: they predict the same to the bit, go on with their data, and nothing in a file is ever run."""

import json
import shutil

import numpy as np
import pytest

import langevin as lv
from langevin.regression.fitting import Fit, resume_fit
from langevin.regression.preparing import prepared
from langevin.regression.reading import Question
from langevin.regression.store import packed, unpacked
from langevin.saving.folder import _digest

pandas = pytest.importorskip("pandas")
pytest.importorskip("formulaic")
testing = pytest.importorskip("typer.testing")

RNG = np.random.default_rng(0)
N = 300
TABLE = pandas.DataFrame(
    {
        "x": RNG.standard_normal(N),
        "w": RNG.uniform(1.0, 3.0, N),
        "shift": RNG.standard_normal(N),
        "colour": RNG.choice(["red", "green", "<b>blue</b>"], N),
        "code": RNG.integers(0, 3, N),
        "even": RNG.random(N) < 0.5,
        "town": RNG.choice(["a", "b", "c", "d"], N),
    }
)
TABLE["y"] = TABLE.x + TABLE["shift"] + RNG.standard_normal(N)
TABLE["size"] = np.array(["low", "medium", "high"])[np.digitize(TABLE.x, [-0.5, 0.5])]
NEW = TABLE.sample(40, random_state=1)


def question(formula, family="gaussian", **more):
    names = ("priors", "weights", "offset", "trials", "levels", "source")
    return Question(formula, family, **{**dict.fromkeys(names), "missing": "refuse", "groups": "integrate", **more})


def through_a_file(asked):
    """Model and what was asked, packed as JSON and arrays and made again."""
    from langevin.saving.packing import Packer, Unpacker

    ready, packer = prepared(asked, TABLE), Packer()
    plain = json.loads(json.dumps(packer.plain(packed(ready, asked), "fit")))
    return ready.model, unpacked(Unpacker(packer.arrays, None).made(plain, "fit"))


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ poly(x, 3) + scale(w) + center(shift)",
        "y ~ 0 + C(colour):x + bs(w, df=4)",
        "y ~ colour * x + C(code, contr.sum) + even",
        "y ~ np.log(w) + C(code, contr.treatment(base=2)) + C(colour, levels=['red', 'green', '<b>blue</b>'])",
        "y ~ x + w:even + (1 + x | town)", "y ~ 0 + cr(w, df=3)",
        "y ~ I(x ** 2) - 1 + `shift`",
    ],
)  # fmt: skip
def test_levels_and_transforms_survive(formula):
    model, (again, asked, *_) = through_a_file(question(formula, priors={}))
    assert again.names == model.names and again.priors == model.priors and asked.formula == formula
    # One row, with one of the levels: what a column means must not be learnt from new data.
    for rows in (NEW, NEW.head(1)):
        for one, other in zip(model.design.matrices(rows), again.design.matrices(rows), strict=True):
            assert np.array_equal(one, other)
    unseen = NEW.assign(colour="violet", code=7)
    if "C(" in formula or "colour" in formula:
        with pytest.raises(ValueError, match="was not among them"):
            again.design.matrices(unseen)


def test_new_data_of_another_kind_are_refused():
    _, (again, *_) = through_a_file(question("y ~ colour"))
    with pytest.raises(ValueError, match="got numbers in 'colour', which held text then"):
        again.design.matrices(NEW.assign(colour=1.0))


@pytest.mark.parametrize(
    "term",
    [
        "{__import__('os').getpid() * x}", "{open('secret').read()}", "{x.to_csv('stolen.csv')}", "np.save('f', x)",
        "{(lambda t: t)(x)}", "{[c for c in x]}", "{x.__class__}", "np.fromfile('f')", "{contr.__init__.__globals__}",
        "{np.add.__call__(x, x)}", "I(x).apply(print)", "{(x := w)}", "(1 + {x.__class__} | colour)",
    ],
)  # fmt: skip
def test_a_formula_of_a_file_that_could_run_code_is_refused(term):
    _, (_, asked, *_) = through_a_file(question("y ~ x"))
    stored = packed(prepared(asked, TABLE), asked)
    stored["asked"]["formula"] = f"y ~ x + {term}"
    with pytest.raises(ValueError, match=r"could run code|readable|without inner brackets"):
        unpacked(stored)


def test_a_forged_fit_runs_no_code_where_it_is_resumed(folder, tmp_path):
    forged, mark = shutil.copytree(folder / "run", tmp_path / "run"), tmp_path / "touched"
    (forged / "run-before.json").unlink(missing_ok=True)
    record = json.loads((forged / "run.json").read_text())
    del record["digest"]
    record["found"]["fit"]["asked"]["formula"] += f" + I(__import__('pathlib').Path({str(mark)!r}).touch() or x)"
    (forged / "run.json").write_text(json.dumps({**record, "digest": _digest(record)}))
    for act in (lambda: resume_fit(forged), lambda: lv.load(forged), lambda: lv.load(forged, data=TABLE)):
        with pytest.raises(ValueError, match="could run code"):
            act()
    assert not mark.exists()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A fit made by the command."""
    place = tmp_path_factory.mktemp("command")
    TABLE.to_csv(place / "table.csv", index=False)
    made = invoke("fit", place / "table.csv", "y ~ x + C(colour) + scale(w)", "--offset", "shift", "--passes", 40,
                  "--prior", "x=normal(0, 1)", "--out", place / "run")  # fmt: skip
    assert made.exit_code in (0, 1) and f"Saved in {place / 'run'}" in made.output, made.output
    return place


def invoke(*arguments):
    from langevin.cli import app

    return testing.CliRunner().invoke(app, [str(one) for one in arguments])


def test_a_saved_fit_predicts_the_same(folder, tmp_path):
    fit = lv.load(folder / "run")
    fit.save(tmp_path / "copy")
    again = lv.load(tmp_path / "copy")
    assert isinstance(again, Fit) and str(again) == str(fit) and again.model.priors == fit.model.priors
    for file in (tmp_path / "copy").glob("*.npz"):
        with np.load(file, allow_pickle=False) as arrays:
            assert all(arrays[name].dtype != object for name in arrays.files)
    for name, values in fit.predict(NEW).items():
        assert np.array_equal(values, again.predict(NEW)[name])
    with pytest.raises(ValueError, match="offset must be given"):
        again.predict(NEW.drop(columns="shift"))
    with pytest.raises(ValueError, match="extend needs the target"):
        again.extend(passes=10)
    with pytest.raises(ValueError, match="must be those of the saved run"):
        lv.load(tmp_path / "copy", data=TABLE.assign(x=-TABLE.x))
    with pytest.raises(ValueError, match="target must be None"):
        lv.load(tmp_path / "copy", lv.Target(lambda t: -(t**2)), None)


@pytest.mark.slow
def test_a_saved_fit_goes_on_with_its_data(tmp_path):
    fit = lv.fit(TABLE, "y ~ x + (1 | town)", weights=np.ones(N), passes=40)
    fit.save(tmp_path / "run")
    more = lv.load(tmp_path / "run", data=TABLE).extend(passes=10)
    assert np.array_equal(more.mean.value, fit.extend(passes=10).mean.value)


def test_a_changed_fit_is_refused(folder, tmp_path):
    lv.load(folder / "run").save(tmp_path / "run")
    file = tmp_path / "run" / "run.json"
    record = json.loads(file.read_text())
    record.pop("digest")
    del record["found"]["fit"]["asked"]["family"]
    file.write_text(json.dumps({**record, "digest": _digest(record)}))
    with pytest.raises(ValueError, match="cannot make a fit of it"):
        lv.load(tmp_path / "run")


def test_the_command_predicts(folder):
    fit = lv.load(folder / "run")
    found = invoke("predict", folder / "run", folder / "table.csv", "--out", folder / "new.csv")
    assert found.exit_code == (fit.status != "ok"), found.output
    table = pandas.read_csv(folder / "new.csv")
    assert np.allclose(table["mean"], fit.predict(TABLE)["mean"])
    shown = invoke("predict", folder / "run", folder / "table.csv")
    assert "predicted_upper" in shown.output and "280 more rows" in shown.output
    assert invoke("predict", folder / "run", folder / "table.csv", "--out", folder / "new.txt").exit_code == 2
    assert invoke("predict", folder / "nothing", folder / "table.csv").exit_code == 2


def test_the_command_writes_a_report(folder):
    pytest.importorskip("altair")
    found = invoke("report", folder / "run")
    assert found.exit_code in (0, 1) and "report.html" in found.output
    # The table is where it was, so what the model would draw can stand beside it.
    assert "Predictive check" in (folder / "run" / "report.html").read_text()
    assert isinstance(lv.load(folder / "run"), Fit)
    assert invoke("report", folder / "nothing").exit_code == 2


def test_the_command_resumes_and_refuses_another_call(folder):
    before = lv.load(folder / "run").mean.value
    again = invoke("resume", folder / "run")
    assert "scale(w)" in again.output and np.array_equal(lv.load(folder / "run").mean.value, before)
    for formula in ("y ~ x", "y ~ x + C(colour) + center(w)"):
        other = invoke(
            "fit", folder / "table.csv", formula, "--offset", "shift", "--passes", 40, "--out", folder / "run"
        )
        assert other.exit_code == 2 and "--out must be new or of the same call" in other.output
    assert invoke("resume", folder / "nothing").exit_code == 2


def test_the_command_says_how_to_cite_and_shows_tracebacks_when_asked(folder):
    assert "@article{teh2016consistency" in invoke("cite").output
    assert "langevin 0." in invoke("--version").output
    quiet, loud = (invoke("fit", folder / "table.csv", "y ~ z", *more) for more in ((), ("--debug",)))
    assert quiet.exit_code == 2 and "Traceback" not in quiet.output and quiet.output.count("\n") == 1
    assert "Traceback" in loud.output and loud.exit_code == 2
