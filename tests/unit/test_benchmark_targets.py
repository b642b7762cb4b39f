"""The coverage table's targets and their references: the importance sampler against exact answers, the file fresh.

A comparison with an exact answer divides the error by the sampler's own standard error and fails beyond the quantile
of a t variable at 1e-9. The quotient is only nearly that, since the sampler's residuals have long tails: over fresh
seeds its variance was 0.9 to 1.7 times that of t in the comparisons below. A Gaussian of variance 1.7 would pass the
limit once in 2.6e7, so the whole file raises a false alarm for about one seed in 1e6.
"""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy import stats

import langevin as lv
from benchmarks import importance as sampler
from benchmarks import references, targets
from benchmarks.importance import importance

LEVEL = 1e-9
MEAN, COVARIANCE = np.array([1.0, -2.0, 0.5]), np.array([[1.0, 0.6, 0.0], [0.6, 2.0, -0.3], [0.0, -0.3, 0.5]])
# A proposal that is off by a fifth of a standard deviation, too narrow and with too little correlation.
PROPOSAL = MEAN + 0.2 * np.sqrt(np.diag(COVARIANCE)), 0.8 * COVARIANCE + 0.1 * np.diag(np.diag(COVARIANCE))


def gaussian(theta):
    centred = theta - MEAN
    return -0.5 * np.sum(centred @ np.linalg.inv(COVARIANCE) * centred, axis=1)


def scores(found, mean, sd):
    return np.concatenate([(found.mean - mean) / found.mean_stderr, (found.sd - sd) / found.sd_stderr])


def agrees(found, mean, sd, batches=sampler.BATCHES):
    return bool(np.max(np.abs(scores(found, mean, sd))) < stats.t.isf(LEVEL / 2, batches - 1))


def found_gaussian(pairs=20_000, seed=1, batches=sampler.BATCHES):
    return importance(gaussian, *PROPOSAL, pairs=pairs, seed=seed, batches=batches)


def test_the_controls_are_orthonormal():
    nodes, weights = hermegauss(8)
    z = np.stack([axis.ravel() for axis in np.meshgrid(nodes, nodes, nodes)], axis=1)
    mass = np.prod(np.meshgrid(weights, weights, weights), axis=0).ravel() / np.sqrt(2 * np.pi) ** 3
    indices = sampler.hermite_indices(3)
    controls = sampler._hermite(z, *indices)
    assert len(controls) == 1 + 6 + 15
    np.testing.assert_allclose(controls * mass @ controls.T, np.eye(len(controls)), atol=1e-12)


def test_a_gaussian_is_exact_when_the_proposal_is():
    """w, w x and w x^2 are then combinations of the controls: no error is left, whatever the draws."""
    found = importance(gaussian, MEAN, COVARIANCE, pairs=2000, seed=1)
    np.testing.assert_allclose(found.mean, MEAN, atol=1e-10)
    np.testing.assert_allclose(found.sd, np.sqrt(np.diag(COVARIANCE)), atol=1e-10)
    assert found.laplace_ess == pytest.approx(1.0, abs=1e-12)


def test_a_gaussian_from_another_proposal_and_honest_standard_errors():
    sd = np.sqrt(np.diag(COVARIANCE))
    assert agrees(found_gaussian(), MEAN, sd)
    runs, batches = 100, 32
    z = np.array([scores(found_gaussian(4096, 100 + seed, batches), MEAN, sd) for seed in range(runs)])
    # A t variable has variance df/(df - 2); the sum over independent runs is a chi-square to a good approximation.
    total = np.sum(z**2, axis=0) * (batches - 3) / (batches - 1)
    low, high = stats.chi2.ppf([LEVEL, 1 - LEVEL], runs)
    assert np.all((low < total) & (total < high)), total


def test_control_a_proposal_of_another_width_is_refused(monkeypatch):
    log_proposal = sampler._log_proposal
    monkeypatch.setattr(sampler, "_log_proposal", lambda z: log_proposal(1.02 * z))
    assert not agrees(found_gaussian(), MEAN, np.sqrt(np.diag(COVARIANCE)))


def test_control_a_control_with_another_expectation_is_refused(monkeypatch):
    hermite = sampler._hermite
    monkeypatch.setattr(sampler, "_hermite", lambda z, *indices: hermite(1.02 * z, *indices))
    assert not agrees(found_gaussian(), MEAN, np.sqrt(np.diag(COVARIANCE)))


@pytest.mark.parametrize(("num_data", "dimension", "seed"), [(1000, 3, 1), (40, 2, 2)])
def test_the_sampler_agrees_with_quadrature_on_logistic_regression(num_data, dimension, seed):
    model = lv.models.Logistic.simulate(num_data, dimension, seed)
    truth = model.truth()
    found = importance(model.log_density, model.map, model.laplace_covariance, pairs=8192, seed=3)
    assert agrees(found, truth.mean, truth.sd)
    assert found.worst_stderr < 5e-3
    laplace = replace(found, mean=truth.map, sd=np.sqrt(np.diag(truth.laplace_covariance)))
    assert not agrees(laplace, truth.mean, truth.sd)


def mixture(log_weight, mean, variance, grid):
    """Moments of (x, g): x Gaussian given g, g on an even grid (the trapezoid rule, exact for smooth tails)."""
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    first, centre = weight @ mean, weight @ grid
    x = first, np.sqrt(weight @ (variance + (mean - first) ** 2))
    return x, (centre, np.sqrt(weight @ (grid - centre) ** 2))


def linear_truth():
    """Given sigma, beta is Gaussian; log sigma on a grid."""
    x, y = (np.asarray(part, np.float64) for part in targets.problem("linear").data)
    grid = np.linspace(-1.0, 2.0, 2001)
    precision = x.T @ x * np.exp(-2 * grid)[:, None, None] + np.eye(5) / 25
    shift = x.T @ y * np.exp(-2 * grid)[:, None]
    mean = np.linalg.solve(precision, shift[:, :, None])[:, :, 0]
    log_weight = -len(y) * grid - 0.5 * y @ y * np.exp(-2 * grid) + 0.5 * np.sum(shift * mean, axis=1)
    log_weight -= 0.5 * np.linalg.slogdet(precision)[1] + grid**2 / 8
    variance = np.diagonal(np.linalg.inv(precision), axis1=1, axis2=2)
    beta, log_sigma = mixture(log_weight, mean, variance, grid)
    return np.append(beta[0], log_sigma[0]), np.append(beta[1], log_sigma[1])


def hierarchical_truth(name):
    """Given tau, mu is Gaussian; log tau on a grid that reaches ten standard deviations of its prior."""
    y, s = (np.asarray(part, np.float64) for part in targets.problem(name).data)
    grid = np.linspace(-10.0, 5.0, 6001)
    variance = s**2 + np.exp(2 * grid)[:, None]
    precision, shift = np.sum(1 / variance, axis=1) + 1 / 25, np.sum(y / variance, axis=1)
    log_weight = -0.5 * np.sum(np.log(variance) + y**2 / variance, axis=1) - 0.5 * np.log(precision)
    log_weight += 0.5 * shift**2 / precision - 0.5 * grid**2
    mu, log_tau = mixture(log_weight, (shift / precision)[:, None], 1 / precision[:, None], grid)
    return np.append(log_tau[0], mu[0]), np.append(log_tau[1], mu[1])


def test_the_linear_reference_agrees_with_conjugacy():
    assert agrees(references.reference("linear"), *linear_truth())


@pytest.mark.parametrize("name", ["hierarchical", "hierarchical_weak"])
def test_the_hierarchical_references_agree_with_conjugacy(name):
    found, (mean, sd) = references.reference(name), hierarchical_truth(name)
    assert np.max(np.abs(np.concatenate([found.mean - mean, found.sd - sd])) / np.tile(sd, 2)) < 1e-7


@pytest.mark.parametrize("name", targets.BUILDERS)
def test_the_file_belongs_to_the_catalogue_and_is_accurate(name):
    one, found = targets.problem(name), references.reference(name)
    assert one is targets.problem(name)
    assert found.mean.shape == found.sd.shape == (len(one.names),)
    assert found.worst_stderr < 5e-4
    grad = jax.tree.leaves(one.target.grad(jax.tree.map(jax.numpy.asarray, one.theta_0), one.data))
    assert all(np.all(np.isfinite(leaf)) and leaf.dtype == np.float32 for leaf in grad)


def test_the_file_names_the_catalogue():
    names = list(json.loads(references.FILE.read_text()))
    # The real data sets follow; their packages come with the bench extra only.
    assert names[: len(targets.catalogue())] == targets.catalogue() and len(set(names)) == len(names)


def test_a_stale_reference_is_refused():
    entry = json.loads(references.FILE.read_text())["poisson"]
    one = targets.problem("poisson")
    x, y = one.data
    other = y.copy()
    other[-1] += 1
    assert references.check("poisson", one, entry).method == "importance"
    prior = lv.Target(lambda theta: 1.01 * one.target.log_prior(theta), one.target.log_likelihood)
    for changed in (replace(one, data=(x, other)), replace(one, data=(x[:-1], y[:-1])), replace(one, target=prior)):
        with pytest.raises(ValueError, match=r"references.json is stale: 'poisson'.*python -m benchmarks.references"):
            references.check("poisson", changed, entry)
    renamed = targets.problem("linear")
    with pytest.raises(ValueError, match="stale"):
        references.check("poisson", renamed, entry)


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"name must be one of logistic_paper.*got 'cauchy'"):
        references.reference("cauchy")
