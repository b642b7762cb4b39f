"""Responses and predictors far from zero, where float32 has no digits left: fits against least squares in float64."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import langevin as lv
from langevin.regression import files
from langevin.regression.design import design
from langevin.regression.fitting import Fit
from langevin.regression.preparing import prepared
from langevin.regression.reading import Question

pandas = pytest.importorskip("pandas")
pytest.importorskip("formulaic")

RNG = np.random.default_rng(1)
N = 400
X = RNG.standard_normal(N)
U = RNG.random(N)
NOISE = 0.3 * RNG.standard_normal(N)
FAR = pandas.DataFrame({"x": X, "known": np.full(N, 1e8), "y": 1e8 + 2.7 + 0.5 * X + NOISE})


def question(formula, family="gaussian", **more):
    names = ("priors", "weights", "offset", "trials", "levels", "source")
    return Question(formula, family, **{**dict.fromkeys(names), "missing": "refuse", "groups": "integrate", **more})


def least_squares(y, *columns):
    return np.linalg.lstsq(np.stack([np.ones(len(y)), *columns], axis=1), y, rcond=None)[0]


def check_coefficients(fit, exact):
    """The prior pulls by less than a hundredth of a posterior sd here; two scores within 5.5: one seed in 1e7 fails."""
    found = fit.mean[: len(exact)]
    assert fit.status == "ok"
    assert np.all(np.abs(found.value - exact) < 5.5 * found.error + 0.01 * fit.sd.value[: len(exact)])


@pytest.mark.parametrize("family", ["gaussian", "student"])
def test_an_offset_is_taken_off_before_rounding(family):
    row = prepared(question("y ~ x", family, offset="known"), FAR).data
    assert_array_equal(row["y"], (FAR.y - 1e8).to_numpy().astype(np.float32))
    assert not row["offset"].any()


def test_a_response_far_from_zero_is_fitted_and_predicted_with_the_offset_that_the_error_names():
    with pytest.raises(ValueError, match=r"offset=\[100000000, a row each\]: Intercept is then what it differs"):
        lv.fit(FAR, "y ~ x", passes=20)
    found = lv.fit(FAR, "y ~ x", offset="known", precision=0.1)
    exact = least_squares(FAR.y - 1e8, X)
    check_coefficients(found, exact)
    new = found.predict({"x": [0.0, 1.0], "known": [1e8, 1e8]})
    # Six standard errors of a mean of 400 independent draws; kept ones are worth more.
    width = (new["upper"] - new["lower"]) / 3.9
    assert np.all(np.abs(new["mean"] - 1e8 - [exact[0], exact.sum()]) < 6 * width / 20)
    assert np.all((new["predicted_lower"] < new["lower"]) & (new["upper"] < new["predicted_upper"]))


def test_priors_are_in_units_of_what_the_offset_leaves():
    known = 1e6 * X
    model = prepared(question("y ~ x", offset=known), {"x": X, "y": known + NOISE}).model
    assert_allclose(model.unit, NOISE.std(), rtol=1e-9)


def test_files_have_the_numbers_of_the_table_in_memory(tmp_path, monkeypatch):
    table = FAR.assign(t=1.7e9 + np.floor(3600 * U))
    pq.write_table(pa.Table.from_pandas(table), tmp_path / "t.parquet", row_group_size=128)
    asked = question("y ~ x + t", offset="known")
    memory = prepared(asked, table)
    monkeypatch.setattr(files, "FROM_BYTES", 0)
    streaming = prepared(asked, tmp_path / "t.parquet")
    assert streaming.model.names == memory.model.names
    for name, values in memory.data.items():
        assert_allclose(np.asarray(streaming.data.arrays[name]), values, rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(("start", "span"), [(1.7e9, 3600.0), (2460000.5, 0.04)], ids=["unix", "julian"])
def test_times_are_told_apart_and_predicted(start, span, tmp_path):
    t, y = start + span * U, 3.0 + 5.0 * U + NOISE
    found = lv.fit({"t": t, "y": y}, "y ~ t", precision=0.1)
    place = found.model.design.fixed.origins["t"]
    assert found.names[:2] == (f"Intercept (t = {place:.15g})", "t") and abs(place - t.mean()) < t.std()
    check_coefficients(found, least_squares(y, t - place))
    new = start + span * np.linspace(0.0, 1.0, 5)
    predicted, (level, slope) = found.predict({"t": new}), least_squares(y, t - t.mean())
    width = (predicted["upper"] - predicted["lower"]) / 3.9
    assert np.all(np.abs(predicted["mean"] - level - slope * (new - t.mean())) < 6 * width / 20)
    found.save(tmp_path / "run")
    again = lv.load(tmp_path / "run")
    assert again.names == found.names
    assert_array_equal(again.predict({"t": new})["mean"], predicted["mean"])


def test_origins_are_for_far_columns_beside_an_intercept():
    table = pandas.DataFrame({"t": 1.7e9 + 3600 * U, "year": 2013 + np.floor(12 * U), "x": X, "y": NOISE, "g": X > 0})
    # sd(t) is about 1000, so the zero is a multiple of 1000 (of 100 were it below).
    assert design("y ~ t + year + x", table).fixed.origins == {"t": round(table.t.mean(), -3)}
    found = design("y ~ 0 + t + (0 + t | g)", table)
    assert not found.fixed.origins and not found.groupings[0].terms.origins
    mixed = prepared(question("y ~ t + (1 + t | g)"), table).model
    at = f"Intercept (t = {round(table.t.mean(), -3):.0f})"
    assert mixed.names[0] == at and f"log sd({at} | g)" in mixed.names
    ordinal = prepared(question("size ~ t", "ordinal"), table.assign(size=np.floor(3 * U))).model
    assert ordinal.names[1].startswith("cut 0.0 | 1.0 (t = 17")


@pytest.mark.parametrize("constant", [0.1, 1.7e9])
def test_a_constant_is_still_one_whatever_its_rounding(constant):
    rounding = constant * (1.0 + 2.0**-52 * RNG.integers(-1, 2, N))
    for values in (np.full(N, constant), rounding):
        with pytest.raises(ValueError, match="'t' is zero or a combination"):
            lv.fit({"t": values, "y": NOISE}, "y ~ t")


def test_intervals_of_predictions_are_those_of_least_squares():
    from scipy import stats

    y = 5.0 + 0.5 * X + NOISE
    found = lv.fit({"x": X, "y": y}, "y ~ x", precision=0.1)
    new = found.predict({"x": 0.0})
    exact, matrix = least_squares(y, X), np.stack([np.ones(N), X], axis=1)
    scale = np.sum((y - matrix @ exact) ** 2) / (N - 2)
    sd = np.sqrt(scale * (1.0 + np.linalg.inv(matrix.T @ matrix)[0, 0]))
    ends = exact[0] + sd * stats.t(N - 2).ppf([0.025, 0.975])
    # The end of a 95% interval of 4000 independent draws: sqrt(0.025 * 0.975 / 4000) / pdf = 0.042 sd; 5.5 of these.
    assert np.all(np.abs([new["predicted_lower"][0], new["predicted_upper"][0]] - ends) < 5.5 * 0.042 * sd)


def test_very_many_rows_get_fewer_draws(monkeypatch):
    counts = []

    def stop(fit, count, seed):
        counts.append(count)
        raise InterruptedError

    monkeypatch.setattr(Fit, "_equal_draws", stop)
    ready = prepared(question("y ~ x"), {"x": X, "y": NOISE})
    for rows in (1, 10_000, 40_000, 1_000_000):
        with pytest.raises(InterruptedError):
            Fit(None, ready.model, None).predict({"x": np.zeros(rows)})
    assert counts == [4000, 4000, 1000, 400]
