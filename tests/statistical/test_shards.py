"""Shards of 90% and 10%, cut along a feature: travelling chains against the unsharded posterior, and twins that fail.

Truth is the unsharded `lv.sample`, whose own bars enter the scores. False alarm of each test below 1e-7.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import langevin as lv

ROWS, BETA = 5000, np.array([-0.5, 1.0, -0.5])
LEVEL = 1e-7


def log_prior(theta):
    return -0.125 * jnp.dot(theta, theta)


def log_likelihood(theta, row):
    return lv.log_sigmoid(row["y"] * jnp.dot(row["x"], theta))


TARGET, START, SIZES = lv.Target(log_prior, log_likelihood), jnp.zeros(3), (ROWS * 9 // 10, ROWS // 10)


class Uncorrected(lv.Sharded):
    """Every row weighs N/n, however often its shard is visited."""

    def scale(self, key, origin, at, num_data):
        return num_data / self.batch_size


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(8)
    x = rng.normal(size=(ROWS, 3)).astype(np.float32)
    x[:, 0] = 1.0
    x = x[np.argsort(x[:, 1])]
    y = np.where(rng.random(ROWS) < 1 / (1 + np.exp(-x @ BETA)), 1, -1).astype(np.float32)
    data = {"x": x, "y": y}
    truth = lv.sample(TARGET, data, START, passes=100, seed=3, progress=False)
    assert truth.status == "ok"
    return data, truth, lv.laplace(TARGET, data, START)


def estimates(problem, order, stay, kind=lv.Sharded):
    data, _, anchor = problem
    gradient = lv.ControlVariate(anchor, order=order)
    subsample = kind(20, sizes=SIZES, stay=stay, probabilities=(0.5, 0.5))
    subsample = lv.shards.with_drifts(subsample, TARGET, data, gradient, anchor)
    ledger = lv.run(
        TARGET, data, START, subsample=subsample, gradient=gradient, anchor=anchor, kernel=lv.LeimkuhlerMatthews(),
        coordinates=lv.Whitened.by(anchor), schedule=lv.Constant(0.5 if order == 2 else 0.05), num_steps=10_000,
        chains=8, progress=False,
    )  # fmt: skip
    return lv.estimate(ledger, method="corrected")


def worst_score(problem, found):
    """The largest |difference| over its error, the bias that is known included, among three means and three sds."""
    truth = problem[1]
    pairs = ((found["theta.mean"], truth.mean), (found["theta.sd"], truth.sd))
    return max(np.max(np.abs(one.value - other.value) / np.hypot(one.error, other.error)) for one, other in pairs)


CRITICAL = stats.t.isf(LEVEL / 12, 30)


@pytest.mark.slow
@pytest.mark.parametrize(("order", "stay"), [(2, 1), (2, 100), (1, 1), (1, 20)])
def test_travelling_chains_agree_with_the_unsharded_posterior(problem, order, stay):
    found = estimates(problem, order, stay)
    assert worst_score(problem, found) < CRITICAL
    mean = found["theta.mean"]
    assert np.all(np.abs(mean.value - problem[1].mean.value) < 0.02 * problem[1].sd.value)
    if stay == 1:
        assert mean.status == "ok" and found["theta.sd"].status == "ok"


@pytest.mark.slow
def test_uncorrected_weights_do_not(problem):
    found = estimates(problem, 1, 1, Uncorrected)
    assert worst_score(problem, found) > CRITICAL


@pytest.mark.slow
def test_long_stays_whose_bias_is_left_out_would_not(problem):
    found = estimates(problem, 2, 20)["theta.sd"]
    assert "bias_dominates" in found.statuses
    truth = problem[1].sd
    assert np.max(np.abs(found.value - truth.value) / np.hypot(found.stderr, truth.stderr)) > CRITICAL
