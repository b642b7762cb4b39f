"""Several groupings: densities by hand, a truth with the effects integrated out, notation, files and predictions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import langevin as lv
from langevin.regression.groupings import group_labels, written_groupings
from langevin.regression.preparing import prepared
from langevin.regression.reading import Question
from langevin.regression.store import packed, unpacked

pandas = pytest.importorskip("pandas")
pytest.importorskip("formulaic")

RNG = np.random.default_rng(3)
SCHOOLS, YEARS, N = 20, 15, 600
TABLE = pandas.DataFrame({"school": np.arange(N) % SCHOOLS, "year": 2000 + np.arange(N) // SCHOOLS % YEARS})
TABLE["class"] = RNG.choice(["a", "b", "c"], N)
TABLE["x"] = RNG.standard_normal(N)
OF_SCHOOLS, OF_YEARS = 0.8 * RNG.standard_normal(SCHOOLS), 0.5 * RNG.standard_normal(YEARS)
TABLE["y"] = 1.0 + 0.5 * TABLE.x + OF_SCHOOLS[TABLE.school] + OF_YEARS[TABLE.year - 2000] + RNG.standard_normal(N)
CROSSED = "y ~ x + (1 | school) + (1 | year)"


def asked(formula, family="gaussian", **more):
    names = ("priors", "weights", "offset", "trials", "levels", "source", "groups")
    return Question(formula, family, missing="refuse", **{**dict.fromkeys(names), **more})


def anywhere(ready, seed=0):
    """A point that is not special."""
    leaves, kind = jax.tree.flatten(ready.theta_0)
    rng = np.random.default_rng(seed)
    return jax.tree.unflatten(
        kind, [jnp.asarray(0.3 * rng.standard_normal(np.shape(leaf)), jnp.float32) for leaf in leaves]
    )


def test_standardised_effects_have_the_law_of_the_effects():
    ready = prepared(asked("y ~ x + (1 + x | school) + (1 | year)"), TABLE)
    theta, zero = anywhere(ready), anywhere(ready, seed=1)
    law = []
    for t in (theta, zero):
        total = 0.0
        for one, q in zip(ready.model.effects, (2, 1), strict=True):
            root = np.asarray(one.root(t), np.float64)
            effects, z = np.asarray(one.values(t), np.float64), np.asarray(t["effects"][one.group], np.float64)
            # e_j = T_j z_j, so that the density of z_j is that of e_j and log |det T_j|.
            units = np.eye(q, dtype=np.float32)
            sides = [one.values({**t, "effects": {one.group: jnp.tile(unit, (len(z), 1))}}) for unit in units]
            T = np.stack(sides, axis=-1).astype(np.float64)
            assert_allclose(np.einsum("jik,jk->ji", T, z), effects, rtol=1e-4, atol=1e-6)
            total += stats.multivariate_normal(np.zeros(q), root @ root.T).logpdf(effects).sum()
            total += np.linalg.slogdet(T)[1].sum()
        law.append(total)
    found = [float(sum(one.log_density(t) for one in ready.model.effects)) for t in (theta, zero)]
    assert_allclose(found[0] - found[1], law[0] - law[1], rtol=1e-4)
    # Where the data say much the unit of z is what they leave open, where they say nothing that of the effects.
    one = ready.model.effects[1]
    rows = np.bincount(TABLE.year - 2000)
    wide, narrow = ({**theta, "log_sd": jnp.full(3, value, jnp.float32)} for value in (4.0, -6.0))
    unit = {"effects": {"year": jnp.ones((YEARS, 1))}}
    assert_allclose(one.values({**wide, **unit})[:, 0], TABLE.y.std(ddof=0) / np.sqrt(rows), rtol=1e-2)
    assert_allclose(one.values({**narrow, **unit})[:, 0], np.exp(-6.0), rtol=1e-2)


def test_a_row_has_the_effects_of_all_its_groups_and_new_ones_where_a_group_is_new():
    ready = prepared(asked("y ~ x + (1 + x | school) + (1 | year)"), TABLE)
    model, theta = ready.model, anywhere(ready)
    row = {name: array[37] for name, array in ready.data.items()}
    school, year, x = TABLE.school[37], TABLE.year[37] - 2000, TABLE.x[37]
    of_school, of_year = (np.asarray(one.values(theta), np.float64) for one in model.effects)
    fixed = np.asarray(theta["coefficients"], np.float64) @ [1.0, x]
    eta = fixed + of_school[school] @ [1.0, x] + of_year[year, 0]
    assert_allclose(model.predictor(theta, row), eta, rtol=1e-5)
    new = jnp.asarray([0.2, -0.4, 0.7])
    assert_allclose(model.predictor(theta, row, new), eta, rtol=1e-5)
    unseen = {**row, "group": jnp.asarray([school, -1])}
    assert_allclose(model.predictor(theta, unseen, new), fixed + of_school[school] @ [1.0, x] + 0.7, rtol=1e-5)
    unseen = {**row, "group": jnp.asarray([-1, year])}
    assert_allclose(model.predictor(theta, unseen, new), fixed + 0.2 - 0.4 * x + of_year[year, 0], rtol=1e-5)


def test_names_say_which_grouping():
    names = prepared(asked("y ~ x + (1 + x | school) + (1 | year)"), TABLE).model.names
    assert names[2:9] == (
        "log sigma", "log sd(Intercept | school)", "log sd(x | school)", "log sd(Intercept | year)",
        "atanh cor(x, Intercept | school)", "standardised Intercept [school 0]", "standardised x [school 0]",
    )  # fmt: skip
    assert names[-1] == "standardised Intercept [year 2014]" and len(names) == 7 + 2 * SCHOOLS + YEARS


def test_nested_groups_are_those_written_out():
    short, long = (
        prepared(asked(f"y ~ x + {term}"), TABLE)
        for term in ("(1 | school/class)", "(1 | school) + (1 | school:class)")
    )
    assert short.model.names == long.model.names and "standardised Intercept [school:class 3:b]" in short.model.names
    theta = anywhere(short)
    for one, other in ((short.data, long.data), (short.theta_0, long.theta_0)):
        assert_array_equal(
            *(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (one, other))
        )
    assert float(short.target.log_density(theta, short.data)) == float(long.target.log_density(theta, long.data))
    # Classes of one letter in different schools are different ones.
    crossed = prepared(asked("y ~ x + (1 | school) + (1 | class)"), TABLE)
    assert len(crossed.model.groups[1]) == 3
    assert len(short.model.groups[1]) == len(TABLE[["school", "class"]].drop_duplicates())


def test_two_columns_alone_are_integrated_out_as_one():
    both = TABLE.assign(key=TABLE.school.astype(str) + ":" + TABLE["class"])
    joined, made = (prepared(asked(f"y ~ x + (1 | {group})"), both) for group in ("school:class", "key"))
    assert_array_equal(joined.data.labels, made.data.labels)
    assert joined.model.forgets_groups and joined.model.names[-1] == "log sd(Intercept | school:class)"
    theta = anywhere(joined)
    assert float(joined.target.log_density(theta, joined.data.arrays)) == float(
        made.target.log_density(theta, made.data.arrays)
    )


def test_labels_of_several_columns_stay_apart():
    odd = pandas.DataFrame({"a": ["p:q", "p", "p\\", "p"], "b": ["r", "q:r", "r", "\\:r"], "n": [1.0, 2.0, 10.0, 2.5]})
    assert len(set(group_labels(odd, ("a", "b")).tolist())) == 4
    assert group_labels(odd, ("n", "b")).tolist()[0] == group_labels(odd.assign(n=1), ("n", "b")).tolist()[0] == "1:r"
    assert [one.columns for one in written_groupings("x + (1 | a/b/c)")] == [("a",), ("a", "b"), ("a", "b", "c")]


@pytest.mark.parametrize("family", ["gaussian", "poisson", "binomial"])
def test_tables_in_files_and_saved_models_are_the_same(family, tmp_path, monkeypatch):
    import pyarrow
    import pyarrow.parquet

    table = TABLE.assign(
        y=TABLE.y if family == "gaussian" else RNG.poisson(3.0, N), n=20, word="w" + TABLE.year.astype(str)
    )
    question = asked("y ~ word + (1 | school) + (1 | word:class)", family, trials="n" if family == "binomial" else None)
    pyarrow.parquet.write_table(pyarrow.Table.from_pandas(table), tmp_path / "t.parquet", row_group_size=101)
    monkeypatch.setattr("langevin.regression.files.FROM_BYTES", 0)
    streamed, memory = (prepared(question, one) for one in (str(tmp_path / "t.parquet"), table))
    assert type(streamed.data) is not type(memory.data) and streamed.model.names == memory.model.names
    assert_array_equal(streamed.data.arrays["group"], memory.data["group"])
    model, again, *_ = unpacked(packed(memory, question))
    theta = anywhere(memory)
    assert again.groups is None and again.formula == question.formula
    assert_allclose(streamed.model.log_prior(theta), memory.model.log_prior(theta), rtol=1e-5)
    assert float(model.log_prior(theta)) == float(memory.model.log_prior(theta))


def truth(table):
    """The crossed model in its five parameters, the effects integrated out in closed form: (target, E[effects | .])."""
    Z = np.concatenate([np.eye(SCHOOLS)[table.school], np.eye(YEARS)[table.year - 2000]], axis=1)
    X, y = np.column_stack([np.ones(N), table.x]), table.y.to_numpy()
    unit, sd = y.std(), table.x.std(ddof=0)
    products = {name: jnp.asarray(value) for name, value in (("ZZ", Z.T @ Z), ("ZX", Z.T @ X), ("Zy", Z.T @ y))}
    rows = {name: jnp.asarray(value) for name, value in (("XX", X.T @ X), ("Xy", X.T @ y), ("yy", y @ y))}

    def parts(t):
        beta, sigma2 = t["coefficients"], jnp.exp(2.0 * t["log sigma"])
        inverse = jnp.repeat(
            jnp.exp(-2.0 * t["log_sd"]), np.array([SCHOOLS, YEARS]), total_repeat_length=SCHOOLS + YEARS
        )
        precision = products["ZZ"] / sigma2 + jnp.diag(inverse)
        right = (products["Zy"] - products["ZX"] @ beta) / sigma2
        return beta, sigma2, inverse, jnp.linalg.cholesky(precision), right

    def effects(t):
        *_, root, right = parts(t)
        return jax.scipy.linalg.cho_solve((root, True), right)

    def log_density(t):
        beta, sigma2, inverse, root, right = parts(t)
        square = rows["yy"] - 2.0 * beta @ rows["Xy"] + beta @ rows["XX"] @ beta
        explained = jnp.sum(jax.scipy.linalg.solve_triangular(root, right, lower=True) ** 2)
        value = -0.5 * N * jnp.log(sigma2) - 0.5 * square / sigma2 + 0.5 * explained
        value += 0.5 * jnp.sum(jnp.log(inverse)) - jnp.sum(jnp.log(jnp.diagonal(root)))
        # The priors that lv.fit documents.
        level = (beta[0] + table.x.mean() * beta[1] - y.mean()) / (2.5 * unit)
        value += -0.5 * level**2 - 0.5 * (beta[1] * sd / (2.5 * unit)) ** 2
        for one in (t["log sigma"], *t["log_sd"]):
            value += one - jnp.exp(one) / unit
        return value

    start = {"coefficients": np.array([y.mean(), 0.0]), "log sigma": 0.0, "log_sd": np.zeros(2)}
    return lv.Target(log_density), start, effects


@pytest.mark.slow
def test_the_posterior_is_that_with_the_effects_integrated_out(tmp_path):
    target, start, effects = truth(TABLE)
    hand = lv.sample(target, None, start, precision=0.1, seed=5)
    fit = lv.fit(TABLE, CROSSED, precision=0.05)
    assert hand.status == fit.status == "ok" and fit.names[:5] == (
        "Intercept", "x", "log sigma", "log sd(Intercept | school)", "log sd(Intercept | year)",
    )  # fmt: skip

    def scores(one):
        both = ((one.mean, hand.mean), (one.sd, hand.sd))
        return np.array([(a.value[:5] - b.value[:5]) / np.hypot(a.error[:5], b.error[:5]) for a, b in both])

    # Ten scores within 6: a false alarm for one seed in 5e7.
    assert np.abs(scores(fit)).max() < 6.0
    known = [fit.effects(np.arange(SCHOOLS), by="school"), fit.effects(2000 + np.arange(YEARS), by="year")]
    exact = hand.expectation(effects)
    values, errors = (np.concatenate([getattr(one.mean, name)[:, 0] for one in known]) for name in ("value", "error"))
    assert np.abs((values - exact.value) / np.hypot(errors, exact.error)).max() < 6.0
    spread = np.concatenate([one.quantiles.value[2, :, 0] - one.quantiles.value[0, :, 0] for one in known])
    assert_allclose(spread / np.concatenate([one.sd.value[:, 0] for one in known]), 3.92, rtol=0.1)
    # Without its year a row has more noise: the same scores tell.
    short = lv.fit(TABLE, "y ~ x + (1 | school)", groups="sample", precision=0.05)
    assert abs(short.mean.value[2] - hand.mean.value[2]) > 10.0 * np.hypot(short.mean.error[2], hand.mean.error[2])
    # Known levels, a new year, and both new: what is not known widens the interval.
    fit.save(tmp_path / "run")
    new = pandas.DataFrame({"x": [0.0] * 3, "school": [4, 4, 99], "year": [2003, 1900, 1900]})
    again = lv.load(tmp_path / "run")
    found = again.predict(new)
    assert_array_equal(found["mean"], fit.predict(new)["mean"])
    at = hand.expectation(lambda t: t["coefficients"][0] + effects(t)[4] + effects(t)[SCHOOLS + 3])
    assert abs(found["mean"][0] - at.value) < 0.02
    width = found["upper"] - found["lower"]
    assert width[1] > 2.0 * width[0] and width[2] > 1.2 * width[1]
    assert "do not factorise" in str(fit) and "do not factorise" in again.explain()
    with pytest.raises(ValueError, match="by must name one of the groupings, 'school', 'year', got None"):
        fit.effects([4])
    with pytest.raises(ValueError, match="got 99, which is none of 'school'"):
        fit.effects([99], by="school")


@pytest.mark.slow
def test_the_shell_fits_predicts_and_resumes(tmp_path):
    testing = pytest.importorskip("typer.testing")
    from langevin.cli import app

    shell, run = testing.CliRunner(), tmp_path / "run"
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    fitted = shell.invoke(app, ["fit", str(tmp_path / "t.csv"), CROSSED, "--precision", "0.3", "--out", str(run)])
    assert fitted.exit_code == 0 and "do not factorise" in fitted.output and "--groups" not in fitted.output
    predicted = shell.invoke(app, ["predict", str(run), str(tmp_path / "t.csv"), "--out", str(tmp_path / "p.csv")])
    assert predicted.exit_code == 0 and "not seen" not in predicted.output
    assert np.corrcoef(pandas.read_csv(tmp_path / "p.csv")["mean"], TABLE.y)[0, 1] > 0.6
    resumed = shell.invoke(app, ["resume", str(run)])
    assert resumed.exit_code == 0 and resumed.stdout.splitlines()[:5] == fitted.stdout.splitlines()[:5]
    refused = shell.invoke(app, ["fit", str(tmp_path / "t.csv"), CROSSED, "--groups", "integrate"])
    assert refused.exit_code == 2 and "crossed effects do not factorise" in refused.output.replace("\n", " ")
