"""Tuning for plain SGLD: the law behind it is exact, its choice lies in the valley, its prediction is what one gets.

Three tests judge random numbers: five scores that must pass, at the 1e-10 point of the normal law for a stated rate of
1e-9 each, nine controls that must fail by the same limit, and a covariance at seven standard errors, 1e-11.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import ndtri

import langevin as lv
from langevin import tuning
from langevin.paper import fig5, logistic_law, problems
from langevin.paper import logistic_runs as runs
from langevin.paper.replicates import standard_error
from langevin.theory import linearised
from langevin.theory.linearised import plug_in_law, variance_constants
from langevin.tuning import tune

LIMIT = -ndtri(1e-10)


def a_matrix(d, seed, spread=3.0):
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.standard_normal((d, d)))
    return turn @ np.diag(np.linspace(1.0, spread, d)) @ turn.T


# The law.


@pytest.mark.parametrize("chains", [1, 3])
def test_the_law_of_pooled_chains_is_that_of_explicit_forms(chains):
    """Mean and variance of u'Bu, tr(BK) and 2 tr((BK)^2), with K the covariance of all positions written out."""
    d, horizon, j = 2, 25, 1
    precision, noise, start = a_matrix(d, 1), 5 * a_matrix(d, 2), np.array([0.3, -0.2])
    schedule = lv.Polynomial(a=0.3, b=2.0, alpha=0.5)
    law = plug_in_law(schedule, [horizon], precision, noise, start=start, chains=chains)
    delta = schedule.delta(np.arange(1, horizon + 1))
    P, K = np.outer(start, start), np.zeros((horizon, horizon))
    for k, step in enumerate(delta):
        passed = P
        for i in range(k, horizon):
            K[k, i] = K[i, k] = passed[j, j]
            passed = (np.eye(d) - 0.5 * delta[i] * precision) @ passed
        A = np.eye(d) - 0.5 * step * precision
        P = A @ P @ A.T + step * np.eye(d) + 0.25 * step**2 * noise
    w, one = delta / delta.sum(), np.eye(chains)
    B = np.kron(one, np.diag(w)) / chains - np.kron(np.ones((chains, chains)), np.outer(w, w)) / chains**2
    BK = B @ np.kron(one, K)
    sigma = np.linalg.inv(precision)[j, j]
    assert_allclose(law.mean[0, j], np.trace(BK) / sigma, rtol=1e-12)
    assert_allclose(law.variance[0, j], 2 * np.trace(BK @ BK) / sigma**2, rtol=1e-11)
    assert_allclose(law.mean_mse[0, j], w @ K @ w / chains / sigma, rtol=1e-12)


def test_on_the_gaussian_model_the_means_are_those_of_the_exact_law():
    """E[Q] from the exact cumulants, E[S^2] from them and the contraction; no Gaussian noise is assumed for these."""
    exact, horizon = problems.gaussian_law(10), 60
    schedule = lv.Polynomial(a=500.0, b=3000.0)
    delta = schedule.delta(np.arange(1, horizon + 1))
    law = plug_in_law(schedule, [horizon], np.array([[exact.sigma_p**-2]]), np.array([[exact.grad_noise]]))
    variance = exact.cumulants(delta, exact.mu_p, np.arange(horizon)).variance
    factor = np.concatenate([[1.0], np.cumprod(exact.contraction(delta))])[:horizon]
    K = variance[:, None] * factor / factor[:, None]
    K = np.triu(K) + np.triu(K, 1).T
    w = delta / delta.sum()
    assert_allclose(law.mean_mse[0, 0], w @ K @ w / exact.sigma_p**2, rtol=1e-10)
    assert_allclose(law.mean[0, 0], (w @ variance - w @ K @ w) / exact.sigma_p**2, rtol=1e-10)


def test_blocks_of_steps_give_the_law_of_single_steps_to_second_order():
    schedule = lv.Polynomial(a=np.array([0.0, 1.0, 30.0])[:, None], b=np.array([1e2, 1e3]), alpha=0.5)
    precision, noise = a_matrix(3, 3), 20 * a_matrix(3, 4)
    exact, *blocks = (plug_in_law(schedule, [300, 3000], precision, noise, growth=g) for g in (0.0, 1 / 40, 1 / 20))
    errors = [max(np.abs(new / old - 1).max() for new, old in zip(b, exact, strict=True)) for b in blocks]
    assert errors[1] < 3e-3
    assert errors[0] < errors[1] / 3


def test_bands_of_eigenvalues_stand_for_all_of_them(monkeypatch):
    precision = a_matrix(12, 5, spread=100.0)
    noise = 30 * (precision + a_matrix(12, 6, spread=50.0))
    asked = {"schedule": lv.Constant(2e-4), "horizons": [20000], "growth": 1 / 20}
    few = plug_in_law(precision=precision, noise=noise, **asked)
    monkeypatch.setattr(linearised, "_MOST_BANDS", 12)
    every = plug_in_law(precision=precision, noise=noise, **asked)
    for new, old in zip(few, every, strict=True):
        assert_allclose(new, old, rtol=0.02)


def test_small_steps_and_long_runs_have_the_constants_of_the_poisson_equation():
    precision, noise, step, steps = a_matrix(3, 7), 10 * a_matrix(3, 8), 1e-3, 400_000_000
    sigma2, mubar = variance_constants(precision, noise)
    law = plug_in_law(lv.Constant(step), [steps], precision, noise, growth=1 / 40)
    # The next order is that of the step, and for the bias also of 1/T over the step, from the start at the mean.
    assert_allclose(law.mean[0] + law.mean_mse[0] - 1.0, step * mubar, rtol=0.01)
    assert_allclose(law.variance[0], sigma2 / (step * steps), rtol=0.03)
    one = variance_constants(np.array([[4.0]]), np.array([[6.0]]))
    assert_allclose(np.ravel(one), [4 / 4.0, (6.0 + 4.0) / 4])


# The choice.


def tuned(passes, **changed):
    model = problems.logistic()
    options = {"passes": passes, "batch_size": runs.BATCH_SIZE, "alpha": runs.ALPHA} | changed
    return tune(model.target, model.data, model.theta_0, **options)


def distorted(monkeypatch, passes, factor):
    """Tuning that takes the gradient noise for `factor` times what it is."""
    honest = tuning._gradient_noise

    def wrong(*arguments):
        noise, visits = honest(*arguments)
        return factor * noise, visits

    with monkeypatch.context() as patch:
        patch.setattr(tuning, "_gradient_noise", wrong)
        return tuned(passes)


def best_cell(passes):
    """(a, b) of the cell of Figure 5 with the smallest MSE by theory: the smallest measured one flatters itself."""
    a, b = (centre * 10.0 ** np.arange(-4.0, 3.25, 0.5) for centre in runs.PAPER)
    noise = logistic_law.noise_covariance(runs.BATCH_SIZE, replacement=True)
    schedule = lv.Polynomial(a=a[:, None], b=b, alpha=runs.ALPHA)
    mse = logistic_law.variance_law(schedule, tuple(runs.num_steps([passes])), noise).mse[0]
    i, j = np.unravel_index(np.argmin(mse), mse.shape)
    return a[i], b[j]


def variances(model, covariance, observable, choice, pairs, groups):
    """Relative variance estimates with each (a, b) of `pairs`, (pairs, runs, parameters), from 512 runs a group."""
    a, b = np.array(pairs).T
    schedule = lv.Polynomial(a=a, b=b, alpha=choice.schedule.alpha)
    found = []
    for first in range(0, 512 * groups, 512):
        ledger = lv.run(
            model.target, model.data, choice.anchor.mode, observables={"u": observable}, schedule=schedule,
            num_steps=choice.num_steps, subsample=choice.subsample, chains=range(first, first + 512), progress=False,
        )  # fmt: skip
        averages = problems.average(ledger, "u")
        found.append((averages[..., 1, :] - averages[..., 0, :] ** 2) / np.diag(covariance))
    return np.concatenate(found, axis=1)


def agrees(errors, predicted, room):
    """Whether the mean of squared errors, one a run, is what was predicted, to within `room` and Monte Carlo error."""
    of_runs = errors / predicted
    return abs(of_runs.mean() - 1.0) < room + LIMIT * standard_error(of_runs)


def logistic_moments(theta):
    u = theta - jnp.asarray(problems.logistic().map, jnp.float32)
    return jnp.stack([u, u * u])


@pytest.mark.parametrize("passes", [5, 20])
def test_tuned_steps_lie_in_the_valley_and_keep_what_they_promise(monkeypatch, passes):
    """Against the best cell of Figure 5, with common random numbers; forgotten noise or N/n end far outside.

    The valley is that of Figure 5, for the variance of theta_1. The prediction is for the average of the parameters;
    5% are left to the curvature that it neglects.
    """
    model, choice = problems.logistic(), tuned(passes)
    wrong = [distorted(monkeypatch, passes, f) for f in (0.0, (runs.BATCH_SIZE / runs.NUM_DATA) ** 2)]
    pairs = [best_cell(passes), *((c.schedule.a, c.schedule.b) for c in (choice, *wrong))]
    estimates = variances(model, model.truth().covariance, logistic_moments, choice, pairs, groups=4)
    best, honest, *others = runs.squared_errors(estimates)
    value, error = runs.ratio(honest[:, 0], best[:, 0])
    assert value + LIMIT * error < fig5.VALLEY
    assert agrees(honest.mean(axis=-1), choice.predicted_mse, room=0.05)
    for forgetful, errors in zip(wrong, others, strict=True):
        value, error = runs.ratio(errors[:, 0], best[:, 0])
        assert value - LIMIT * error > fig5.VALLEY
        assert not agrees(errors.mean(axis=-1), forgetful.predicted_mse, room=0.05)


def gaussian_moments(theta):
    u = theta - jnp.float32(problems.gaussian().mu_p)
    return jnp.stack([u, u * u])[:, None]


def test_on_the_gaussian_model_the_prediction_is_the_law():
    """There only the noise's fourth cumulant is left out, which a batch of ten makes small: 1% of room."""
    model = problems.gaussian()
    choice = tune(model.target, model.data, 0.0, passes=50, batch_size=10)
    law = problems.gaussian_law(10)
    noise, visits = tuning._gradient_noise(model.target, lv.DataSource.of(model.data), choice.anchor, 10, 0)
    assert visits == model.num_data
    assert_allclose(noise, law.grad_noise, rtol=1e-5)
    pairs = [(choice.schedule.a, choice.schedule.b), (choice.schedule.a / 64, choice.schedule.b / 64)]
    estimates = variances(model, [[model.sigma_p**2]], gaussian_moments, choice, pairs, groups=4)
    honest, four_times_the_step = runs.squared_errors(estimates)[..., 0]
    assert agrees(honest, choice.predicted_mse, room=0.01)
    assert not agrees(four_times_the_step, choice.predicted_mse, room=0.01)


def test_no_schedule_near_by_has_a_predicted_error_more_than_the_price_of_decrease_below():
    choice = tuned(20)
    noise, _ = tuning._gradient_noise(
        problems.logistic().target, lv.DataSource.of(problems.logistic().data), choice.anchor, runs.BATCH_SIZE, 0
    )
    around = 10.0 ** np.arange(-3.0, 3.25, 0.25)
    schedule = lv.Polynomial(a=choice.schedule.a * around[:, None], b=choice.schedule.b * around, alpha=runs.ALPHA)
    law = plug_in_law(schedule, [choice.num_steps], choice.anchor.precision, noise, growth=1 / 40)
    smallest = np.mean((law.mean - 1.0) ** 2 + law.variance, axis=-1).min()
    assert smallest < choice.predicted_mse < 1.07 * smallest
    assert choice.schedule.delta(choice.num_steps) < 0.8 * choice.schedule.delta(1)


def test_many_passes_have_the_step_of_the_leading_order():
    """tau = mean step N/(n sigma_p^2) = (32/P)^(1/3) balances tau^2/16 and 4/(tau P), for N/n times the noise."""
    model = problems.gaussian()
    choice = tune(model.target, model.data, 0.0, passes=100_000, batch_size=1)
    ratio = problems.gaussian_law(1, replacement=False).grad_noise * model.sigma_p**2 / model.num_data
    step = float(choice.schedule.T_m(choice.num_steps)) / choice.num_steps
    assert_allclose(step * model.num_data / model.sigma_p**2, (32 / 1e5 / ratio**2) ** (1 / 3), rtol=0.1)


def test_the_batch_size_does_not_matter_at_fixed_passes():
    found = [tuned(50, batch_size=n).predicted_mse for n in (1, 10, 100, 500)]
    assert_allclose(found, found[0], rtol=0.03)


def test_the_result_says_what_to_run_and_what_to_expect():
    choice = tuned(20, batch_size=None, alpha=1 / 3, chains=4)
    assert choice.subsample == lv.WithoutReplacement(10)
    assert (choice.num_steps, choice.chains, choice.passes) == (500, 4, 20.0)
    assert choice.regime == "balanced" and tuned(20).regime == "fluctuations dominate"
    assert choice.cost == choice.anchor.cost + 1000
    assert_allclose(choice.predicted_mse, np.mean(choice.bias**2) + np.mean(choice.variance))
    words = str(choice)
    assert "4 chains of 500 steps, 10 of 1000 data a step" in words and f"{choice.predicted_mse:.3g}" in words
    assert "caution" not in words and "caution" in str(tuned(0.5))
    assert tuned(20, batch_size=1000).subsample == lv.Full()
    limit = 2 / np.linalg.eigvalsh(choice.anchor.precision)[-1]
    assert tuned(3, batch_size=1000).schedule.delta(1) <= limit * (1 + 1e-12)


def test_many_data_give_the_noise_of_some_of_them():
    model = lv.models.LinearGaussian.simulate(num_data=30_000, seed=3)
    choice = tune(model.target, model.data, 0.0, passes=10)
    noise, visits = tuning._gradient_noise(model.target, lv.DataSource.of(model.data), choice.anchor, 300, 0)
    assert visits == 10_000 and choice.subsample == lv.WithoutReplacement(300)
    # Cov of 10^4 data out of 3 10^4: relative standard error sqrt(2/10^4 2/3), here at seven of them.
    assert_allclose(noise, problems.LinearGaussianLaw(model.x, 1.0, 5.0, 300, False).grad_noise, rtol=0.08)


def test_a_second_call_compiles_nothing():
    traced = []

    def log_likelihood(theta, x):
        traced.append(1)
        return -0.5 * (x - theta) ** 2

    target, data = lv.Target(lambda t: -0.5 * t**2, log_likelihood), np.linspace(-1.0, 1.0, 50)
    tune(target, data, 0.0, passes=5)
    first = len(traced)
    tune(target, data, 0.0, passes=7)
    # One shape check; no new compilation.
    assert len(traced) <= first + 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"passes": 0}, "passes must be a positive number, got 0"),
        ({"passes": -3.0}, "passes must be a positive number, got -3.0"),
        ({"passes": np.inf}, "passes must be a positive number, got inf"),
        ({"passes": "20"}, "passes must be a positive number, got '20'"),
        ({"passes": 0.01}, "passes must leave every chain 2 steps"),
        ({"batch_size": 101}, "batch_size must be an integer of at least 1 and at most 100, got 101"),
        ({"batch_size": 0}, "batch_size must be an integer"),
        ({"alpha": 0.0}, r"alpha must be a number in \(0, 1\], got 0.0"),
        ({"alpha": 1.2}, r"alpha must be a number in \(0, 1\], got 1.2"),
        ({"alpha": 1e-4}, "alpha must be large enough"),
        ({"chains": 0}, "chains must be an integer"),
        ({"seed": -1}, "seed must be an integer"),
        ({"data": None}, "use lv.MALA"),
        ({"target": lv.Target(lambda t: -0.5 * t**2)}, "use lv.MALA"),
        ({"target": "posterior"}, "target must be an lv.Target"),
    ],
)
def test_bad_arguments_are_named(changed, message):
    model = problems.gaussian()
    asked = {"target": model.target, "data": model.data, "theta_0": 0.0, "passes": 20} | changed
    with pytest.raises(ValueError, match=message):
        tune(asked.pop("target"), asked.pop("data"), asked.pop("theta_0"), **asked)
