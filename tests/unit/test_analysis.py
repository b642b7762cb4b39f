"""Estimates, error bars, biases and statuses against formulas written out, on ledgers made by hand."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import linalg, stats

import langevin as lv
from langevin.analysis import errorbars, estimate, extrapolate, quantiles
from langevin.analysis.law import law
from langevin.observables import Moments
from tests.unit.ledgers import CONSTANT, DECREASING, ROW, anchor_of, ledger_of, noise


def test_batches_are_whole_rows_equal_in_time_to_within_a_row():
    rng = np.random.default_rng(1)
    for rows in (4, 5, 21, 42, 500):
        for count in {c for c in (1, 4, 20) if c <= rows}:
            delta = np.sort(rng.uniform(0.5, 1.0, rows))[::-1]
            first = errorbars.edges(delta, count)
            assert first[0] == 0 and np.all(np.diff(first) >= 1) and first[-1] < rows
            time = np.add.reduceat(delta, first)
            assert np.all(np.abs(time - delta.sum() / count) <= delta.max() + 1e-12)


def test_batches_stay_non_empty_when_one_row_holds_most_of_the_time():
    assert errorbars.edges(np.array([100.0, 1.0, 1.0, 1.0]), 4).tolist() == [0, 1, 2, 3]
    assert errorbars.edges(np.array([1.0, 1.0, 1.0, 100.0]), 4).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("rows", "chains", "relaxations", "expected"),
    [(42, 1, None, 20), (1000, 2, None, 20), (1000, 4, None, 10), (1000, 64, None, 4), (30, 1, None, 15),
     (3, 1, None, 3), (6, 1, None, 6), (1000, 1, 52.0, 10), (1000, 1, 3.0, 4)],
)  # fmt: skip
def test_number_of_batches(rows, chains, relaxations, expected):
    assert errorbars.batch_count(rows, chains, errorbars.FEWEST_BATCHES, relaxations) == expected


@pytest.mark.parametrize("weight_power", [1.0, 0.5, 2.0])
def test_raw_is_the_weighted_average_of_the_left_end_points(weight_power):
    path = noise()
    weights = DECREASING.delta(np.arange(1, 1601)) ** weight_power
    found = estimate(ledger_of(path, DECREASING, weight_power=weight_power))["theta.mean"]
    expected = np.average(path, axis=1, weights=weights).mean(axis=0)
    np.testing.assert_allclose(found.value, expected, rtol=1e-12)


def test_error_bar_and_interval_are_the_stated_formulas():
    path = noise(chains=1, d=1) ** 3
    ledger = ledger_of(path, CONSTANT)
    found = estimate(ledger)["theta.mean"]
    means = path[0, :, 0].reshape(20, 80).mean(axis=1)
    f = (means - means.mean()) / 20
    kurtosis = 20 * np.sum(f**4) / np.sum(f**2) ** 2
    stderr = np.sqrt(20 / 19 * np.sum(f**2)) * (1 + max(kurtosis - 3, 0) / 40)
    df = np.clip(40 / (kurtosis - 1), 3, 19)
    assert found.num_batches == 20
    np.testing.assert_allclose(found.kurtosis, kurtosis, rtol=1e-9)
    np.testing.assert_allclose(found.stderr, stderr, rtol=1e-9)
    np.testing.assert_allclose(found.df, df, rtol=1e-9)
    np.testing.assert_allclose(found.sigma2, stderr**2 * 160.0, rtol=1e-9)
    g = np.sqrt(20) * np.sum(f**3) / np.sum(f**2) ** 1.5
    np.testing.assert_allclose(found.skewness, g, rtol=1e-9)
    w = (found.value - np.array(found.interval(0.9))[:, 0]) / stderr
    hall = w + g * w**2 / (3 * np.sqrt(20)) + g**2 * w**3 / (27 * 20) + g / (6 * np.sqrt(20))
    np.testing.assert_allclose(hall, np.array([1, -1]) * stats.t.ppf(0.95, df), rtol=1e-9)
    np.testing.assert_allclose(found.B_m, 1600 * 0.1**2 / np.sqrt(160.0))


def test_variance_is_unbiased_and_its_influence_is_the_derivative():
    path = noise(chains=2, d=2)
    ledger = ledger_of(path, CONSTANT)
    found = estimate(ledger)
    pooled = path.reshape(-1, 2)
    mean_stderr = found["theta.mean"].stderr / (1 + np.maximum(found["theta.mean"].kurtosis - 3, 0) / 40)
    plug_in = np.cov(pooled.T, bias=True)
    np.testing.assert_allclose(found["theta.variance"].value, np.diag(plug_in) + mean_stderr**2, rtol=1e-9)
    np.testing.assert_allclose(found["theta.sd"].value ** 2, found["theta.variance"].value)
    np.testing.assert_allclose(found["theta.covariance"].value[0, 1], found["theta.covariance"].value[1, 0])
    # Move the weight of one batch by a small amount: the change of the plug-in is that batch's influence.
    moments = np.concatenate([path, path[..., [0]] ** 2], axis=-1)
    batches = moments.reshape(2, 20, 80, 3).sum(axis=2) * 0.1
    total = batches.sum(axis=(0, 1)) / 320.0

    def variance(weights: np.ndarray) -> float:
        sums = np.einsum("ck,ckv->v", weights, batches) / (weights.sum() * 8.0)
        return sums[2] - sums[0] ** 2

    numeric = np.zeros((2, 20))
    for c in range(2):
        for k in range(20):
            change = np.zeros((2, 20))
            change[c, k] = 1e-5
            numeric[c, k] = (variance(1 + change) - variance(1 - change)) / 2e-5
    f = (batches - 8.0 * total) / 320.0
    np.testing.assert_allclose(numeric, f[..., 2] - 2 * total[0] * f[..., 0], atol=1e-9)
    bar = errorbars.bar(numeric[None, :, :, None])
    np.testing.assert_allclose(found["theta.variance"].stderr[0], bar.stderr[0, 0], rtol=1e-5)


def test_intervals_of_variances_are_on_the_log_scale():
    found = estimate(ledger_of(noise(), CONSTANT))
    variance, sd = found["theta.variance"], found["theta.sd"]
    lower, upper = variance.interval()
    symmetric = replace(variance, skewness=np.zeros(2)).interval()
    np.testing.assert_allclose(symmetric[0] * symmetric[1], variance.value**2)
    # An interval on the log scale is skewed by itself, and so much is taken off the batches' skewness.
    straight = found["theta.covariance"]
    taken_off = 1.5 * np.sqrt(variance.num_batches) * variance.stderr / variance.value
    np.testing.assert_allclose(np.diag(straight.skewness) - variance.skewness, taken_off)
    np.testing.assert_allclose(np.sqrt(lower), sd.interval()[0])
    np.testing.assert_allclose(np.sqrt(upper), sd.interval()[1])


def test_negative_variance_is_reported_as_it_is_with_a_status():
    ledger = ledger_of(noise(chains=1, d=1), CONSTANT)
    spoiled = ledger.values["theta"].copy()
    spoiled[..., 1] = -np.abs(spoiled[..., 1])
    found = estimate(replace(ledger, values={"theta": spoiled}))
    assert found["theta.variance"].value[0] < 0 and np.isnan(found["theta.sd"].value[0])
    assert found["theta.variance"].interval()[0][0] == 0
    assert found["theta.variance"].status != "ok"


def test_unpooled_entries_are_those_of_each_chain_alone():
    path = noise(chains=3)
    for method in ("raw", "intercept"):
        together = estimate(ledger_of(path, DECREASING), method, pool=False)
        for c in range(3):
            alone = estimate(ledger_of(path[[c]], DECREASING), method)
            for name, part in together.items():
                np.testing.assert_allclose(part.value[c], alone[name].value, rtol=1e-12)
                np.testing.assert_allclose(part.stderr[c], alone[name].stderr, rtol=1e-10)
                assert part.statuses[c].tolist() == alone[name].statuses.tolist()


def test_schedule_settings_are_leading_axes():
    a, b = (ledger_of(noise(seed=s), lv.Polynomial(a=1.0, b=float(b), alpha=0.5)) for s, b in ((1, 20), (2, 40)))
    both = replace(
        a, schedule=lv.Polynomial(a=1.0, b=np.array([20.0, 40.0]), alpha=0.5),
        **{n: np.stack([getattr(a, n), getattr(b, n)]) for n in ("sum_delta", "sum_delta2", "sum_omega")},
        values={"theta": np.stack([a.values["theta"], b.values["theta"]])},
    )  # fmt: skip
    for pool in (True, False):
        found, first, second = (estimate(x, pool=pool)["theta.covariance"] for x in (both, a, b))
        for name in ("value", "stderr", "df", "T_m", "num_batches", "statuses"):
            expected = np.stack([getattr(first, name), getattr(second, name)])
            np.testing.assert_array_equal(getattr(found, name), expected)


def test_regression_recovers_an_exact_line_and_agrees_with_least_squares():
    rng = np.random.default_rng(0)
    step, omega = np.linspace(0.3, 0.05, 20), rng.uniform(0.9, 1.1, 20)
    line = extrapolate.regress((2.0 - 3.0 * step)[None, None, :, None], omega, step)
    np.testing.assert_allclose(line.intercept, 2.0)
    np.testing.assert_allclose(line.bar.stderr, 0.0, atol=1e-12)
    y = rng.standard_normal((1, 3, 20, 1))
    line = extrapolate.regress(y, omega, step)
    design = np.stack([np.ones(60), np.tile(step, 3)], axis=1)
    weight = np.tile(omega / omega.mean(), 3)
    gram = np.linalg.inv((design.T * weight) @ design)
    beta = gram @ (design.T * weight) @ y.ravel()
    residual = y.ravel() - design @ beta
    kurtosis = 60 * np.sum((weight * residual**2) ** 2) / np.sum(weight * residual**2) ** 2
    stderr = np.sqrt(np.sum(weight * residual**2) / 58 * gram[0, 0]) * (1 + max(kurtosis - 3, 0) / 40)
    np.testing.assert_allclose(line.intercept[0, 0], beta[0])
    np.testing.assert_allclose(line.bias[0, 0], beta[1] * np.average(step, weights=omega))
    np.testing.assert_allclose(line.bar.stderr[0, 0], stderr)


def law_of(kernel, precision, spread, delta):
    """The law of a ledger whose measured E[g g'] is the stationary one for gradient noise `spread`."""
    width = np.linalg.inv(precision) + kernel.bias(precision, spread, delta)
    outer = delta**2 * ROW * (precision @ width @ precision + spread)
    path = np.zeros((1, ROW, len(precision)))
    ledger = ledger_of(path, lv.Constant(delta), anchor=anchor_of(precision), grad=path, kernel=kernel)
    ledger = replace(ledger, outer=outer[None, None], num_steps=10**9)
    rows = errorbars.Rows(*(np.array([x * ROW]) for x in (delta, delta**2, delta)))
    return law(ledger, (), rows, True)


@pytest.mark.parametrize("kernel", [lv.SGLD(), lv.LeimkuhlerMatthews()], ids=repr)
def test_the_law_recovers_noise_and_bias_from_the_measured_gradients(kernel):
    """M = H S(C) H + C is solved for C: the bias is that of the discrete Lyapunov equation, at large steps too."""
    rng = np.random.default_rng(3)
    root, other = rng.standard_normal((2, 3, 3))
    precision, spread = root @ root.T + np.eye(3), other @ other.T
    covariance, delta = np.linalg.inv(precision), 0.2
    step = np.eye(3) - delta / 2 * precision
    driven = delta * np.eye(3) + delta**2 / 4 * spread
    if isinstance(kernel, lv.LeimkuhlerMatthews):
        # (eta + eta') / 2 in place of eta makes the Gaussian law exact: only the noise of g is left.
        driven = covariance - step @ covariance @ step.T + delta**2 / 4 * spread
    exact = linalg.solve_discrete_lyapunov(step, driven) - covariance
    found = law_of(kernel, precision, spread, delta)
    np.testing.assert_allclose(found.excess[0], exact, rtol=0.02, atol=0.02 * np.abs(exact).max())
    i, j = np.triu_indices(3)
    np.testing.assert_allclose(
        found.bias(Moments().hessian(anchor_of(precision))[3:])[0], found.excess[0][i, j], rtol=1e-12
    )


def test_noise_inflation_is_the_sd_ratio_in_one_dimension():
    precision, delta, spread = np.array([[5.0]]), 0.04, np.array([[36.0]])
    found = law_of(lv.SGLD(), precision, spread, delta)
    kept = 1 - delta / 2 * 5.0
    noise = 5.0 * delta**2 / 4 * 36.0 / (1 - kept**2)
    np.testing.assert_allclose(found.inflation, np.sqrt(1 + noise), rtol=1e-3)
    np.testing.assert_allclose(found.relaxations, -ROW * np.log(kept))


def test_corrected_is_exact_with_exact_gradients_of_a_gaussian():
    precision = np.array([[2.0, 0.5], [0.5, 1.0]])
    path = 3.0 * noise(seed=4)
    found = estimate(ledger_of(path, DECREASING, anchor=anchor_of(precision), grad=-path @ precision), "corrected")
    np.testing.assert_allclose(found["theta.mean"].value, 0.0, atol=1e-12)
    np.testing.assert_allclose(found["theta.covariance"].value, np.linalg.inv(precision), rtol=1e-10)
    np.testing.assert_allclose(found["theta.sd"].laplace, np.sqrt(np.diag(np.linalg.inv(precision))))


def test_refusals_say_what_to_do():
    ledger = ledger_of(noise(), CONSTANT)
    with pytest.raises(ValueError, match="anchor=lv"):
        estimate(ledger, "corrected")
    with pytest.raises(ValueError, match="raw, corrected, intercept"):
        estimate(ledger, "median")
    with pytest.raises(ValueError, match="steps that vary"):
        estimate(ledger, "intercept")
    with pytest.raises(ValueError, match="level must lie"):
        estimate(ledger)["theta.mean"].interval(95)
    with pytest.raises(ValueError, match="keep="):
        quantiles(ledger)
