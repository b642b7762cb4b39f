"""Statuses, regimes and quantiles of ledgers made by hand, and what the analysis stands on."""

import ast
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import langevin as lv
from langevin.analysis import STATUSES, Estimate, errorbars, estimate, quantiles, regime
from langevin.analysis.marginals import weighted_quantiles
from langevin.analysis.regimes import regime_of
from langevin.analysis.statuses import worse
from langevin.engine.draws import Draws
from langevin.engine.ledger import Column
from tests.unit.ledgers import CONSTANT, DECREASING, ROW, anchor_of, ledger_of, noise


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


def test_an_estimate_stands_for_its_values():
    found = estimate(ledger_of(noise(), CONSTANT, kernel=lv.MALA()))["theta.mean"]
    value = found.value
    for made, expected in (
        (found + 1, value + 1), (1 - found, 1 - value), (found > 0, value > 0), (found * found, value**2),
        (np.exp(found), np.exp(value)), (-found, -value), (found == value, [True, True]), (found[0] < 5, True),
        (np.maximum.reduce(found), value.max()), (jnp.ones(2) + found, 1.0 + value), (value - found, [0.0, 0.0]),
    ):  # fmt: skip
        assert not isinstance(made, Estimate)
        np.testing.assert_allclose(made, expected, rtol=1e-6)
    assert isinstance(found[0] + 1, float) and f"{found[0]:.3f}" == f"{value[0]:.3f}" and f"{found}" == str(found)
    with pytest.raises(TypeError, match="unsupported format"):
        f"{found:.3f}"


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
    allowed = {"numpy", "scipy", "langevin", "dataclasses", "typing", "collections", "statistics", "weakref"}
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            assert {name.split(".")[0] for name in names} <= allowed, file
    assert Estimate.__module__ == "langevin.analysis.value"
