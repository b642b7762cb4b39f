"""Runs obey the exact finite-m law of the Gaussian model, and averages of phi = A g have mean 0 on any target.

Every comparison is a standard normal score and LIMIT is Bonferroni's for all of them together, at one false alarm
in 1e9 seeds. Scores of squares and cubes are normal only in the limit. At LIMIT their skewness is estimated to
multiply a tail by a few (squares) and by up to 30 (the two scores of cubes); with room for a factor of 10 on the
sum, the whole file raises a false alarm for fewer than one seed in 1e8. The full table, 54 cells of
4000 runs, is `python -m benchmarks.agreement`.
"""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import langevin as lv
from benchmarks import agreement as study
from langevin.paper import problems
from langevin.paper.replicates import variance_score
from langevin.theory.gaussian import LinearGaussianLaw

HORIZONS = (100, 1000)
# (alpha, n, replacement) of the cells that also run to m = 1e4.
LONG = {(1 / 3, 10, False), (0.5, 1, True)}
CELLS = len(study.BATCHES) * len(study.ALPHAS) * len(HORIZONS) + len(LONG)
# Five scores a cell; three of theta_m for two samplers on skewed data; four functions g.
LIMIT = float(stats.norm.isf(1e-9 / 2 / (5 * CELLS + 2 * 3 + 4)))


def law_of(model: lv.models.LinearGaussian, n: int, replacement: bool) -> LinearGaussianLaw:
    return LinearGaussianLaw(model.x, model.sigma_theta, model.sigma_x, n, replacement)


def last_theta(ledger: lv.Ledger) -> np.ndarray:
    return np.asarray(ledger.checkpoint.carry.state.theta, np.float64)[0, :, 0]


def theta_scores(theta: np.ndarray, mean: float, variance: float) -> tuple[float, float]:
    """Scores of mean and variance of theta_m."""
    z = (theta.mean() - mean) / np.sqrt(variance / theta.size)
    return float(z), float(variance_score(theta, variance))


def third_score(theta: np.ndarray, mean: float, variance: float, third: float) -> float:
    """Score of the third cumulant: y^3 - 3 variance y has that mean, y = theta - mean, and a small variance."""
    y = theta - mean
    cubes = y**3 - 3 * variance * y
    return float((cubes.mean() - third) / (cubes.std() / np.sqrt(theta.size)))


# The quick ones have a cell that runs to m = 1e4; LIMIT is that of all of them.
QUICK = {(n, replacement) for _, n, replacement in LONG}


@pytest.mark.parametrize(
    ("n", "replacement"),
    [pytest.param(*batch, marks=[] if batch in QUICK else pytest.mark.slow) for batch in study.BATCHES],
)
def test_bias_variance_and_mse_of_the_average_are_exact(n, replacement):
    """And so are mean and variance of theta_m, where the run ends. The average is the raw estimate of a user."""
    model = problems.gaussian()
    runs = 1000 if n == 100 else 2000
    for a, alpha in enumerate(study.ALPHAS):
        horizons = (*HORIZONS, 10_000) if (alpha, n, replacement) in LONG else HORIZONS
        law = study.exact_law(alpha, n, replacement, horizons)
        steps = problems.rounded_steps(problems.gaussian_steps(alpha), max(horizons))
        theta = law_of(model, n, replacement).cumulants(steps, float(model.theta_0), horizons)
        for i, m in enumerate(horizons):
            seed = 1000 * n + 100 * replacement + 10 * a + i
            ledger = study.replicates(alpha, study.subsample(n, replacement), m, runs, seed)
            values = problems.average(ledger, "phi")
            raw = lv.estimate(ledger, pool=False)["phi"].value
            np.testing.assert_allclose(values, raw, rtol=0, atol=1e-12)
            average = study.scores(values, law.bias[i], law.variance[i])
            last = theta_scores(last_theta(ledger), theta.mean[i], theta.variance[i])
            assert average.largest < LIMIT, (alpha, m, average)
            assert max(map(abs, last)) < LIMIT, (alpha, m, last)
            assert study.truncation_share(values, law, i) < 0.2


def test_phi_is_the_generator_of_sin():
    model, phi = problems.gaussian(), problems.gaussian_phi()
    theta = jnp.linspace(model.mu_p - 2, model.mu_p + 2, 9)
    generator = lv.theory.generator(problems.gaussian_h(), lambda t: -0.5 * (t - model.mu_p) ** 2 / model.sigma_p**2)
    found = [float(generator(t)) for t in theta]
    np.testing.assert_allclose(found, phi(theta), rtol=0, atol=1e-5)


@pytest.mark.parametrize("replacement", [True, False])
def test_three_cumulants_of_theta_are_exact_on_skewed_data(replacement):
    """The third comes from gradient noise alone. 0 is refused, and so is the other way of drawing."""
    x = 5 * (np.random.default_rng(4).exponential(size=100) - 1)
    model = lv.models.LinearGaussian(x.astype(np.float32))
    runs, m, n, schedule = 80_000, 16, 20, problems.gaussian_steps(1 / 3)
    ledger = lv.run(
        model.target, model.data, model.theta_0, schedule=schedule, num_steps=m, chains=runs, seed=31,
        subsample=study.subsample(n, replacement), progress=False,
    )  # fmt: skip
    theta = last_theta(ledger)
    steps = problems.rounded_steps(schedule, m)
    exact, other = (
        law_of(model, n, way).cumulants(steps, float(model.theta_0), [m]) for way in (replacement, not replacement)
    )
    mean, variance, third = exact.mean[0], exact.variance[0], exact.third[0]
    scores = (*theta_scores(theta, mean, variance), third_score(theta, mean, variance, third))
    assert max(map(abs, scores)) < LIMIT, scores
    assert abs(third_score(theta, mean, variance, 0.0)) > LIMIT
    assert abs(theta_scores(theta, mean, other.variance[0])[1]) > LIMIT


# Truth by construction, where nothing is Gaussian: 30 data, d = 3.


@cache
def logistic():
    """The model, and phi = A g for four functions g."""
    model = lv.models.Logistic.simulate(num_data=30, dimension=3, seed=2)
    data = tuple(jnp.asarray(leaf) for leaf in model.data)

    def g(t):
        return jnp.stack([jnp.sin(t[0]), t[0] * t[1], jnp.tanh(t[1] + t[2]), t[2] ** 3 / 3])

    return model, lv.theory.generator(g, lambda t: model.target.log_density(t, data))


def stationary_scores(kernel, sampler) -> np.ndarray:
    """Scores of the averages of phi over 1000 chains after their first 256 transitions, which forget the start."""
    model, phi = logistic()
    ledger = lv.run(
        model.target, model.data, model.theta_0, kernel=kernel, subsample=sampler, schedule=lv.Constant(0.2),
        num_steps=1024, chains=1000, seed=5, observables={"phi": phi}, progress=False,
    )  # fmt: skip
    late = ledger.m_stop > 256
    values = ledger.values["phi"][:, late].sum(axis=1) / ledger.sum_omega[late].sum()
    values = values + ledger.columns["phi"].reference
    return values.mean(axis=0) / (values.std(axis=0) / np.sqrt(len(values)))


def test_averages_of_a_generator_have_mean_zero_under_an_exact_kernel():
    z = stationary_scores(lv.MALA(), None)
    assert np.abs(z).max() < LIMIT, z


def test_control_the_same_steps_without_the_metropolis_test_are_refused():
    z = stationary_scores(lv.SGLD(), lv.Full())
    assert np.abs(z).max() > LIMIT + 10, z
