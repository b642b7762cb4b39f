"""The diffusion limit: which claims a sabotaged sampler breaks, and the closed forms."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special

from langevin.paper import diffusion_exact, diffusion_limit
from langevin.paper.problems import gaussian
from langevin.paper.study import Verdict
from langevin.theory.coupling import Order
from tests.paper.twins import TWINS, Twin


@pytest.mark.slow
def test_the_verdicts_on_the_honest_sampler(lab):
    findings = diffusion_limit.check(diffusion_limit.compute(replace(lab, kernel=Twin())))
    # So few paths may leave an order just outside its interval.
    assert all(finding.verdict in (Verdict.REPRODUCED, Verdict.TOO_SMALL) for finding in findings[:6])
    assert [finding.verdict for finding in findings[6:]] == [Verdict.REPRODUCED, Verdict.CORRECTED]
    assert findings[-1].erratum == 14


@pytest.mark.parametrize(
    ("value", "stderr", "small", "full"),
    [
        (0.91, 0.05, Verdict.REPRODUCED, Verdict.REPRODUCED),
        (1.09, 0.001, Verdict.REPRODUCED, Verdict.REPRODUCED),
        (0.84, 0.05, Verdict.TOO_SMALL, Verdict.REFUSED),
        (1.16, 0.05, Verdict.TOO_SMALL, Verdict.REFUSED),
        (0.84, 0.001, Verdict.REFUSED, Verdict.REFUSED),
        (np.nan, np.nan, Verdict.REFUSED, Verdict.REFUSED),
    ],
)
def test_an_order_itself_must_lie_in_its_interval(value, stderr, small, full):
    orders = {"gaussian": Order(1.0, 0.01), "logistic": Order(value, stderr)}
    for size, verdict in {"tiny": small, "quick": small, "full": full}.items():
        assert diffusion_limit.judge(orders, [64, 64], 0.9, 1.1, size)["verdict"] is verdict


@pytest.mark.slow
@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)
def test_what_a_sabotaged_sampler_is_refused_for(twin, lab):
    findings = diffusion_limit.check(diffusion_limit.compute(replace(lab, kernel=twin)))
    verdicts = [finding.verdict for finding in findings]
    # Order with the full gradient, order over all t, exact law and identity; gradient noise may drown the rest.
    assert all(verdicts[i] is Verdict.REFUSED for i in (0, 2, 4, 6, 7))
    assert "scores" in findings[6].measured and float(findings[6].measured.split()[-1]) > 100


def test_the_median_of_the_largest_bridge_of_equal_steps():
    for time, count in ((0.25, 1), (40.0, 1000)):
        height = diffusion_exact.bridge_median(time, count, 0.0, 1)
        within = 1 - special.kolmogorov(height / np.sqrt(time / count))
        assert_allclose(within**count, 0.5, rtol=1e-9)


@pytest.mark.parametrize("dimension", [1, 3])
def test_the_median_of_the_largest_bridge_of_decreasing_steps(dimension):
    """Against simulated bridges, on a grid that lowers their largest distance by 0.58 sqrt(its width) (Siegmund)."""
    count, points, replicates = 4, 1024, 4000
    steps = np.arange(1, count + 1) ** -0.5
    steps /= steps.sum()
    rng = np.random.default_rng(0)
    largest = np.zeros(replicates)
    for step in steps:
        walk = np.cumsum(rng.standard_normal((replicates, points, dimension), np.float32), axis=1) / np.sqrt(points)
        bridge = walk - np.linspace(1 / points, 1, points, dtype=np.float32)[:, None] * walk[:, -1:]
        height = np.linalg.norm(bridge, axis=-1).max(axis=1) + 0.5826 / np.sqrt(points)
        largest = np.maximum(largest, np.sqrt(step) * height)
    below = np.count_nonzero(largest < diffusion_exact.bridge_median(1.0, count, 0.5, dimension))
    assert abs(below - replicates / 2) < 6 * np.sqrt(replicates / 4)


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
