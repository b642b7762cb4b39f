"""The law of long stays: exact recursions, limits in closed form, and runs of the engine against it."""

from dataclasses import replace
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import langevin as lv
from langevin.kernels.protocol import AffineKernel
from langevin.shards import stays, with_drifts
from tests.unit.ledgers import anchor_of, ledger_of
from tests.unit.ledgers import noise as normal_states

RNG = np.random.default_rng(4)
VISITS = np.array([0.7, 0.3])
SLOPES = -np.array([[[2.0, 0.3], [0.3, 1.0]], [[1.0, -0.4], [-0.4, 3.0]]])
OFFSETS = np.array([[1.0, -0.5], [-0.4, 2.0]])
NOISE = np.array([np.eye(2), [[3.0, 1.0], [1.0, 2.0]]])


@pytest.mark.parametrize("kernel", [lv.SGLD(), lv.LeimkuhlerMatthews()])
def test_closed_matrices_of_kernels_are_the_derivatives_of_their_steps(kernel):
    found = kernel.affine(3, 0.2)
    read_off = AffineKernel.affine(kernel, 3, 0.2)
    for one, other in zip(found, read_off, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-15)


def test_a_kernel_of_which_nothing_is_known_has_no_matrices():
    assert lv.Kernel().affine(2, 0.1) is None


@pytest.mark.parametrize("stay", [1, 2, 3, 7])
@pytest.mark.parametrize("kernel", [lv.SGLD(), lv.LeimkuhlerMatthews()])
def test_doubling_is_the_recursion_step_by_step(kernel, stay):
    parts = kernel.affine(2, 0.3)
    law = stays._law(parts, OFFSETS, SLOPES, VISITS, NOISE, stay)
    state, pull, kick, position = parts
    size = len(state)
    # Mean and second moment of the state at the start of a stay, iterated until they stand.
    mean, second = np.zeros(size), np.zeros((size, size))
    for _ in range(400):
        totals = [np.zeros(size), np.zeros((size, size)), np.zeros((2, 2)), np.zeros((2, 2))]
        ends = []
        for q, c, slope, noise in zip(VISITS, OFFSETS, SLOPES, NOISE, strict=True):
            m, s = mean, second
            for _ in range(stay):
                drift_mean, drift_state = c + slope @ position @ m, np.outer(c, m) + slope @ position @ s
                square = np.outer(drift_mean, c) + drift_state @ (slope @ position).T
                for k, part in enumerate((m, s, drift_state @ position.T, square)):
                    totals[k] = totals[k] + q / stay * part
                a, b = state + pull @ slope @ position, pull @ c
                s = (
                    a @ s @ a.T + np.outer(a @ m, b) + np.outer(b, a @ m) + np.outer(b, b)
                    + kick @ kick.T + pull @ noise @ pull.T
                )  # fmt: skip
                m = a @ m + b
            ends.append((q * m, q * s))
        mean, second = sum(m for m, _ in ends), sum(s for _, s in ends)
    np.testing.assert_allclose(law.mean, position @ totals[0], atol=1e-12)
    np.testing.assert_allclose(law.second, position @ totals[1] @ position.T, atol=1e-12)
    np.testing.assert_allclose(law.cross, totals[2], atol=1e-12)
    np.testing.assert_allclose(law.square, totals[3], atol=1e-11)
    # Over a whole stay the chain goes nowhere on average.
    np.testing.assert_allclose(law.pull, 0.0, atol=1e-12)


def test_an_endless_stay_is_a_mixture_of_the_shards_own_posteriors():
    law = stays._law(lv.SGLD().affine(2, 1e-4), OFFSETS, SLOPES, VISITS, np.zeros((2, 2, 2)), 10**9)
    modes = np.array([np.linalg.solve(-slope, c) for slope, c in zip(SLOPES, OFFSETS, strict=True)])
    np.testing.assert_allclose(law.mean, VISITS @ modes, rtol=1e-3)
    second = sum(q * (np.linalg.inv(-s) + np.outer(x, x)) for q, s, x in zip(VISITS, SLOPES, modes, strict=True))
    np.testing.assert_allclose(law.second, second, rtol=1e-3)


def test_shards_that_differ_by_a_shift_widen_the_chain_by_stay_times_step():
    # One dimension, equal slopes lambda, offsets of variance C: E[c x] = delta/2 C sum_j a^(j-1) (1 - j/K), and the
    # correction divides by lambda.
    delta, stay, rate, offset = 0.02, 25, 1.5, np.array([[0.3], [-0.7]])
    a, lag = 1 - 0.5 * delta * rate, np.arange(1, stay)
    between = VISITS @ offset[:, 0] ** 2
    extra = 0.5 * delta * between / rate * np.sum(a ** (lag - 1) * (1 - lag / stay))
    drifts = stays.Drifts(np.zeros(1), offset, np.full((2, 1, 1), -rate), np.ones((2, 1, 1)), np.zeros((1, 1)), 0)
    mean, covariance = drifts.bias(
        lv.SGLD(), lv.Coordinates(), np.eye(1) / rate, VISITS, stay, delta, np.full((1, 1), 40.0)
    )
    np.testing.assert_allclose(covariance[0, 0], extra, rtol=1e-9)
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)
    # To first order in the step it is stay - 1 times what independent noise of variance C adds to a raw variance.
    assert extra == pytest.approx((stay - 1) * delta * between / (4 * rate), rel=0.3)


def test_steps_that_a_single_shard_does_not_contract_have_an_infinite_bias():
    drifts = stays.Drifts(np.zeros(2), OFFSETS, 100 * SLOPES, NOISE, np.zeros((2, 2)), 0)
    mean, covariance = drifts.bias(lv.SGLD(), lv.Coordinates(), np.eye(2), VISITS, 5, 0.1, np.eye(2))
    assert np.all(np.isinf(mean)) and np.all(np.isinf(covariance))


@pytest.mark.parametrize("coordinates", [lv.Coordinates(), lv.Preconditioned.by(np.diag([4.0, 0.25]))])
def test_the_bias_does_not_depend_on_who_names_the_units(coordinates):
    # Preconditioned chains move differently; the same chain written in other units of theta has the same bias there.
    scale = np.diag([3.0, 0.5])
    gg, covariance = np.diag([30.0, 20.0]), np.linalg.inv(-np.einsum("s,sij->ij", VISITS, SLOPES))
    one = stays.Drifts(np.zeros(2), OFFSETS, SLOPES, NOISE, np.eye(2), 0)
    found = one.bias(lv.SGLD(), coordinates, covariance, VISITS, 30, 0.05, gg)
    back = np.linalg.inv(scale)
    other = stays.Drifts(np.zeros(2), OFFSETS @ back, back @ SLOPES @ back, back @ NOISE @ back, back @ back, 0)
    root = scale @ (np.eye(2) if type(coordinates) is lv.Coordinates else np.diag([2.0, 0.5]))
    again = other.bias(lv.SGLD(), lv.Preconditioned.by(root @ root.T), scale @ covariance @ scale, VISITS, 30, 0.05, gg)
    np.testing.assert_allclose(again[0], scale @ found[0], rtol=1e-9)
    np.testing.assert_allclose(again[1], scale @ found[1] @ scale, rtol=1e-9)


# --- runs ---

N, SIZES = 200, (180, 20)
X = RNG.normal(size=(N, 2))
X = X[np.argsort(X[:, 0])].astype(np.float32)
Y = (X @ [1.0, -0.5] + RNG.normal(size=N)).astype(np.float32)


def log_prior(theta):
    return -0.5 * jnp.dot(theta, theta)


def log_likelihood(theta, datum):
    return -0.5 * (datum["y"] - jnp.dot(datum["x"], theta)) ** 2


TARGET, DATA = lv.Target(log_prior, log_likelihood), {"x": X, "y": Y}
PRECISION = np.eye(2) + X.astype(float).T @ X.astype(float)
MEAN = np.linalg.solve(PRECISION, X.astype(float).T @ Y.astype(float))
ANCHOR = lv.laplace(TARGET, DATA, jnp.zeros(2))


def ledger(gradient, stay, probabilities=None, **changes):
    subsample = lv.Sharded(10, sizes=SIZES, stay=stay, probabilities=probabilities)
    subsample = with_drifts(subsample, TARGET, DATA, gradient, ANCHOR)
    call = {"schedule": lv.Constant(5e-4), "num_steps": 20_000, "chains": 64, "observables": None, **changes}
    return lv.run(TARGET, DATA, ANCHOR.mode, subsample=subsample, gradient=gradient, anchor=ANCHOR, **call)


def test_drifts_of_plain_gradients_are_those_of_the_shards():
    subsample = with_drifts(lv.Sharded(10, sizes=SIZES, probabilities=(0.5, 0.5)), TARGET, DATA, lv.Minibatch(), ANCHOR)
    drifts = subsample.drifts
    for s, (a, b) in enumerate([(0, 180), (180, 200)]):
        x, y = X[a:b].astype(float), Y[a:b].astype(float)
        np.testing.assert_allclose(drifts.slope[s], -np.eye(2) - 2.0 * x.T @ x, rtol=1e-9)
        exact = -ANCHOR.theta + 2.0 * x.T @ (y - x @ ANCHOR.theta)
        np.testing.assert_allclose(drifts.offset[s], exact, rtol=1e-8)
    np.testing.assert_allclose(drifts.rest, 0.0, atol=1e-12)
    assert subsample == replace(subsample, drifts=None)


def test_control_variates_with_the_sums_of_all_shards_pull_alike_in_every_shard():
    # On a Gaussian model that is exact, for the second order: one global sum serves, and a long stay costs nothing.
    for order, alike in ((2, True), (1, False)):
        gradient = lv.ControlVariate(ANCHOR, order=order)
        drifts = with_drifts(lv.Sharded(10, sizes=SIZES, stay=9), TARGET, DATA, gradient, ANCHOR).drifts
        np.testing.assert_allclose(drifts.offset, 0.0, atol=1e-3)
        assert np.allclose(drifts.slope, -PRECISION, rtol=1e-9) is alike


def scores(found, truth):
    return np.abs(found.value - truth) / found.stderr


@pytest.mark.slow
@pytest.mark.parametrize("probabilities", [None, (0.5, 0.5)])
def test_the_bias_of_long_stays_is_what_the_law_says(probabilities):
    # 64 chains, 40 batches a group: t with some forty degrees of freedom; twelve values, false alarm 1e-7.
    made = ledger(lv.Minibatch(), 50, probabilities, num_steps=50_000)
    critical = stats.t.isf(1e-7 / 24, 38)
    for method in ("raw", "corrected"):
        found = lv.estimate(made, method=method)
        for name, truth in (("theta.mean", MEAN), ("theta.variance", np.diag(np.linalg.inv(PRECISION)))):
            one = found[name]
            # Nonlinear noise (it grows with the spread of the chain) is left out of the law: 2% of the bias.
            error = np.abs(one.value - one.bias - truth) - 0.02 * np.abs(one.bias)
            assert np.all(error < critical * one.stderr)
            assert "bias_dominates" in one.statuses
    # The twin without the memory of a stay: what the kernel's own theory says of the same run is not enough.
    assert np.max(scores(lv.estimate(made, method="corrected")["theta.mean"], MEAN)) > critical


def by_hand(subsample):
    """The ledger of independent normal states with exact gradients, as if this subsampler had made it."""
    path = normal_states(m=4000)
    return ledger_of(
        path,
        lv.Constant(1.0),
        anchor=anchor_of(np.eye(2)),
        grad=-path,
        manifest=SimpleNamespace(parts={"subsample": subsample}),
    )


def test_stays_of_which_nothing_is_known_are_never_ok():
    for method in ("raw", "corrected"):
        found = lv.estimate(by_hand(lv.Sharded(1, sizes=(2, 2), stay=10)), method=method)
        assert not any(np.any(one.statuses == "ok") for one in found.values())
        assert found["theta.mean"].status == "uncorrected" and np.all(np.isnan(found["theta.mean"].bias))
    # Stays of one step need no theory of their own, and with shards that pull alike there is nothing to know.
    for known in (
        lv.Sharded(1, sizes=(2, 2), stay=1),
        lv.Sharded(1, sizes=(2, 2), stay=10, drifts=alike()),
    ):
        assert lv.estimate(by_hand(known), method="corrected")["theta.mean"].status == "ok"


def alike():
    return stays.Drifts(np.zeros(2), np.zeros((2, 2)), np.tile(-np.eye(2), (2, 1, 1)), NOISE, np.zeros((2, 2)), 0)


def test_the_interval_has_room_for_what_is_known():
    strange = alike()._replace(offset=np.array([[0.5, 0.0], [-0.5, 0.0]]))
    found = lv.estimate(by_hand(lv.Sharded(1, sizes=(2, 2), stay=10, drifts=strange)), method="corrected")
    variance = found["theta.variance"]
    assert variance.statuses.tolist() == ["bias_dominates", "ok"]
    assert variance.error[0] >= variance.bias[0] > variance.stderr[0]
    # A bias that is linear in the step goes with the extrapolation to step 0: constant steps have none.
    with pytest.raises(ValueError, match="needs steps that vary"):
        lv.estimate(by_hand(lv.Sharded(1, sizes=(2, 2), stay=10, drifts=strange)), method="intercept")


def test_a_run_of_few_stays_says_so():
    few = by_hand(lv.Sharded(1, sizes=(2, 2), stay=500, drifts=alike()))
    assert lv.estimate(few, method="corrected")["theta.mean"].status == "too_few_batches"


@pytest.mark.slow
def test_other_functions_and_quantiles_of_long_stays_are_uncorrected():
    made = ledger(
        lv.ControlVariate(ANCHOR, order=2), 10, num_steps=4000, chains=4, coordinates=lv.Whitened.by(ANCHOR),
        schedule=lv.Constant(0.3), observables={"theta": lv.Moments(), "sin": jnp.sin, "marginals": lv.Marginals()},
    )  # fmt: skip
    found = lv.estimate(made, method="corrected")
    assert found["theta.mean"].status == "ok" and found["theta.sd"].status == "ok"
    assert not np.any(found["sin"].statuses == "ok") and not np.any(lv.quantiles(made).statuses == "ok")


def test_what_cannot_be_known_is_refused():
    with pytest.raises(ValueError, match=r"gradient must be lv.Minibatch\(\)"):
        with_drifts(lv.Sharded(10, sizes=SIZES), TARGET, DATA, lv.SAGA(), ANCHOR)
    blocks = replace(anchor_of(np.eye(2)), covariance=None)
    with pytest.raises(ValueError, match="anchor must hold the whole curvature"):
        with_drifts(lv.Sharded(10, sizes=SIZES), TARGET, DATA, lv.Minibatch(), blocks)
