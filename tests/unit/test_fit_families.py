"""Families of `lv.fit` against SciPy's densities, and default priors."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from langevin.regression.design import design
from langevin.regression.families import FAMILIES, cuts
from langevin.regression.model import Model
from langevin.regression.preparing import prepared
from langevin.regression.priors import Prior, read, together
from langevin.regression.reading import Question
from langevin.regression.summary import Summary
from tests.unit.regressions import TABLE, N

LOG = {"log sigma": np.log(0.7), "log nu": np.log(5.0), "log phi": np.log(3.0), "cuts": jnp.array([-1.0, 0.3, 0.2])}


def difference(name, ys, eta=0.4):
    """log density of each y less that of the first: constants cancel."""
    found = np.array([FAMILIES[name].log_density(jnp.asarray(eta), jnp.asarray(y), LOG) for y in ys])
    return found - found[0]


@pytest.mark.parametrize(
    ("name", "ys", "logs"),
    [
        ("gaussian", [0.0, 1.0, -2.0], lambda y: stats.norm(0.4, 0.7).logpdf(y)),
        ("student", [0.0, 1.0, -2.0], lambda y: stats.t(5.0, 0.4, 0.7).logpdf(y)),
        ("bernoulli", [0.0, 1.0], lambda y: stats.bernoulli(1 / (1 + np.exp(-0.4))).logpmf(y)),
        ("poisson", [0.0, 1.0, 7.0], lambda y: stats.poisson(np.exp(0.4)).logpmf(y) + special(y)),
        ("negative-binomial", [0.0, 1.0, 7.0], lambda y: stats.nbinom(3, 3 / (3 + np.exp(0.4))).logpmf(y) + special(y)),
    ],
)  # fmt: skip
def test_densities_are_those_of_scipy(name, ys, logs):
    expected = np.array([logs(y) for y in ys])
    assert_allclose(difference(name, ys), expected - expected[0], rtol=2e-5, atol=2e-5)


def special(y):
    """log y!, which a likelihood leaves out."""
    from scipy.special import gammaln

    return gammaln(y + 1.0)


def test_the_student_law_has_its_constant_in_nu():
    """nu is a parameter, so what depends on it must be there."""
    for nu in (3.0, 30.0):
        more = {**LOG, "log nu": jnp.float32(np.log(nu))}
        found = float(FAMILIES["student"].log_density(0.4, 1.0, more)) - 0.5 * np.log(np.pi)
        assert_allclose(found, stats.t(nu, 0.4, 0.7).logpdf(1.0), rtol=1e-5)


@pytest.mark.parametrize("name", ["ordinal", "categorical"])
def test_probabilities_of_levels_sum_to_one_and_match_the_density(name):
    family, eta = FAMILIES[name], jnp.asarray(0.4) if name == "ordinal" else jnp.asarray([0.4, -1.0, 2.0])
    probabilities = np.asarray(family.mean(eta, LOG))
    assert_allclose(probabilities.sum(), 1.0, rtol=1e-6)
    logs = [float(family.log_density(eta, jnp.asarray(level), LOG)) for level in range(4)]
    assert_allclose(np.exp(logs), probabilities, rtol=1e-5)
    assert np.all(np.diff(cuts(LOG)) > 0)


def test_binomial_counts_weigh_like_their_trials():
    one = FAMILIES["binomial"].log_density(0.4, jnp.array([3.0, 10.0]), {})
    many = 3 * FAMILIES["bernoulli"].log_density(0.4, 1.0, {}) + 7 * FAMILIES["bernoulli"].log_density(0.4, 0.0, {})
    assert_allclose(float(one), float(many), rtol=1e-6)


def test_priors_are_as_written():
    values = jnp.array([0.5, -2.0, 9.0])
    found = together([Prior("normal", (1.0, 2.0)), read("x", "student_t(4, 0, 1.5)"), read("x", "flat()")])(values)
    expected = stats.norm(1, 2).logpdf(0.5) + stats.t(4, 0, 1.5).logpdf(-2.0)
    constant = stats.norm(1, 2).logpdf(1.0) + stats.t(4, 0, 1.5).logpdf(0.0)
    assert_allclose(float(found), expected - constant, rtol=1e-5)


def test_the_linear_predictor_is_on_the_scale_of_the_data():
    found = design("y ~ x + year + C(colour)", TABLE)
    x, z = found.matrices(TABLE)
    assert found.names == ["Intercept", "x", "year", "C(colour)[T.green]", "C(colour)[T.red]"]
    model = Model.of(found, FAMILIES["gaussian"], Summary.of(x, z, TABLE.y.to_numpy(), np.zeros(N)), (), None)
    beta = np.array([200.0, 1.0, -0.1, 0.3, 0.2])
    theta = {"coefficients": jnp.asarray(beta, jnp.float32), "log sigma": jnp.float32(0.0)}
    eta = model.predictor(theta, model.rows(x, z, np.zeros(N)))
    # Centred columns: what is left of float32 is the sum 200 - 0.1 * 2018.
    assert_allclose(np.asarray(eta), x @ beta, atol=1e-4)


def test_the_default_prior_is_about_the_intercept_at_the_means():
    found = design("y ~ x + year", TABLE)
    x, z = found.matrices(TABLE)
    y = TABLE.y.to_numpy()
    model = Model.of(found, FAMILIES["gaussian"], Summary.of(x, z, y, np.zeros(N)), (), None)

    def log_prior(beta):
        return model.log_prior({"coefficients": jnp.asarray(beta, jnp.float32), "log sigma": jnp.float32(0.3)})

    u, sd, centre = y.std(), x[:, 1:].std(axis=0), x[:, 1:].mean(axis=0)
    beta = np.array([20.0, 0.8, -0.01])
    at_means = beta[0] + centre @ beta[1:]
    expected = stats.norm(y.mean(), 2.5 * u).logpdf(at_means) + stats.norm(0, 2.5 * u / sd).logpdf(beta[1:]).sum()
    zero = stats.norm(y.mean(), 2.5 * u).logpdf(0.0) + stats.norm(0, 2.5 * u / sd).logpdf(0.0).sum()
    assert_allclose(float(log_prior(beta) - log_prior(np.zeros(3))), expected - zero, rtol=1e-4)


def test_without_an_intercept_priors_have_room_for_the_mean():
    question = Question("y ~ 0 + town", "gaussian", None, None, None, None, None, "refuse", "integrate", None)
    far = TABLE.assign(y=TABLE.y + 1000)
    ready = prepared(question, far)
    u = np.sqrt(np.mean(far.y**2))
    assert_allclose(ready.model.priors["town[a]"].numbers, (0.0, 2.5 * u / np.std(far.town == "a")))
    assert_allclose(ready.theta_0["log sigma"], np.log(u), rtol=1e-6)
