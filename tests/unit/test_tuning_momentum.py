"""Tuning of kernels with momentum: the law of a settled chain is exact, and its prediction is what one gets.

One test judges random numbers: four scores that must pass, at the 1e-10 point of the normal law for a stated rate of
1e-9 together, and two controls that must fail by the same limit.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import ndtri

import langevin as lv
from langevin.theory.linearised import plug_in_law
from langevin.theory.settled import settled_law

LIMIT = -ndtri(1e-10)
PASSES, BATCH_SIZE, CHAINS = 200, 10, 4


def model():
    return lv.models.LinearGaussian.simulate(seed=1)


def tuned(kernel, passes=PASSES):
    one = model()
    return lv.tune(one.target, one.data, 0.0, passes=passes, batch_size=BATCH_SIZE, chains=CHAINS, kernel=kernel)


def a_matrix(d, seed, spread):
    turn, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))
    return turn @ np.diag(np.linspace(1.0, spread, d)) @ turn.T


def test_for_sgld_the_settled_law_is_that_of_long_runs():
    precision, noise, steps = a_matrix(3, 1, 3.0), 10 * a_matrix(3, 2, 4.0), 10**7
    settled = settled_law(lv.SGLD(), 0.05, steps, precision, noise, chains=2)
    long = plug_in_law(lv.Constant(0.05), [steps], precision, noise, chains=2, growth=1 / 40)
    # The transient from the mode is 1/T of the whole.
    assert_allclose(settled.mean, long.mean[0], rtol=1e-4)
    assert_allclose(settled.variance, long.variance[0], rtol=1e-3)
    assert_allclose(settled.mean_mse, long.mean_mse[0], rtol=1e-4)


@pytest.mark.parametrize("kernel", [lv.SGHMC(0.3), lv.BAOAB(1.0), lv.UBU(0.5)], ids=repr)
def test_sums_over_lags_are_those_written_out(kernel):
    """One coordinate: covariances at all lags by powers of the matrix of a step."""
    precision, noise, delta, steps = np.array([[2.0]]), np.array([[3.0]]), 0.2, 10**6
    mean, pull, kick, position = kernel._matrices(precision, delta)
    S = np.zeros((2, 2))
    for _ in range(5000):
        S = mean @ S @ mean.T + kick @ kick.T + pull @ noise @ pull.T
    lags, passed = [], S
    for _ in range(5000):
        lags.append((position @ passed @ position.T).item())
        passed = mean @ passed
    a = np.array(lags)
    spread = (a[0] + 2 * a[1:].sum()) / steps
    found = settled_law(kernel, delta, steps, precision, noise)
    assert_allclose(found.mean_mse, 2.0 * spread, rtol=1e-10)
    assert_allclose(found.mean, 2.0 * (a[0] - spread), rtol=1e-10)
    assert_allclose(found.variance, 4.0 * (2 * a[0] ** 2 + 4 * np.sum(a[1:] ** 2)) / steps, rtol=1e-10)


def test_steps_that_do_not_contract_have_no_law():
    assert np.isinf(settled_law(lv.SGHMC(1.0), 100.0, 10, np.eye(1), np.eye(1)).mean).all()


def scores(choice, kernel, replicates=500):
    """Of the mean and the mean square of the error of the estimated variance, over runs with `kernel`."""
    one = model()
    ledger = lv.run(
        one.target,
        one.data,
        np.float32(one.mu_p),
        kernel=kernel,
        schedule=choice.schedule,
        subsample=choice.subsample,
        num_steps=choice.num_steps,
        chains=CHAINS * replicates,
        observables={"u": lambda t: t - np.float32(one.mu_p), "u2": lambda t: (t - np.float32(one.mu_p)) ** 2},
        seed=3,
    )
    found = lv.estimate(ledger, method="raw", pool=False)
    first, second = (
        np.array([part.value.item() for part in found[name]]).reshape(replicates, CHAINS).mean(1)
        for name in ("u", "u2")
    )
    # The mean of the prior's location: the posterior is N(mu_p, sigma_p^2), so u has mean 0.
    errors = (second - first**2) / one.sigma_p**2 - 1.0
    away = (errors.mean() - choice.bias.item()) / np.sqrt(choice.variance.item() / replicates)
    mse = choice.bias.item() ** 2 + choice.variance.item()
    square = errors**2
    return abs(away), abs(square.mean() - mse) / (square.std(ddof=1) / np.sqrt(replicates))


@pytest.mark.parametrize("kernel", [lv.SGHMC(0.5), lv.BAOAB(0.5)], ids=repr)
def test_what_is_predicted_is_what_one_gets(kernel):
    assert max(scores(tuned(kernel), kernel)) < LIMIT


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_control_a_prediction_for_other_noise_is_refused(factor, monkeypatch):
    from langevin import tuning

    honest = tuning._gradient_noise

    def wrong(*arguments):
        noise, visits = honest(*arguments)
        return factor * noise, visits

    monkeypatch.setattr(tuning, "_gradient_noise", wrong)
    assert max(scores(tuned(lv.SGHMC(0.5)), lv.SGHMC(0.5))) > LIMIT


def test_with_plain_minibatches_momentum_gains_next_to_nothing():
    """Noise rules the bias: the best error of momentum is that of SGLD within a tenth, and the print-out names it.

    In a run so long that the start at the mode, which only SGLD's law knows of, is forgotten.
    """
    choices = [tuned(kernel, passes=20_000) for kernel in (lv.SGLD(), lv.SGHMC(0.5), lv.SGHMC(2.0))]
    assert np.ptp([choice.predicted_mse for choice in choices]) < 0.1 * choices[0].predicted_mse
    assert str(choices[1]).startswith("SGHMC for 2e+04 passes")


def test_kernels_without_a_law_are_refused():
    with pytest.raises(ValueError, match=r"kernel must have affine steps .* got MALA\(\). Try lv.SGHMC"):
        tuned(lv.MALA())
