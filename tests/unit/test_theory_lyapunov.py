"""`theory.stability` finds the known constants and refuses bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.precision import isolated
from langevin.target import Layout
from langevin.theory import _rays, stability


def logistic_log_likelihood(theta, datum):
    return lv.log_sigmoid(datum[1] * jnp.dot(datum[0], theta))


def serves(found, alpha, beta):
    """Whether the drift condition holds with these constants at every point looked at, up to rounding."""
    slack = 1e-12 * (found.size + alpha * found.V)
    return bool(np.all((found.drift <= -alpha * found.V + beta + slack) | np.isnan(found.V)))


def test_gaussian_constants_are_exact():
    model = lv.models.LinearGaussian.simulate(seed=3)
    mu, variance = model.mu_p, model.sigma_p**2
    found = stability(model.target, model.data, model.theta_0, lyapunov=lambda t: 1 + (t - mu) ** 2 / (2 * variance))
    assert found.holds
    np.testing.assert_allclose([found.alpha, found.beta], 1 / variance, rtol=1e-8)
    # |V'|^2 + |grad|^2 = 2 y^2/s^4 = 4 (V - 1)/s^2 and V >= 1: its supremum over V is 4/s^2.
    assert found.C_size == pytest.approx(4 / variance, rel=1e-6)
    # H of a batch of one does not depend on theta; V = 1 at the start, which is rounded to float32.
    H = model.num_data * (model.x - model.x.mean()) / model.sigma_x**2
    assert found.C_noise == pytest.approx(np.mean(H**4), rel=1e-5)
    assert "alpha = " in str(found) and "not a proof" in str(found)


def test_logistic_constants_obey_the_proven_bound():
    model = lv.models.Logistic.simulate(num_data=200, seed=2)
    found = stability(model.target, model.data, np.zeros(3))
    alpha, beta = model.drift_constants
    assert found.holds
    assert found.alpha <= alpha * (1 + 1e-9) and found.beta <= beta
    assert serves(found, found.alpha, found.beta) and serves(found, alpha, beta)
    assert found.beta_for(found.alpha) == found.beta
    theta = found.shifts[:, None] + found.radii[..., None] * found.directions[:, None]
    np.testing.assert_allclose(found.V, 1 + (theta**2).sum(axis=-1), rtol=1e-12)
    beside = found.shifts.any(axis=1)
    assert beside.sum() >= 4 * 3
    for k in (7, int(np.argmax(beside))):
        expected = (model.lyapunov_grad(theta[k]) * model.grad(theta[k])).sum(axis=-1) / 2
        np.testing.assert_allclose(found.drift[k], expected, rtol=1e-9, atol=1e-9)


def test_printed_logistic_constants_fail_when_the_prior_dominates():
    """alpha = lambda_min/4 with beta = S^2/(4 lambda_min): false at theta = 0 as soon as lambda_min > S = sum |x_i|."""
    drawn = lv.models.Logistic.simulate(num_data=200, seed=2)
    for shrink, printed_holds in ((1.0, True), (1e-3, False)):
        model = lv.models.Logistic(shrink * drawn.x, drawn.y)
        found = stability(model.target, model.data, np.zeros(3))
        total = np.linalg.norm(model.x, axis=1).sum()
        assert found.holds and bool(total > 1) is printed_holds
        assert serves(found, 1 / 4, total**2 / 4) is printed_holds
        assert serves(found, *model.drift_constants)


@pytest.mark.parametrize("rotated", [False, True])
def test_very_different_scales_hold(rotated):
    precision = np.diag([1e6, 1.0, 1e-6])
    if rotated:
        Q = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
        precision = Q @ precision @ Q.T
    found = stability(lv.Target(lambda t: -0.5 * jnp.dot(t, precision @ t)), None, np.zeros(3))
    assert found.holds
    # Rounding of the rotated matrix moves its smallest eigenvalue, and alpha is one of a few shares of the pull.
    assert found.alpha == pytest.approx(1e-6, rel=0.1)


def test_twenty_dimensions_and_a_weak_prior_hold():
    model = lv.models.Logistic.simulate(num_data=100, dimension=20, seed=5)
    target = lv.Target(lambda t: -0.5 * jnp.dot(t, t) / 1e8, logistic_log_likelihood)
    found = stability(target, model.data, np.zeros(20))
    assert found.holds
    assert found.alpha == pytest.approx(1e-8, rel=0.5)


def test_field_from_chunks_of_data_is_that_of_enumeration(monkeypatch):
    """Seven chunks, the last one filled up; NumPy constants that a float32 program has seen."""
    model = lv.models.Logistic.simulate(num_data=101, dimension=2, seed=6)
    scale = np.array([1.0, 2.0])
    target = lv.Target(lambda t: -0.5 * jnp.sum((t / scale) ** 2), logistic_log_likelihood)
    jax.grad(target.log_prior)(jnp.zeros(2))
    apart = lv.Target(isolated(target.log_prior), logistic_log_likelihood)
    monkeypatch.setattr(_rays, "CHUNK_FLOATS", 8 * 2 * 16)
    points = np.random.default_rng(0).standard_normal((3, 5, 2))
    with jax.enable_x64(True):
        source, layout = lv.DataSource.of(model.data), Layout.of(np.zeros(2))
        found = _rays.Surroundings(apart, source, layout, np.zeros(2), None, 2.0)(points)
    extra = points * (1 - 1 / scale**2)  # what the wider prior adds to the gradient of the model's
    np.testing.assert_allclose(found.log_density, model.log_density(points) + 0.5 * (points * extra).sum(-1), rtol=1e-9)
    np.testing.assert_allclose(found.grad, model.grad(points) + extra, rtol=1e-9)
    np.testing.assert_allclose(found.grad2, (found.grad**2).sum(-1), rtol=1e-12)
    np.testing.assert_allclose(found.drift, (points * found.grad).sum(-1), rtol=1e-9)
    assert found.noise[1, 2] == pytest.approx(one_datum_noise(model, points[1, 2]), rel=1e-9)


def one_datum_noise(model, theta):
    """(E|H|^4)^(1/2) for a minibatch of one, by enumeration."""
    signed = model.x * model.y[:, None]
    grads = signed / (1 + np.exp(signed @ theta))[:, None]
    H = model.num_data * grads - grads.sum(axis=0)
    return np.sqrt(np.mean((H**2).sum(axis=1) ** 2))


def test_batch_of_one_is_the_noisiest():
    """E|H|^4 over all minibatches of two, with and without replacement, is below that over single data."""
    rng = np.random.default_rng(7)
    grads = rng.standard_normal((6, 2)) ** 3
    H = 6 * grads - grads.sum(axis=0)
    pairs = (H[:, None] + H[None]) / 2
    moments = (pairs**2).sum(axis=-1) ** 2
    distinct = ~np.eye(6, dtype=bool)
    single = np.mean((H**2).sum(axis=1) ** 2)
    assert moments.mean() < single and moments[distinct].mean() < single


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": lambda t: -t}, "target must be an lv.Target"),
        ({"p_H": 1.0}, "p_H must be a number of at least 2"),
        ({"num_random": -1}, "num_random must be an integer of at least 0"),
        ({"seed": 1.5}, "seed must be an integer"),
        ({"lyapunov": 3.0}, "lyapunov must be a function of theta"),
        ({"lyapunov": lambda t: jnp.stack([t, t])}, "lyapunov must be a function with scalar values"),
        ({"lyapunov": lambda t: t**2}, "lyapunov must be at least 1 everywhere"),
        ({"lyapunov": lambda t: 1.5 + jnp.tanh(t)}, "lyapunov must tend to infinity"),
        ({"data": np.ones(3)}, "data must be None"),
        ({"theta_0": np.nan}, "theta_0 must be finite"),
        ({"theta_0": 1}, "theta_0 must be a floating-point array"),
        ({"target": lv.Target(jnp.log), "theta_0": -1.0}, "theta_0 must have a finite log density"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(change, words):
    arguments = {"target": lv.Target(lambda t: -0.5 * t**2), "data": None, "theta_0": 0.0, **change}
    with pytest.raises(ValueError, match=words):
        stability(arguments.pop("target"), arguments.pop("data"), arguments.pop("theta_0"), **arguments)
