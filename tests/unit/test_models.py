"""Models with a known posterior: closed forms, drift inequalities, quadrature against other methods."""

import doctest

import jax
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit, log_expit

from langevin.models import LinearGaussian, Logistic, PosteriorQuadrature, posterior_moments
from langevin.models import linear_gaussian as linear_gaussian_module
from langevin.models import logistic as logistic_module
from langevin.models import quadrature as quadrature_module

GAUSSIANS = [
    LinearGaussian.simulate(100, 1.0, 5.0, seed=0),
    LinearGaussian.simulate(7, 3.0, 0.5, seed=1),
    LinearGaussian(np.array([2.0]), 0.1, 4.0),
]
LOGISTICS = [
    Logistic.simulate(1000, 3, seed=0),
    Logistic.simulate(10, 2, seed=1),
    Logistic(np.array([[0.1]]), np.array([1.0]), prior_sd=2.0),
    Logistic(10.0 * np.eye(4), np.array([1, -1, 1, 1]), prior_sd=0.3),
]


@pytest.mark.parametrize("module", [linear_gaussian_module, logistic_module, quadrature_module])
def test_docstring_examples(module) -> None:
    assert doctest.testmod(module).failed == 0


# ---- linear Gaussian


@pytest.mark.parametrize("model", GAUSSIANS)
def test_gaussian_posterior_by_brute_force(model: LinearGaussian) -> None:
    # The trapezoidal rule on a Gaussian over +-12 sd at 0.01 sd is exact to rounding.
    theta = model.mu_p + model.sigma_p * np.linspace(-12.0, 12.0, 2401)
    log_pi = -0.5 * (theta / model.sigma_theta) ** 2
    for x in model.x:
        log_pi = log_pi - 0.5 * ((x - theta) / model.sigma_x) ** 2
    weights = np.exp(log_pi - log_pi.max())
    weights /= weights.sum()
    mean = weights @ theta
    np.testing.assert_allclose(mean, model.mu_p, rtol=0, atol=1e-12 * model.sigma_p)
    np.testing.assert_allclose(np.sqrt(weights @ (theta - mean) ** 2), model.sigma_p, rtol=1e-12)


@pytest.mark.parametrize("model", GAUSSIANS)
def test_gaussian_gradient_of_target(model: LinearGaussian) -> None:
    theta = model.mu_p + model.sigma_p * np.array([-50.0, -1.0, 0.3, 8.0])
    with jax.enable_x64(True):
        grad = jax.vmap(lambda t: model.target.grad(t, model.x))(theta)
    np.testing.assert_allclose(grad, model.grad(theta), rtol=1e-12)


@pytest.mark.parametrize("model", GAUSSIANS)
def test_gaussian_drift_is_an_equality(model: LinearGaussian) -> None:
    theta = model.mu_p + model.sigma_p * np.concatenate([np.linspace(-5, 5, 101), [-1e6, -1e3, 1e3, 1e6]])
    drift = 0.5 * model.lyapunov_grad(theta) * model.grad(theta)
    alpha, beta = model.drift_constants
    assert alpha == beta == model.sigma_p**-2
    V = model.lyapunov(theta)
    # The right side is a difference of two numbers of size alpha V: rounding is relative to that.
    assert np.all(np.abs(drift - (-alpha * V + beta)) <= 1e-13 * alpha * V)
    np.testing.assert_allclose(drift, (1 - V) / model.sigma_p**2, rtol=1e-11, atol=1e-13 * alpha)


def test_gaussian_lyapunov_gradient() -> None:
    model = GAUSSIANS[0]
    with jax.enable_x64(True):
        grad = jax.grad(model.lyapunov)(np.float64(1.7))
    np.testing.assert_allclose(grad, model.lyapunov_grad(np.float64(1.7)), rtol=1e-14)


def test_gaussian_simulate_and_data() -> None:
    model = LinearGaussian.simulate(50, 2.0, 3.0, seed=4)
    again = LinearGaussian.simulate(50, 2.0, 3.0, seed=4)
    assert np.array_equal(model.x, again.x) and model.theta_true == again.theta_true
    assert not np.array_equal(model.x, LinearGaussian.simulate(50, 2.0, 3.0, seed=5).x)
    assert model.x.dtype == np.float64 and model.data.dtype == np.float32 and model.data.shape == (50,)
    assert np.array_equal(model.data.astype(np.float64), model.x)
    assert model.theta_0.shape == () and model.theta_0 == np.float32(model.mu_p)
    model.target.check(model.theta_0, model.data)


def test_gaussian_simulate_law() -> None:
    # Sums of squares of standard normals over 2000 data sets against chi-square, false alarm 2e-8.
    models = [LinearGaussian.simulate(5, 2.0, 3.0, seed=s) for s in range(2000)]
    prior = sum((m.theta_true / 2.0) ** 2 for m in models)
    noise = sum(np.sum(((m.x - m.theta_true) / 3.0) ** 2) for m in models)
    for value, count in ((prior, 2000), (noise, 10_000)):
        assert 5e-9 < stats.chi2(count).cdf(value) < 1 - 5e-9


# ---- logistic


def points(model: Logistic) -> np.ndarray:
    """Many directions, the covariates' own among them, at radii from 0 to far tails."""
    rng = np.random.default_rng(0)
    directions = np.concatenate([rng.standard_normal((60, model.dimension)), model.x[:10], -model.x[:10], [model.map]])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    radii = np.concatenate([[0.0], np.logspace(-4, 5, 46)])
    return (radii[:, None, None] * directions).reshape(-1, model.dimension)


def drift(model: Logistic, theta: np.ndarray) -> np.ndarray:
    return 0.5 * np.sum(model.lyapunov_grad(theta) * model.grad(theta), axis=-1)


def holds(model: Logistic, theta: np.ndarray, alpha: float, beta: float) -> bool:
    V = model.lyapunov(theta)
    return bool(np.all(drift(model, theta) <= -alpha * V + beta + 1e-12 * alpha * V))


@pytest.mark.parametrize("model", LOGISTICS)
def test_logistic_drift_inequality(model: Logistic) -> None:
    theta = points(model)
    alpha, beta = model.drift_constants
    assert alpha > 0
    assert holds(model, theta, alpha, beta)
    np.testing.assert_allclose(model.lyapunov(theta), 1 + np.linalg.norm(theta, axis=1) ** 2, rtol=1e-14)


def test_logistic_drift_constants_are_sharp() -> None:
    # Orthogonal large covariates: every u_i can sit at the maximum of u/(1+e^u) while theta is almost 0.
    model = Logistic(1e6 * np.eye(3), np.ones(3))
    alpha, beta = model.drift_constants
    u = 1 + logistic_module.LAMBERT
    theta = np.full(3, u / 1e6)
    np.testing.assert_allclose(drift(model, theta), -alpha * model.lyapunov(theta) + beta, rtol=1e-12)
    assert not holds(model, theta, alpha, beta - 1e-6)
    # alpha cannot be larger either: far out the drift is that of the prior.
    assert not holds(model, np.array([[0.0, 0.0, 1e5]]), alpha * 1.001, beta)


def printed_constants(model: Logistic) -> tuple[float, float]:
    """The paper's lambda/4 and the maximum of -lambda/4 r^2 + sum|x_i|/2 r, as printed."""
    precision = model.prior_sd**-2
    return precision / 4, np.linalg.norm(model.x, axis=1).sum() ** 2 / (4 * precision)


def test_printed_drift_constants_fail_when_the_prior_dominates() -> None:
    # beta as printed forgets the 1 of V = 1 + |theta|^2: at theta = 0 it asks for 0 <= -lambda/4 + beta.
    weak = Logistic(np.array([[0.1]]), np.array([1.0]))
    assert not holds(weak, np.zeros((1, 1)), *printed_constants(weak))
    # With much data the printed beta, quadratic in the data, is so large that the inequality happens to hold.
    strong = LOGISTICS[0]
    assert holds(strong, points(strong), *printed_constants(strong))
    assert printed_constants(strong)[1] > 1000 * strong.drift_constants[1]


def test_printed_drift_display_is_half_the_drift() -> None:
    model, theta = LOGISTICS[1], np.array([0.7, -1.3])
    u = model.y * (model.x @ theta)
    printed = -0.5 * theta @ theta / model.prior_sd**2 + 0.5 * np.sum(expit(-u) * u)
    np.testing.assert_allclose(drift(model, theta), 2 * printed, rtol=1e-13)


@pytest.mark.parametrize("model", [LOGISTICS[0], LOGISTICS[3]])
def test_logistic_derivatives(model: Logistic) -> None:
    theta = np.random.default_rng(1).standard_normal((20, model.dimension)) * 3

    @jax.jit
    def derivatives(t, data):
        def log_density(t):
            return model.target.log_density(t, data)

        return log_density(t), model.target.grad(t, data), jax.hessian(log_density)(t)

    with jax.enable_x64(True):
        value, grad, hessian = jax.vmap(derivatives, (0, None))(theta, (model.x, model.y))
        value, grad, hessian = np.asarray(value), np.asarray(grad), np.asarray(hessian)
    np.testing.assert_allclose(model.log_density(theta), value, rtol=1e-12)
    # Components cancel between data, so rounding is relative to the largest.
    np.testing.assert_allclose(model.grad(theta), grad, rtol=1e-11, atol=1e-12 * np.abs(grad).max())
    ours = np.array([model.hessian(t) for t in theta])
    np.testing.assert_allclose(ours, hessian, rtol=1e-11, atol=1e-12 * np.abs(hessian).max())


def test_log_density_sum_by_products() -> None:
    # Lengths on both sides of the block of 512 factors, and arguments at which exp under- and overflows.
    rng = np.random.default_rng(0)
    for length in (1, 511, 512, 513, 2000):
        u = np.concatenate(
            [rng.standard_normal((4, length)), 1000 * rng.standard_normal((4, length)), np.zeros((1, length))]
        )
        np.testing.assert_allclose(
            logistic_module._sum_log_sigmoid(u), log_expit(u).sum(axis=1), rtol=1e-14, atol=4e-16 * length
        )


def test_log_density_keeps_leading_axes() -> None:
    model = LOGISTICS[0]
    theta = np.random.default_rng(0).standard_normal((20, 7, 3))
    value = model.log_density(theta)
    assert value.shape == (20, 7) and model.grad(theta).shape == (20, 7, 3)
    assert model.log_density(theta[3, 4]).shape == ()
    np.testing.assert_allclose(model.log_density(theta[3, 4]), value[3, 4], rtol=1e-13)


@pytest.mark.parametrize("model", [*LOGISTICS, Logistic.simulate(200, 12, seed=3)])
def test_map_is_the_mode(model: Logistic) -> None:
    sd = np.sqrt(np.diag(model.laplace_covariance))
    assert np.all(np.abs(model.grad(model.map)) * sd < 1e-11)
    np.testing.assert_allclose(
        model.laplace_covariance @ -model.hessian(model.map), np.eye(model.dimension), atol=1e-11
    )


def test_map_where_plain_newton_fails() -> None:
    # Rows of very different size and a flat prior: undamped steps from 0 never settle.
    x = np.array([[29.2, 91.2], [-79.1, -35.3], [3.8, -0.5], [0.3, -0.3]])
    model = Logistic(x, np.array([1, 1, -1, -1]), prior_sd=10.0)
    assert np.all(np.abs(model.grad(model.map)) * np.sqrt(np.diag(model.laplace_covariance)) < 1e-11)
    theta = np.zeros(2)
    for _ in range(200):
        theta = theta - np.linalg.solve(model.hessian(theta), model.grad(theta))
    assert np.linalg.norm(theta - model.map) > 1.0


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


def test_logistic_simulate_and_data() -> None:
    model, again = Logistic.simulate(seed=3), Logistic.simulate(seed=3)
    assert model.x.shape == (1000, 3) and set(model.y) == {-1.0, 1.0} and model.prior_sd == 1.0
    assert np.array_equal(model.x, again.x) and np.array_equal(model.y, again.y)
    assert np.all(model.x[:, -1] == 1.0)
    x, y = model.data
    assert x.dtype == y.dtype == np.float32
    assert np.array_equal(x.astype(np.float64), model.x) and np.array_equal(y, model.y)
    assert model.theta_0.dtype == np.float32 and np.array_equal(model.theta_0, model.map.astype(np.float32))
    model.target.check(model.theta_0, model.data)


def test_logistic_simulate_law() -> None:
    # Score statistic: sum (y - E y)/sd over 200 data sets is standard normal within 5.8 (false alarm 1e-8).
    score, variance = 0.0, 0.0
    for seed in range(200):
        model = Logistic.simulate(100, 3, seed=seed)
        u = model.x @ model.theta_true
        p = expit(u)
        score += np.sum(u * ((model.y + 1) / 2 - p))
        variance += np.sum(u**2 * p * (1 - p))
    assert abs(score) < 5.8 * np.sqrt(variance)


@pytest.mark.parametrize(
    "y", [[0, 1, 1], [False, True, True], [-1, 1, 1], [0.0, 1.0, 1.0], np.array([0, 1, 1], dtype=np.uint8)]
)
def test_logistic_labels(y) -> None:
    assert Logistic(np.ones((3, 1)), y).y.tolist() == [-1.0, 1.0, 1.0]
    assert Logistic(np.ones((3, 1)), np.ones(3)).y.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("y", [[-1, 0, 1], [1, 2, 1], [0.5, 1, 0], [np.nan, 1, 1], ["a", "b", "a"], [1, 1, None]])
def test_logistic_bad_labels(y) -> None:
    with pytest.raises(ValueError, match=r"y must hold only -1 and \+1, or only 0 and 1, got the values .*Recode"):
        Logistic(np.ones((3, 1)), y)


# ---- both


def test_targets_are_the_same_objects_for_equal_parameters() -> None:
    a, b = LinearGaussian(np.ones(3), 1, 5), LinearGaussian(np.zeros(9), 1.0, np.float32(5.0))
    assert a.target is b.target
    assert a.target.log_prior is b.target.log_prior and a.target.log_likelihood is b.target.log_likelihood
    assert a.target is not LinearGaussian(np.ones(3), 1.0, 4.0).target
    c, d = Logistic.simulate(20, 3, seed=0), Logistic.simulate(30, 2, seed=1)
    assert c.target is d.target
    assert c.target.log_prior is not Logistic(c.x, c.y, prior_sd=2.0).target.log_prior
    assert c.target.log_likelihood is Logistic(c.x, c.y, prior_sd=2.0).target.log_likelihood


def test_models_keep_their_own_data() -> None:
    x = np.ones((3, 1))
    model, gaussian = Logistic(x, [1, 1, -1]), LinearGaussian(x[:, 0])
    x[:] = 7.0
    assert np.all(model.x == 1.0) and np.all(gaussian.x == 1.0)
    for array in (model.x, model.y, gaussian.x):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: LinearGaussian([]), r"x must be a non-empty vector .* got shape \(0,\)"),
        (lambda: LinearGaussian(np.ones((2, 2))), r"x must be .* got shape \(2, 2\)"),
        (lambda: LinearGaussian([1.0, np.nan]), "1 non-finite"),
        (lambda: LinearGaussian([1.0], sigma_theta=0.0), "sigma_theta is a standard deviation .* got 0.0"),
        (lambda: LinearGaussian([1.0], sigma_x=np.inf), "sigma_x is a standard deviation .* got inf"),
        (lambda: LinearGaussian.simulate(0), "num_data must be at least 1, got 0"),
        (lambda: Logistic(np.ones(3), np.ones(3)), r"x must be a non-empty matrix .* got shape \(3,\)"),
        (lambda: Logistic(np.full((3, 1), np.inf), np.ones(3)), "3 non-finite"),
        (
            lambda: Logistic(np.ones((3, 1)), np.ones(2)),
            r"y must have one label per row of x, got shape \(2,\)",
        ),
        (lambda: Logistic(np.ones((3, 1)), np.ones((3, 1))), "Flatten y"),
        (lambda: Logistic(np.ones((3, 1)), np.ones(3), prior_sd=-1.0), "prior_sd is a standard .* got -1.0"),
        (lambda: Logistic(np.ones((3, 1)), np.ones(3), prior_sd=np.nan), "prior_sd is a standard .* got nan"),
        (lambda: Logistic.simulate(dimension=0), "dimension must be at least 1, got 0"),
        (lambda: Logistic.simulate(num_data=0), "num_data must be at least 1, got 0"),
    ],
)
def test_bad_inputs(build, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
