"""The diffusion limit: which claims a sabotaged sampler breaks, and the closed forms."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special

from langevin.paper import diffusion_exact, diffusion_limit
from langevin.paper.problems import gaussian
from langevin.paper.study import Verdict
from tests.paper.twins import TWINS, Twin


def test_the_verdicts_on_the_honest_sampler(lab):
    findings = diffusion_limit.check(diffusion_limit.compute(replace(lab, kernel=Twin())))
    assert [finding.verdict for finding in findings] == [Verdict.REPRODUCED] * 7 + [Verdict.CORRECTED]
    assert findings[-1].erratum == 14


@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)
def test_what_a_sabotaged_sampler_is_refused_for(twin, lab):
    findings = diffusion_limit.check(diffusion_limit.compute(replace(lab, kernel=twin)))
    verdicts = [finding.verdict for finding in findings]
    # Order with the full gradient, order over all t, exact law and identity; gradient noise may drown the rest.
    assert all(verdicts[i] is Verdict.REFUSED for i in (0, 2, 4, 6, 7))
    assert "scores" in findings[6].measured and float(findings[6].measured.split()[-1]) > 100


def test_the_median_of_the_largest_bridge():
    height = diffusion_exact.bridge_median(np.array([0.25, 0.04]), np.array([1, 1000]))
    within = 1 - special.kolmogorov(height / np.sqrt([0.25, 0.04]))
    assert_allclose(within ** np.array([1, 1000]), 0.5, rtol=1e-9)


@pytest.mark.parametrize("batch_size", [None, 10])
def test_the_law_of_the_error_is_that_of_its_linear_map(batch_size):
    """One unit increment of W, or of gradient noise, at a time through both recursions."""
    cells, width, model = np.array([3, 1, 2, 4]), 0.02, gaussian()
    rate = 0.5 / model.sigma_p**2

    def end(start, increments, kicks):
        """theta_M - reference(T), both relative to mu_p."""
        chain, fine, position = start, start, 0
        for k, length in enumerate(cells):
            chain += -rate * chain * length * width + increments[position : position + length].sum() + kicks[k]
            position += length
        for increment in increments:
            fine += -rate * fine * width + increment
        return chain - fine

    response = [end(0.0, unit, np.zeros(4)) for unit in np.eye(10)]
    variance = width * np.sum(np.square(response))
    if batch_size is not None:
        kicks = [end(0.0, np.zeros(10), unit) for unit in np.eye(4)]
        noise = 100**2 * np.var(model.x, ddof=1) / 10 * (1 - 10 / 100) / model.sigma_x**4
        variance += noise * np.sum((0.5 * width * cells * kicks) ** 2)
    mean = end(0.7, np.zeros(10), np.zeros(4))
    assert_allclose(diffusion_exact.error_law(cells, width, model.mu_p + 0.7, batch_size), (mean, variance), rtol=1e-9)


def test_chi_square_scores_are_standard_normal_far_into_the_tails():
    for freedom in (32, 256):
        for level in (-5.0, 0.0, 5.0):
            value = special.chdtri(freedom, special.ndtr(-level))
            assert abs(diffusion_exact.chi_square_score(value, freedom) - level) < 0.15
