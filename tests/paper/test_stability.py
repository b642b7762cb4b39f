"""Stability: an honest sampler is not refused, sabotaged ones are, and the exact moments are those of enumeration."""

from dataclasses import dataclass
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langevin.kernels.sgld import SGLDState
from langevin.models import Logistic
from langevin.paper import stability, style
from langevin.paper.lab import Lab
from langevin.paper.study import Verdict
from langevin.theory import LinearGaussianLaw


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Scaled:
    """SGLD with factors on drift and noise: numbers in a pytree, so that one compilation serves all twins."""

    drift: float = 1.0
    noise: float = 1.0

    def init(self, theta, eta):
        return SGLDState(theta)

    def step(self, state, grad, eta, delta):
        return SGLDState(state.theta + 0.5 * delta * (self.drift * grad) + jnp.sqrt(delta) * (self.noise * eta))


@pytest.fixture(scope="module")
def numbers():
    # Factors of 1: the honest sampler, compiled once for its twins too.
    return stability.compute(Lab("tiny", kernel=Scaled()))


def test_the_honest_sampler_is_not_refused(numbers):
    findings = stability.check(numbers)
    assert [finding.erratum for finding in findings if finding.verdict is Verdict.CORRECTED] == [16, 9, 13, 10]
    others = [finding.verdict for finding in findings if finding.verdict is not Verdict.CORRECTED]
    # The logistic model is not run at this size.
    assert others == [Verdict.REPRODUCED] * 4 + [Verdict.TOO_SMALL, Verdict.REPRODUCED]


@pytest.mark.parametrize("twin", [Scaled(noise=2**0.5), Scaled(drift=2.0)], ids=["noise", "drift"])
def test_a_sabotaged_sampler_is_refused(numbers, twin, monkeypatch):
    # What does not depend on the sampler is taken over.
    kept = {key.removeprefix("conditions."): part for key, part in numbers.items() if key.startswith("conditions.")}
    monkeypatch.setattr(stability, "_conditions", lambda: kept)
    found = stability.compute(Lab("tiny", kernel=twin))
    refused = [finding.claim for finding in stability.check(found) if finding.verdict is Verdict.REFUSED]
    assert len(refused) == 4
    assert (
        "E V^p" in refused[0] and "running averages" in refused[1] and "1/8" in refused[2] and "4 sigma" in refused[3]
    )
    window = found["moments.window"]
    assert np.abs((window[..., 0] - window[..., 2]) / window[..., 1]).max() > 50


def test_table_and_pictures(numbers):
    rows = stability.table(numbers)
    assert all(row.keys() == rows[0].keys() for row in rows)
    assert {row["quantity"] for row in rows} == {"E V^p(theta_m)", "E (theta_m - mu_p)^2", "pull at radius"}
    with style.house_style():
        assert list(stability.draw(numbers)) == ["stability", "stability_overshoot"]


def test_sums_of_gradients_of_the_logistic_model():
    model = Logistic.simulate(num_data=5, seed=3)
    theta = np.array([[[0.3, -0.2, 0.5]]])
    total, squares = stability._datum_grads(model, theta)
    grads = np.stack([Logistic(model.x[[i]], model.y[[i]], prior_sd=1e9).grad(theta[0, 0]) for i in range(5)])
    np.testing.assert_allclose(total[0, 0], grads.sum(axis=0), rtol=1e-9)
    np.testing.assert_allclose(squares[0, 0], (grads**2).sum(), rtol=1e-9)


def test_fourth_cumulant_is_that_of_enumeration():
    x = np.random.default_rng(3).exponential(size=9)
    law = LinearGaussianLaw(x, 1.0, 2.0, 3, False)
    H = np.array([9 / 3 * (x[list(batch)] - x.mean()).sum() / 4 for batch in combinations(range(9), 3)])
    assert stability.fourth_cumulant(law) == pytest.approx(np.mean(H**4) - 3 * np.mean(H**2) ** 2, rel=1e-4)


def test_exact_moments_are_those_of_enumeration():
    """Two steps over all pairs of minibatches; the Gaussian part by its moments."""
    x = np.random.default_rng(4).exponential(size=5)
    law = LinearGaussianLaw(x, 1.0, 2.0, 2, False)
    H = np.array([5 / 2 * (x[list(batch)] - x.mean()).sum() / 4 for batch in combinations(range(5), 2)])
    delta, start = np.array([0.9, 0.6]), law.mu_p + 1.5
    a = law.contraction(delta)
    centre = a[1] * (a[0] * 1.5 + 0.5 * delta[0] * H[:, None]) + 0.5 * delta[1] * H[None]
    variance = a[1] ** 2 * delta[0] + delta[1]
    y2, y4 = centre**2 + variance, centre**4 + 6 * centre**2 * variance + 3 * variance**2
    s2 = law.sigma_p**2
    expected = [np.mean(1 + y2 / (2 * s2)), np.mean(1 + y2 / s2 + y4 / (4 * s2**2))]
    found = stability.exact_moments(law, delta, start, np.arange(3))
    np.testing.assert_allclose(found[:, 2], expected, rtol=1e-5)
    np.testing.assert_allclose(found[:, 0], [1 + 1.5**2 / (2 * s2), (1 + 1.5**2 / (2 * s2)) ** 2], rtol=1e-12)
