"""The No-U-Turn sampler: against a path written out point by point, and exact where a careless one is not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import langevin as lv
from langevin import random
from langevin.kernels import nuts

# theta_1 is N(0, 1), theta_2 given theta_1 is N(theta_1^2, 1/4): means 0 and 1, sds 1 and 3/2.
BANANA = lv.Target(lambda t: -0.5 * t[0] ** 2 - 2.0 * (t[1] - t[0] ** 2) ** 2)
FALSE_ALARM = 1e-7


def log_pi(theta):
    return -0.5 * theta[0] ** 2 - 2.0 * (theta[1] - theta[0] ** 2) ** 2 - 0.5 * np.sum(theta[2:] ** 2)


def grad_log_pi(theta):
    bend = theta[1] - theta[0] ** 2
    return np.concatenate([[-theta[0] + 8.0 * theta[0] * bend, -4.0 * bend], -theta[2:]])


def density(theta):
    value, grad = jax.value_and_grad(
        lambda t: -0.5 * t[0] ** 2 - 2.0 * (t[1] - t[0] ** 2) ** 2 - 0.5 * jnp.sum(t[2:] ** 2)
    )(theta)
    return value, grad


def turns(points):
    """The rule for a stretch of two or more points (theta, momentum), its halves and their neighbours included."""
    momenta = np.array([momentum for _, momentum in points])

    def turned(stretch):
        inner = stretch.sum(axis=0) - 0.5 * (stretch[0] + stretch[-1])
        return stretch[0] @ inner <= 0 or stretch[-1] @ inner <= 0

    half = len(momenta) // 2
    return turned(momenta) or (half > 1 and (turned(momenta[: half + 1]) or turned(momenta[half - 1 :])))


_uniform = jax.jit(nuts._uniform)


def by_hand(theta, eta, log_uniform, size, max_depth):
    """A step in plain NumPy: the whole path is kept, and every rule is read off it."""
    key = random.bits(jnp.float32(log_uniform)), random.bits(jnp.float32(eta[0]))

    def uniforms(depth, leaf):
        return [float(u) for u in _uniform(key, np.int32(depth), np.int32(leaf))]

    def leapfrog(point, sign):
        theta, momentum = point
        momentum = momentum + 0.5 * sign * size * grad_log_pi(theta)
        theta = theta + sign * size * momentum
        return theta, momentum + 0.5 * sign * size * grad_log_pi(theta)

    def log_weight(point):
        return log_pi(point[0]) - 0.5 * point[1] @ point[1] - start

    start = 0.0
    start = log_weight((theta, eta))
    path, chosen, gradients = [(theta, eta)], (theta, eta), 0
    for depth in range(max_depth):
        choice, direction = uniforms(depth, -1)
        sign = 1.0 if direction < 0.5 else -1.0
        new, picked, at = [], None, path[-1] if sign > 0 else path[0]
        for leaf in range(2**depth):
            at = leapfrog(at, sign)
            gradients += 1
            new.append(at)
            if np.log(uniforms(depth, leaf)[0]) < log_weight(at) - np.logaddexp.reduce([log_weight(p) for p in new]):
                picked = at
            parts = [new[len(new) - length :] for length in 2 ** np.arange(1, depth + 1) if len(new) % length == 0]
            if any(turns(part) for part in parts):
                return chosen[0], gradients
        mass = [np.logaddexp.reduce([log_weight(p) for p in points]) for points in (new, path)]
        if np.log(choice) < mass[0] - mass[1]:
            chosen = picked
        path = path + new if sign > 0 else new[::-1] + path
        if turns(path):
            break
    return chosen[0], gradients


@jax.jit
def a_step(theta, eta, log_uniform, delta):
    kernel = lv.NUTS(max_depth=6)
    return kernel.step(density, kernel.init(density, theta), eta, log_uniform, delta)


@pytest.mark.parametrize("delta", [0.003, 0.02, 0.1])
def test_a_step_is_the_path_written_out(delta):
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        for _ in range(40):
            theta, eta = rng.standard_normal((2, 4))
            log_uniform = float(np.log(rng.uniform()))
            end, gradients = by_hand(theta, eta, log_uniform, np.sqrt(delta), 6)
            found = a_step(theta, eta, log_uniform, delta)
            np.testing.assert_allclose(found.theta, end, rtol=1e-9, atol=1e-9)
            assert int(found.gradients) == gradients


def score(ledger):
    mean = lv.estimate(ledger)["theta.mean"]
    return np.abs((mean.value - [0.0, 1.0]) / mean.stderr).max()


def bent_run(max_depth=10):
    return lv.run(
        BANANA, None, np.ones(2), kernel=lv.NUTS(max_depth), schedule=lv.Constant(0.01), num_steps=200_000, chains=4
    )


# These two ask of the law what the path written out asks of every step.
@pytest.mark.slow
def test_the_law_of_a_bent_posterior_is_left_as_it_is():
    assert score(bent_run()) < stats.norm.isf(FALSE_ALARM)


@pytest.mark.slow
def test_rules_for_the_whole_path_that_are_not_asked_of_its_parts_give_another_law(monkeypatch):
    # The halves' neighbours are asked for where the path is doubled, but not within the new half.
    across = nuts._turns_across

    def careless(first, *rest):
        return across(first, *rest) if first.ndim == 1 else jnp.zeros(len(first), bool)

    monkeypatch.setattr(nuts, "_turns_across", careless)
    # Another depth, which is never reached, so that the twin is compiled.
    assert score(bent_run(max_depth=11)) > 1.5 * stats.norm.isf(FALSE_ALARM)


def test_divergences_and_gradients_are_counted():
    ledger = lv.run(BANANA, None, np.ones(2), kernel=lv.NUTS(), schedule=lv.Constant(0.3), num_steps=2000, chains=4)
    assert ledger.divergences.sum() > 0 and ledger.cost == ledger.visits.sum() > 4 * 2000
    narrow = lv.run(BANANA, None, np.ones(2), kernel=lv.NUTS(), schedule=lv.Constant(1e-3), num_steps=500, chains=4)
    assert narrow.divergences.sum() == 0 and narrow.cost > ledger.cost / 4


def test_whitened_gaussians_take_about_seven_gradients_and_give_independent_draws():
    target = lv.Target(lambda t: -0.5 * jnp.sum(t**2))
    ledger = lv.run(target, None, np.zeros(20), kernel=lv.NUTS(), schedule=lv.Constant(0.5), num_steps=4000, chains=4)
    draws = 4 * 4000
    assert ledger.cost / draws < 8
    variance = lv.estimate(ledger)["theta.mean"].stderr ** 2 * draws
    # The variance of a mean of independent draws would be 1; 40 batches tell it to a quarter, the median better.
    assert np.median(variance) < 1.1


def test_depth_is_checked():
    for bad in (0, 2.5, 30):
        with pytest.raises(ValueError, match="max_depth must be an integer in"):
            lv.NUTS(bad)
