"""Posterior moments by quadrature: against adaptive integration, exact cases, and what is refused."""

import numpy as np
import pytest
from scipy import integrate

from langevin.models import Logistic, PosteriorQuadrature, posterior_moments

LOGISTICS = [
    Logistic.simulate(1000, 3, seed=0),
    Logistic.simulate(10, 2, seed=1),
    Logistic(np.array([[0.1]]), np.array([1.0]), prior_sd=2.0),
]


def test_truth_in_one_dimension_by_adaptive_integration() -> None:
    for model in (
        Logistic(np.linspace(0.1, 3.0, 9)[:, None], np.array([1, 1, -1, 1, 1, 1, 1, 1, 1])),
        LOGISTICS[2],
    ):
        top = model.log_density(model.map)
        ends = model.map[0] + np.array([-15.0, 15.0]) * np.sqrt(model.laplace_covariance[0, 0])

        def integral(phi, model=model, top=top, ends=ends) -> float:
            return integrate.quad(
                lambda t: phi(t) * np.exp(model.log_density(np.array([t])) - top),
                *ends,
                epsabs=1e-13,
                epsrel=1e-12,
                limit=200,
            )[0]

        mass = integral(lambda t: 1.0)
        mean = integral(lambda t: t) / mass
        variance = integral(lambda t: t**2) / mass - mean**2
        truth = model.truth()
        np.testing.assert_allclose(truth.mean[0], mean, rtol=0, atol=1e-9 * np.sqrt(variance))
        np.testing.assert_allclose(truth.variance[0], variance, rtol=1e-9)
        np.testing.assert_allclose(
            model.expectation(lambda t: np.sin(t[:, 0])), integral(np.sin) / mass, rtol=0, atol=1e-9
        )


def test_truth_in_two_dimensions_by_adaptive_integration() -> None:
    model = Logistic.simulate(12, 2, seed=2)
    top, sd = model.log_density(model.map), np.sqrt(np.diag(model.laplace_covariance))
    (a, c), (b, d) = model.map - 9 * sd, model.map + 9 * sd

    def integrand(t: np.ndarray) -> np.ndarray:
        pi = np.exp(model.log_density(t) - top)
        return np.stack(
            [
                pi,
                *(pi * t[:, i] for i in (0, 1)),
                *(pi * t[:, i] * t[:, j] for i, j in ((0, 0), (0, 1), (1, 1))),
            ],
            1,
        )

    # Adaptive Gauss-Kronrod cubature: other nodes, other region, no Laplace approximation inside.
    result = integrate.cubature(integrand, [a, c], [b, d], rtol=1e-11, atol=1e-12, rule="gk21")
    assert result.status == "converged"
    mass, m0, m1, s00, s01, s11 = result.estimate
    mean = np.array([m0, m1]) / mass
    covariance = np.array([[s00, s01], [s01, s11]]) / mass - np.outer(mean, mean)
    truth = model.truth()
    np.testing.assert_allclose(truth.mean, mean, rtol=0, atol=1e-8 * truth.sd.min())
    np.testing.assert_allclose(truth.covariance, covariance, rtol=0, atol=1e-8 * truth.variance.min())


def test_truth_at_the_paper_setting() -> None:
    model = LOGISTICS[0]
    truth = model.truth()
    assert truth is model.truth()
    assert truth.error < 1e-9 and truth.order == 32
    assert np.array_equal(truth.map, model.map)
    np.testing.assert_array_equal(truth.variance, np.diag(truth.covariance))
    # Close to Laplace at N = 1000, and not equal to it: the difference is what a sampler is run for.
    shift = np.abs(truth.mean - truth.map) / truth.sd
    assert 1e-3 < shift.max() < 0.2


def test_integration_by_parts() -> None:
    # E[grad log pi] = 0 and E[theta grad log pi^T] = -I hold for every posterior: no truth is needed.
    model = LOGISTICS[1]
    np.testing.assert_allclose(model.expectation(model.grad), 0, atol=1e-8)
    np.testing.assert_allclose(
        model.expectation(lambda t: t[:, :, None] * model.grad(t)[:, None, :]), -np.eye(2), atol=1e-8
    )


def test_expectation_gives_the_moments_back() -> None:
    model = LOGISTICS[1]
    truth = model.truth()
    np.testing.assert_allclose(model.expectation(lambda t: t), truth.mean, rtol=1e-9)
    value = model.expectation(lambda t: (t[:, 0] - truth.mean[0]) ** 2)
    assert np.ndim(value) == 0
    np.testing.assert_allclose(value, truth.variance[0], rtol=1e-8)
    assert model.expectation(lambda t: np.zeros(len(t))) == 0


def test_quadrature_is_exact_on_a_gaussian_in_four_dimensions() -> None:
    root = np.random.default_rng(0).standard_normal((4, 4))
    covariance, mean = root @ root.T + np.eye(4), np.array([1.0, -20.0, 3.0, 0.0])
    precision = np.linalg.inv(covariance)

    def log_density(t: np.ndarray) -> np.ndarray:
        return -0.5 * np.einsum("ki,ij,kj->k", t - mean, precision, t - mean)

    truth = posterior_moments(log_density, mean, covariance)
    assert truth.order == 16 and truth.error < 1e-12
    np.testing.assert_allclose(truth.mean, mean, atol=1e-12)
    np.testing.assert_allclose(truth.covariance, covariance, rtol=1e-10, atol=1e-11)
    # With a centre and a width that are off the weights correct for both, only more nodes are needed.
    off = posterior_moments(lambda t: -0.5 * (t[:, 0] - 0.3) ** 2 / 1.2, np.zeros(1), np.eye(1))
    np.testing.assert_allclose([off.mean[0], off.covariance[0, 0]], [0.3, 1.2], rtol=1e-9)
    assert off.order > 16


def test_reported_error_bounds_the_true_error() -> None:
    # The whitened moments at a loose tolerance against those at order 128.
    model = Logistic.simulate(8, 2, seed=5)
    best = model.truth(1e-12)
    for rtol in (1e-2, 1e-4, 1e-6):
        loose = PosteriorQuadrature(model.log_density, model.map, model.laplace_covariance).moments(rtol)
        assert loose.error <= rtol
        assert np.abs((loose.mean - best.mean) / best.sd).max() <= 10 * loose.error
        assert np.abs((loose.covariance - best.covariance) / np.outer(best.sd, best.sd)).max() <= 10 * loose.error


def test_quadrature_refuses_what_it_cannot_do() -> None:
    model = LOGISTICS[1]
    with pytest.raises(RuntimeError, match=r"quadrature did not reach rtol=1e-09.*smooth"):
        model.expectation(lambda t: t[:, 0] > 0.1)
    with pytest.raises(RuntimeError, match="nan"):
        model.expectation(lambda t: np.full(len(t), np.nan))
    with pytest.raises(ValueError, match="phi must return one value per row"):
        model.expectation(lambda t: 1.0)
    with pytest.raises(ValueError, match=r"at most 4 columns.*got 5"):
        Logistic.simulate(20, 5).truth()
    with pytest.raises(ValueError, match="map must be a vector of length 1 to 4"):
        posterior_moments(lambda t: t[:, 0], np.zeros(5), np.eye(5))
    with pytest.raises(ValueError, match="laplace_covariance must be d x d"):
        posterior_moments(lambda t: t[:, 0], np.zeros(2), np.eye(3))
