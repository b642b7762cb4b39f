"""Estimates, error bars, biases and statuses against formulas written out, on ledgers made by hand."""

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import linalg, stats

import langevin as lv
from langevin.analysis import STATUSES, Estimate, errorbars, estimate, extrapolate, quantiles, regime
from langevin.analysis.law import law
from langevin.analysis.marginals import weighted_quantiles
from langevin.analysis.regimes import regime_of
from langevin.analysis.statuses import worse
from langevin.anchor import Anchor
from langevin.engine.draws import Draws
from langevin.engine.ledger import Column, Ledger
from langevin.observables import Moments
from langevin.target import Layout

ROW = 16


def anchor_of(precision: np.ndarray) -> Anchor:
    d = len(precision)
    return Anchor(
        theta=np.zeros(d),
        root=(np.linalg.cholesky(np.linalg.inv(precision)),),
        covariance=np.linalg.inv(precision),
        precision=precision,
        likelihood_grad=None,
        likelihood_hessian=None,
        layout=Layout.of(np.zeros(d, np.float32)),
        cost=0,
    )


def ledger_of(
    path: np.ndarray,
    schedule: lv.schedules.Schedule,
    *,
    anchor: Anchor | None = None,
    grad: np.ndarray | None = None,
    weight_power: float = 1.0,
    **changes: object,
) -> Ledger:
    """The ledger that states `path` (chains, m, d) would leave: observable "theta" and, for d = 1, "cube"."""
    chains, m, d = path.shape
    delta = schedule.delta(np.arange(1, m + 1))
    omega = delta**weight_power
    first = np.arange(0, m, ROW)
    i, j = Moments().pairs(d)

    def rows(x: np.ndarray, axis: int) -> np.ndarray:
        return np.add.reduceat(x, first, axis=axis)

    def weighted(x: np.ndarray) -> np.ndarray:
        return rows(omega[:, None] * x, 1)

    moments = np.concatenate([path, path[..., i] * path[..., j]], axis=-1)
    hessian, trace = (None, None) if anchor is None else (Moments().hessian(anchor), Moments().trace(anchor))
    columns = {"theta": Column((moments.shape[-1],), np.zeros(d), (i, j), trace, hessian)}
    values = {"theta": weighted(moments)}
    corrections = outer = None
    if anchor is not None and grad is not None:
        s = grad @ anchor.covariance
        second = 0.5 * (path[..., i] * s[..., j] + path[..., j] * s[..., i]) + anchor.covariance[i, j]
        corrections = {"theta": weighted(np.concatenate([s, second], axis=-1))}
        outer = rows(delta[:, None, None] ** 2 * grad[..., :, None] * grad[..., None, :], 1)
    made = Ledger(
        num_steps=m, row_steps=ROW, chains=np.arange(chains), names=tuple(f"theta[{k}]" for k in range(d)),
        schedule=schedule, weight_power=weight_power, visits=np.ones((chains, len(first))), far=None, noisy=True,
        sum_delta=rows(delta, 0),
        sum_delta2=rows(delta**2, 0), sum_omega=rows(omega, 0), values=values, corrections=corrections,
        outer=outer, acceptance=None, columns=columns, anchor=anchor, kernel=lv.SGLD(), iid=True,
        coordinates=lv.Coordinates(), draws=None, manifest=None, checkpoint=None,
    )  # fmt: skip
    return replace(made, **changes)


def noise(chains: int = 3, m: int = 1600, d: int = 2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((chains, m, d))


DECREASING = lv.Polynomial(a=1.0, b=20.0, alpha=1 / 3)
CONSTANT = lv.Constant(0.1)


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
    lower, upper = found.interval(0.9)
    np.testing.assert_allclose(upper - lower, 2 * stats.t.ppf(0.95, df) * stderr, rtol=1e-9)
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
    np.testing.assert_allclose(lower * upper, variance.value**2)
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


def test_status_of_short_runs_and_of_runs_that_cannot_tell_their_bias():
    assert estimate(ledger_of(noise(chains=1, m=3 * ROW), DECREASING))["theta.mean"].status == "too_few_batches"
    assert np.isnan(estimate(ledger_of(noise(chains=1, m=ROW), CONSTANT))["theta.mean"].stderr).all()
    assert estimate(ledger_of(noise(), CONSTANT))["theta.mean"].status == "uncorrected"
    assert np.isnan(estimate(ledger_of(noise(), CONSTANT))["theta.mean"].bias).all()
    exact = estimate(ledger_of(noise(), CONSTANT, kernel=lv.MALA()))["theta.mean"]
    assert exact.status == "ok" and np.all(exact.bias == 0)


def test_status_bias_dominates_with_and_without_an_anchor():
    m = np.arange(1, 16001)
    schedule = lv.Polynomial(a=1.0, b=100.0, alpha=0.4)
    path = noise(m=16000, d=1) * np.sqrt(1 + 20 * schedule.delta(m))[:, None]
    assert estimate(ledger_of(path, schedule))["theta.variance"].status == "bias_dominates"
    anchor = anchor_of(np.eye(1))
    grad = 10.0 * noise(m=16000, d=1, seed=9)
    assert estimate(ledger_of(path, schedule, anchor=anchor, grad=grad))["theta.variance"].status == "bias_dominates"


def test_status_gradient_noise_also_for_reused_minibatches():
    anchor, path = anchor_of(np.eye(1)), noise(d=1)
    for size, iid, expected in (
        (1.0, True, "ok"),
        (10.0, True, "gradient_noise"),
        (1.6, False, "gradient_noise"),
    ):
        grad = -path + size * noise(d=1, seed=7)
        ledger = ledger_of(path, DECREASING, anchor=anchor, grad=grad, iid=iid)
        assert estimate(ledger, "corrected")["theta.mean"].status == expected


def test_status_uncorrected_for_a_function_that_is_flat_at_the_anchor():
    anchor, path = anchor_of(np.eye(1)), noise(d=1)
    ledger = ledger_of(path, DECREASING, anchor=anchor, grad=-path)
    above = Column((), np.zeros(1), None, np.zeros(1), np.zeros((1, 1, 1)))
    sums = np.add.reduceat(DECREASING.delta(np.arange(1, 1601))[:, None] * (path > 1), np.arange(0, 1600, ROW), axis=1)
    ledger = replace(
        ledger, columns={"above": above}, values={"above": sums}, corrections={"above": np.zeros_like(sums)}
    )
    assert estimate(ledger, "corrected")["above"].status == "uncorrected"


def test_status_transient_when_the_start_is_not_forgotten():
    path = noise(chains=1, m=16000, d=1)
    path[:, :400] += 20.0 * np.exp(-np.arange(400) / 100.0)[:, None]
    for schedule in (CONSTANT, lv.Polynomial(a=1.0, b=1e4, alpha=1 / 3)):
        ledger = ledger_of(path, schedule, kernel=lv.MALA())
        assert estimate(ledger)["theta.mean"].status == "transient"


@pytest.mark.parametrize("trend", [True, False])
@pytest.mark.parametrize("chains", [1, 4])
def test_transient_keeps_its_false_alarm_rate(trend, chains):
    """20 000 sets of Gaussian batches; a rule at its level exceeds this count with probability 1e-9."""
    sets = 20_000
    means = np.random.default_rng(5).standard_normal((sets, chains, 20, 1))
    step = np.linspace(1.1, 1.0, 20) if not trend else 1.0 / np.sqrt(np.arange(1, 21))
    alarms = int(errorbars.transient(means, np.ones(20), step, trend).sum())
    assert alarms <= stats.binom.isf(1e-9, sets, errorbars.TRANSIENT_LEVEL)
    shifted = means.copy()
    shifted[:, :, 0] += 40.0
    assert errorbars.transient(shifted, np.ones(20), step, trend).mean() > 0.9


def test_correlated_batches_are_too_few():
    rng = np.random.default_rng(2)
    path = np.cumsum(rng.standard_normal((1, 1600, 1)), axis=1)
    assert estimate(ledger_of(path, CONSTANT, kernel=lv.MALA()))["theta.mean"].status == "too_few_batches"


def test_words():
    found = estimate(ledger_of(noise(chains=1, d=1), CONSTANT, kernel=lv.MALA()))["theta.mean"]
    value, stderr = found.value[0], found.stderr[0]
    assert 0.01 < stderr < 0.1 and str(found) == f"{value:.3f} +- {stderr:.3f} [ok]"
    assert repr(found) == f"Estimate({found})"
    many = estimate(ledger_of(noise(chains=12, d=1), CONSTANT, kernel=lv.MALA()), pool=False)["theta.mean"]
    assert str(many).startswith("(12, 1) values, median stderr")
    assert worse(np.array(["ok", "too_few_batches"]), "transient").tolist() == [
        "transient",
        "too_few_batches",
    ]
    assert set(many.statuses.ravel()) <= set(STATUSES)


def test_regime():
    assert regime_of(0.0) == "fluctuations dominate" and regime_of(np.inf) == "bias dominates"
    assert regime_of(2.0) == "balanced" and regime_of(np.nan) == "unknown"
    words = {0.25: "bias dominates", 1 / 3: "balanced", 0.5: "fluctuations dominate"}
    for alpha, word in words.items():
        law = lv.Power(scale=0.5, m_0=0.0, alpha=alpha)
        assert regime(ledger_of(noise(), law)) == word
        custom = lv.Custom(lambda m, alpha=alpha: 0.5 * m**-alpha)
        assert regime(ledger_of(noise(), custom)) == word
    assert regime(ledger_of(noise(), CONSTANT, kernel=lv.MALA())) == "fluctuations dominate"


def test_weighted_quantiles_are_those_of_the_repeated_sample():
    rng = np.random.default_rng(0)
    x, repeats = rng.standard_normal(500), rng.integers(1, 5, 500)
    p = np.array([0.1, 0.5, 0.9])
    found = weighted_quantiles(x, repeats.astype(float), p)
    expected = np.quantile(np.repeat(x, repeats), p, method="hazen")
    gaps = np.max(np.diff(np.sort(x))[25:-25])
    assert np.all(np.abs(found - expected) <= gaps)
    np.testing.assert_allclose(weighted_quantiles(x, np.ones(500), p), np.quantile(x, p, method="hazen"))


def test_quantiles_cover():
    """400 runs of independent draws: each coverage within exact 1e-8 limits of [0.92, 0.98]."""
    runs, draws, p = 400, 400, np.array([0.1, 0.5, 0.9])
    rng = np.random.default_rng(1)
    base = ledger_of(noise(chains=2, m=800, d=1), CONSTANT)
    hits = np.zeros(3, int)
    for _ in range(runs):
        theta = rng.standard_normal((2, draws, 1)).astype(np.float32)
        kept = Draws(m=2 * np.arange(1, draws + 1), theta=theta, grad=theta, weight=np.full(draws, 0.2))
        found = quantiles(replace(base, draws=kept), p)
        lower, upper = found.interval()
        hits += ((lower <= stats.norm.ppf(p)[:, None]) & (stats.norm.ppf(p)[:, None] <= upper))[:, 0]
        assert found.value.shape == (3, 1) and found.status == "uncorrected"
    assert np.all(hits >= stats.binom.ppf(1e-8, runs, 0.92)) and np.all(hits <= stats.binom.isf(1e-8, runs, 0.98))


def test_analysis_stands_on_numpy_and_scipy_alone():
    folder = Path(lv.__file__).parent / "analysis"
    allowed = {"numpy", "scipy", "langevin", "dataclasses", "typing", "collections", "statistics"}
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            assert {name.split(".")[0] for name in names} <= allowed, file
    assert Estimate.__module__ == "langevin.analysis.value"
