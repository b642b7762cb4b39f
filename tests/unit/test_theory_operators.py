"""The generator against closed forms, whatever the shape of theta and of phi."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langevin.theory.operators import DIRECTIONS, generator, laplacian


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("d", [1, 3, DIRECTIONS, DIRECTIONS + 1, 2 * DIRECTIONS + 5])
def test_quadratic_on_a_gaussian(d: int) -> None:
    """A <theta, B theta> = -<P theta, B theta> + tr B for the target N(0, P^-1)."""
    rng = np.random.default_rng(d)
    root, B, theta = rng.normal(size=(d, d)), rng.normal(size=(d, d)), rng.normal(size=d)
    P, B = root @ root.T, B + B.T
    value = generator(lambda t: t @ B @ t, lambda t: -0.5 * t @ P @ t)(jnp.asarray(theta))
    np.testing.assert_allclose(value, -(P @ theta) @ (B @ theta) + np.trace(B), rtol=1e-12)


def test_every_entry_of_an_array_valued_phi_and_a_pytree_theta() -> None:
    theta = {"w": jnp.asarray([[0.3, -1.2], [0.7, 0.1]]), "b": jnp.asarray(0.4)}

    def log_density(t: dict[str, jax.Array]) -> jax.Array:
        return -0.25 * jnp.sum(t["w"] ** 4) - jnp.cosh(t["b"])

    def phi(t: dict[str, jax.Array]) -> jax.Array:
        return jnp.sin(t["w"]) * t["b"] ** 2

    w, b = np.asarray(theta["w"]), float(theta["b"])
    drift = -(w**3) * np.cos(w) * b**2 - np.sinh(b) * np.sin(w) * 2 * b
    expected = 0.5 * drift + 0.5 * (-np.sin(w) * b**2 + 2 * np.sin(w))
    value = generator(phi, log_density)(theta)
    assert value.shape == (2, 2)
    np.testing.assert_allclose(value, expected, rtol=1e-13)


def test_phi_may_return_a_pytree_and_theta_a_number() -> None:
    A = generator(lambda t: {"first": t, "second": t**2}, lambda t: -0.5 * t**2)
    value = A(jnp.asarray(3.0))
    assert (float(value["first"]), float(value["second"])) == (-1.5, -8.0)


def test_jit_and_vmap_do_not_change_it() -> None:
    A = generator(lambda t: jnp.exp(jnp.sin(t).sum()), lambda t: -0.5 * t @ t)
    theta = jnp.asarray(np.random.default_rng(0).normal(size=(5, 4)))
    np.testing.assert_allclose(jax.jit(jax.vmap(A))(theta), [A(t) for t in theta], rtol=1e-13)


def test_laplacian_of_a_product_and_of_a_chain() -> None:
    theta = jnp.asarray(np.random.default_rng(1).normal(size=DIRECTIONS + 3))

    def phi(t: jax.Array) -> jax.Array:
        return jnp.stack([jnp.prod(jnp.cos(t)), jnp.sum(t[1:] ** 3 * t[:-1] ** 2)])

    t = np.asarray(theta)
    expected = [-t.size * np.prod(np.cos(t)), np.sum(6 * t[1:] * t[:-1] ** 2 + 2 * t[1:] ** 3)]
    np.testing.assert_allclose(laplacian(phi, theta), expected, rtol=1e-12)


@pytest.mark.parametrize(("factor", "vanishes"), [(0.5, True), (1.0, False)])
def test_the_mean_under_pi_vanishes(factor: float, vanishes: bool) -> None:
    """pi(A phi) = 0; a Laplacian without its 1/2 is caught."""
    x, weight = np.polynomial.hermite_e.hermegauss(60)
    weight = weight / weight.sum()

    def phi(t: jax.Array) -> jax.Array:
        return jnp.sin(t - 0.3)

    A = generator(phi, lambda t: -0.5 * t**2)
    second = jax.grad(jax.grad(phi))
    value = jax.vmap(lambda t: A(t) + (factor - 0.5) * second(t))(jnp.asarray(x))
    assert (abs(float(weight @ value)) < 1e-14) == vanishes
