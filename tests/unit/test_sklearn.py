"""The estimators do what scikit-learn asks of its own, and mean what they say."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.utils.estimator_checks import check_estimator

import langevin as lv

ESTIMATORS = {
    "ridge": lv.sklearn.BayesianRidgeRegression,
    "poisson": lv.sklearn.BayesianPoissonRegression,
    "logistic": lv.sklearn.BayesianLogisticRegression,
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_scikit_learns_own_checks_pass(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(ESTIMATORS[name](), on_skip=None, on_fail=None)
    assert len(found) > 30
    assert not [(one["check_name"], one["exception"]) for one in found if one["status"] == "failed"]


def test_a_linear_regression_is_that_of_the_normal_equations():
    """Many rows, a wide prior: least squares and its standard errors, within 2% of one."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 2)) * [1.0, 30.0] + 5.0
    y = 3.0 + x @ [1.0, -0.2] + 2.0 * rng.normal(size=2000)
    model = lv.sklearn.BayesianRidgeRegression().fit(x, y)
    design = np.c_[np.ones(2000), x]
    beta, (rss,), *_ = np.linalg.lstsq(design, y, rcond=None)
    sd = np.sqrt(rss / 1997 * np.diag(np.linalg.inv(design.T @ design)))
    assert model.status_ == "ok"
    assert_allclose(np.r_[model.intercept_, model.coef_], beta, atol=0.05 * sd.max(), rtol=1e-3)
    assert_allclose(model.coef_sd_, sd[1:], rtol=0.02)
    assert_allclose(model.sigma_, np.sqrt(rss / 1997), rtol=0.01)
    mean, std = model.predict(x[:5], return_std=True)
    assert_allclose(mean, design[:5] @ beta, atol=0.01)
    assert_allclose(std, model.sigma_, rtol=0.01)


def test_the_sd_of_a_prediction_is_what_its_docstring_says():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 1))
    counts = lv.sklearn.BayesianPoissonRegression(precision=0.2).fit(x, rng.poisson(np.exp(1.0 + 0.3 * x[:, 0])))
    mean, std = counts.predict(x[:5], return_std=True)
    # The variance of a new count is its mean and a little more: the rate is known to a few percent.
    assert np.all(std > np.sqrt(mean)) and np.all(std < 1.05 * np.sqrt(mean))
    classes = lv.sklearn.BayesianLogisticRegression(precision=0.2).fit(x, rng.random(400) < 0.5)
    best, std = classes.predict(x[:5], return_std=True)
    share = classes._probabilities(x[:5])[:, np.arange(5), np.searchsorted(classes.classes_, best)]
    assert_allclose(std, share.std(axis=0))
    # Not that of a new observation, which is near a half.
    assert np.all(std < 0.1)
    for model, words in ((counts, "new count, Poisson noise included"), (classes, "and not that\n        of a new")):
        assert words in type(model).predict.__doc__


def test_bad_input_has_its_words():
    x = np.ones((5, 1)) * np.arange(5)[:, None]
    with pytest.raises(ValueError, match="prior_sd must be positive"):
        lv.sklearn.BayesianPoissonRegression(prior_sd=0.0).fit(x, np.arange(5))
    with pytest.raises(ValueError, match="not negative"):
        lv.sklearn.BayesianPoissonRegression().fit(x, -np.arange(5))
    with pytest.raises(ValueError, match="one class"):
        lv.sklearn.BayesianLogisticRegression().fit(x, np.ones(5))
