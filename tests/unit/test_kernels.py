"""Kernels are maps of numbers: each step against its docstring's formula written out in NumPy, in float64."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import langevin as lv
from langevin.engine.setup import prepare
from langevin.kernels.pytrees import as_pytree, kinds

# Results of at most a few dozen float64 operations on numbers of order one.
ROUNDING = {"rtol": 1e-13, "atol": 1e-13}
NEVER, ALWAYS = 0.0, -np.inf  # log uniforms that refuse any falling proposal, and accept any finite one


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


def log_pi(theta):
    """A double well coupled to a Gaussian: neither quadratic nor symmetric."""
    return np.sum(theta**2 / 2 - theta**4 / 4) + 0.3 * theta[0] * theta[-1] + 0.1 * theta[0]


def grad_log_pi(theta):
    grad = theta - theta**3
    grad[0] += 0.3 * theta[-1] + 0.1
    grad[-1] += 0.3 * theta[0]
    return grad


def log_density(theta):
    """The same for JAX: theta -> (log density, gradient)."""

    def value(t):
        return jnp.sum(t**2 / 2 - t**4 / 4) + 0.3 * t[0] * t[-1] + 0.1 * t[0]

    return jax.value_and_grad(value)(theta)


@pytest.fixture
def numbers():
    rng = np.random.default_rng(5)
    return {"theta": rng.standard_normal(3), "grad": rng.standard_normal(3), "eta": rng.standard_normal(3)}


def test_sgld_is_its_formula(numbers):
    theta, grad, eta, delta = *numbers.values(), 0.17
    kernel = lv.SGLD()
    state = kernel.step(kernel.init(theta, np.full(3, np.nan)), grad, eta, delta)
    assert_allclose(state.theta, theta + delta / 2 * grad + np.sqrt(delta) * eta, **ROUNDING)


def test_leimkuhler_matthews_is_its_formula_over_two_steps(numbers):
    theta, grad, eta_0, delta = *numbers.values(), 0.17
    eta_1, eta_2 = np.array([[0.3, -1.0, 2.0], [0.5, 0.1, -0.7]])
    kernel = lv.LeimkuhlerMatthews()
    one = kernel.step(kernel.init(theta, eta_0), grad, eta_1, delta)
    two = kernel.step(one, -grad, eta_2, 2 * delta)
    theta_1 = theta + delta / 2 * grad + np.sqrt(delta) * (eta_0 + eta_1) / 2
    assert_allclose(one.theta, theta_1, **ROUNDING)
    assert_allclose(two.theta, theta_1 - delta * grad + np.sqrt(2 * delta) * (eta_1 + eta_2) / 2, **ROUNDING)


# --- exact kernels ---


def leapfrog(theta, momentum, size, count):
    for _ in range(count):
        momentum = momentum + size / 2 * grad_log_pi(theta)
        theta = theta + size * momentum
        momentum = momentum + size / 2 * grad_log_pi(theta)
    return theta, momentum


def mala(theta, eta, delta):
    proposal = theta + delta / 2 * grad_log_pi(theta) + np.sqrt(delta) * eta

    def log_q(to, at):
        return -np.sum((to - at - delta / 2 * grad_log_pi(at)) ** 2) / (2 * delta)

    return proposal, log_pi(proposal) - log_pi(theta) + log_q(theta, proposal) - log_q(proposal, theta)


def rwm(theta, eta, delta):
    proposal = theta + np.sqrt(delta) * eta
    return proposal, log_pi(proposal) - log_pi(theta)


def hmc(count):
    def by_hand(theta, eta, delta):
        proposal, momentum = leapfrog(theta, eta, np.sqrt(delta), count)
        return proposal, log_pi(proposal) - log_pi(theta) + (eta @ eta - momentum @ momentum) / 2

    return by_hand


EXACT = {
    "MALA": (lv.MALA(), mala),
    "RWM": (lv.RWM(), rwm),
    "HMC 1": (lv.HMC(1), hmc(1)),
    "HMC 5": (lv.HMC(5), hmc(5)),
}
every_exact = pytest.mark.parametrize(("kernel", "by_hand"), EXACT.values(), ids=EXACT)


@every_exact
@pytest.mark.parametrize("delta", [0.05, 0.6])
def test_exact_kernels_are_their_formulas(kernel, by_hand, delta, numbers):
    theta, eta = numbers["theta"], numbers["eta"]
    proposal, log_ratio = by_hand(theta, eta, delta)
    start = kernel.init(log_density, theta)
    assert_allclose([start.log_density, *start.grad], [log_pi(theta), *grad_log_pi(theta)], **ROUNDING)

    accepted = kernel.step(log_density, start, eta, ALWAYS, delta)
    assert_allclose(accepted.theta, proposal, **ROUNDING)
    assert_allclose(accepted.acceptance, min(1.0, np.exp(log_ratio)), rtol=1e-12)
    assert_allclose([accepted.log_density, *accepted.grad], [log_pi(proposal), *grad_log_pi(proposal)], **ROUNDING)

    # On either side of the log ratio the decision turns.
    assert_allclose(kernel.step(log_density, start, eta, log_ratio - 1e-9, delta).theta, proposal, **ROUNDING)
    refused = kernel.step(log_density, start, eta, log_ratio + 1e-9, delta)
    assert np.array_equal(refused.theta, theta) and np.array_equal(refused.grad, start.grad)
    assert refused.log_density == start.log_density and refused.acceptance == accepted.acceptance


def test_one_leapfrog_step_is_mala(numbers):
    theta, eta, delta = numbers["theta"], numbers["eta"], 0.3
    moved = [k.step(log_density, k.init(log_density, theta), eta, ALWAYS, delta) for k in (lv.MALA(), lv.HMC(1))]
    assert_allclose(moved[0].theta, moved[1].theta, **ROUNDING)
    assert_allclose(moved[0].acceptance, moved[1].acceptance, rtol=1e-12)


def test_hmc_runs_backwards(numbers):
    theta, eta, delta = numbers["theta"], numbers["eta"], 0.05
    kernel = lv.HMC(7)
    there = kernel.step(log_density, kernel.init(log_density, theta), eta, ALWAYS, delta)
    _, momentum = leapfrog(theta, eta, np.sqrt(delta), 7)
    back = kernel.step(log_density, there, -momentum, ALWAYS, delta)
    assert_allclose(back.theta, theta, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kernel", [lv.MALA(), lv.RWM()], ids=repr)
def test_flow_of_probability_is_balanced_between_every_two_points(kernel):
    # pi(x) q(x, y) a(x, y) = pi(y) q(y, x) a(y, x), on a grid of pairs in one dimension, to rounding.
    delta, grid = 0.4, np.linspace(-2.2, 2.4, 24)[:, None]
    drift = grad_log_pi if isinstance(kernel, lv.MALA) else np.zeros_like

    @jax.jit
    def acceptance(x, eta):
        return kernel.step(log_density, kernel.init(log_density, x), eta, ALWAYS, delta).acceptance

    def log_flow(x, y):
        eta = (y - x - delta / 2 * drift(x.copy())) / np.sqrt(delta)
        return log_pi(x) - eta @ eta / 2 + np.log(acceptance(x, eta))

    for x in grid[::2]:
        for y in grid[1::3]:
            assert_allclose(log_flow(x, y), log_flow(y, x), rtol=1e-11, atol=1e-11)


def test_hmc_flow_is_balanced_in_phase_space(numbers):
    kernel, delta, theta, eta = lv.HMC(4), 0.3, numbers["theta"], numbers["eta"]
    end, momentum = leapfrog(theta, eta, np.sqrt(delta), 4)
    there = kernel.step(log_density, kernel.init(log_density, theta), eta, ALWAYS, delta)
    back = kernel.step(log_density, kernel.init(log_density, end), -momentum, ALWAYS, delta)
    out = log_pi(theta) - eta @ eta / 2 + np.log(there.acceptance)
    home = log_pi(end) - momentum @ momentum / 2 + np.log(back.acceptance)
    assert_allclose(out, home, rtol=1e-12)


@every_exact
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_proposal_of_undefined_density_is_refused(kernel, by_hand, value):
    def half_line(theta):
        inside, grad = log_density(theta)
        return jnp.where(theta[0] > 0, inside, value), grad

    start = kernel.init(half_line, np.array([0.1, 0.0, 0.0]))
    moved = kernel.step(half_line, start, np.array([-5.0, 0.0, 0.0]), -1e300, 0.5)
    assert np.array_equal(moved.theta, start.theta) and moved.acceptance == 0


def test_programs_of_different_kernels_are_never_taken_for_each_other():
    # Their structures compare equal in JAX 0.10, so that a compiled function of kernels could run another one's step.
    for one, other in ((lv.SGLD(), lv.LeimkuhlerMatthews()), (lv.BAOAB(0.7), lv.UBU(0.7)), (lv.MALA(), lv.RWM())):
        assert kinds(one) != kinds(other) and kinds((1.0, one)) != kinds((1.0, other))
        programs = [
            prepare(
                lv.Target(lambda t: -0.5 * t**2), None, 0.0, schedule=lv.Constant(0.1), kernel=kernel,
                gradient=lv.Minibatch(), subsample=None, coordinates=None, observables=None, chains=1, seed=0,
                anchor=None, weight_power=1.0, keep=0, layout="chain", guard=1,
            ).program.kinds
            for kernel in (one, other)
        ]  # fmt: skip
        assert programs[0] != programs[1]
    assert kinds(lv.Coarse(lv.BAOAB(0.7))) != kinds(lv.Coarse(lv.UBU(0.7)))
    assert kinds(lv.BAOAB(0.7)) == kinds(lv.BAOAB(0.2))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Scaled(lv.SGLD):
    """A kernel of one's own whose one field is an array."""

    scale: Any

    def step(self, state, grad, eta, delta):
        return super().step(state, self.scale * grad, eta, delta)


def test_a_part_of_one_array_is_a_pytree_and_runs():
    scaled = Scaled(np.array([1.0, 0.5], np.float32))
    assert as_pytree(scaled) is scaled
    parts = {"schedule": lv.Constant(0.1), "num_steps": 64, "progress": False}
    target = lv.Target(lambda t: -0.5 * jnp.dot(t, t))
    ours = lv.run(target, None, np.zeros(2, np.float32), kernel=scaled, **parts)
    narrow = lv.Target(lambda t: -0.5 * t[0] ** 2 - 0.25 * t[1] ** 2)
    by_hand = lv.run(narrow, None, np.zeros(2, np.float32), kernel=lv.SGLD(), **parts)
    assert_allclose(ours.values["theta"], by_hand.values["theta"], rtol=1e-6)
