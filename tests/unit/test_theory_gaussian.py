"""The exact law of SGLD on the linear Gaussian model: enumeration, closed forms, simulation by z-scores."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from langevin.theory.gaussian import LinearGaussianLaw

SMALL = np.array([0.3, -1.0, 2.5, 7.0])
STEPS = np.array([0.35, 0.2, 0.3])
FALSE_ALARM = 1e-8  # a test


def batches(law: LinearGaussianLaw) -> np.ndarray:
    """H for every equally likely batch."""
    x = np.asarray(law.x)
    draw = (
        itertools.product(range(x.size), repeat=law.batch_size)
        if law.replacement
        else itertools.combinations(range(x.size), law.batch_size)
    )
    sums = np.array([x[list(batch)].sum() for batch in draw])
    return (x.size / law.batch_size * sums - x.sum()) / law.sigma_x**2


def fourth_cumulant(centred: np.ndarray) -> float:
    return float((centred**4).mean() - 3 * (centred**2).mean() ** 2)


def small_law(batch_size: int, replacement: bool) -> LinearGaussianLaw:
    return LinearGaussianLaw(SMALL, 1.0, 2.0, batch_size, replacement)


def a_sine(law: LinearGaussianLaw, shift: float) -> Callable[[np.ndarray], np.ndarray]:
    def f(theta: np.ndarray) -> np.ndarray:
        return -0.5 * ((theta - law.mu_p) / law.sigma_p**2 * np.cos(theta - shift) + np.sin(theta - shift))

    return f


schemes = pytest.mark.parametrize(
    ("batch_size", "replacement"),
    [(1, True), (2, True), (3, True), (1, False), (2, False), (3, False), (4, False)],
)


def test_posterior() -> None:
    law = LinearGaussianLaw(SMALL, 3.0, 2.0, 1, True)
    variance = 1 / (4 / 2.0**2 + 1 / 3.0**2)
    np.testing.assert_allclose([law.sigma_p**2, law.mu_p], [variance, variance * SMALL.sum() / 4], rtol=1e-15)


@schemes
def test_gradient_noise_by_enumeration(batch_size: int, replacement: bool) -> None:
    law = small_law(batch_size, replacement)
    H, t = batches(law), np.linspace(-3.0, 3.0, 13)
    np.testing.assert_allclose(H.mean(), 0, atol=1e-14)
    np.testing.assert_allclose(law.grad_noise, (H**2).mean(), atol=1e-14)
    np.testing.assert_allclose(law.grad_noise_third, (H**3).mean(), atol=1e-13)
    np.testing.assert_allclose(law.grad_noise_fourth, fourth_cumulant(H), atol=1e-12)
    np.testing.assert_allclose(law.noise_cf(t), np.exp(1j * np.multiply.outer(t, H)).mean(axis=1), atol=1e-14)


@schemes
def test_cumulants_by_enumeration(batch_size: int, replacement: bool) -> None:
    """Given the three batches theta_3 is Gaussian; average its moments over all triples of batches."""
    law, theta_0 = small_law(batch_size, replacement), 2.0
    H, mean, variance = batches(law), np.array([theta_0]), 0.0
    for delta in STEPS:
        a = 1 - delta / (2 * law.sigma_p**2)
        mean = (law.mu_p + a * (mean - law.mu_p) + delta / 2 * H[:, None]).ravel()
        variance = a**2 * variance + delta
    centred = mean - mean.mean()
    exact = law.cumulants(STEPS, theta_0, [0, 3])
    start = [exact.mean[0], exact.variance[0], exact.third[0], exact.fourth[0]]
    np.testing.assert_allclose(start, [theta_0, 0, 0, 0], atol=1e-14)
    np.testing.assert_allclose(exact.mean[1], mean.mean(), rtol=1e-13)
    np.testing.assert_allclose(exact.variance[1], variance + (centred**2).mean(), rtol=1e-13)
    np.testing.assert_allclose(exact.third[1], (centred**3).mean(), atol=1e-13)
    # Cumulants of independent parts add, and a Gaussian part has no fourth.
    np.testing.assert_allclose(exact.fourth[1], fourth_cumulant(centred), atol=1e-12)


@schemes
def test_average_over_three_steps_by_enumeration(batch_size: int, replacement: bool) -> None:
    """theta_1 and theta_2 by all batches and Gauss-Hermite nodes: every path of three terms is summed.

    The error must stay within the reported truncation, give or take the rounding of two different sums.
    """
    law, theta_0, shift = small_law(batch_size, replacement), 1.7, 0.6
    f = a_sine(law, shift)
    H, count = np.unique(np.round(batches(law), 12), return_counts=True)
    z, w = np.polynomial.hermite_e.hermegauss(40)
    chance = np.multiply.outer(count / count.sum(), w / w.sum()).ravel()
    theta, value, weight = np.array([theta_0]), np.zeros(1), np.ones(1)
    for k, delta in enumerate(STEPS):
        value = value + delta * f(theta)
        T = STEPS[: k + 1].sum()
        bias = weight @ value / T
        exact = law.average_sin(STEPS, theta_0, [k + 1], shift)
        np.testing.assert_allclose(exact.T_m, T, rtol=1e-15)
        variance = weight @ (value / T - bias) ** 2
        assert abs(exact.bias[0] - bias) <= exact.truncation_bias[0] + 1e-11
        assert abs(exact.variance[0] - variance) <= exact.truncation_variance[0] + 1e-11
        np.testing.assert_allclose([exact.bias[0], exact.mse[0]], [bias, bias**2 + variance], rtol=1e-7)
        if k == STEPS.size - 1:
            break
        drift = theta + delta / 2 * (law.mu_p - theta) / law.sigma_p**2
        theta = np.add.outer(drift, np.add.outer(delta / 2 * H, delta**0.5 * z)).ravel()
        value = np.repeat(value, H.size * z.size)
        weight = np.multiply.outer(weight, chance).ravel()


def test_average_without_gradient_noise_by_the_double_sum() -> None:
    """All pairs of times, jointly Gaussian, over several vectorised stretches, with a jump between two."""
    law, M = LinearGaussianLaw(SMALL, 1.0, 2.0, 4, False), 700
    delta, c = (3.0 + np.arange(M)) ** -0.4, 0.35
    delta[256:400] /= 50
    a = law.contraction(delta)
    variance = law.cumulants(delta, law.mu_p, np.arange(M)).variance
    decay = np.concatenate([[1.0], np.cumprod(a[:-1])])
    cov = np.tril(np.divide.outer(decay, decay) * variance)
    cov = cov + np.tril(cov, -1).T
    p, Vj, Vk = law.sigma_p**-2, variance[:, None], variance[None, :]
    product = np.zeros((M, M), dtype=complex)
    for e, g in itertools.product((1, -1), repeat=2):  # f = sum_e exp(ie(y - c)) (-p y + ie)/4
        sj, sk = e * Vj + g * cov, e * cov + g * Vk
        cf = np.exp(-0.5 * (Vj + 2 * e * g * cov + Vk) - 1j * (e + g) * c)
        pair = p * p * (cov - sj * sk) + p * (e * sk + g * sj) - e * g
        product += cf * pair / 16
    mean = 0.5 * np.exp(-variance / 2) * np.sin(c) * (1 - p * variance)
    exact = law.average_sin(delta, law.mu_p, [100, 256, 257, M], law.mu_p + c)
    for i, m in enumerate(exact.m):
        d, T = delta[:m], delta[:m].sum()
        np.testing.assert_allclose(exact.bias[i], d @ mean[:m] / T, rtol=1e-9)
        np.testing.assert_allclose(exact.mse[i], (d @ product[:m, :m].real @ d) / T**2, rtol=1e-8)


def test_constant_steps_reach_the_stationary_law() -> None:
    law, delta = small_law(2, True), 0.3
    late = law.cumulants(np.full(400, delta), 3.0, [400])
    np.testing.assert_allclose([late.mean[0], late.variance[0], late.third[0]], law.stationary(delta), rtol=1e-12)
    quiet = small_law(4, False)
    exact = quiet.sigma_p**2 / (1 - delta / (4 * quiet.sigma_p**2))
    np.testing.assert_allclose(quiet.stationary(delta)[1], exact, rtol=1e-14)


def simulate(
    law: LinearGaussianLaw, delta: np.ndarray, theta_0: float, shift: float, runs: int, right: bool = False
) -> np.ndarray:
    """pi_m(A sin) at the last m, one per run; `right` averages over theta_k instead of theta_{k-1}."""
    rng, f, x = np.random.default_rng(20), a_sine(law, shift), np.asarray(law.x)
    theta, total = np.full(runs, theta_0), np.zeros(runs)
    for d in delta:
        before = theta
        if law.replacement:
            index = rng.integers(x.size, size=(runs, law.batch_size))
        else:
            index = np.argsort(rng.random((runs, x.size)), axis=1)[:, : law.batch_size]
        grad = -theta / law.sigma_theta**2 + x.size * (x[index].mean(axis=1) - theta) / law.sigma_x**2
        theta = theta + d / 2 * grad + d**0.5 * rng.standard_normal(runs)
        total += d * f(theta if right else before)
    return total / delta.sum()


def z_scores(sample: np.ndarray, bias: float, mse: float) -> np.ndarray:
    pairs = ((sample, bias), (sample**2, mse))
    return np.array([(v.mean() - exact) / (v.std() / v.size**0.5) for v, exact in pairs])


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize(("batch_size", "replacement"), [(1, True), (5, True), (5, False)])
def test_simulation_agrees_and_the_right_end_point_does_not(batch_size: int, replacement: bool, right: bool) -> None:
    """Skewed data, noise far from Gaussian, a start away from the centre: 20000 runs of 30 steps."""
    x = np.random.default_rng(5).exponential(3.0, size=20) - 3.0
    law = LinearGaussianLaw(x, 1.0, 2.0, batch_size, replacement)
    delta, theta_0 = (5.0 + np.arange(30)) ** -0.5, law.mu_p + 3 * law.sigma_p
    shift = law.mu_p + law.sigma_p / 2
    exact = law.average_sin(delta, theta_0, [30], shift)
    z = z_scores(simulate(law, delta, theta_0, shift, 20_000, right), exact.bias[0], exact.mse[0])
    limit = stats.norm.isf(FALSE_ALARM / (2 * z.size))
    assert (np.abs(z).max() > limit) == right


@pytest.mark.parametrize("alpha", [0.2, 1 / 3, 0.5])
@pytest.mark.parametrize(("batch_size", "replacement"), [(1, True), (10, True), (10, False), (100, True), (100, False)])
def test_truncation_is_far_below_monte_carlo_error(alpha: float, batch_size: int, replacement: bool) -> None:
    """The published setting: a comparison with 4000 runs has error sd/sqrt(4000) in the bias."""
    rng = np.random.default_rng(1)
    law = LinearGaussianLaw(rng.normal(rng.normal(), 5.0, size=100), 1.0, 5.0, batch_size, replacement)
    m_0 = next(k for k in itertools.count() if (k + 1) ** -alpha < law.sigma_p)
    delta = (m_0 + np.arange(1.0, 1001.0)) ** -alpha
    exact = law.average_sin(delta, law.mu_p, [100, 1000], law.mu_p + law.sigma_p / 2)
    assert np.all(exact.truncation_bias < 0.2 * np.sqrt(exact.variance / 4000))
    assert np.all(exact.truncation_variance < 0.2 * np.sqrt(2 / 4000) * exact.variance)
    assert np.all(exact.truncation_bias < 1e-5 * np.abs(exact.bias))


def test_the_central_limit_theorem_is_approached() -> None:
    """T_m variance -> sigma^2, bias -> mubar sum delta^2/T_m at small constant steps, linearly in delta."""
    law, c = small_law(2, False), 0.5
    v = law.sigma_p**2
    sigma2 = 0.5 * (1 + np.exp(-2 * v) * np.cos(2 * c))
    mubar = -np.exp(-v / 2) * np.sin(c) * (1 / v + law.grad_noise) / 8
    errors = []
    for d in (0.02, 0.01):
        m = np.array([1000, 2000]) * round(0.02 / d)
        exact = law.average_sin(np.full(m[1], d), law.mu_p, m, law.mu_p + c)
        # Differences between two long times cancel the transient at the start.
        mean = np.diff(exact.bias * exact.T_m) / np.diff(exact.T_m)
        spread = np.diff(exact.variance * exact.T_m**2) / np.diff(exact.T_m)
        errors.append([mean[0] / d - mubar, spread[0] - sigma2])
    ratio = np.divide(*errors)
    np.testing.assert_allclose(ratio, 2.0, atol=0.1)


def test_bad_arguments_say_what_to_do() -> None:
    law = small_law(2, True)
    with pytest.raises(ValueError, match="batch_size must lie in"):
        small_law(5, False)
    with pytest.raises(ValueError, match="must be positive"):
        LinearGaussianLaw(SMALL, 0.0, 1.0, 1, True)
    with pytest.raises(ValueError, match="smaller first steps"):
        law.average_sin(np.full(3, 4.1 * law.sigma_p**2), 0.0, [3], 0.0)
    with pytest.raises(ValueError, match="at must hold m"):
        law.cumulants(STEPS, 0.0, [4])
