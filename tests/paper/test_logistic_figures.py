"""Figures 5 and 6: the law of the variance estimate, and the baselines."""

import builtins

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.paper import logistic_baselines, logistic_law, logistic_runs, nuts, problems
from langevin.paper.lab import Lab


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


@pytest.mark.slow
def test_the_baselines_that_take_long_to_compile():
    """Corrected estimates are far better than draws can be; NUTS counts each chain's own gradients."""
    work = logistic_baselines.methods(Lab("quick"), [1, 20, 100], 64)
    corrected = work["corrected"]()["corrected"]
    assert np.mean((corrected[-1] - 1.0) ** 2) < 1e-4
    drawn = work["nuts"]()
    assert drawn["nuts"].shape == (3, 32) and drawn["nuts_warmup"] > 0
    assert np.mean((drawn["nuts"][-1] - 1.0) ** 2) < np.mean((drawn["nuts"][0] - 1.0) ** 2)
