"""Exact kernels that know the prior or the curvature: paths of any fineness, metrics that change from place to place.

Scores are over independent chains; limits are set for 1e-9 a score, and a factor of 4 allowed for skewness.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import langevin as lv
from langevin.kernels.manifold import _softened
from langevin.kernels.protocol import ExactState

FALSE_ALARM = 1e-9
CHAINS = 128
LIMIT = float(stats.t.isf(FALSE_ALARM / 2, CHAINS - 1))


def score(values, truth):
    scores = (values.mean(axis=0) - truth) / (values.std(axis=0, ddof=1) / np.sqrt(len(values)))
    return float(np.max(np.abs(scores)))


# --- Crank-Nicolson proposals, on Brownian paths seen with noise at four times ---

SEEN, NOISE = np.array([0.6, -0.3, 0.2, 0.9]), 0.5


def path(size):
    """A Brownian path at `size` times: target in the path itself, the prior's covariance, and the posterior's."""
    times = np.arange(1, size + 1) / size
    prior = np.minimum.outer(times, times)
    at = np.arange(1, 5) * size // 4 - 1
    gain = prior[:, at] @ np.linalg.inv(prior[np.ix_(at, at)] + NOISE**2 * np.eye(4))

    def log_density(u):
        steps = jnp.diff(u, prepend=0.0)
        return -0.5 * size * jnp.sum(steps**2) - 0.5 * jnp.sum((SEEN - u[at]) ** 2) / NOISE**2

    return lv.Target(log_density), prior, gain @ SEEN, np.diagonal(prior - gain @ prior[at])


def run(kernel, size, delta, steps=2048, chains=CHAINS):
    target, prior, *_ = path(size)
    ends = {"end": lambda u: jnp.stack([u[-1], u[-1] ** 2])}
    return lv.run(
        target, None, np.zeros(size, np.float32), kernel=kernel, schedule=lv.Constant(delta), num_steps=steps,
        chains=chains, coordinates=lv.Preconditioned.by(prior), observables=ends, progress=False,
    )  # fmt: skip


def moments(ledger):
    """Mean and mean square of the end of the path, by chain."""
    rows = ledger.m_stop > ledger.num_steps // 4
    found = ledger.values["end"][:, rows].sum(axis=1) / ledger.sum_omega[rows].sum()
    return found + ledger.columns["end"].reference


def surprise(kernel, delta):
    _, _, mean, variance = path(8)
    return score(moments(run(kernel, 8, delta)), [mean[-1], variance[-1] + mean[-1] ** 2])


EVERY = {"walk": (lv.PCN(), 0.5), "Langevin": (lv.CrankNicolsonLangevin(), 1.0)}


@pytest.mark.parametrize("name", EVERY)
def test_crank_nicolson_kernels_leave_the_posterior_of_a_path_as_it_is(name):
    assert surprise(*EVERY[name]) < LIMIT


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WithPrior(lv.PCN):
    """The prior counted in the acceptance as in the random walk, although the proposal has it already."""

    def step(self, log_density, state, eta, log_uniform, delta):
        theta = ((1.0 - 0.25 * delta) * state.theta + jnp.sqrt(delta) * eta) / (1.0 + 0.25 * delta)
        value, grad = log_density(theta)
        proposal = ExactState(theta, value, grad, state.acceptance)
        return state.accept(proposal, value - state.log_density, log_uniform)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OneWay(lv.CrankNicolsonLangevin):
    """Accepted as if the drift were the same both ways."""

    def step(self, log_density, state, eta, log_uniform, delta):
        moved = super().step(log_density, state, eta, jnp.full_like(log_uniform, -jnp.inf), delta)
        gain = moved.log_density - state.log_density + 0.5 * (jnp.sum(moved.theta**2) - jnp.sum(state.theta**2))
        return state.accept(moved, gain, log_uniform)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [WithPrior(), OneWay()], ids=repr)
def test_control_a_wrong_acceptance_is_refused(kernel):
    assert surprise(kernel, 1.0) > LIMIT + 4


def test_the_langevin_acceptance_is_the_ratio_of_densities_written_out():
    kernel, delta, target = lv.CrankNicolsonLangevin(), 0.7, lv.Target(lambda z: -0.5 * jnp.sum(z**2) - jnp.sum(z**4))
    with jax.enable_x64(True):
        density = jax.value_and_grad(target.log_prior)
        z, eta = jnp.array([0.3, -0.8, 1.1]), jnp.array([0.2, 0.9, -0.4])
        state = kernel.init(density, z)
        moved = kernel.step(density, state, eta, -jnp.inf, delta)

        def log_proposal(start, end):
            pull = -(density(start)[1] + start)
            mean = ((1 - delta / 4) * start - delta / 2 * pull) / (1 + delta / 4)
            return -0.5 * jnp.sum((end - mean) ** 2) / (delta / (1 + delta / 4) ** 2)

        ratio = density(moved.theta)[0] - density(z)[0] + log_proposal(moved.theta, z) - log_proposal(z, moved.theta)
        np.testing.assert_allclose(moved.acceptance, np.exp(min(float(ratio), 0.0)), rtol=1e-12)


@pytest.mark.slow
def test_acceptance_does_not_fall_as_the_path_becomes_finer():
    # Chains from one seed; sixteen of 300 steps know an acceptance to 0.01 or so.
    def accepted(kernel, size):
        return run(kernel, size, 0.6, steps=300, chains=16).acceptance.sum() / 4800

    for kernel in (lv.PCN(), lv.CrankNicolsonLangevin()):
        assert abs(accepted(kernel, 400) - accepted(kernel, 20)) < 0.1
    assert accepted(lv.MALA(), 400) < 0.01 < 0.2 < accepted(lv.MALA(), 20)


# --- metrics ---

# Student's law with 5 degrees of freedom in each of two directions, mean 0 and variance 5/3.
STUDENT = lv.Target(lambda t: -3.0 * jnp.sum(jnp.log1p(t**2 / 5)))


def metric(t):
    """Positive everywhere, and with entries that depend on both: minus the Hessian of Student's law is neither."""
    return jnp.array([[1.0 + 0.5 * t[1] ** 2, 0.3], [0.3, 1.0]]) / (1 + 0.1 * jnp.sum(t**2))


def on_student(kernel):
    ledger = lv.run(
        STUDENT, None, np.zeros(2, np.float32), kernel=kernel, schedule=lv.Constant(1.5), num_steps=4096, chains=CHAINS,
        observables={"sizes": lambda t: jnp.concatenate([t, jnp.abs(t)])}, progress=False,
    )  # fmt: skip
    rows = ledger.m_stop > 512
    found = ledger.values["sizes"][:, rows].sum(axis=1) / ledger.sum_omega[rows].sum()
    return score(found + ledger.columns["sizes"].reference, [0, 0, *[ABS] * 2])


# E|t| of Student's law with nu = 5: 2 sqrt(nu) / ((nu - 1) B(nu/2, 1/2)).
ABS = float(stats.t(5).expect(abs, epsabs=1e-12))


@pytest.mark.parametrize("full", [False, True])
def test_a_changing_metric_leaves_the_law_as_it_is(full):
    assert on_student(lv.ManifoldMALA(metric, full=full)) < LIMIT


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NoVolume(lv.ManifoldMALA):
    """The determinants of the metric forgotten in the acceptance."""

    def step(self, log_density, state, eta, log_uniform, delta):
        there = super().step(log_density, state, eta, jnp.full_like(log_uniform, -jnp.inf), delta)
        volume = jnp.sum(jnp.log(jnp.diagonal(there.root)) - jnp.log(jnp.diagonal(state.root)))
        return super().step(log_density, state, eta, log_uniform + volume, delta)


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True])
def test_control_a_forgotten_volume_is_refused(full):
    assert on_student(NoVolume(metric, full=full)) > LIMIT + 4


def test_the_full_drift_is_the_divergence_of_the_inverse_metric():
    with jax.enable_x64(True):
        density, t = jax.value_and_grad(STUDENT.log_prior), jnp.array([0.4, -1.2])
        state = lv.ManifoldMALA(metric, full=True).init(density, t)

        def inverse(at):
            return np.linalg.inv(np.asarray(metric(jnp.asarray(at))))

        h, base = 1e-5, np.asarray(t)
        turned = sum((inverse(base + h * e) - inverse(base - h * e))[:, j] / (2 * h) for j, e in enumerate(np.eye(2)))
        expected = 0.5 * inverse(base) @ np.asarray(density(t)[1]) + 0.5 * turned
        np.testing.assert_allclose(state.drift, expected, rtol=1e-8)


def test_on_a_gaussian_the_hessian_makes_all_scales_one():
    # Units from 0.001 to 1000, one step for all: MALA itself would need the smallest.
    scales = np.array([1e-3, 1.0, 1e3], np.float32)
    ledger = lv.run(
        lv.Target(lambda t: -0.5 * jnp.sum((t / scales) ** 2)), None, scales, kernel=lv.ManifoldMALA(),
        schedule=lv.Constant(1.0), num_steps=1000, chains=4, progress=False, observables={"squares": lambda t: t**2},
    )  # fmt: skip
    assert ledger.acceptance.sum() / 4000 > 0.7
    # And they have moved in all directions: a thousand steps of four chains know a mean square to a twentieth or so.
    found = ledger.values["squares"].sum(axis=(0, 1)) / (4 * ledger.sum_omega.sum())
    assert np.all(np.abs((found + ledger.columns["squares"].reference) / scales**2 - 1.0) < 0.5)


def test_a_metric_of_ones_own_that_is_not_positive_is_refused_and_said():
    # Minus the Hessian of Student's law is negative beyond sqrt(5), and the chain starts there.
    kernel = lv.ManifoldMALA(metric=lambda t: -jax.hessian(STUDENT.log_prior)(t))
    ledger = lv.run(
        STUDENT, None, np.full(2, 3.0, np.float32), kernel=kernel, schedule=lv.Constant(1.0), num_steps=1000
    )
    assert ledger.acceptance.sum() == 0 and lv.estimate(ledger)["theta.mean"].status != "ok"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lv.ManifoldMALA(metric=3.0), "metric must be a function of flat theta, or None, got 3.0"),
        (lambda: lv.ManifoldMALA(full="yes"), "full must be True or False, got 'yes'"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def ring_share(kernel, steps, chains=64):
    """Share of steps of a t variable with 7 degrees of freedom where its curvature has just changed sign."""
    student = lv.Target(lambda t: -4.0 * jnp.sum(jnp.log1p(t**2 / 7.0)))
    ledger = lv.run(
        student, None, np.zeros(1), kernel=kernel, schedule=lv.Constant(1.0), num_steps=steps, chains=chains, seed=2,
        observables={"ring": lambda t: jnp.sum((t**2 > 2.4**2) & (t**2 < 2.9**2)).astype(jnp.float32)}, progress=False,
    )  # fmt: skip
    return ledger.values["ring"][:, :, 0].sum(axis=1) / ledger.sum_omega.sum() + ledger.columns["ring"].reference


RING = 2.0 * (stats.t(7).sf(2.4) - stats.t(7).sf(2.9))


@pytest.mark.parametrize("full", [False, True])
def test_a_curvature_that_vanishes_keeps_no_chain_out(full):
    share = ring_share(lv.ManifoldMALA(full=full), 16384)
    # 1e-9 for a score over 64 independent chains, times at most 4 for skewness.
    assert abs(share.mean() - RING) < stats.t.isf(0.5e-9, 63) * share.std(ddof=1) / 8.0
    # Known to a fiftieth: a chain that comes there a tenth too rarely would be seen.
    assert share.std(ddof=1) / 8.0 < RING / 50


def test_control_proposals_without_end_keep_chains_out():
    sizes = jax.hessian(lambda t: 4.0 * jnp.sum(jnp.log1p(t**2 / 7.0)))
    share = ring_share(lv.ManifoldMALA(metric=lambda t: jnp.abs(sizes(t)), full=True), 4096)
    assert share.mean() < 0.5 * RING


@pytest.mark.parametrize("full", [False, True])
def test_chains_leave_places_without_curvature_of_their_own(full):
    def moved(target, theta_0):
        kernel = lv.ManifoldMALA(full=full)
        ledger = lv.run(target, None, theta_0, kernel=kernel, schedule=lv.Constant(0.5), num_steps=500, progress=False)
        return ledger.acceptance.sum()

    # Two equal negative eigenvalues, whose eigenvectors have no derivative; and none at all.
    assert moved(STUDENT, np.full(2, 3.0, np.float32)) > 50
    assert moved(lv.Target(lambda t: -jnp.sum(t**4)), np.zeros(2, np.float32)) > 50


def test_softened_sizes_have_the_derivative_of_their_definition():
    def sizes(matrix):
        values, vectors = np.linalg.eigh(matrix)
        small = np.abs(values) < 0.2
        return (vectors * np.where(small, (values**2 + 0.04) / 0.4, np.abs(values))) @ vectors.T

    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        for scale in (0.0, 0.05, 0.3, 2.0):
            matrix, along = (part + part.T for part in rng.normal(size=(2, 4, 4)))
            at = scale * matrix - 0.1 * np.eye(4)
            value, slope = jax.jvp(_softened, (at,), (along,))
            np.testing.assert_allclose(value, sizes(at), atol=1e-14)
            steps = sizes(at + 1e-6 * along) - sizes(at - 1e-6 * along)
            np.testing.assert_allclose(slope, steps / 2e-6, atol=1e-7)
