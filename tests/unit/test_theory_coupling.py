"""Coupled chains against the recursion written out in NumPy, their randomness, and the orders of convergence."""

from dataclasses import dataclass
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import langevin as lv
from langevin.kernels.sgld import SGLDState
from langevin.theory import coupling, diffusion_limit

ROUNDING = {"rtol": 1e-11, "atol": 1e-12}
X = np.float32([0.5, -1.0, 2.0, 0.25, 4.0, -0.125])  # no two pairs have the same sum
PRECISION = 1.0 + X.size
MEAN = float(X.sum()) / PRECISION
RATE = PRECISION / 2
TARGET = lv.Target(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
SMALL = {"time": 1.5, "meshes": [6, 12], "refine": 4, "paths": 5}
FINE = {"meshes": [32, 64, 128, 256], "refine": 16, "paths": 32}


def small(**options):
    return diffusion_limit(TARGET, X, 1.5, **{**SMALL, **options})


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Echo:
    """Its position is the noise it was given, or the sum of what it was driven by."""

    total: bool = False

    def init(self, theta, eta):
        return SGLDState(theta)

    def step(self, state, grad, eta, delta):
        return SGLDState(jnp.where(self.total, state.theta + jnp.sqrt(delta) * eta, eta))


# --- the recursion ---


def recursion(w, times, gradient):
    theta = [1.5]
    for k, delta in enumerate(np.diff(times)):
        theta.append(theta[-1] + delta / 2 * gradient(theta[-1]) + w[k + 1] - w[k])
    return np.array(theta)


@pytest.mark.parametrize("alpha", [0.0, 1 / 3])
def test_chains_and_errors_are_the_recursion_on_the_same_path(alpha):
    result = small(alpha=alpha, keep_paths=5)
    for path in range(5):
        w, times = result.brownian[path, :, 0], result.times
        reference = recursion(w, times, lambda t: -PRECISION * (t - MEAN))
        assert_allclose(result.reference[path, :, 0], reference, **ROUNDING)
        for r, (count, mesh_times) in enumerate(zip(SMALL["meshes"], result.mesh_times, strict=True)):
            at = np.searchsorted(times, mesh_times)
            assert_array_equal(times[at], mesh_times)
            chain = recursion(w[at], mesh_times, lambda t: -PRECISION * (t - MEAN))
            assert chain.size == count + 1
            assert_allclose(result.chains[r][path, :, 0], chain, **ROUNDING)
            interpolated = np.interp(times, mesh_times, chain)
            assert_allclose(result.error_at_mesh[r, path], np.abs(chain - reference[at]).max(), **ROUNDING)
            assert_allclose(result.error_everywhere[r, path], np.abs(interpolated - reference).max(), **ROUNDING)
            assert_allclose(result.error_at_end[r, path, 0], chain[-1] - reference[-1], **ROUNDING)


def test_steps_follow_their_law_to_half_a_cell():
    result = small(alpha=0.4)
    cell = 1.5 / 48
    for r, times in enumerate(result.mesh_times):
        law = np.arange(1, times.size) ** -0.4
        assert np.abs(times[1:] - 1.5 * np.cumsum(law) / law.sum()).max() <= cell / 2 * (1 + 1e-9)
        delta = np.diff(times)
        assert_allclose(result.mesh[r], delta.max())
        assert_allclose(result.rms_step[r] ** 2, np.sum(delta**2 * delta) / 1.5)
    equal = small()
    assert_allclose(equal.mesh, [0.25, 0.125])
    assert_allclose(equal.rms_step, equal.mesh)


def test_reference_is_the_exact_diffusion_to_its_own_mesh():
    """Between grid points W is taken as affine, which changes the solution by less than the grid does."""
    result = small(**FINE)
    h, w, reference = result.times[1], result.brownian[0, :, 0], result.reference[0, :, 0]
    u = [1.5 - MEAN]
    for increment in np.diff(w):
        u.append(u[-1] * np.exp(-RATE * h) + increment * -np.expm1(-RATE * h) / (RATE * h))
    # A step leaves out RATE h/2 (dW - RATE u h): six stationary sds of RATE h/2 / sqrt(2 RATE), and a drift.
    limit = RATE * h / 2 * (6 / np.sqrt(2 * RATE) + np.abs(u).max())
    distance = np.abs(reference - MEAN - u).max()
    assert 0 < distance < limit < result.error_at_mesh[-1, 0]


# --- the randomness ---


def test_chains_share_the_brownian_path_exactly():
    result = small(kernel=Echo(total=True), alpha=0.3, keep_paths=5)
    for times, chain in zip(result.mesh_times, result.chains, strict=True):
        w = result.brownian[:, np.searchsorted(result.times, times)]
        assert_allclose(chain, 1.5 + w, **ROUNDING)


def test_noise_is_standard_normal_on_every_mesh():
    result = small(kernel=Echo(), alpha=0.3, paths=400, keep_paths=400)
    for chain in result.chains:
        eta = chain[:, 1:, 0]
        assert stats.kstest(eta.ravel(), "norm").pvalue > 1e-9
        correlation = np.corrcoef(eta.T) - np.eye(eta.shape[1])
        assert np.abs(correlation).max() < 7 / np.sqrt(400)
    increments = np.diff(result.brownian[..., 0]) / np.sqrt(result.times[1])
    assert stats.kstest(increments.ravel(), "norm").pvalue > 1e-9


def gradient_noise(result, r):
    """H of each path and step, read off the chain."""
    times, chain = result.mesh_times[r], result.chains[r][..., 0]
    w = result.brownian[:, np.searchsorted(result.times, times), 0]
    drift = -RATE * (chain[:, :-1] - MEAN) * np.diff(times)
    return (np.diff(chain) - np.diff(w) - drift) / (0.5 * np.diff(times))


def test_minibatches_are_subsets_drawn_anew_for_every_step_path_and_chain():
    result = small(subsample=lv.WithoutReplacement(2), paths=400, keep_paths=400)
    values = np.array([3.0 * (x + y) - X.sum() for x, y in combinations(X.astype(float), 2)])
    noises = [gradient_noise(result, r) for r in range(2)]
    for noise in noises:
        nearest = np.abs(noise[..., None] - values).argmin(axis=-1)
        assert_allclose(noise, values[nearest], atol=1e-10)
        assert stats.chisquare(np.bincount(nearest.ravel(), minlength=values.size)).pvalue > 1e-9
    pooled = np.concatenate(noises, axis=1)
    assert np.abs(np.corrcoef(pooled.T) - np.eye(18)).max() < 7 / np.sqrt(400)


@pytest.mark.parametrize("subsample", [lv.Full(), lv.WithoutReplacement(X.size)])
def test_all_the_data_make_the_full_gradient(subsample):
    assert_allclose(small(subsample=subsample).error_at_mesh, small().error_at_mesh, **ROUNDING)


@pytest.mark.parametrize("subsample", [lv.WithReplacement(2), lv.Epochs(2), lv.Blocks(2)])
def test_every_subsampler_gives_noise_of_its_own_data(subsample):
    noise = gradient_noise(small(subsample=subsample, keep_paths=5), 1)
    values = np.array([3.0 * (x + y) - X.sum() for x in X.astype(float) for y in X.astype(float)])
    assert np.abs(noise[..., None] - values).min(axis=-1).max() < 1e-10


def test_a_seed_fixes_everything_and_paths_do_not_depend_on_their_number(monkeypatch):
    options = {"subsample": lv.WithoutReplacement(2)}
    first, again, other = small(**options), small(**options), small(**options, seed=1)
    assert_array_equal(first.error_everywhere, again.error_everywhere)
    assert not np.any(first.error_everywhere == other.error_everywhere)
    assert_allclose(small(**options, meshes=[12]).error_at_mesh[0], first.error_at_mesh[1], **ROUNDING)
    monkeypatch.setattr(coupling, "_GROUP_FLOATS", 2 * 48)  # three groups of two, one path too many
    grouped = small(**options, keep_paths=3)
    assert_allclose(grouped.error_at_mesh, first.error_at_mesh, **ROUNDING)
    assert grouped.reference.shape == (3, 49, 1) and [c.shape for c in grouped.chains] == [(3, 7, 1), (3, 13, 1)]
    assert_allclose(grouped.reference[0], first.reference[0], **ROUNDING)


# --- what it is for ---


def covers(order, value, tolerance):
    return abs(order.value - value) < tolerance + 7 * order.stderr


def test_order_one_without_and_half_with_gradient_noise():
    exact, noisy = small(**FINE), small(**FINE, subsample=lv.WithoutReplacement(2))
    assert covers(exact.order_at_mesh, 1.0, 0.05) and exact.order_at_mesh.stderr < 0.05
    assert covers(noisy.order_at_mesh, 0.5, 0.05) and noisy.order_at_mesh.stderr < 0.05
    for result in (exact, noisy):
        assert 0.35 < result.order_everywhere.value < 0.55
        assert np.all(result.error_everywhere >= result.error_at_mesh)


def test_the_fit_is_least_squares_on_logarithms():
    steps = np.array([0.4, 0.1, 0.05])
    errors = np.stack([3 * steps**0.7, 5 * steps**0.9], axis=1)
    assert_allclose(coupling.DiffusionLimit.order(errors, steps), (0.8, 0.1))
    assert np.isnan(coupling.DiffusionLimit.order(errors[:, :1], steps).stderr)
    assert np.isnan(coupling.DiffusionLimit.order(errors[:1], steps[:1])).all()
    assert np.isnan(coupling.DiffusionLimit.order(errors, steps, rounding=np.array([0.0, errors.min()]))).all()


@pytest.mark.parametrize("slope", [0.0, -3.0])
@pytest.mark.parametrize("start", [0.0, 1.0, 1e6])
def test_no_order_is_fitted_to_rounding(slope, start):
    """A constant gradient makes every chain exact at its own times; between them bridges are missed as ever."""
    result = diffusion_limit(lv.Target(lambda t: slope * t), None, start, time=4.0, **FINE)
    assert np.isnan(result.order_at_mesh).all()
    assert 0.35 < result.order_everywhere.value < 0.55
    words = str(result).splitlines()
    assert words[-2].split()[:2] == ["order", "none"] and "±" in words[-2]
    assert words[-1] == "No order at mesh points: errors at rounding level."


def test_a_kernel_with_two_noises_has_one_first_noise_on_all_meshes():
    result = small(kernel=lv.LeimkuhlerMatthews())
    eta_0 = []
    for times, chain in zip(result.mesh_times, result.chains, strict=True):
        theta, delta = chain[0, :, 0], times[1]
        eta = np.diff(result.brownian[0, np.searchsorted(result.times, times), 0]) / np.sqrt(delta)
        both = 2 * (np.diff(theta) + delta * RATE * (theta[:-1] - MEAN)) / np.sqrt(delta)
        assert_allclose(both[1:], eta[:-1] + eta[1:], **ROUNDING)
        eta_0.append(both[0] - eta[0])
    assert_allclose(eta_0[0], eta_0[1], **ROUNDING)


def test_a_wrong_kernel_does_not_approach_the_diffusion():
    @jax.tree_util.register_dataclass
    @dataclass(frozen=True)
    class TwiceTheNoise(lv.SGLD):
        def step(self, state, grad, eta, delta):
            return super().step(state, grad, jnp.sqrt(2.0) * eta, delta)

    result = small(kernel=TwiceTheNoise(), **FINE)
    assert result.order_at_mesh.value < 0.1


SCALE = np.array([1.0, 2.0, 0.5])  # NumPy constants that a float32 run has traced before


def test_parameters_and_data_may_be_trees():
    flat = lv.Target(lambda t: -0.5 * jnp.sum(SCALE * t**2), lambda t, x: -0.5 * jnp.sum((x - t) ** 2))
    tree = lv.Target(
        lambda t: -0.5 * (SCALE[0] * t["a"] ** 2 + jnp.sum(SCALE[1:] * t["b"] ** 2)),
        lambda t, d: -0.5 * ((d[0] - t["a"]) ** 2 + jnp.sum((d[1] - t["b"]) ** 2)),
    )
    x = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
    theta_0 = jnp.float32([1.0, 0.0, -1.0])
    jax.jit(flat.grad)(theta_0, x)
    options = {**SMALL, "subsample": lv.WithoutReplacement(3)}
    one = diffusion_limit(flat, x, theta_0, **options)
    two = diffusion_limit(tree, (x[:, 0], x[:, 1:]), {"a": theta_0[0], "b": theta_0[1:]}, **options)
    assert one.error_at_end.shape == (2, 5, 3) and one.error_at_end.dtype == np.float64
    assert_allclose(two.error_at_end, one.error_at_end, **ROUNDING)
    assert_allclose(two.error_everywhere, one.error_everywhere, **ROUNDING)
    assert not jax.config.jax_enable_x64


def test_it_prints_a_line_a_mesh():
    lines = str(small()).splitlines()
    assert len(lines) == 2 + 2 + 1 and "mean of 5 Brownian paths ± standard error" in lines[0] and "±" in lines[-1]
    assert lines[0].endswith("order in the mesh") and "rms_step" not in lines[1]


def test_it_prints_the_steps_its_orders_are_powers_of():
    result = small(alpha=0.4, meshes=[6, 12, 24])
    lines = str(result).splitlines()
    assert lines[0].endswith("order in rms_step") and lines[1].split()[:3] == ["steps", "mesh", "rms_step"]
    steps, errors = np.array([[float(line.split()[i]) for i in (2, 3)] for line in lines[2:5]]).T
    assert_allclose(steps, result.rms_step, rtol=1e-3)
    assert_allclose(errors, result.error_at_mesh.mean(axis=1), rtol=1e-2)


def test_one_path_and_one_mesh_print_no_more_than_they_know():
    lines = str(small(paths=1)).splitlines()
    assert "one Brownian path;" in lines[0] and not any("±" in line or "nan" in line for line in lines)
    lines = str(small(meshes=[6])).splitlines()
    assert lines[-2].split() == ["order", "none", "none"] and lines[-1] == "No order: it takes two meshes."
