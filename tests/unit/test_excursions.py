"""What lies beyond the largest value seen: against exact laws, and in expectations of functions with long tails.

Fixed seeds, without a statistical claim: what is asserted holds with a wide margin, and the twin that does not look is
seen to fail.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import langevin as lv
from langevin.analysis.excursions import MOST_UNSEEN, unseen


def quantiles(inverse, count=4000):
    """A sample without chance: quantiles in the middle of equal shares."""
    return inverse((np.arange(count) + 0.5) / count)[:, None]


def test_of_an_exponential_law_it_is_known():
    """E[x - 1; x > q] = q e^-q, q = log(count)."""
    count = 4000
    assert_allclose(unseen(quantiles(lambda p: -np.log1p(-p)))[0] * count, np.log(count), rtol=0.05)


def test_of_a_pareto_law_it_is_known():
    """x > 1 with tail x^(-1/k): E[x; x > q] = q / (1 - k) / count, q = count^k, less the mean 1 / (1 - k)."""
    count, k = 4000, 0.4
    expected = count**k / (1.0 - k) - 1.0 / (1.0 - k)
    assert_allclose(unseen(quantiles(lambda p: (1.0 - p) ** -k))[0] * count, expected, rtol=0.15)


def test_either_tail_counts():
    pareto = quantiles(lambda p: (1.0 - p) ** -0.4)
    assert_allclose(unseen(-pareto), unseen(pareto))
    assert unseen(np.ones((400, 1)))[0] == 0.0


def test_beyond_an_indicator_there_is_nothing():
    """Its largest value has come many times. Where it came a few times only, a next one counts."""
    once = np.arange(65_000)[:, None] < 400
    bar = np.sqrt(400.0) / len(once)
    assert unseen(once.astype(float))[0] < MOST_UNSEEN * bar
    few = np.arange(65_000)[:, None] < 4
    assert unseen(few.astype(float))[0] > MOST_UNSEEN * np.sqrt(4.0) / len(few)


def test_moments_of_many_normal_values_are_known():
    """E x^4 from 16,000 of them: what lies beyond the largest is 6% of the bar. A fifth of them does not tell."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((16_000, 50)) ** 4
    assert np.mean(unseen(values) > MOST_UNSEEN * values.std(axis=0) / np.sqrt(len(values))) < 0.05


def test_where_there_is_no_mean_no_bar_holds_it():
    values = quantiles(lambda p: (1.0 - p) ** -1.5)
    assert unseen(values)[0] > MOST_UNSEEN * np.std(values) / np.sqrt(len(values))


@pytest.fixture(scope="module")
def results():
    target = lv.Target(lambda t: -0.5 * jnp.sum(t**2))
    return [lv.sample(target, None, jnp.zeros(1), seed=seed, progress=False) for seed in range(3)]


def test_an_expectation_that_rests_on_draws_that_did_not_come_says_so(results, monkeypatch):
    """E exp(3 theta) = exp(4.5) under N(0, 1), most of it beyond theta = 2: few draws, and too few of them."""
    truth = np.exp(4.5)
    found = [result.expectation(lambda t: jnp.exp(3.0 * t[0])) for result in results]
    assert [one.status for one in found] == ["rare_excursions"] * 3
    assert all(one.bias > MOST_UNSEEN * one.stderr for one in found)
    monkeypatch.setattr("langevin.sampling.expectation.MOST_UNSEEN", np.inf)
    deaf = [result.expectation(lambda t: jnp.exp(3.0 * t[0])) for result in results]
    assert any(one.status == "ok" and abs(one.value - truth) > 6.0 * one.stderr for one in deaf)


def test_ordinary_functions_raise_no_alarm(results):
    functions = (
        lambda t: t[0] ** 3,
        lambda t: jnp.exp(0.5 * t[0]),
        lambda t: lv.sigmoid(t[0]),
        lambda t: jnp.sin(5 * t[0]),
    )
    assert "rare_excursions" not in {result.expectation(phi).status for result in results for phi in functions}


def test_tail_probabilities_of_an_exact_run_are_known():
    target = lv.Target(lambda t: -0.5 * jnp.sum(t**2))
    result = lv.sample(target, None, jnp.zeros(2), method="exact", progress=False)
    for c in (1.0, 2.5):
        found = result.expectation(lambda t, c=c: jnp.where(t[0] > c, 1.0, 0.0))
        assert found.status == "ok" and abs(found.value - stats.norm.sf(c)) < 6.0 * found.stderr
    # What the correction knows exactly is not what no draw has shown.
    square = result.expectation(lambda t: t[0] ** 2)
    assert square.status == "ok" and abs(square.value - 1.0) < 1e-4
    constant = result.expectation(lambda t: jnp.where(t[0] > 30.0, 1.0, 0.0))
    assert constant.status == "too_few_batches" and np.isnan(constant.stderr)


def test_of_normal_values_the_bar_holds_what_is_unseen():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((1000, 500))
    assert np.all(unseen(values) < 0.5 * MOST_UNSEEN / np.sqrt(1000))
