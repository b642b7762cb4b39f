"""`lv.fit`: designs, predictions, groups, and errors that name the fix."""

import re
from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import langevin as lv
from langevin.regression.design import design
from langevin.regression.families import FAMILIES
from langevin.regression.model import Model
from langevin.regression.preparing import prepared
from langevin.regression.reading import Question, coded, levels_of
from langevin.regression.summary import Summary
from tests.unit.regressions import RNG, TABLE, N, pandas


@pytest.fixture(scope="module")
def fit():
    return lv.fit(TABLE, "late ~ x + year", family="bernoulli", precision=0.05)


def test_a_fit_is_the_posterior_of_the_same_model_by_hand(fit):
    x, y = TABLE[["x", "year"]].to_numpy(), TABLE.late.to_numpy()
    centre, sd = x.mean(axis=0), x.std(axis=0)
    link = np.log(y.mean() / (1 - y.mean()))
    rows = {"x": (x - centre).astype(np.float32), "y": np.where(y, 1.0, -1.0)}

    def log_prior(t):
        return -0.5 * ((t[0] - link) / 2.5) ** 2 - 0.5 * jnp.sum((t[1:] * sd / 2.5) ** 2)

    target = lv.Target(log_prior, lambda t, row: lv.log_sigmoid(row["y"] * (t[0] + row["x"] @ t[1:])))
    hand = lv.sample(target, rows, np.zeros(3), precision=0.05, seed=9)
    assert fit.status == "ok" and fit.names == ("Intercept", "x", "year")
    z = (fit.mean.value - hand.mean.value)[1:] / np.hypot(fit.mean.error, hand.mean.error)[1:]
    # Two scores within 5.5: a false alarm for one seed in 1e7.
    assert np.abs(z).max() < 5.5
    at_means = fit.expectation(lambda t: t["coefficients"] @ jnp.asarray([1.0, *centre], jnp.float32))
    assert abs(at_means.value - hand.mean.value[0]) < 5.5 * np.hypot(at_means.error, hand.mean.error[0])


def test_predictions_have_the_means_and_intervals_of_the_draws(fit):
    new = {"x": [0.0, 1.0], "year": [2018, 2020]}
    found = fit.predict(new)
    by_hand = fit.expectation(
        lambda t, row: lv.sigmoid(row @ t["coefficients"]), data=np.array([[1.0, 0.0, 2018], [1.0, 1.0, 2020]])
    )
    # 400 systematic draws: the mean's error is below that of as many independent ones.
    width = (found["upper"] - found["lower"]) / 3.9
    assert np.all(np.abs(found["mean"] - by_hand.value) < 6 * width / 20)
    assert np.all((found["lower"] < found["mean"]) & (found["mean"] < found["upper"]))
    assert set(np.unique([found["predicted_lower"], found["predicted_upper"]])) <= {0.0, 1.0}


def test_rows_with_missing_values_are_refused_or_dropped_and_counted():
    broken = TABLE.assign(x=TABLE.x.where(TABLE.index != 7), unused=np.nan)
    with pytest.raises(ValueError, match=re.escape("1 of 400 rows with a missing value, first 'x' in row 7")):
        lv.fit(broken, "y ~ x")
    found = lv.fit(broken, "y ~ x", missing="drop", passes=30)
    assert found.dropped == 1 and "1 rows with missing values were left out." in str(found)


@pytest.mark.parametrize(
    ("formula", "more", "message"),
    [
        ("y ~ height", {}, "height"),
        ("weight ~ x", {}, "got 'weight'. Columns are 'x'"),
        ("y ~ x +* year", {}, "formula must"),
        ("y x", {}, 'formula must be "response ~ predictors"'),
        ("y ~ x + (1 | town) + (1 | colour)", {"groups": "integrate"}, "crossed effects do not factorise"),
        ("y ~ x + (1 | town) + (0 + x | town)", {}, "one term for each grouping, got 2 for 'town'. Write all"),
        ("y ~ x + (1 | town:colour) + (1 | colour:town)", {}, "got 2 for 'town:colour'"),
        ("y ~ x + (1 | town:)", {}, "as (1 | school), (1 | school:class)"),
        ("y ~ x + (1 | town) + (1 + x | x:year)", {}, "got 4 of town and 800 of x:year. Keep 'x:year' alone"),
        ("y ~ x + I(2 * x)", {}, "combination of the ones before"),
        ("y ~ I(x - np.mean(x))", {}, "'I(x - np.mean(x))' depends on the others. Use center"),
        ("y ~ np.cumsum(x)", {}, "a row of each row alone"),
        ("y ~ np.log(x)", {}, "formula must give numbers, but 'np.log(x)' has none in some rows"),
        ("y ~ x ~ year", {}, 'formula must be "response ~ predictors"'),
        ("y ~ x + y", {}, "the response on the left alone"),
        ("late ~ x", {"family": "binary"}, "family must be one of"),
        ("count ~ x", {"family": "bernoulli"}, "must hold 0 or 1"),
        ("y ~ x", {"family": "poisson"}, "must hold counts"),
        ("colour ~ x", {}, "must hold numbers"),
        ("y ~ x", {"priors": {"z": "normal(0, 1)"}}, "got 'z'. These are 'Intercept', 'x'"),
        ("y ~ x", {"priors": {"x": "normal(0)"}}, "priors['x'] must be"),
        ("y ~ x", {"weights": "w"}, "weights must name a column"),
        ("y ~ x", {"missing": "ignore"}, "missing must be"),
        ("y ~ x", {"weights": -np.ones(N)}, "weights must be 0 or more"),
        ("np.log(y) ~ x", {}, "A transformed response is a column to make first"),
        ("y ~ x + (1 + C(colour) | town)", {}, "without inner brackets"),
        ("colour ~ x", {"family": "ordinal"}, "levels must be given for an ordinal response in words"),
        ("colour ~ x", {"family": "ordinal", "levels": ["red", "blue"]}, "levels must list every level"),
    ],
)
def test_bad_input_is_named(formula, more, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        lv.fit(TABLE, formula, **more)


def test_an_outcome_that_never_varies_and_repeated_columns_are_refused():
    with pytest.raises(ValueError, match="both must occur"):
        lv.fit(TABLE.assign(late=1), "late ~ x", family="bernoulli")
    twice = pandas.concat([TABLE[["y", "x"]], TABLE[["x"]]], axis=1)
    with pytest.raises(ValueError, match="'x' twice"):
        lv.fit(twice, "y ~ x")
    with pytest.raises(ValueError, match="at least one row"):
        lv.fit(TABLE.head(0), "y ~ x")


def test_a_level_that_was_not_seen_is_refused_in_predictions():
    found = design("y ~ C(colour)", TABLE)
    with pytest.raises(ValueError, match=r"got 'violet', which was not among them"):
        found.matrices(pandas.DataFrame({"colour": ["violet"]}))


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ({"z": [1.0]}, "got a table without 'x'. Columns are 'z'"),
        ({"x": [1.0, np.nan]}, "missing values in 'x'. Impute them, or leave these rows out"),
        ({"x": [1.0, 2.0, "many"]}, "'x' must hold numbers, got 'many' in row 2"),
        ({"x": ["few", "many"]}, "got text in 'x', which held numbers then"),
    ],
)
def test_new_data_that_will_not_do_are_named(new, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        design("y ~ x", TABLE).matrices(pandas.DataFrame(new))


def test_numbers_in_objects_are_numbers_and_dates_are_refused():
    question = Question("y ~ x", "gaussian", None, None, None, None, None, "refuse", "integrate", None)
    for values in (TABLE.x.astype(object), TABLE.x.astype("Float64"), TABLE.x.map(lambda x: Decimal(f"{x:.3f}"))):
        assert prepared(question, TABLE.assign(x=values)).model.names == ("Intercept", "x", "log sigma")
    assert prepared(question, TABLE.assign(x=TABLE.town == "a")).model.names == ("Intercept", "x", "log sigma")
    with pytest.raises(ValueError, match=r"'x' must hold numbers or text, got dates.*write C\(x\)"):
        prepared(question, TABLE.assign(x=pandas.Timestamp("2024-01-01")))


def test_levels_without_rows_are_no_columns():
    colour = pandas.Categorical(TABLE.colour, ["violet", "red", "green", "blue"])
    question = Question("y ~ colour", "gaussian", None, None, None, None, None, "refuse", "integrate", None)
    names = prepared(question, TABLE.assign(colour=colour)).model.names
    assert names == ("Intercept", "colour[T.green]", "colour[T.blue]", "log sigma")


def test_a_word_among_numbers_is_refused_unless_numbers_are_names():
    table = TABLE.assign(house=["12b", *(str(k % 3) for k in range(N - 1))])
    with pytest.raises(ValueError, match=re.escape("got '12b' in row 0 (text in 1 of 400 rows). Mend")):
        lv.fit(table, "y ~ house")
    assert design("y ~ C(house)", table).matrices(table)[0].shape == (N, 4)
    assert design("y ~ x + (1 | house)", table).matrices(table)[0].shape == (N, 2)
    with pytest.raises(ValueError, match=re.escape("got the text '12b' in row 0. Mend such rows")):
        lv.fit(table, "house ~ x")


def test_a_prediction_takes_the_offset_of_the_fit_or_asks_for_it():
    table = {"x": TABLE.x, "log_days": np.full(N, 3.0), "count": np.random.default_rng(1).poisson(20.0, N)}
    found = lv.fit(table, "count ~ x", family="poisson", offset="log_days", passes=40)
    new = {"x": [0.0], "log_days": [3.0]}
    assert 18 < found.predict(new)["mean"][0] < 22
    with pytest.raises(ValueError, match="offset must be given, since the fit had one"):
        found.predict({"x": [0.0]})
    # The prior is about the rate for an offset of zero, where the intercept is.
    assert abs(found.model.priors["Intercept"].numbers[0] - np.log(20.0 / np.exp(3.0))) < 0.1


@pytest.mark.parametrize("prior", ["flat()", "student_t(3, 50, 100)"])
def test_a_fit_starts_at_the_mean_response_whatever_the_prior_of_the_intercept(prior):
    names = dict.fromkeys(("weights", "trials", "levels", "source"))
    asked = Question("count ~ x", "poisson", {"Intercept": prior}, missing="refuse", groups="integrate",
                     offset=np.full(N, 0.5), **names)  # fmt: skip
    start = prepared(asked, TABLE).theta_0["coefficients"]
    assert_allclose(start, [np.log((TABLE["count"].sum() + 0.5) / (N + 1)) - 0.5, 0.0], rtol=1e-6)


def test_an_intercept_beyond_the_digits_of_float32_is_named_and_the_remedy_works():
    y = 1e4 + 2.0 * TABLE.x + 0.1 * np.random.default_rng(5).standard_normal(N)
    with pytest.raises(ValueError, match=re.escape("Intercept must be known to fewer digits")) as error:
        lv.fit({"x": TABLE.x, "y": y}, "y ~ x", passes=20)
    assert "offset=[10000, a row each]" in str(error.value)
    found = lv.fit({"x": TABLE.x, "y": y}, "y ~ x", offset=np.full(N, 1e4), passes=20)
    design = np.stack([np.ones(N), TABLE.x], axis=1)
    exact = np.linalg.lstsq(design, y - 1e4)[0]
    # float32 keeps thousandths of y, a hundredth of its noise, and rounds up as often as down.
    assert np.all(np.abs(found.mean.value[:2] - exact) < 0.05 * found.sd.value[:2] + 6 * found.mean.error[:2])


def test_levels_have_the_order_that_the_user_gives():
    levels = ["low", "medium", "high"]
    words = np.array(levels)[np.digitize(TABLE.x, [-0.5, 0.5])]
    seen = levels_of(pandas.Series(words), FAMILIES["ordinal"], "size", levels)
    y = coded(pandas.Series(words), FAMILIES["ordinal"], "size", seen)
    assert seen == tuple(levels) and np.array_equal(y, np.digitize(TABLE.x, [-0.5, 0.5]))
    ordered = pandas.Series(pandas.Categorical(words, categories=levels, ordered=True))
    assert levels_of(ordered, FAMILIES["ordinal"], "size", None) == tuple(levels)


def test_the_prior_of_an_ordinal_response_does_not_feel_where_a_predictor_has_its_zero():
    y, theta = (
        np.digitize(TABLE.x, [-0.5, 0.5]).astype(float),
        {"coefficients": jnp.array([0.4]), "cuts": jnp.array([0.3, 0.1])},
    )
    found = design("y ~ year", TABLE, level=False)
    x, z = found.matrices(TABLE)
    shifted = Model.of(found, FAMILIES["ordinal"], Summary.of(x - 2018.0, z, y, np.zeros(N)), (0, 1, 2), None)
    model = Model.of(found, FAMILIES["ordinal"], Summary.of(x, z, y, np.zeros(N)), (0, 1, 2), None)
    moved = {**theta, "cuts": theta["cuts"].at[0].add(0.4 * 2018.0)}
    assert_allclose(float(model.log_prior(moved)), float(shifted.log_prior(theta)), rtol=1e-3)


def test_outcomes_at_the_end_of_their_range_have_a_start():
    for family, more in (("poisson", {}), ("binomial", {"trials": np.full(N, 3)})):
        table = TABLE.assign(count=0 if family == "poisson" else 3)
        assert np.isfinite(lv.fit(table, "count ~ x", family=family, passes=20, **more).mean.value).all()


def test_binomial_predictions_are_counts_of_the_trials():
    table = TABLE.assign(n=10, k=RNG.binomial(10, 0.4, N))
    found = lv.fit(table, "k ~ x", family="binomial", trials="n", passes=20).predict({"x": [0.0], "n": [1000]})
    assert abs(found["mean"][0] - 0.4) < 0.1 and 300 < found["predicted_lower"][0] < found["predicted_upper"][0] < 500


def test_groups_are_integrated_out_in_the_joint_density():
    found = design("late ~ x + (1 + x | town)", TABLE)
    x, z = found.matrices(TABLE)
    model = Model.of(found, FAMILIES["bernoulli"], Summary.of(x, z, TABLE.late.to_numpy(float), np.zeros(N)), (), None)
    theta = jax.tree.map(jnp.asarray, model.theta_0(Summary.of(x, z, TABLE.late.to_numpy(float), np.zeros(N))))
    assert model.names[2:] == ("log sd(Intercept | town)", "log sd(x | town)", "atanh cor(x, Intercept | town)")
    assert [np.size(part) for part in theta.values()] == [2, 2, 1]
    rows = {**model.rows(x[:3], z[:3], np.zeros(3)), "y": np.ones(3), "weight": np.ones(3), "mask": np.ones(3, bool)}
    effect = model.new_effects(theta, jnp.array([1.0, -1.0]))
    one = sum(
        FAMILIES["bernoulli"].log_density(x[k] @ np.asarray(theta["coefficients"]) + z[k] @ np.asarray(effect), 1.0, {})
        for k in range(3)
    )
    expected = float(one) - 1.0 - np.log(2 * np.pi)
    assert_allclose(float(model.log_joint(theta, jnp.array([1.0, -1.0]), rows)), expected, rtol=1e-5)


def test_a_group_of_counts_of_trials_is_a_group_of_their_trials():
    found = design("late ~ x + (1 | town)", TABLE)
    x, z = (part[:3] for part in found.matrices(TABLE))
    binomial, bernoulli = (
        Model.of(found, FAMILIES[name], Summary.of(x, z, np.full(3, 0.5), np.zeros(3)), (), None)
        for name in ("binomial", "bernoulli")
    )
    theta = {"coefficients": jnp.array([0.2, -0.4]), "log_sd": jnp.array([-0.3])}
    k, n = np.array([1.0, 0.0, 2.0]), np.array([2.0, 1.0, 2.0])
    whole = {**binomial.rows(x, z, np.zeros(3)), "weight": np.ones(3), "mask": np.ones(3, bool)}
    each = {name: np.repeat(array, n.astype(int), axis=0) for name, array in whole.items()}
    one = binomial.log_joint(theta, jnp.array([0.7]), {**whole, "y": np.stack([k, n], axis=1)})
    many = bernoulli.log_joint(theta, jnp.array([0.7]), {**each, "y": np.array([1.0, 0.0, 0.0, 1.0, 1.0])})
    assert_allclose(float(one), float(many), rtol=1e-6)


@pytest.mark.slow
def test_a_hundred_thousand_predictions_take_less_than_two_seconds():
    """Once compiled, by the processor's clock, which does not count what else runs: two cores share an expectation."""
    from benchmarks.predictions import measured

    found = measured()
    for name, cores in (("fit.predict", 1), ("result.expectation", 2)):
        assert min(processor for _, processor in found[name]) < 2.0 * cores, found
