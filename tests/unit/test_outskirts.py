"""What lies far out, against integrals in closed form; and how often chains were there, counted by hand."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import langevin as lv
from langevin.anchor.passes import Passes
from langevin.outskirts import FAR, Outskirts, looked
from langevin.sampling.visits import seen_far_out


def outskirts(log_density, d):
    """What lies far out about the mode of a density without data."""
    target = lv.Target(log_density)
    anchor = lv.laplace(target, None, np.zeros(d))
    with jax.enable_x64(True):
        return looked(Passes(target, None, anchor.layout).total, anchor, 0)


def with_component(weight, covariance, centre=0.0):
    """(1 - weight) N(0, I) + weight N(centre, covariance), as a log density."""
    root = np.linalg.cholesky(np.atleast_2d(covariance))
    inverse, log_det = np.linalg.inv(root), np.sum(np.log(np.diag(root)))

    def log_density(t):
        wide = jnp.log(weight) - log_det - 0.5 * jnp.sum((inverse @ (t - centre)) ** 2)
        return jnp.logaddexp(jnp.log1p(-weight) - 0.5 * jnp.sum(t**2), wide)

    return log_density


def beyond(sd, centre=0.0):
    """Mass and second moment of N(centre, sd^2) farther than FAR from 0, by a fine grid."""
    x = np.linspace(FAR, centre + 12.0 * sd + FAR, 200_001)
    density = stats.norm(centre, sd).pdf(x) + stats.norm(centre, sd).pdf(-x)
    return np.trapezoid(density, x), np.trapezoid(density * x**2, x)


def test_a_gaussian_has_nothing_far_out():
    found = outskirts(lambda t: -0.5 * jnp.sum((t / jnp.array([1.0, 10.0, 0.1])) ** 2), 3)
    assert_allclose(found.variance, np.zeros(3))
    assert_allclose(found.mass, np.zeros(3))


@pytest.mark.parametrize("weight, sd", [(2e-3, 6.0), (1e-3, 30.0), (1e-2, 4.0)])
def test_a_wide_component_is_measured(weight, sd):
    found = outskirts(with_component(weight, sd**2), 1)
    mass, variance = (weight * wide + own for wide, own in zip(beyond(sd), beyond(1.0), strict=True))
    # Radii that grow by a quarter integrate to some percent. An approximation need not be better.
    assert_allclose(found.mass, mass, rtol=0.1)
    assert_allclose(found.variance * found.sd**2, variance, rtol=0.05)
    x = np.linspace(FAR, 12.0 * sd + FAR, 200_001)
    fourth = np.trapezoid(2.0 * (weight * stats.norm(0.0, sd).pdf(x) + stats.norm.pdf(x)) * x**4, x)
    assert_allclose(found.fourth * found.sd**4, fourth, rtol=0.05)


def test_a_component_along_one_axis_is_found_along_that_one():
    found = outskirts(with_component(1e-3, np.diag([1.0, 900.0, 1.0])), 3)
    assert_allclose(found.variance * found.sd**2, [0.0, 1e-3 * beyond(30.0)[1], 0.0], rtol=0.05, atol=1e-4)


def test_a_component_along_the_diagonal_is_found_in_every_parameter():
    way = np.ones(5) / np.sqrt(5)
    covariance = np.eye(5) + (400.0 - 1.0) * np.outer(way, way)
    found = outskirts(with_component(2e-3, covariance), 5)
    each = np.sqrt(covariance[0, 0])
    assert_allclose(found.variance * found.sd**2, np.full(5, 2e-3 * beyond(each)[1]), rtol=0.1)


def test_a_ridge_between_the_axes_is_found_from_a_point_on_it():
    """Narrower than the mode across: from the axes nothing leads there."""
    covariance = 25.0 * np.array([[1.0, 0.99], [0.99, 1.0]])
    target = lv.Target(with_component(3e-3, covariance))
    anchor = lv.laplace(target, None, np.zeros(2))
    with jax.enable_x64(True):
        total = Passes(target, None, anchor.layout).total
        found, missed = looked(total, anchor, 0, np.array([[9.0, 11.0], [-9.0, -9.0]])), looked(total, anchor, 0)
    assert_allclose(found.variance * found.sd**2, np.full(2, 3e-3 * beyond(5.0)[1]), rtol=0.1)
    assert np.all(missed.variance < 0.1 * found.variance)
    # The survey has such points.
    surveyed = lv.plan(target, None, np.zeros(2)).survey.outskirts
    assert_allclose(surveyed.variance, found.variance, rtol=0.1)


def test_a_component_to_one_side_is_found():
    found = outskirts(with_component(5e-3, np.diag([9.0, 1.0]), np.array([8.0, 0.0])), 2)
    mass, variance = beyond(3.0, 8.0)
    assert_allclose(found.mass[0], 5e-3 * mass, rtol=0.1)
    assert_allclose(found.variance[0] * found.sd[0] ** 2, 5e-3 * variance, rtol=0.1)
    assert found.variance[1] < 1e-6


def test_where_it_costs_too_much_nothing_is_looked_at():
    target = lv.Target(lambda t: -0.5 * jnp.sum(t**2))
    anchor = lv.laplace(target, None, np.zeros(3))
    found = looked(lambda *_: pytest.fail("a pass was made"), anchor, 10**7)
    assert len(found.variance) == 0


def test_the_scatter_of_a_few_visits_is_that_of_simulated_ones():
    """The sum of a Poisson number of exponential squares, 20 on average: its relative standard error is sqrt(2/20)."""
    rng = np.random.default_rng(0)
    total = np.array([rng.exponential(size=n).sum() for n in rng.poisson(20, size=20_000)])
    share = 0.1
    one = Outskirts(np.zeros(1), np.ones(1), np.full(1, 1e-3), np.full(1, share), np.full(1, 2.0 * share**2 / 1e-3))
    # An sd's relative error is half that of its variance; here to first order, of a variance of 1.
    expected = 0.5 * share * total.std() / total.mean()
    assert_allclose(one.scatter(np.ones(1), np.full(1, 20.0)), expected, rtol=0.03)
    assert_allclose(one.scatter(np.ones(1), np.zeros(1)), one.scatter(np.ones(1), np.ones(1)))


def test_squares_that_scatter_more_make_visits_worth_less():
    """The sum of a Poisson number of r^2, log r^2 ~ N(0, 2), has relative variance E r^4 / (E r^2)^2 / n = e^2 / n."""
    rng = np.random.default_rng(0)
    squares = stats.lognorm(np.sqrt(2.0))
    total = np.array([squares.rvs(size=n, random_state=rng).sum() for n in rng.poisson(400, size=20_000)])
    mass = 1e-3
    variance, fourth = mass * squares.mean(), mass * squares.moment(2)
    one = Outskirts(np.zeros(1), np.ones(1), *(np.full(1, value) for value in (mass, variance, fourth)))
    expected = 0.5 * variance * total.std() / total.mean()
    assert_allclose(one.scatter(np.ones(1), one.worth(np.full(1, 400.0))), expected, rtol=0.1)
    # As if they scattered as exponential variables do, the error would be half of that.
    assert one.scatter(np.ones(1), np.full(1, 400.0)) < 0.6 * expected
    # Where there is nothing there is nothing to count.
    assert_allclose(Outskirts(*np.zeros((5, 1))).worth(np.full(1, 7.0)), 7.0)


def test_arrivals_of_kept_draws_are_counted():
    theta = np.zeros((2, 10, 2))
    theta[0, 0, 0] = 5.0
    theta[0, 4:7, 0] = -6.0
    theta[1, 9, 1] = 20.0
    ledger = SimpleNamespace(columns={}, draws=SimpleNamespace(theta=theta), num_steps=10)
    one = Outskirts(np.zeros(2), np.array([1.0, 4.0]), *np.zeros((3, 2)))
    assert_allclose(seen_far_out(ledger, one), [2.0, 1.0])
    # One draw of four is kept: of visits that last less than four steps, some were missed.
    thinned = SimpleNamespace(columns={}, draws=ledger.draws, num_steps=40)
    assert_allclose(seen_far_out(thinned, one), [2.0 * np.sqrt(4.0 / 2.0), 1.0 * np.sqrt(4.0)])
