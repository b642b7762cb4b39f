"""Coordinates: their maps, gradients in z against the full gradient, the tail guard, growing minibatches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import gammainccinv

import langevin as lv
from langevin.coordinates import Linear, Preconditioned, Whitened, chi_square_beyond, times
from langevin.engine.run import Run
from langevin.engine.setup import prepare

MODEL = lv.models.Logistic.simulate(seed=1, num_data=200)
TARGET, DATA, THETA_0 = MODEL.target, MODEL.data, MODEL.theta_0
ANCHOR = lv.laplace(TARGET, DATA, THETA_0)
WHITENED = Whitened.by(ANCHOR)
SCHEDULE = lv.Power(1000.0**0.2, m_0=1000.0, alpha=0.2)


def run(subsample, *, num_steps=400, chains=4, **more):
    return lv.run(
        TARGET, DATA, THETA_0, schedule=SCHEDULE, num_steps=num_steps, kernel=lv.LeimkuhlerMatthews(),
        gradient=lv.ControlVariate(ANCHOR, order=2), subsample=subsample, anchor=ANCHOR, coordinates=WHITENED,
        chains=chains, seed=3, progress=False, **more,
    )  # fmt: skip


def z_of(theta):
    return np.linalg.solve(ANCHOR.root[0], (theta - ANCHOR.theta)[..., None])[..., 0]


def full_grad(thetas):
    with jax.enable_x64(True):
        flat = jnp.asarray(thetas.reshape(-1, 3))
        data = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), DATA)
        return np.asarray(jax.vmap(TARGET.grad, (0, None))(flat, data)).reshape(thetas.shape)


@pytest.mark.parametrize("tail", [0.5, 1e-2, 1e-4])
def test_the_border_of_a_normal_vector_is_scipys(tail):
    for d in (1, 2, 3, 10, 63, 64, 501, 20_000):
        assert_allclose(chi_square_beyond(tail, d), 2.0 * gammainccinv(d / 2, tail), rtol=1e-11)


def test_maps_are_the_matrix_products_on_host_and_device():
    blocks = (np.array([[2.0, 0.0], [1.0, 3.0]]), np.array([5.0, 7.0]))
    frame = Linear(np.arange(4.0), blocks)
    dense = np.diag([2.0, 3.0, 5.0, 7.0])
    dense[1, 0] = 1.0
    v = np.array([1.0, -2.0, 0.5, 3.0], np.float32)
    assert_allclose(times(blocks, v), dense @ v)
    assert_allclose(frame.pull(v), dense.T @ v)
    assert_allclose(frame.theta(v), np.arange(4.0) + dense @ v)
    assert_allclose(jax.jit(lambda c, v: c.theta(v))(frame.on_device(), v), frame.theta(v))
    assert_allclose(frame.z(frame.theta(v)), v)
    assert_allclose(frame.unpulled(frame.pull(v)), v)
    square = np.arange(16.0).reshape(4, 4)
    assert_allclose(frame.curvature(square + square.T), dense.T @ (square + square.T) @ dense)


def test_maps_of_the_books_invert_those_of_the_device():
    rng = np.random.default_rng(0)
    z, grad = rng.standard_normal((2, 5, 3)), rng.standard_normal((5, 3))
    assert_allclose(z_of(WHITENED.theta(z)), z, atol=1e-12)
    assert_allclose(WHITENED.unpulled(grad @ ANCHOR.root[0]), grad, rtol=1e-11)
    for coordinates in (lv.Coordinates(), WHITENED, Preconditioned.by(ANCHOR.covariance + np.eye(3))):
        newton = times(coordinates.newton(ANCHOR), coordinates.pull(grad))
        assert_allclose(newton, grad @ ANCHOR.covariance, rtol=1e-10)
        assert_allclose(coordinates.precision(ANCHOR), coordinates.curvature(ANCHOR.precision), atol=1e-10)


@pytest.mark.parametrize("gradient", [lv.ControlVariate(ANCHOR, order=2), lv.ControlVariate(ANCHOR), lv.Minibatch()])
def test_with_all_data_every_kept_gradient_is_the_full_gradient(gradient):
    ledger = lv.run(
        TARGET, DATA, THETA_0, schedule=SCHEDULE, num_steps=64, kernel=lv.LeimkuhlerMatthews(), gradient=gradient,
        subsample=lv.Full(), anchor=ANCHOR, coordinates=WHITENED, chains=2, seed=3, keep=100, progress=False,
    )  # fmt: skip
    # Float32 sums over 200 data: about 1e-5 of the terms' size.
    assert_allclose(ledger.draws.grad @ ANCHOR.root[0], full_grad(ledger.draws.theta) @ ANCHOR.root[0], atol=1e-3)


def test_chains_start_at_draws_of_the_laplace_approximation():
    ledger = run(lv.WithReplacement(5), num_steps=16, chains=1000, keep=16)
    z = z_of(ledger.draws.theta[:, 0])
    assert_allclose(z[::2], -z[1::2], atol=1e-5)
    z = z[::2]
    # 500 standard normal vectors: the mean has sd .045, and |z|^2 is chi-square; five standard errors, rate 1e-5.
    assert np.abs(z.mean(axis=0)).max() < 5 / np.sqrt(500)
    assert abs((z**2).sum(axis=1).mean() - 3.0) < 5 * np.sqrt(6 / 500)


# |z|^2 where the outer 1e-2 and 1e-4 of the chi-square law with 3 degrees of freedom begin.
OUT, FAR = 11.345, 21.108


def test_the_guard_sees_more_data_outside_the_bulk_and_only_there():
    quiet, noisy = (run(lv.WithReplacement(2), num_steps=8000, guard=guard, keep=8000) for guard in (100, 1))
    errors = []
    for ledger in (quiet, noisy):
        square = (z_of(ledger.draws.theta) ** 2).sum(axis=-1)
        out, far = square > OUT, square > FAR
        assert 0 < far.sum() == ledger.far.sum()
        error = np.abs((ledger.draws.grad - full_grad(ledger.draws.theta)) @ ANCHOR.root[0]).max(axis=-1)
        errors.append([np.median(error[far]), np.median(error[out & ~far])])
        rounds = 99 * far.sum() + 9 * (out & ~far).sum() if ledger is quiet else 0
        assert ledger.cost == 2 * (8000 * 4 + rounds)
    # A hundred times as many data, a tenth of the error; ten times as many, a third.
    assert errors[0][0] < 0.3 * errors[1][0] and errors[0][1] < 0.6 * errors[1][1]


def test_the_guard_is_unbiased():
    """The mean of the guarded gradients' errors, over the steps of many chains outside the bulk."""
    ledger = run(lv.WithReplacement(2), num_steps=2000, chains=64, guard=10, keep=2000)
    out = (z_of(ledger.draws.theta[::2]) ** 2).sum(axis=-1) > OUT
    error = ((ledger.draws.grad - full_grad(ledger.draws.theta))[::2] @ ANCHOR.root[0])[out]
    # One chain of each pair, uncorrelated given the path, with mean zero: 5 standard errors for three coordinates.
    assert len(error) > 100
    assert np.all(np.abs(error.mean(axis=0)) < 5 * error.std(axis=0) / np.sqrt(len(error)))


def test_the_guard_leaves_a_chain_that_stays_inside_the_same_to_the_bit():
    with_guard, without = (run(lv.WithReplacement(5), guard=guard, keep=32, num_steps=32) for guard in (100, 1))
    inside = (with_guard.visits == without.visits).all(axis=1)
    assert inside.any()
    assert_array_equal(with_guard.draws.theta[inside], without.draws.theta[inside])


def test_the_number_of_rounds_may_change_at_any_block_border():
    """Each round has random numbers of its own: the steps before and after know nothing of the change."""
    parts = {
        "schedule": SCHEDULE, "kernel": lv.LeimkuhlerMatthews(), "gradient": lv.ControlVariate(ANCHOR, order=2),
        "subsample": lv.WithReplacement(2), "coordinates": WHITENED, "observables": None, "chains": 4, "seed": 3,
        "anchor": ANCHOR, "weight_power": 1.0, "keep": 0, "layout": None, "guard": 1,
    }  # fmt: skip
    growing = Run(prepare(TARGET, DATA, THETA_0, **parts))
    growing.advance(150)
    growing.rounds = (3, 3, 3)
    growing.advance(320)
    longer = growing.ledger()
    assert longer.cost == 4 * (150 * 2 + 170 * 6)
    short = run(lv.WithReplacement(2), num_steps=144)
    assert_array_equal(longer.values["theta"][:, :9], short.values["theta"])


def test_a_host_gather_changes_no_bit(monkeypatch):
    """Rows of the guard's rounds come from counters too, so that the host can gather those of the bulk."""
    here = run(lv.WithReplacement(2), guard=20, num_steps=300, keep=64)
    monkeypatch.setattr("langevin.engine.setup.FROM_BYTES", 0)
    gathered = run(lv.WithReplacement(2), guard=20, num_steps=300, keep=64)
    assert here.cost > 4 * 300 * 2
    assert_array_equal(here.values["theta"], gathered.values["theta"])
    assert_array_equal(here.draws.grad, gathered.draws.grad)
    assert_array_equal(here.visits, gathered.visits)


def test_a_step_of_more_rounds_than_the_host_gathers_changes_no_bit_either(monkeypatch):
    parts = {
        "schedule": SCHEDULE, "kernel": lv.LeimkuhlerMatthews(), "gradient": lv.ControlVariate(ANCHOR, order=2),
        "subsample": lv.WithReplacement(2), "coordinates": WHITENED, "observables": None, "chains": 4, "seed": 3,
        "anchor": ANCHOR, "weight_power": 1.0, "keep": 0, "layout": None, "guard": 1,
    }  # fmt: skip

    def values():
        ready = Run(prepare(TARGET, DATA, THETA_0, **parts))
        ready.rounds = (40, 60, 80)
        ready.advance(48)
        return ready.program, ready.ledger().values["theta"]

    _, here = values()
    monkeypatch.setattr("langevin.engine.setup.FROM_BYTES", 0)
    monkeypatch.setattr("langevin.engine.setup.BUFFER_BYTES", 0)
    program, gathered = values()
    assert program.host_gather and program.capacity < 40
    assert_array_equal(here, gathered)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"anchor": None}, "needs the anchor too"),
        ({"guard": 0}, "guard must be an integer of at least 1"),
        ({"coordinates": None, "guard": 5}, "guard must be 1 unless coordinates are whitened"),
        ({"coordinates": "whitened"}, "coordinates must be lv.Whitened"),
        ({"coordinates": Preconditioned.by(np.ones(2))}, "coordinates must be of dimension 3"),
        ({"layout": "wide"}, "layout must be 'chain'"),
    ],
)
def test_bad_arguments_are_refused(changed, message):
    given = {
        "schedule": SCHEDULE, "num_steps": 16, "gradient": lv.Minibatch(), "subsample": lv.WithReplacement(5),
        "anchor": ANCHOR, "coordinates": WHITENED, "progress": False,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        lv.run(TARGET, DATA, THETA_0, **(given | changed))
