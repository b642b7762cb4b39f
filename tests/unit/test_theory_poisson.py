"""Poisson solutions, sigma^2 and mubar against closed forms and stationary laws of a finite step."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from langevin.theory.gaussian import LinearGaussianLaw
from langevin.theory.operators import generator
from langevin.theory.poisson import known_solution, local_bias, solve_poisson

VAR = 0.3  # posterior variance of the Gaussian targets
SHIFT = 0.4


def gaussian(t: jax.Array) -> jax.Array:
    return -0.5 * t**2 / VAR


def skewed_wells(t: jax.Array) -> jax.Array:
    return -0.5 * (t**2 - 1.0) ** 2 + 0.4 * t


def sine(t: jax.Array) -> jax.Array:
    return jnp.sin(t - SHIFT)


def wave(t: jax.Array) -> jax.Array:
    return jnp.cos(2 * t - SHIFT)


def expectation(solution, f: Callable[[jax.Array], jax.Array]) -> float:
    with jax.enable_x64(True):
        return float(solution.weight @ np.asarray(jax.jit(jax.vmap(f))(jnp.asarray(solution.theta))))


def mubar_with(constant: float, h, log_density, grad_noise: float, solution) -> float:
    """mubar from its four-derivative form, the factor of h'''' left open."""
    d = [h]
    for _ in range(4):
        d.append(jax.grad(d[-1]))
    drift = jax.grad(log_density)
    return -expectation(
        solution,
        lambda t: d[2](t) * (drift(t) ** 2 + grad_noise) / 8 + d[3](t) * drift(t) / 4 + constant * d[4](t),
    )


@pytest.mark.parametrize("grad_noise", [0.0, 2.5])
def test_moments_of_a_gaussian(grad_noise: float) -> None:
    """phi = x has h = -2 v x; phi = x^2 has h = -v x^2."""
    first = solve_poisson(lambda t: t, gaussian, -6.0, 6.0)
    second = solve_poisson(lambda t: t**2, gaussian, -6.0, 6.0)
    np.testing.assert_allclose(first.weight @ np.abs(first.dh + 2 * VAR), 0, atol=1e-13)
    np.testing.assert_allclose(second.weight @ np.abs(second.dh + 2 * VAR * second.theta), 0, atol=1e-13)
    np.testing.assert_allclose([first.mean, second.mean], [0, VAR], atol=1e-14)
    np.testing.assert_allclose([first.sigma2, second.sigma2], [4 * VAR**2, 4 * VAR**3], rtol=1e-13)
    np.testing.assert_allclose(first.mubar(grad_noise), 0, atol=1e-13)
    np.testing.assert_allclose(second.mubar(grad_noise), (1 + VAR * grad_noise) / 4, rtol=1e-12)


@pytest.mark.parametrize("grad_noise", [0.0, 2.5])
def test_sine_on_a_gaussian(grad_noise: float) -> None:
    sigma2 = 0.5 * (1 + np.exp(-2 * VAR) * np.cos(2 * SHIFT))
    mubar = -np.exp(-VAR / 2) * np.sin(SHIFT) * (1 / VAR + grad_noise) / 8
    for solution in (
        known_solution(sine, gaussian, -6.0, 6.0),
        solve_poisson(generator(sine, gaussian), gaussian, -6.0, 6.0),
    ):
        np.testing.assert_allclose(solution.mean, 0, atol=1e-14)
        np.testing.assert_allclose(solution.sigma2, sigma2, rtol=1e-12)
        np.testing.assert_allclose(solution.mubar(grad_noise), mubar, rtol=1e-12)


def test_the_two_entries_agree_away_from_the_gaussian() -> None:
    known = known_solution(sine, skewed_wells, -4.0, 4.0)
    solved = solve_poisson(generator(sine, skewed_wells), skewed_wells, -4.0, 4.0)
    np.testing.assert_allclose(known.mean, 0, atol=1e-13)
    np.testing.assert_allclose(known.weight @ np.abs(known.dh - solved.dh), 0, atol=1e-12)
    np.testing.assert_allclose(solved.sigma2, known.sigma2, rtol=1e-12)

    def noise(t: jax.Array) -> jax.Array:
        return 1.0 + t**2

    np.testing.assert_allclose(solved.mubar(noise), known.mubar(noise), rtol=1e-12)


@pytest.mark.parametrize(("constant", "holds"), [(1 / 8, True), (1 / 24, False)])
def test_two_and_four_derivatives_agree_for_one_eighth_only(constant: float, holds: bool) -> None:
    solution = known_solution(sine, skewed_wells, -4.0, 4.0)
    full = mubar_with(constant, sine, skewed_wells, 1.5, solution)
    assert np.isclose(full, solution.mubar(1.5), rtol=1e-11) == holds


@pytest.mark.parametrize(("constant", "holds"), [(1 / 8, True), (1 / 24, False)])
@pytest.mark.parametrize("batch_size", [5, 20])
def test_stationary_law_of_the_gaussian_model_decides_the_constant(
    batch_size: int, constant: float, holds: bool
) -> None:
    """In the long run Var theta = v and E A sin = -1/2 e^{-v/2} sin(c) (v/sigma_p^2 - 1).

    Third and higher cumulants are O(delta^2), so a step of 1e-6 leaves a relative error of order 1e-5.
    """
    law = LinearGaussianLaw(np.random.default_rng(3).exponential(2.0, size=20), 1.0, 2.0, batch_size, False)
    s2, delta = law.sigma_p**2, 1e-6
    _, v, _ = law.stationary(delta)
    rate = -0.5 * np.exp(-v / 2) * np.sin(SHIFT) * (v / s2 - 1) / delta
    width = 14 * law.sigma_p

    def log_density(t: jax.Array) -> jax.Array:
        return -0.5 * t**2 / s2

    solution = known_solution(sine, log_density, -width, width)
    assert np.isclose(mubar_with(constant, sine, log_density, law.grad_noise, solution), rate, rtol=1e-3) == holds
    if holds:
        np.testing.assert_allclose(solution.mubar(law.grad_noise), rate, rtol=1e-4)


def stationary_mean(delta: float, noise_sd: float, phi: Callable[[np.ndarray], np.ndarray]) -> float:
    """Mean of phi in the stationary law of SGLD with gradient error +-noise_sd on `skewed_wells`.

    The transition density is tabulated on a uniform mesh, where the trapezoidal rule is spectrally accurate.
    """
    x = np.linspace(-3.2, 3.2, 801)
    drift = -2 * x * (x**2 - 1) + 0.4
    kernel = np.zeros((x.size, x.size))
    for sign in (-1, 1):
        centre = x + delta / 2 * (drift + sign * noise_sd)
        kernel += 0.5 * np.exp(-((x - centre[:, None]) ** 2) / (2 * delta))
    kernel /= kernel.sum(axis=1, keepdims=True)
    system = kernel.T - np.eye(x.size)
    system[-1] = 1.0
    density = np.linalg.solve(system, np.eye(x.size)[-1])
    return float(density @ phi(x))


@pytest.mark.parametrize("noise_sd", [0.0, 1.2])
def test_mubar_is_the_slope_of_the_stationary_mean_on_a_skewed_target(noise_sd: float) -> None:
    """Richardson extrapolation of (E_delta phi - pi(phi))/delta to delta = 0; the 1/24 form misses it."""
    solution = known_solution(wave, skewed_wells, -4.0, 4.0)
    with jax.enable_x64(True):
        phi = jax.jit(jax.vmap(generator(wave, skewed_wells)))
        coarse, middle, fine = (
            stationary_mean(d, noise_sd, lambda x: np.asarray(phi(jnp.asarray(x)))) / d for d in (0.02, 0.01, 0.005)
        )
    slope = (8 * fine - 6 * middle + coarse) / 3
    np.testing.assert_allclose(solution.mubar(noise_sd**2), slope, rtol=2e-3)
    assert not np.isclose(mubar_with(1 / 24, wave, skewed_wells, noise_sd**2, solution), slope, rtol=2e-3)


def test_a_phi_with_a_jump() -> None:
    """P(theta > c) under N(0, v): mubar is its derivative in v times dv/ddelta = (1 + v noise)/4."""
    c, noise = 0.5, 2.0
    solution = solve_poisson(lambda t: jnp.where(t > c, 1.0, 0.0), gaussian, -6.0, 6.0, breaks=[c])
    np.testing.assert_allclose(solution.mean, stats.norm.sf(c / VAR**0.5), rtol=1e-13)
    slope = stats.norm.pdf(c / VAR**0.5) * c / (2 * VAR**1.5)
    np.testing.assert_allclose(solution.mubar(noise), slope * (1 + VAR * noise) / 4, rtol=1e-11)


def test_local_bias_in_two_dimensions() -> None:
    """Its mean under a Gaussian is -1/8 E tr[Hess h (C - Hess log pi)], by Gauss-Hermite quadrature."""
    P = np.array([[2.0, 0.6], [0.6, 1.5]])
    C = np.array([[1.0, -0.3], [-0.3, 0.7]])
    z, w = np.polynomial.hermite_e.hermegauss(40)
    root = np.linalg.cholesky(np.linalg.inv(P))
    points = np.stack(np.meshgrid(z, z), axis=-1).reshape(-1, 2) @ root.T
    weight = np.outer(w, w).ravel() / w.sum() ** 2

    def h(t: jax.Array) -> jax.Array:
        return jnp.sin(t[0] - 0.3) * jnp.cos(t[1]) + t[0] ** 2 * t[1]

    with jax.enable_x64(True):
        bias = local_bias(h, lambda t: -0.5 * t @ P @ t, jnp.asarray(C))
        full = weight @ np.asarray(jax.jit(jax.vmap(bias))(jnp.asarray(points)))
        hessian = np.asarray(jax.jit(jax.vmap(jax.hessian(h)))(jnp.asarray(points)))
    np.testing.assert_allclose(full, -np.einsum("k,kij,ij", weight, hessian, C + P) / 8, rtol=1e-11)


def test_local_bias_on_the_line_averages_to_mubar() -> None:
    solution = known_solution(sine, skewed_wells, -4.0, 4.0)
    mean = expectation(solution, local_bias(sine, skewed_wells, 1.5))
    np.testing.assert_allclose(mean, solution.mubar(1.5), rtol=1e-11)


def test_an_interval_that_cuts_the_density_is_refused() -> None:
    with pytest.raises(ValueError, match="wider interval"):
        solve_poisson(lambda t: t, gaussian, -1.0, 6.0)
    with pytest.raises(ValueError, match="lower < breaks < upper"):
        solve_poisson(lambda t: t, gaussian, -6.0, 6.0, breaks=[7.0])
