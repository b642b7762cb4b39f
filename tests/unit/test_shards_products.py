"""Products of subposteriors: exact where draws have exact moments, by enumeration where they are mixtures."""

from functools import partial
from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

import langevin as lv
from langevin.shards import median, products

FALSE_ALARM = 1e-9
RUNS = 60


def with_moments(rng, count, mean, covariance):
    """Draws whose sample mean and covariance are these to rounding."""
    z = rng.standard_normal((count, len(mean)))
    z = z - z.mean(axis=0)
    z = z @ np.linalg.inv(np.linalg.cholesky(np.cov(z, rowvar=False))).T
    return mean + z @ np.linalg.cholesky(covariance).T


MEANS = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 2.0]])
COVARIANCES = np.array([[[1.0, 0.3], [0.3, 2.0]], [[0.5, 0.0], [0.0, 0.5]], [[2.0, -0.5], [-0.5, 1.0]]])
PRECISION = np.linalg.inv(COVARIANCES).sum(axis=0)
TRUTH = np.linalg.solve(PRECISION, np.einsum("sij,sj->i", np.linalg.inv(COVARIANCES), MEANS))


def gaussian_shards(count, seed=0):
    rng = np.random.default_rng(seed)
    return [with_moments(rng, count, m, c) for m, c in zip(MEANS, COVARIANCES, strict=True)]


def test_the_parametric_product_of_gaussians_is_exact():
    found = products.parametric(gaussian_shards(50))
    np.testing.assert_allclose(found.mean, TRUTH, rtol=1e-12)
    np.testing.assert_allclose(found.covariance, np.linalg.inv(PRECISION), rtol=1e-12)


def test_the_mean_of_consensus_is_exact_and_its_draws_are_the_weighted_averages():
    shards = gaussian_shards(4000)
    found = products.consensus(shards)
    np.testing.assert_allclose(found.mean, TRUTH, rtol=1e-10)
    weights = [np.linalg.inv(np.cov(part, rowvar=False)) for part in shards]
    by_hand = np.linalg.solve(sum(weights), sum(w @ part[17] for w, part in zip(weights, shards, strict=True)))
    np.testing.assert_allclose(found.draws[17], by_hand, rtol=1e-10)
    # Draws of different shards are independent: sample variances of the product have a chi-square law.
    ratio = 3999 * np.diag(found.covariance) / np.diag(np.linalg.inv(PRECISION))
    assert np.all((stats.chi2.cdf(ratio, 3999) > FALSE_ALARM) & (stats.chi2.sf(ratio, 3999) > FALSE_ALARM))


def test_averages_that_forget_the_precisions_are_not_the_product():
    wrong = np.mean(gaussian_shards(4000), axis=0)
    assert np.max(np.abs(wrong.mean(axis=0) - TRUTH)) > 0.1


UNITS = [np.array([[-1.0], [0.2], [0.8]]), np.array([[-0.3], [0.5], [1.5]])]


def mixture_weights(h, semi):
    """w or W of every combination of draws, by SciPy's densities written out."""
    found = {}
    fitted = [(part.mean(), part.std(ddof=1)) for part in UNITS]
    for pick in product(range(3), repeat=2):
        theta = np.array([UNITS[s][t, 0] for s, t in enumerate(pick)])
        w = np.prod(stats.norm.pdf(theta, theta.mean(), h))
        if semi:
            w *= stats.norm.pdf(theta.mean(), 0.0, np.sqrt(0.5 + h**2 / 2))
            w /= np.prod([stats.norm.pdf(x, *law) for x, law in zip(theta, fitted, strict=True)])
        found[pick] = w
    total = sum(found.values())
    return {pick: w / total for pick, w in found.items()}


@pytest.mark.parametrize("semi", [False, True], ids=["nonparametric", "semiparametric"])
def test_metropolis_picks_combinations_by_their_weight(semi):
    h, count, thin = 0.7, 2000, 6
    beyond = products.beyond_gaussian(UNITS) if semi else (lambda mean, h, s, t: 0.0)
    chain = products.sweeps(UNITS, np.random.default_rng(1), beyond, np.full(count * thin, h))
    values = [[float(x) for x in part[:, 0]] for part in UNITS]
    seen = [tuple(values[s].index(float(p[s, 0])) for s in range(2)) for k, (_, p) in enumerate(chain) if not k % thin]
    picks = list(product(range(3), repeat=2))
    counts = np.array([seen.count(pick) for pick in picks])

    def p_value(weights):
        return stats.chisquare(counts, count * np.array([weights[pick] for pick in picks])).pvalue

    # Six sweeps forget: the second eigenvalue of one is 0.37 and 0.39.
    assert p_value(mixture_weights(h, semi)) > FALSE_ALARM
    assert p_value(mixture_weights(h, not semi)) < FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("combine", [products.nonparametric, products.semiparametric])
def test_kernel_products_of_gaussians_are_near_the_product(combine):
    # Second moments about the truth, since the index chain mixes slowly and one run's own mean wanders with it.
    def scores(shards_of, expected):
        found = [combine(shards_of(seed), seed) for seed in range(RUNS)]
        error = np.array([one.mean - TRUTH for one in found])
        moments = np.array([np.diag(one.covariance) for one in found]) + error**2
        both = np.concatenate([error, moments - expected], axis=1)
        return np.abs(both.mean(axis=0)) / both.std(axis=0, ddof=1) * np.sqrt(len(both))

    critical = stats.t.isf(1e-8 / 8, RUNS - 1)
    covariance = np.linalg.inv(PRECISION)
    expected = covariance if combine is products.semiparametric else widened(covariance, 400)
    assert np.all(scores(partial(gaussian_shards, 400), np.diag(expected)) < critical)
    # The sabotaged twin: one shard's message is lost.
    lost = scores(lambda seed: gaussian_shards(400, seed)[:2], np.diag(expected))
    assert np.max(lost) > critical


def widened(covariance, count):
    """The mean over h = t^(-1/(4+d)) of the product's covariance, each shard wider by h^2 in units of 3 covariance."""
    unit = 3 * covariance
    widths = np.arange(1.0, count + 1.0) ** (-1 / 6)
    return np.mean([np.linalg.inv(sum(np.linalg.inv(c + h**2 * unit) for c in COVARIANCES)) for h in widths], axis=0)


def test_the_median_minimises_the_sum_of_distances():
    points = np.random.default_rng(3).standard_normal((5, 3))
    gram = points @ points.T
    weight = median.weiszfeld(gram)
    best = optimize.minimize(lambda x: np.sum(np.linalg.norm(points - x, axis=1)), points.mean(axis=0), tol=1e-14).x
    np.testing.assert_allclose(weight @ points, best, atol=1e-6)
    assert np.max(np.abs(points.mean(axis=0) - best)) > 0.01


def test_a_median_that_is_one_of_the_points_has_all_the_weight():
    points = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    assert median.weiszfeld(points @ points.T)[0] > 1 - 1e-6


def test_inner_products_are_those_of_the_kernel():
    parts = [np.array([[0.0], [1.0]]), np.array([[0.0], [2.0]])]
    scaled = [part / 0.75 for part in parts]  # sds 0.5 and 1
    square = (np.concatenate(scaled) - np.concatenate(scaled).T) ** 2
    kernel = np.exp(-0.5 * square / np.median(square))
    expected = kernel.reshape(2, 2, 2, 2).mean(axis=(1, 3))
    np.testing.assert_allclose(median.gram(parts), expected, rtol=1e-12)


def test_the_m_posterior_of_gaussians_withstands_a_bad_shard():
    rng = np.random.default_rng(0)
    good = [rng.standard_normal((2000, 2)) for _ in range(6)]
    bad = rng.standard_normal((2000, 2)) + 100.0
    found = median.m_posterior([*good, bad])
    # All good ones have the law N(0, I); the bad one keeps next to no weight, where an average would move by 100/7.
    assert found.weight[-2000:].sum() < 0.05
    assert np.all(np.abs(found.mean) < 5.0)
    alone = median.m_posterior(good)
    assert np.all(np.abs(alone.mean) * np.sqrt(12_000) < stats.norm.isf(FALSE_ALARM / 4) * 1.5)
    np.testing.assert_allclose(alone.sd, 1.0, atol=0.05)


def test_targets_of_shards_make_up_the_posterior():
    target = lv.Target(lambda t: -0.5 * jnp.dot(t, t), lambda t, x: -0.5 * jnp.sum((x - t) ** 2))
    data, theta = np.arange(12.0).reshape(6, 2), jnp.array([0.3, -1.0])
    parts = [data[:4], data[4:]]
    shards = [lv.shards.subposterior(target, 2).log_density(theta, jnp.asarray(part)) for part in parts]
    assert float(sum(shards)) == pytest.approx(float(target.log_density(theta, jnp.asarray(data))), rel=1e-6)
    power = lv.shards.powered(target, 2).log_density(theta, jnp.asarray(parts[0]))
    assert float(power) == pytest.approx(float(target.log_prior(theta) + 2 * (shards[0] - target.log_prior(theta) / 2)))


@pytest.mark.parametrize("bad", [[], [np.zeros((5, 2)), np.zeros((5, 3))], [np.zeros(5)], [np.full((9, 1), np.nan)]])
@pytest.mark.parametrize("combine", [products.parametric, products.consensus, products.nonparametric,
                                     products.semiparametric, median.m_posterior])  # fmt: skip
def test_draws_that_do_not_fit_are_refused(combine, bad):
    with pytest.raises(ValueError, match="draws must be one finite array"):
        combine(bad)
