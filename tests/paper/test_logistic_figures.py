"""Figures 5 and 6: the law of the variance estimate, and the baselines."""

import builtins
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.paper import fig5, fig6, logistic_baselines, logistic_law, logistic_runs, nuts, problems, study
from langevin.paper.lab import Lab
from langevin.paper.study import Verdict
from tests.paper.twins import Twin


def test_the_law_is_that_of_an_explicit_quadratic_form():
    """Mean and variance of u'Bu, 2 tr((B K)^2), with K the covariance of all positions written out."""
    schedule, horizon = lv.Polynomial(a=1e5, b=1e8, alpha=0.38), 40
    noise = logistic_law.noise_covariance(30, replacement=True)
    law = logistic_law.variance_law(schedule, (horizon,), noise)
    truth = problems.logistic().truth()
    delta = schedule.delta(np.arange(1, horizon + 1))
    offset = problems.logistic().map - truth.mean
    P, transfer, covariances = np.outer(offset, offset), [], []
    for step in delta:
        covariances.append(P)
        A = np.eye(3) - 0.5 * step * np.linalg.inv(truth.covariance)
        transfer.append(A)
        P = A @ P @ A.T + step * np.eye(3) + 0.25 * step**2 * noise
    K = np.zeros((horizon, horizon))
    for j in range(horizon):
        passed = covariances[j]
        for k in range(j, horizon):
            K[j, k] = K[k, j] = passed[0, 0]
            passed = transfer[k] @ passed
    weights = delta / delta.sum()
    B = np.diag(weights) - np.outer(weights, weights)
    scale = truth.covariance[0, 0]
    np.testing.assert_allclose(law.mean[0], np.trace(B @ K) / scale, rtol=1e-10)
    np.testing.assert_allclose(law.sd[0], np.sqrt(2 * np.trace(B @ K @ B @ K)) / scale, rtol=1e-8)


def test_the_noise_covariance_is_that_of_the_minibatch_gradient():
    """n = N without replacement leaves none; n = 1 either way is the same."""
    np.testing.assert_allclose(logistic_law.noise_covariance(1000, replacement=False), 0.0)
    one = logistic_law.noise_covariance(1, replacement=True)
    np.testing.assert_allclose(logistic_law.noise_covariance(1, replacement=False), one)
    np.testing.assert_allclose(logistic_law.noise_covariance(10, replacement=True), one / 10)


def test_a_missing_blackjax_names_the_extra(monkeypatch):
    found = builtins.__import__

    def without(name, *arguments, **options):
        if name == "blackjax":
            raise ImportError(name)
        return found(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'langevin\[paper\]'"):
        nuts.nuts(lv.Target(lambda t: -0.5 * t @ t), None, jnp.zeros(2), gradients=1, chains=1, seed=0)


def test_overtaking_is_found_between_horizons():
    passes = np.array([1.0, 10.0, 100.0])
    assert logistic_runs.overtaking(passes, np.ones(3), np.array([100.0, 10.0, 0.1])) == pytest.approx(10**1.5)
    assert logistic_runs.overtaking(passes, np.ones(3), np.full(3, 2.0)) == 100.0
    assert logistic_runs.overtaking(passes, np.ones(3), np.full(3, 0.5)) == 1.0


def _wider(estimates, factor=1.5):
    mean = estimates.mean(axis=-1, keepdims=True)
    return mean + factor * (estimates - mean)


@pytest.mark.slow
@pytest.mark.parametrize(("figure", "names"), [(fig5, ["estimates"]), (fig6, ["sgld paper", "sgld tuned"])])
def test_wrong_fluctuations_are_refused_though_the_mean_is_right(figure, names, lab, monkeypatch):
    """At the level of a user's run, which 128 runs a cell can decide."""
    monkeypatch.setattr(study, "FALSE_ALARM", 1e-5)
    numbers = dict(figure.compute(replace(lab, kernel=Twin())))
    assert figure.check(numbers)[0].verdict is Verdict.REPRODUCED
    numbers |= {name: _wider(numbers[name]) for name in names}
    assert figure.check(numbers)[0].verdict is Verdict.REFUSED


@pytest.mark.parametrize("times", [5, 40])
def test_scores_of_a_quadratic_form_with_the_law_are_nearly_normal(times):
    """Averages of u^2 over some relaxation times, 128 runs: skewed, yet no more than chance beyond three sigma."""
    rng = np.random.default_rng(0)
    weights = 1 / (1 + (np.arange(1, 100) * np.pi / times) ** 2)
    law = logistic_law.VarianceLaw(np.array(1.0), np.sqrt(2 * (weights**2).sum()) / weights.sum())
    values = rng.standard_gamma(0.5, (4000, 128, weights.size)) @ (2 * weights / weights.sum())
    # Expected: 11 of 4000 normal scores. The room of the law only takes from them.
    assert np.all((np.abs(law.scores(values)) > 3).sum(axis=-1) < 35)


def test_ratios_are_judged_with_their_errors():
    assert fig5._judge(1.49, 0.4, 1.5) == (Verdict.TOO_SMALL, Verdict.TOO_SMALL)
    assert fig5._judge(1.0, 0.01, 1.5) == (Verdict.REPRODUCED, Verdict.REFUSED)
    assert fig5._judge(2.0, 0.01, 1.5) == (Verdict.REFUSED, Verdict.REPRODUCED)


@pytest.mark.slow
def test_figure_5_can_be_refused(lab):
    """A constant step that stays the best, a paper's choice that is not good, and a wrong count."""
    numbers = dict(fig5.compute(replace(lab, kernel=Twin())))
    few, many = (
        int(np.argmin(part[0])) for part in logistic_law.VarianceLaw(numbers["law_mean"], numbers["law_sd"]).mse
    )
    estimates = numbers["estimates"].copy()
    estimates[1, 0, few] = 1.0 + 0.01 * (estimates[1, 0, many] - 1.0)
    if few != many:
        assert fig5._same_region(numbers | {"estimates": estimates}).verdict is Verdict.REFUSED
    estimates[(slice(None), *fig5._paper_cell(numbers))] = 9.0
    assert fig5._paper_choice(numbers | {"estimates": estimates}).verdict is Verdict.REFUSED
    assert fig5._count(numbers | {"visits": np.array([200, 600])}).verdict is Verdict.REFUSED


@pytest.mark.slow
def test_figure_6_can_be_refused(lab):
    """The two acceptance rates exchanged, and SGLD and MALA exchanged."""
    numbers = dict(fig6.compute(replace(lab, kernel=Twin())))
    better = 1.0 + 0.1 * (numbers["mala 0.7"] - 1.0)
    assert fig6._acceptance(numbers | {"mala 0.7": better}).verdict is Verdict.CORRECTED
    assert fig6._acceptance(numbers | {"mala 0.564": better}).verdict is Verdict.REFUSED
    exchanged = {"sgld paper": numbers["mala 0.564"], "mala 0.564": numbers["sgld paper"]}
    assert fig6._crossing(numbers | exchanged).verdict is Verdict.REFUSED


@pytest.mark.slow
def test_the_baselines_that_take_long_to_compile():
    """Corrected estimates are far better than draws can be; NUTS counts each chain's own gradients."""
    work = logistic_baselines.methods(Lab("quick"), [1, 20, 100], 64)
    corrected = work["corrected"].work()["corrected"]
    assert np.mean((corrected[-1] - 1.0) ** 2) < 1e-4
    drawn = work["nuts"].work()
    assert drawn["nuts"].shape == (3, 32) and drawn["nuts_warmup"] > 0
    assert np.mean((drawn["nuts"][-1] - 1.0) ** 2) < np.mean((drawn["nuts"][0] - 1.0) ** 2)
