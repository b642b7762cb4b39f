"""The table people publish: posterior columns, Monte Carlo errors that cannot be mistaken, digits, order, markup."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import langevin as lv
from langevin.analysis.value import decimals, plus_minus
from langevin.sampling.tables import cells

N = 300
RNG = np.random.default_rng(0)
COLUMNS = {"wide": RNG.standard_normal(N), "apart": RNG.standard_normal(N)}
COLUMNS["y"] = 1.0 + 2.0 * COLUMNS["wide"] - COLUMNS["apart"] + RNG.standard_normal(N)
START = {"slope": {"wide": 0.0, "apart": 0.0}, "<b>base</b>": 0.0}


def log_likelihood(theta, row):
    line = theta["<b>base</b>"] + theta["slope"]["wide"] * row["wide"] + theta["slope"]["apart"] * row["apart"]
    return -0.5 * (row["y"] - line) ** 2


TARGET = lv.Target(lambda t: -0.005 * (t["slope"]["wide"] ** 2 + t["slope"]["apart"] ** 2), log_likelihood)


@pytest.fixture(scope="module")
def result():
    return lv.sample(TARGET, COLUMNS, START)


def test_a_call_without_a_budget_reaches_two_percent_of_an_sd(result):
    assert result.status == "ok" and result.session.reached <= 0.02


def test_parameters_come_in_the_order_in_which_they_were_written(result, tmp_path):
    names = ("slope.wide", "slope.apart", "<b>base</b>")
    assert result.names == names
    order = [list(tree) for tree in (result.plan.anchor.mode, result.plan.anchor.mode["slope"])]
    assert order == [["slope", "<b>base</b>"], ["wide", "apart"]]
    assert np.abs(result.mean.value - [2.0, -1.0, 1.0]).max() < 5 * result.sd.value.max()
    apart = result.expectation(lambda t: t["slope"]["apart"])
    assert abs(apart.value - result.mean.value[1]) < 1e-5
    result.save(tmp_path / "run")
    loaded = lv.load(tmp_path / "run", TARGET, COLUMNS)
    assert loaded.names == names and loaded.plan.anchor.layout == result.plan.anchor.layout


def test_the_summary_describes_the_posterior_and_names_monte_carlo_errors(result):
    summary = result.summary()
    wanted = ["mean", "sd", "q2.5", "q50", "q97.5"]
    assert list(summary) == ["name", *wanted, *(f"mcse_{name}" for name in wanted), "laplace_mean", "laplace_sd",
                             "raw_mean", "raw_sd", "status"]  # fmt: skip
    # The posterior is Gaussian: its 95% interval is 1.96 sds on each side, and holds no trace of the short run.
    for name, normal in (("q2.5", -1.959964), ("q97.5", 1.959964)):
        assert np.abs((summary[name] - summary["mean"]) / summary["sd"] - normal).max() < 1e-3
    assert np.all(summary["mcse_mean"] < 0.02 * summary["sd"])


def test_printed_digits_follow_the_largest_error_of_a_row(result):
    heading, *rows = cells(result)
    assert heading[1:6] == ("mean", "sd", "2.5%", "50%", "97.5%") and "mcse mean" in heading
    places = {len(text.partition(".")[2]) for text in rows[0][1:6]}
    # Bars are far below the sd here: four digits of it are what anybody reads.
    assert places == {decimals(float(result.sd.value[0]), 4)}
    text = str(result)
    assert "Monte Carlo standard error" in text and "lower" not in text


def test_names_are_shown_as_text_in_a_notebook(result):
    html = result._repr_html_()
    assert "<b>base" not in html and "&lt;b&gt;base&lt;/b&gt;" in html
    assert html.count("<tr>") == 4 and "Status ok" in html


def test_estimates_behave_like_arrays(result):
    mean, quantiles = result.mean, result.quantiles((0.1, 0.5, 0.9))
    assert_array_equal(np.asarray(mean), mean.value)
    assert float(mean[1]) == mean.value[1] and len(mean) == 3 and mean.shape == (3,)
    assert_array_equal(quantiles[1].interval()[0], quantiles.interval()[0][1])
    assert_array_equal(quantiles[:, 2].stderr, quantiles.stderr[:, 2])
    assert [one.status for one in mean] == ["ok"] * 3
    with pytest.raises(IndexError):
        mean[3]
    with pytest.raises(TypeError):
        float(mean)


@pytest.mark.parametrize(
    ("value", "stderr", "text"),
    [
        (0.47566, 0.00012, "0.47566 +- 0.00012"),
        (2.0253833094, 5.6e-9, "2.0253833094 +- 5.6e-09"),
        (12345.678, 250.0, "12346 +- 250"),
        (1.5, float("nan"), "1.5 +- nan"),
    ],
)
def test_a_value_has_as_many_digits_as_its_bar(value, stderr, text):
    assert plus_minus(value, stderr) == text


def test_data_frames_are_data():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(COLUMNS)
    source = lv.DataSource.of(frame)
    assert set(source.arrays) == set(COLUMNS) and source.num_data == N
    frame["town"] = "Aachen"
    with pytest.raises(ValueError, match=re.escape("data['town'] must be numeric")):
        lv.DataSource.of(frame)


def test_functions_that_do_not_look_at_theta_are_refused(result):
    with pytest.raises(ValueError, match="must depend on theta"):
        result.expectation(lambda t: jnp.float32(1.0))
    with pytest.raises(ValueError, match=r"jax\.numpy"):
        result.expectation(lambda t: np.exp(t["<b>base</b>"]))


def test_a_result_that_was_extended_says_so():
    first = lv.sample(TARGET, COLUMNS, START, passes=40)
    assert "gone on" not in str(first)
    with pytest.raises(ValueError, match="a budget must be given"):
        first.extend()
    more = first.extend(passes=10)
    assert "gone on" in str(first) and "gone on" not in str(more)


def test_a_correction_by_sums_of_derivatives_is_that_of_every_draw(result, monkeypatch):
    phi = [lambda t: jnp.tanh(t["<b>base</b>"]) * jnp.exp(0.1 * t["slope"]["wide"]) for _ in range(2)]
    summed = result.expectation(phi[0])
    monkeypatch.setattr("langevin.sampling.expectation._MOST_FLOATS", 0)
    each = result.expectation(phi[1])
    np.testing.assert_allclose(summed.value, each.value, rtol=1e-5)
    np.testing.assert_allclose(summed.stderr, each.stderr, rtol=1e-3)
