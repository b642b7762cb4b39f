"""Groups whose effects are parameters: the density by hand, and predictions that know them."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import langevin as lv
from langevin.regression.preparing import prepared
from langevin.regression.reading import Question

pandas = pytest.importorskip("pandas")
pytest.importorskip("formulaic")

RNG = np.random.default_rng(0)
N = 600
TABLE = pandas.DataFrame({"x": RNG.standard_normal(N), "town": RNG.choice(["a", "b", "c"], N)})
EFFECTS = {"a": -1.0, "b": 0.0, "c": 2.0}
TABLE["y"] = TABLE.x + TABLE.town.map(EFFECTS) + 0.5 * RNG.standard_normal(N)


def test_the_density_is_that_of_rows_and_effects():
    names = dict.fromkeys(("priors", "weights", "offset", "trials", "levels", "source"))
    ready = prepared(Question("y ~ x + (1 + x | town)", "gaussian", missing="refuse", groups="sample", **names), TABLE)
    model = ready.model
    effects = np.array([[-1.0, 0.1], [0.2, -0.3], [1.5, 0.2]])
    theta = {
        "coefficients": jnp.array([0.1, 0.9]), "log sigma": jnp.float32(-0.5), "log_sd": jnp.array([0.3, -0.4]),
        "partial": jnp.array([0.4]), "effects": {"town": jnp.asarray(effects, jnp.float32)},
    }  # fmt: skip
    assert model.names[-2:] == ("Intercept [town c]", "x [town c]") and set(theta) == set(ready.theta_0)
    row = {name: array[7] for name, array in ready.data.items()}
    own = effects["abc".index(TABLE.town[7])]
    eta = 0.1 + own[0] + (0.9 + own[1]) * TABLE.x[7]
    expected = stats.norm(eta, np.exp(-0.5)).logpdf(TABLE.y[7]) + 0.5 * np.log(2 * np.pi)
    assert_allclose(float(model.log_likelihood(theta, row)), expected, rtol=1e-4)
    root = np.asarray(lv.covariance_root(theta["log_sd"], theta["partial"]), float)
    law = stats.multivariate_normal(np.zeros(2), root @ root.T)
    zero = {**theta, "effects": {"town": jnp.zeros((3, 2))}}
    found = float(model.log_prior(theta) - model.log_prior(zero))
    assert_allclose(found, law.logpdf(effects).sum() - 3 * law.logpdf(np.zeros(2)), rtol=1e-4)
    # The scale of the effects counts too: twice the sd costs log 2 for each of three groups and the prior's share.
    wider = {**zero, "log_sd": theta["log_sd"].at[0].add(np.log(2.0))}
    own_prior = lambda t: float(jnp.sum(t - jnp.exp(t)))  # noqa: E731
    change = [t["log_sd"] - np.log(model.spreads).astype(np.float32) for t in (wider, zero)]
    expected = own_prior(change[0]) - own_prior(change[1]) - 3 * np.log(2.0)
    assert_allclose(float(model.log_prior(wider) - model.log_prior(zero)), expected, rtol=1e-4)


@pytest.mark.slow
def test_both_ways_agree_and_predictions_know_the_groups(tmp_path):
    sampled = lv.fit(TABLE, "y ~ x + (1 | town)", groups="sample", precision=0.1)
    by_hand = lv.fit(TABLE, "y ~ x + (1 | town)", precision=0.1, seed=1)
    for name in ("x", "log sigma"):
        one, other = (fit.mean[fit.names.index(name)] for fit in (sampled, by_hand))
        # Two scores within 5.5: a false alarm for one seed in 1e7.
        assert abs(one.value - other.value) < 5.5 * np.hypot(one.error, other.error)
    new = {"x": [0.0, 0.0, 0.0], "town": ["a", "c", "somewhere"]}
    sampled.save(tmp_path / "run")
    found = lv.load(tmp_path / "run").predict(new)
    assert abs(found["mean"][0] + 1.0) < 0.3 and abs(found["mean"][1] - 2.0) < 0.3
    width = found["upper"] - found["lower"]
    assert width[2] > 5 * width[0]
    with pytest.raises(ValueError, match="must have the column of groups 'town'"):
        sampled.predict({"x": [0.0]})


def test_groups_are_integrated_or_sampled():
    with pytest.raises(ValueError, match="groups must be 'integrate', 'sample' or None, got 'both'"):
        lv.fit(TABLE, "y ~ x + (1 | town)", groups="both")
