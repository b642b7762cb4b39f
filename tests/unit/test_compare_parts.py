"""What a comparison stands on: references that are right, and steps that are chosen as their formulas say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, stats

import langevin as lv
from langevin.compare.contestant import not_written
from langevin.compare.problem import Problem, log_density
from langevin.compare.reference import LEVELS, reference
from langevin.compare.settings import mean_squares
from langevin.compare.steps import balanced, gradient_noise, stein_discrepancies
from langevin.compare.targets import CAUCHY, TARGETS, WIDE, problem


def test_closed_references_agree_with_integrals():
    truth = reference("heavy")
    for k, y in enumerate(CAUCHY.astype(np.float64)):

        def density(t, y=y, power=0):
            return t**power * np.exp(-0.5 * (t / WIDE) ** 2) / np.prod(1.0 + (y - t) ** 2)

        total, first, second = (
            integrate.quad(lambda t, p=p: density(t, power=p), -np.inf, np.inf, limit=500)[0] for p in range(3)
        )
        assert_allclose(truth.mean[k], first / total, atol=1e-6)
        assert_allclose(truth.sd[k], np.sqrt(second / total - (first / total) ** 2), rtol=1e-5)
        below = integrate.quad(density, -np.inf, truth.points[0, k], limit=500)[0] / total
        assert_allclose(below, LEVELS[0], rtol=1e-3)
    counts = reference("counts")
    assert_allclose(counts.mean[0], stats.gamma(2.5, scale=1 / 20.5).expect(np.log), rtol=1e-6)


def test_stored_references_are_of_this_data_and_much_sharper_than_what_they_judge():
    for name, entry in TARGETS.items():
        if entry.missing:
            continue
        truth = reference(name)
        assert truth.mean.shape == truth.sd.shape == problem(name).compared(problem(name).theta_0).shape
        assert max(truth.mean_error, truth.sd_error, truth.points_error) < 1e-2
    model = lv.models.Logistic.simulate(seed=1).truth()
    assert_allclose(reference("logistic").mean, model.mean, rtol=1e-6)


def test_the_stein_discrepancy_is_the_double_sum_of_its_definition():
    one = problem("logistic")
    points = np.random.default_rng(0).standard_normal((1, 4, 3)).astype(np.float32)
    data = jax.tree.map(jnp.asarray, one.data)
    unit = points[0].std(axis=0)
    score = jax.vmap(lambda t: jax.grad(log_density(one))(t, data))(points[0]) * unit

    def kernel(x, y):
        return (1.0 + jnp.sum((x - y) ** 2) / 3) ** -0.5

    total = 0.0
    for x, s in zip(points[0] / unit, score, strict=True):
        for y, t in zip(points[0] / unit, score, strict=True):
            cross = jnp.trace(jax.jacfwd(jax.grad(kernel, 0), 1)(x, y))
            slopes = s @ jax.grad(kernel, 1)(x, y) + t @ jax.grad(kernel, 0)(x, y)
            total += float(kernel(x, y) * (s @ t) + slopes + cross)
    assert_allclose(stein_discrepancies(one)(points, data)[0], total / 16, rtol=1e-4)


def test_the_balanced_step_has_the_least_error_of_its_formula():
    precision, noise, steps = np.diag([1.0, 4.0]), np.diag([3.0, 20.0]), 1e5
    chosen = balanced(lv.SGLD(), precision, noise, steps)

    def error(delta):
        relative = np.diagonal(lv.SGLD().bias(precision, noise, delta)) * np.array([1.0, 4.0])
        return np.mean(relative**2) + np.mean(4.0 / (np.array([1.0, 4.0]) * delta * steps))

    assert error(chosen) <= min(error(chosen * 2**0.5), error(chosen / 2**0.5))
    # To leading order the bias is k delta with k = (lambda + C)/4 on average, and the best step (s/(2 k^2))^(1/3).
    assert 0.0 < chosen < 0.25


def test_the_step_of_rmsprop_is_the_balanced_one_in_its_units():
    one = problem("logistic")
    anchor = lv.laplace(one.target, one.data, one.theta_0)
    delta, squares = mean_squares(one, anchor, 1e5)
    noise = gradient_noise(one, anchor.theta, np.eye(3), one.batch_size)
    assert_allclose(squares, np.diagonal(noise + anchor.precision))
    # Coordinates theta / sqrt(G) with G = squares^-1/2.
    root = np.diag(np.sqrt(squares**-0.5))
    assert_allclose(delta, balanced(lv.SGLD(), root @ anchor.precision @ root, root @ noise @ root, 1e5))


def test_likelihoods_that_are_not_written_anew_are_refused_by_the_name_of_the_language():
    assert not_written("TensorFlow")(problem("logistic")) is None
    assert not_written("TensorFlow")(problem("heavy")) == "its likelihood is not written in TensorFlow here"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # TensorFlow warns of its own futures
def test_the_psgld_of_tensorflow_probability_steps_as_stated():
    pytest.importorskip("tensorflow_probability")
    from langevin.compare.peer_tfp import _Program, psgld

    # Rows that are all alike: gradients are -(theta - 2) 20/25 - theta/4.
    target = lv.Target(lambda t: -0.125 * t[0] ** 2, lambda t, x: -0.02 * (x - t[0]) ** 2)
    data, prior_sd = np.full(20, 2.0, np.float32), np.full(1, 2.0, np.float32)
    one = Problem("alike", target, data, 1, prior_sd=prior_sd, family="location")
    psgld(one, 1.0)
    program, unit = _Program(one), 3
    program.begin(np.full(1, 5.0, np.float32))
    theta, v, rate = 5.0, 1.0, 0.05
    for _ in range(24):
        g = (-(theta - 2.0) * 0.8 - theta / 4.0) / unit
        v = 0.999 * v + 0.001 * g**2
        theta += 0.5 * rate * unit * g / np.sqrt(v + 1e-8)
    assert_allclose(program.moved(1, rate, unit)[5, :, 0], theta, rtol=1e-5)

    # At the mode, and with steps so small that it stays there: V is 0.999^m.
    program.begin(np.full(1, 1.6 / 1.05, np.float32))
    draws = np.concatenate([program.moved(1, 1e-5, unit) for _ in range(10)])[16:, :, 0]
    m = 4.0 * np.arange(17, 17 + len(draws))[1:] - 1.5
    square = np.mean(np.diff(draws, axis=0) ** 2, axis=1) / (4.0 * 1e-5 * 0.999 ** (-m / 2.0))
    # 2500 squares of normal variables: their mean has an error of 0.03.
    assert_allclose(square.mean(), 1.0, atol=0.12)
