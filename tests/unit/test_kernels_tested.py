"""Metropolis decisions from some of the data: how often they differ from those of all the data, and what they cost."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import langevin as lv
from langevin.kernels import tested

FALSE_ALARM = 1e-9
N = 2000
RNG = np.random.default_rng(5)
# Sorted, so that what is not shuffled shows.
X = np.sort(RNG.normal(0.3, 1.0, N)).astype(np.float32)
MEAN, SD = float(X.mean() * N / (N + 1)), float(1 / np.sqrt(N + 1))


@dataclass(frozen=True)
class Density:
    """A normal mean with a standard normal prior, as kernels see it."""

    num_data = N

    def prior(self, theta):
        return -0.5 * jnp.sum(theta**2)

    def terms(self, theta, rows):
        return -0.5 * (jnp.asarray(X)[rows] - theta[0]) ** 2


# |l_i| <= |theta' - theta| (|x_i| + the larger |theta|).
LIPSCHITZ = float(np.abs(X).max() + MEAN + 8 * SD)


@partial(jax.jit, static_argnums=0)
def _steps(kernel_kind, kernel, theta, eta, log_uniform):
    def one(t, e, u):
        state = kernel.init(Density(), t)
        moved = kernel.step(Density(), state, e, u, jnp.float32((2 * SD) ** 2))
        return moved.acceptance, moved.visits

    return jax.lax.map(lambda given: one(*given), (theta, eta, log_uniform))


def decisions(kernel, count=4000):
    """Which of `count` proposals from the posterior are taken, which all the data would take, and data looked at."""
    rng = np.random.default_rng(1)
    theta = (MEAN + SD * rng.normal(size=(count, 1))).astype(np.float32)
    eta = rng.normal(size=(count, 1)).astype(np.float32)
    log_uniform = np.log(rng.random(count)).astype(np.float32)
    taken, visits = _steps(type(kernel).__name__, kernel, theta, eta, log_uniform)
    there = theta.astype(np.float64) + 2 * SD * eta
    ratio = -0.5 * (N + 1) * ((there - MEAN) ** 2 - (theta - MEAN) ** 2)[:, 0]
    return np.asarray(taken) == (ratio > log_uniform), np.asarray(visits)


CONFIDENT = lv.ConfidenceMH(LIPSCHITZ, level=0.05, batch=50)


def wrong_too_often(right, level):
    """Whether there are more wrong decisions than a share `level` would bring once in 1e9."""
    return stats.binom.sf(np.sum(~right) - 1, len(right), level) < FALSE_ALARM


def test_confident_decisions_are_those_of_all_the_data_but_for_the_level():
    right, visits = decisions(CONFIDENT)
    assert not wrong_too_often(right, 0.05)
    # Some are decided early, most need nearly all: proposals are as wide as the posterior.
    assert visits.min() < N / 2 and visits.max() == N


def test_sequential_decisions_err_more_and_cost_less_as_epsilon_grows():
    found = {epsilon: decisions(lv.AusterityMH(epsilon, batch=50)) for epsilon in (0.001, 0.05, 0.4)}
    wrong = [np.mean(~right) for right, _ in found.values()]
    share = [visits.mean() / N for _, visits in found.values()]
    assert not wrong_too_often(found[0.001][0], 0.05) and wrong[0] < wrong[1] < wrong[2] < 0.4
    assert 1.0 > share[0] > share[1] > share[2] > 0.02


def test_a_test_that_never_ends_early_decides_as_all_the_data_do():
    # Rounding may turn decisions that hang on the last digits: one in a thousand at most.
    right, visits = decisions(lv.ConfidenceMH(1e6, batch=64))
    assert np.mean(right) > 0.999 and np.all(visits == N)


def test_control_data_in_their_own_order_decide_wrong(monkeypatch):
    monkeypatch.setattr(tested, "bijection", lambda position, seed, num_data: position.astype(jnp.int32))

    @jax.tree_util.register_dataclass
    @dataclass(frozen=True)
    class Unshuffled(lv.ConfidenceMH):
        pass

    assert wrong_too_often(decisions(Unshuffled(LIPSCHITZ, level=0.05, batch=50))[0], 0.05)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Careless(lv.ConfidenceMH):
    """The scatter of the sample forgotten."""

    def _decided(self, seen, psi, num_data, move):
        return super()._decided(seen._replace(square=0.0 * seen.square), psi, num_data, move)


def test_control_a_forgotten_scatter_decides_wrong():
    # And the range with it: where that is honest it alone is enough to be careful.
    assert wrong_too_often(decisions(Careless(1e-3, level=0.05, batch=50))[0], 0.05)


# --- in a run ---

TARGET = lv.Target(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)


def run(kernel, **more):
    parts = {"schedule": lv.Constant((2 * SD) ** 2), "num_steps": 2048, "chains": 32, "progress": False, **more}
    return lv.run(TARGET, X, np.float32(MEAN), kernel=kernel, **parts)


def surprise(ledger):
    """The larger score of mean and second moment by chains, after the first quarter."""
    rows = ledger.m_stop > 512
    found = ledger.values["theta"][:, rows].sum(axis=1) / ledger.sum_omega[rows].sum()
    truth = [0.0, SD**2]
    return np.max(np.abs(found.mean(axis=0) - truth) / (found.std(axis=0, ddof=1) / np.sqrt(len(found))))


@pytest.mark.slow
def test_a_confident_chain_has_the_law_of_the_posterior_and_a_careless_one_has_not():
    limit = stats.t.isf(FALSE_ALARM / 2, 31)
    ledger = run(CONFIDENT)
    assert surprise(ledger) < limit and 0.1 < ledger.acceptance.sum() / (32 * 2048) < 0.9
    assert surprise(run(lv.AusterityMH(0.4, batch=50))) > limit + 4


def test_what_is_seen_is_counted_and_nothing_is_called_ok():
    ledger = run(lv.AusterityMH(0.1), num_steps=512, chains=4)
    assert 512 * 4 * 100 <= ledger.cost < 512 * 4 * N and not ledger.exact
    found = lv.estimate(ledger)["theta.mean"]
    assert found.status != "ok" and np.isnan(found.bias).all()


def test_the_same_run_in_pieces_is_the_same_to_the_bit():
    whole = run(lv.AusterityMH(0.1), num_steps=64, chains=2)
    first = run(lv.AusterityMH(0.1), num_steps=24, chains=2)
    pieces = run(lv.AusterityMH(0.1), num_steps=64, chains=2, resume=first)
    assert np.array_equal(whole.values["theta"], pieces.values["theta"]) and np.array_equal(whole.visits, pieces.visits)


def test_kernels_are_values_and_bad_ones_are_named():
    for kernel in (lv.AusterityMH(0.1), CONFIDENT):
        assert eval(repr(kernel), vars(lv)) == kernel and hash(kernel) == hash(eval(repr(kernel), vars(lv)))
        leaves, treedef = jax.tree.flatten(kernel)
        assert treedef.unflatten(leaves) == kernel
    with pytest.raises(ValueError, match=r"epsilon must lie in \(0, 0.5\), got 0.7"):
        lv.AusterityMH(0.7)
    with pytest.raises(ValueError, match="batch must be an integer of at least 2, got 1"):
        lv.AusterityMH(0.1, batch=1)
    with pytest.raises(ValueError, match=r"level must lie in \(0, 1\), got 1.0"):
        lv.ConfidenceMH(1.0, level=1.0)
    with pytest.raises(ValueError, match="lipschitz must be a positive finite number, got -1"):
        lv.ConfidenceMH(-1)
    with pytest.raises(ValueError, match="data must be given"):
        lv.run(
            lv.Target(lambda t: -0.5 * t**2), None, 0.0, kernel=lv.AusterityMH(), schedule=lv.Constant(1.0), num_steps=9
        )
    with pytest.raises(ValueError, match="anchor must be None"):
        run(lv.AusterityMH(), anchor=lv.laplace(TARGET, X, 0.0))
