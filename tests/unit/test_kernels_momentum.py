"""Kernels with momentum: steps against their formulas in NumPy, theory against closed forms and simulated chains.

False alarms: the simulated variances raise one for fewer than one seed in 1e8 (see `test_theory_agrees_with_chains`);
all other tests compare exactly, up to stated rounding.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import langevin as lv
from langevin.kernels.protocol import AffineKernel, Kernel

# Results of at most a few dozen float64 operations on numbers of order one.
ROUNDING = {"rtol": 1e-13, "atol": 1e-13}
FRICTIONS = [1e-3, 0.1, 0.7, 1.0, 3.0, 30.0]
PRECISION = np.array([[2.0, 0.6], [0.6, 0.5]])
NOISE = np.array([[1.5, -0.4], [-0.4, 0.9]])
KERNELS = (lv.SGHMC, lv.BAOAB, lv.UBU)
every_kernel = pytest.mark.parametrize("kind", KERNELS, ids=lambda kind: kind.__name__)
every_friction = pytest.mark.parametrize("friction", FRICTIONS)


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


# --- the steps ---


def sghmc(theta, p, grad, eta, delta, friction):
    a = 1 - np.exp(-friction)
    h = np.sqrt(a * delta / 2)
    p = (1 - a) * p + h * grad + np.sqrt(2 * a) * eta
    return theta + h * p, p


def baoab(theta, p, grad, eta, delta, friction):
    c, h = np.exp(-friction), np.sqrt(delta * np.tanh(friction / 2))
    p = p + h / 2 * grad  # B, the end of the last step
    p = p + h / 2 * grad  # B
    theta = theta + h / 2 * p  # A
    p = c * p + np.sqrt(1 - c**2) * eta  # O
    return theta + h / 2 * p, p  # A


def ubu(theta, p, grad, eta, delta, friction):
    c, t, h = np.exp(-friction), np.tanh(friction / 2), np.sqrt(friction * delta / 2)
    p = p + h * grad
    rest = (1 - c) * np.sqrt(t) * eta[0] + np.sqrt(2 * (friction - 2 * t)) * eta[1]
    return theta + h / friction * ((1 - c) * p + rest), c * p + np.sqrt(1 - c**2) * eta[0]


@pytest.mark.parametrize("friction", [0.3, 1.0, 4.0])
@pytest.mark.parametrize(("kind", "by_hand"), list(zip(KERNELS, (sghmc, baoab, ubu), strict=True)))
def test_three_steps_are_the_formula(kind, by_hand, friction):
    rng, kernel = np.random.default_rng(3), kind(friction)
    shape = (3,) if kind.noises == 1 else (kind.noises, 3)
    theta, eta = rng.standard_normal(3), rng.standard_normal(shape)
    state, p = kernel.init(theta, eta), eta.reshape(-1, 3)[0]
    assert np.array_equal(state.theta, theta) and np.array_equal(state.momentum, p)
    for delta in (0.2, 0.2, 0.05):
        grad, eta = rng.standard_normal(3), rng.standard_normal(shape)
        state = kernel.step(state, grad, eta, delta)
        theta, p = by_hand(theta, p, grad, eta, delta, friction)
        assert_allclose(state.theta, theta, **ROUNDING)
        assert_allclose(state.momentum, p, **ROUNDING)


@pytest.mark.parametrize(("kind", "limit"), [(lv.SGHMC, lv.SGLD()), (lv.BAOAB, lv.LeimkuhlerMatthews())])
def test_great_friction_is_the_overdamped_kernel(kind, limit):
    # exp(-50) = 2e-22 of the momentum is kept, and tanh(25) is 1 to rounding.
    rng, kernel = np.random.default_rng(4), kind(50.0)
    eta = rng.standard_normal(3)
    ours, theirs = kernel.init(np.ones(3), eta), limit.init(np.ones(3), eta)
    for delta in (0.2, 0.2, 0.05) if kind is lv.SGHMC else (0.2, 0.2, 0.2):
        grad, eta = rng.standard_normal(3), rng.standard_normal(3)
        ours, theirs = kernel.step(ours, grad, eta, delta), limit.step(theirs, grad, eta, delta)
        assert_allclose(ours.theta, theirs.theta, **ROUNDING)


@every_friction
def test_ubu_moves_by_the_exact_law_without_force(friction):
    # Noise of (theta, p) after a time h: integrals of exp(-gamma s) and 1 - exp(-gamma s) against dW.
    delta = 0.3
    h = np.sqrt(friction * delta / 2)
    gamma = friction / h
    _, _, kick, _ = lv.UBU(friction)._matrices(np.eye(1), delta)
    s, weights = np.polynomial.legendre.leggauss(60)
    s, weights = h / 2 * (s + 1), h / 2 * weights
    to_p = np.sqrt(2 * gamma) * np.exp(-gamma * s)
    to_theta = np.sqrt(2 / gamma) * -np.expm1(-gamma * s)
    both = np.stack([to_theta, to_p])
    # The last digits of x - tanh x, and of the quadrature.
    assert_allclose(kick @ kick.T, both * weights @ both.T, rtol=1e-9)


@every_friction
def test_ubu_keeps_its_digits_in_float32(friction):
    with jax.enable_x64(False):
        kick = [lv.UBU(friction).step(lv.UBU(friction).init(jnp.zeros(1), e), 0.0, e, 0.3).theta for e in basis()]
    _, _, exact, _ = lv.UBU(friction)._matrices(np.eye(1), 0.3)
    start = np.sqrt(friction * 0.3 / 2) * -np.expm1(-friction) / friction  # the start's momentum is eta[0]
    # 1e-6: some ten roundings of float32, a condition of 10 at x = 1/2
    assert_allclose(np.ravel(kick), exact[0] + [start, 0.0], rtol=2e-6)


def basis():
    return jnp.eye(2)[:, :, None]


# --- the theory ---


def own_share(kind, x, friction):
    """v of the docstrings: x = delta lambda."""
    if kind is lv.SGHMC:
        return 1.0
    if kind is lv.BAOAB:
        return 1.0 - x * np.tanh(friction / 2) / 4
    return 1.0 - x / 2 * (1 / friction - 1 / np.sinh(friction))


@every_kernel
@every_friction
def test_variance_with_and_without_gradient_noise(kind, friction):
    delta, lam, noise = 0.3, 2.5, 1.7
    shrink = lam * (1 - delta * lam * np.tanh(friction / 2) / 4)
    for c in (0.0, noise):
        expected = (own_share(kind, delta * lam, friction) + delta * c / 4) / shrink - 1 / lam
        found = kind(friction).bias(np.array([[lam]]), np.array([[c]]), delta)
        # The chains at friction 1e-3 forget over 1e3 steps, which multiplies rounding by as much.
        assert_allclose(found, [[expected]], rtol=1e-9, atol=1e-11)


@every_kernel
@every_friction
def test_relaxation_is_that_of_the_recursion(kind, friction):
    delta, c = 0.3, np.exp(-friction)
    rates = np.linalg.eigvalsh(PRECISION)
    roots = [np.roots([1, -(1 + c - (1 - c) * delta * rate / 2), c]) for rate in rates]
    expected = -np.log(np.max(np.abs(roots)))
    assert_allclose(kind(friction).relaxation(PRECISION, delta), expected, rtol=1e-6)


@every_kernel
@every_friction
def test_stable_up_to_the_stated_step_and_no_further(kind, friction):
    edge, kernel = 4 / np.tanh(friction / 2) / np.max(np.linalg.eigvalsh(PRECISION)), kind(friction)
    assert kernel.relaxation(PRECISION, 0.999 * edge) > 0
    assert np.all(np.isfinite(kernel.bias(PRECISION, NOISE, 0.999 * edge)))
    assert kernel.relaxation(PRECISION, 1.001 * edge) == 0
    assert np.all(np.isinf(kernel.bias(PRECISION, NOISE, 1.001 * edge)))


@every_friction
def test_baoab_is_exact_in_every_direction(friction):
    assert_allclose(lv.BAOAB(friction).bias(PRECISION, np.zeros((2, 2)), 0.7), np.zeros((2, 2)), atol=1e-10)


def orders(bias):
    """Exponents of delta between four halvings."""
    found = np.array([bias(delta) for delta in (0.08, 0.04, 0.02, 0.01)])
    return np.log2(found[:-1] / found[1:])


@pytest.mark.parametrize("kind", [lv.SGHMC, lv.UBU])
def test_orders_of_the_bias(kind):
    one, none = np.eye(1), np.zeros((1, 1))
    assert_allclose(orders(lambda delta: kind(1.0).bias(one, none, delta)[0, 0]), 1, atol=0.02)
    # At a given friction rate gamma, friction = gamma h = gamma^2 delta / 2 with delta = 2 h / gamma.
    assert_allclose(orders(lambda delta: kind(2.0 * delta).bias(one, none, delta)[0, 0]), 2, atol=0.04)


@every_kernel
def test_gradient_noise_has_order_delta(kind):
    one, none = np.eye(1), np.zeros((1, 1))
    added = orders(lambda delta: (kind(1.0).bias(one, one, delta) - kind(1.0).bias(one, none, delta))[0, 0])
    assert_allclose(added, 1, atol=0.02)


def test_ubu_is_better_where_the_gradient_is_taken_than_at_its_ends():
    # The end of a step: from theta and p + h grad, half a step of U.
    friction, delta = 0.01, 0.5
    h = np.sqrt(friction * delta / 2)
    mean, _, kick, position = lv.UBU(friction)._matrices(np.eye(1), delta)
    cov = stationary(mean, kick @ kick.T)
    kicked = np.eye(2) - np.array([[0.0], [h]]) @ position
    half, _, half_kick, _ = lv.UBU(friction / 2)._matrices(np.zeros((1, 1)), delta / 2)
    end = half @ kicked @ cov @ (half @ kicked).T + half_kick @ half_kick.T
    assert_allclose(cov[0, 0] - 1, h**2 / 12, rtol=1e-2)
    assert_allclose(end[0, 0] - 1, -(h**2) / 6, rtol=1e-2)


def stationary(mean, source):
    """S = A S A' + Q by one linear solve: no doubling as in the library."""
    size = len(mean)
    return np.linalg.solve(np.eye(size**2) - np.kron(mean, mean), source.ravel()).reshape(size, size)


@every_kernel
@pytest.mark.parametrize("friction", [0.1, 1.0, 4.0])
def test_covariance_by_one_linear_solve(kind, friction):
    mean, pull, kick, position = kind(friction)._matrices(PRECISION, 0.6)
    cov = position @ stationary(mean, kick @ kick.T + pull @ NOISE @ pull.T) @ position.T
    assert_allclose(kind(friction).bias(PRECISION, NOISE, 0.6), cov - np.linalg.inv(PRECISION), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kernel", [lv.SGLD(), lv.LeimkuhlerMatthews()], ids=repr)
@pytest.mark.parametrize("delta", [0.01, 0.3, 1.2, 4.0])
def test_closed_forms_of_overdamped_kernels_are_what_their_steps_say(kernel, delta):
    @jax.tree_util.register_static
    class ByStep(AffineKernel):
        init, step = type(kernel).init, type(kernel).step

        def __hash__(self):
            return id(type(self))

        def __eq__(self, other):
            return type(self) is type(other)

    assert_allclose(ByStep().relaxation(PRECISION, delta), kernel.relaxation(PRECISION, delta), rtol=1e-9)
    assert_allclose(ByStep().bias(PRECISION, NOISE, delta), kernel.bias(PRECISION, NOISE, delta), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("kind", "by_hand"), list(zip(KERNELS, (sghmc, baoab, ubu), strict=True)))
def test_theory_agrees_with_chains(kind, by_hand):
    # 16000 independent chains after 400 steps, of which nothing of the start is left: the sum of squares over the
    # variance is chi-square, exactly, in each of two uncorrelated directions. 6 scores at 1e-9 each.
    delta, friction, chains, rng = 0.6, 0.5, 16_000, np.random.default_rng(6)
    cov = kind(friction).bias(PRECISION, NOISE, delta) + np.linalg.inv(PRECISION)
    assert 400 * kind(friction).relaxation(PRECISION, delta) > 25
    root = np.linalg.cholesky(NOISE)
    theta = p = np.zeros((chains, 2))
    for _ in range(400):
        eta = rng.standard_normal((chains, 2) if kind.noises == 1 else (kind.noises, chains, 2))
        grad = -theta @ PRECISION + rng.standard_normal((chains, 2)) @ root.T
        theta, p = by_hand(theta, p, grad, eta, delta, friction)

    def scores(covariance):
        white = np.linalg.solve(np.linalg.cholesky(covariance), theta.T)
        return stats.norm.isf(stats.chi2.sf(np.sum(white**2, axis=1), chains))

    limit = stats.norm.isf(1e-9 / 2)
    assert np.all(np.abs(scores(cov)) < limit)
    # The control: gradient noise forgotten in the theory.
    assert np.max(scores(kind(friction).bias(PRECISION, 0 * NOISE, delta) + np.linalg.inv(PRECISION))) > limit + 8


def test_a_plain_kernel_knows_nothing():
    assert Kernel().relaxation(PRECISION, 0.1) is None and Kernel().bias(PRECISION, NOISE, 0.1) is None


# --- friction ---


@every_kernel
@pytest.mark.parametrize(
    "bad", [0, -1.0, np.inf, np.nan, "1", True, [1.0], (), np.array([1.0, 0.0]), np.float32(-2)], ids=repr
)
def test_bad_friction_is_refused(kind, bad):
    with pytest.raises(ValueError, match=r"friction must be a positive finite number, got .*Try \w+\(friction=1.0\)"):
        kind(bad)


@every_kernel
def test_friction_can_be_batched(kind):
    shape = (1,) if kind.noises == 1 else (kind.noises, 1)
    eta = jnp.ones(shape)

    def moved(kernel):
        return kernel.step(kernel.init(jnp.zeros(1), eta), jnp.ones(1), eta, 0.1).theta

    frictions = jnp.array([0.2, 2.0])
    together = jax.vmap(moved)(kind(frictions))
    for friction, theta in zip(frictions, together, strict=True):
        assert_allclose(theta, moved(kind(float(friction))), **ROUNDING)
    assert jax.jit(moved)(kind(0.2)) == pytest.approx(together[0])
