"""Pictures and reports: what they show is what the result says, and names are text."""

import json
import re
import sys
from dataclasses import replace
from html import unescape

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import langevin as lv
from langevin.analysis.averages import estimate
from langevin.regression.check import predictive_check
from langevin.regression.preparing import prepared
from langevin.regression.reading import Question
from langevin.report import contents, sections

pandas = pytest.importorskip("pandas")
pytest.importorskip("formulaic")

SCRIPT = "<script>document.title='run'</script>"
RNG = np.random.default_rng(0)
N = 2000
TABLE = pandas.DataFrame({"x": RNG.standard_normal(N), SCRIPT: RNG.standard_normal(N), "a $ b": RNG.standard_normal(N)})
TABLE["late"] = RNG.random(N) < 1 / (1 + np.exp(-TABLE.x))


@pytest.fixture(scope="module")
def fit():
    return lv.fit(TABLE, f"late ~ x + `{SCRIPT}` + `a $ b`", family="bernoulli", passes=20)


def test_the_forest_has_the_quantiles_of_the_posterior(fit):
    shown = contents.forest(fit)
    assert_allclose(shown.ends, fit.quantiles((0.025, 0.975)).value)
    assert_allclose(shown.error, np.stack(fit.mean.interval()))
    assert shown.names == list(fit.names) and shown.statuses == fit.summary()["status"].tolist()


def test_panels_hold_numbers_of_one_size():
    assert contents._panels(np.array([1.0, 100.0, 9.0, 0.9, 1e-6])).tolist() == [1, 0, 0, 1, 2]


def test_a_density_adds_up_and_has_the_mean_and_the_laplace_law(fit):
    for k, curve in enumerate(contents.marginals(fit)):
        mass = np.trapezoid(curve.density, curve.x)
        # Between the 0.0007 quantiles at either end; the trapezoidal rule on 64 points is good to three digits.
        assert_allclose(mass, 1.0, atol=4e-3)
        centre = np.trapezoid(curve.x * curve.density, curve.x) / mass
        assert abs(centre - fit.mean.value[k]) < 0.01 * fit.sd.value[k]
        anchor = fit.plan.anchor
        top = 1.0 / (np.sqrt(2 * np.pi) * anchor.sd[k])
        assert_allclose(curve.laplace, top * np.exp(-0.5 * ((curve.x - anchor.theta[k]) / anchor.sd[k]) ** 2))


def test_a_running_mean_ends_with_the_estimate(fit):
    shown = contents.running(fit, ["x"])
    k = fit.names.index("x")
    assert_allclose(shown.value[-1, 0], fit.mean.value[k])
    assert_allclose([shown.low[-1, 0], shown.high[-1, 0]], [end[k] for end in fit.mean.interval()])
    assert_allclose(shown.raw[-1, 0], fit.raw["theta.mean"].value[k])
    assert_allclose(shown.time[-1], fit.ledger.sum_delta.sum())
    half = contents.until(fit.ledger, 20)
    assert_allclose(half.sum_omega, fit.ledger.sum_omega[:20])
    assert float(estimate(half, "raw")["theta.mean"].T_m) < 0.9 * float(fit.raw["theta.mean"].T_m)


def test_pairs_are_draws_by_their_weights(fit):
    names, points = contents.pairs(fit, ["x", "Intercept"])
    assert names == ["x", "Intercept"]
    for k, name in enumerate(names):
        at = fit.names.index(name)
        # 600 draws: a mean within 6 of its standard errors.
        assert abs(points[:, k].mean() - fit.mean.value[at]) < 6 * fit.sd.value[at] / np.sqrt(600)


def test_a_predictive_check_holds_for_the_model_and_not_for_another(fit):
    found = predictive_check(fit)
    place, rows = np.array(found.place), N // len(found.place)
    sd = np.sqrt(place * (1 - place) / rows)
    # Twelve shares within 6 standard deviations: a false alarm for one data set in 4e7.
    assert found.calibration and np.all(np.abs(found.observed - place) < 6 * sd)
    # The band holds 95% of 200 draws, its width known to 9%: half and twice are six errors away.
    width = (found.high - found.low) / (2 * 1.96 * sd)
    assert 0.5 < width.min() and width.max() < 2.0
    # The twin: the same fit beside data whose answers are turned round.
    arrays = fit.session.source.arrays
    turned = lv.DataSource.of({**arrays, "y": 1.0 - np.asarray(arrays["y"])})
    wrong = predictive_check(replace(fit, session=replace(fit.session, source=turned)))
    assert np.abs(wrong.observed - np.array(wrong.place)).max() > 6 * sd.max()


@pytest.mark.parametrize("kind", ["forest", "marginals", "running", "pairs", "predictive"])
def test_figures_are_drawn_with_names_as_they_are(fit, kind, tmp_path):
    figure = fit.plot(kind)
    figure.savefig(tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size > 5000
    # A picture by itself says what it is of.
    assert figure.get_suptitle() or all(axis.get_title(loc="left") for axis in figure.axes if axis.get_visible())


def test_bad_pictures_are_refused(fit, monkeypatch):
    for arguments, message in (
        (("pie",), "kind must be one of forest, marginals"),
        (("forest", ["z"]), "names must be parameters of the result, got ['z']"),
        (("pairs", ["x"]), "two parameters or more"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            fit.plot(*arguments)
    monkeypatch.setitem(sys.modules, "langevin.figures", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'langevin[plot]'")):
        fit.plot()


def test_a_report_without_its_extra_says_which(fit, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'langevin[report]'")):
        fit.report(tmp_path / "report.html")


def test_the_report_says_what_the_result_says(fit, tmp_path):
    pytest.importorskip("altair")
    fit.report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert SCRIPT not in text and unescape(text).count(SCRIPT) >= 5
    assert "These error bars can be used" in text and "src=" not in text.split("<script")[0]
    found = re.search(r'id="charts">(.*?)</script>', text)
    charts = json.loads(found[1])
    places = re.findall(r'id="(chart-\d+)"', text)
    assert list(charts) == places and len(charts) >= 14
    assert not (tmp_path / "report.html.tmp").exists()


def test_the_sections_are_the_numbers_of_the_result(fit):
    rows = sections.side_by_side(fit)
    assert [row[0] for row in rows[1:]] == list(fit.names)
    assert float(rows[2][2]) == pytest.approx(fit.mean.value[1], rel=1e-4)
    budget = {row[0]: row[1:] for row in sections.budget(fit)}
    assert float(budget["Monte Carlo standard error"][1]) == pytest.approx(
        np.max(fit.mean.stderr / fit.sd.value), rel=0.1
    )
    assert sections.verdict(fit).kind == ("good" if fit.status == "ok" else "care")
    course = dict(sections.course(fit))
    assert course["data"] == f"N = {N:,}" and f"x {fit.session.steps:,} steps" in course["chains"]
    assert dict(sections.model(fit))["family"] == "bernoulli"


def test_tables_of_the_report_can_be_read(fit):
    heading, *rows = sections.side_by_side(fit)
    assert len(set(heading)) == len(heading)
    for row in rows:
        for numbers in ((*row[1:4], *row[5:8]), (row[4], row[8])):
            assert len({len(number.split(".")[1]) for number in numbers}) == 1
    assert sections._rounded("Power(scale=3.9810717055349727, m_0=1e-07, alpha=1)") == (
        "Power(scale=3.981, m_0=1e-07, alpha=1)"
    )
    # What was reached is in the budget, to the two digits that are shown.
    course, budget = dict(sections.course(fit)), sections.budget(fit)
    halves = dict(zip(budget[0], budget[-1], strict=True))
    largest = max(float(halves[f"{kind}, largest"]) for kind in ("means", "sds", "quantiles"))
    assert f"{largest:.2g} posterior sds" in course["reached"] and "of means, sds and quantiles" in course["reached"]


def test_the_model_has_all_priors(fit):
    coefficients = {"prior of Intercept", "prior of x", f"prior of {SCRIPT}", "prior of a $ b"}
    assert {row[0] for row in sections.model(fit) if row[0].startswith("prior of")} == coefficients
    table = TABLE.assign(y=3.0 * TABLE.x + RNG.standard_normal(N), town=np.arange(N) % 30)
    asked = Question("y ~ x + (1 + x | town)", "student", None, None, None, None, None, "refuse", "integrate", None)
    ready = prepared(asked, table)
    shown, unit = dict(sections.further_priors(ready.model)), np.std(table.y)
    assert shown == {
        "prior of sigma": f"exponential, mean {unit:.3g}",
        "prior of nu": "gamma(2, 0.1)",
        "prior of sd(Intercept | town)": f"exponential, mean {unit:.3g}",
        "prior of sd(x | town)": f"exponential, mean {unit / np.std(table.x):.3g}",
        "prior of partial correlations between effects": "uniform",
    }
    # The density that is sampled: that of log sigma for an exponential law of this mean.
    start = {name: jnp.asarray(value) for name, value in ready.theta_0.items()}
    low, high = (ready.model.log_prior({**start, "log sigma": jnp.float32(at)}) for at in (0.1, 0.9))
    assert_allclose(high - low, 0.8 - (np.exp(0.9) - np.exp(0.1)) / unit, rtol=1e-3)


def test_bands_of_earlier_times_stay_within_their_panels(fit):
    shown = contents.running(fit)
    for k in range(len(shown.names)):
        low, high = shown.range(k)
        assert np.nanmin(shown.low[:, k]) > low and np.nanmax(shown.high[:, k]) < high
        length = (shown.high - shown.low)[:, k]
        assert np.isfinite(length[-10:]).all() and np.nanmax(length) < 30 * length[-1]
