"""Figures 1 to 4: what their verdicts stand on."""

from dataclasses import replace

import numpy as np
import pytest

from langevin.paper import catalogue, fig1, gaussian_runs, problems
from langevin.paper.study import Verdict
from tests.paper.twins import TWINS, Twin

FIGURES = ("fig1", "fig2", "fig3", "fig4")


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_a_weak_drift_is_refused(name, lab):
    """Half the drift is quietly wrong; its agreement with the exact law, on which all else stands, is not."""
    study = catalogue.study(name)
    findings = study.check(study.compute(replace(lab, kernel=Twin(drift=0.5))))
    assert findings[0].verdict is Verdict.REFUSED


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_what_is_left_of_runs_that_ran_away_can_be_shown(name, lab):
    study = catalogue.study(name)
    numbers = study.compute(replace(lab, kernel=TWINS["drift delta"]))
    assert name in study.draw(numbers) and study.table(numbers)


@pytest.mark.slow
def test_the_paper_is_corrected_at_any_size(lab):
    """The abstract's rate (erratum 3) and the flat curve at 0.33 (erratum 11) fall even to short runs."""
    for name, erratum in (("fig2", 3), ("fig3", 11)):
        study = catalogue.study(name)
        findings = study.check(study.compute(replace(lab, kernel=Twin())))
        assert {finding.erratum: finding.verdict for finding in findings}[erratum] is Verdict.CORRECTED


def test_fitted_power_and_its_error():
    """Replicates with MSE = m^-rate exactly: the fit finds the rate, its error the spread over repetitions."""
    rng, m = np.random.default_rng(0), np.array([100.0, 1000.0, 3000.0, 10_000.0])
    rate = np.array([0.3, 0.6])
    exact = m ** -rate[:, None]
    found, errors = [], []
    for _ in range(400):
        # Correlated over m, as along a chain.
        normal = 0.8 * rng.standard_normal((2, 1, 64)) + 0.6 * rng.standard_normal((2, 4, 64))
        numbers = {"m": m, "averages": np.sqrt(exact)[..., None] * normal, "bias": 0 * exact, "variance": exact}
        power = gaussian_runs.fitted_power(numbers, np.log(m))
        np.testing.assert_allclose(power.exact, -rate)
        found.append(power.simulated)
        errors.append(power.stderr)
    scores = (np.array(found) + rate) / np.array(errors)
    # 800 scores of unit spread: six standard errors and a half of their spread, seven of their mean.
    assert abs(scores.std() - 1) < 0.16 and abs(scores.mean()) < 0.25


def test_two_terms_tend_to_the_asymptotic_rates():
    for alpha in (*problems.ALPHAS, 1 / 3):
        # At 1e15 the terms that decay relative to the leading one, like m^-|1 - 3 alpha|, are below 0.02 in the rate.
        assert gaussian_runs.two_term_rate(alpha, 1e15) == pytest.approx(min(2 * alpha, 1 - alpha), abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("best", [0.1, 0.2, 0.3, 0.4, 0.5])
def test_any_exponent_may_come_first(best, lab):
    """Whichever exponent the exact law puts first, the study says so in words."""
    numbers = dict(fig1.compute(replace(lab, kernel=Twin())))
    smallest = np.where(numbers["alpha"] == best, 1e-3, 1.0)[:, None]
    numbers |= {key: numbers[key] * scale for key, scale in (("bias", smallest), ("variance", smallest**2))}
    numbers["averages"] = numbers["averages"] * smallest[..., None]
    finding = fig1.check(numbers)[-1]
    assert finding.verdict is Verdict.TOO_SMALL and f"for alpha = {best:g}" in finding.because
