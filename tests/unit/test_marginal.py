"""Quadrature over latent effects against closed forms and brute-force integration."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln
from jax.scipy.stats import multivariate_normal

import langevin as lv
from langevin.mixed.placement import place

THETA = {"beta": np.array([-0.4, 0.7]), "log_sd": np.array([0.2, -0.5]), "partial": np.array([0.4])}


def effects(theta, z):
    return lv.covariance_root(theta["log_sd"], theta["partial"]) @ z


def standard(z):
    return -0.5 * jnp.sum(z**2) - 0.5 * z.size * jnp.log(2 * jnp.pi)


def predictor(theta, b, group):
    return theta["beta"][0] + b[0] + group["x"] * (theta["beta"][1] + b[1])


def gaussian(theta, z, group):
    error = group["y"] - predictor(theta, effects(theta, z), group)
    return jnp.sum(jnp.where(group["mask"], -0.5 * error**2 - 0.5 * jnp.log(2 * jnp.pi), 0.0)) + standard(z)


def bernoulli(theta, z, group):
    eta = predictor(theta, effects(theta, z), group)
    return jnp.sum(jnp.where(group["mask"], lv.log_sigmoid(group["y"] * eta), 0.0)) + standard(z)


def poisson(theta, z, group):
    eta = predictor(theta, effects(theta, z), group)
    terms = group["y"] * eta - jnp.exp(eta) - gammaln(group["y"] + 1.0)
    return jnp.sum(jnp.where(group["mask"], terms, 0.0)) + standard(z)


def also_slowly(*arguments):
    """A case that asks again what a cheaper one has asked."""
    return pytest.param(*arguments, marks=pytest.mark.slow)


def a_group(kind, rows=12, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    y = {
        "gaussian": rng.normal(size=rows) + 1,
        "bernoulli": rng.choice([-1.0, 1.0], rows),
        "poisson": rng.poisson(2.0, rows),
    }
    return {"x": x, "y": y[kind].astype(float), "mask": np.arange(rows) < max(rows - 3, 1)}


def brute_force(log_joint, theta, group, size):
    """The integral by the trapezoidal rule on a wide and fine grid, which for smooth densities is exact to rounding."""
    axis = jnp.linspace(-9.0, 9.0, 201 if size == 2 else 2001)
    grid = jnp.stack(jnp.meshgrid(*[axis] * size), axis=-1).reshape(-1, size)
    values = jax.lax.map(lambda z: log_joint(theta, z, group), grid, batch_size=4096)
    return jax.scipy.special.logsumexp(values) + size * jnp.log(axis[1] - axis[0])


def three(function, theta):
    """Value, gradient and Hessian as one vector."""
    flat, unravel = jax.flatten_util.ravel_pytree(theta)

    @jax.jit
    def parts(t):
        def along(v):
            return jax.jvp(jax.value_and_grad(lambda u: function(unravel(u))), (t,), (v,))

        (value, grad), (_, products) = jax.vmap(along, out_axes=((None, None), 0))(jnp.eye(len(flat), dtype=flat.dtype))
        return jnp.concatenate([value[None], grad, products.ravel()])

    return np.asarray(parts(flat))


def single(tree):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32) if leaf.dtype.kind == "f" else leaf, tree)


@pytest.mark.parametrize("nodes", [also_slowly(3), 4, also_slowly(7)])
def test_a_gaussian_family_is_exact_with_any_number_of_nodes(nodes):
    group = a_group("gaussian")

    def exact(theta):
        x, y = group["x"][group["mask"]], group["y"][group["mask"]]
        design = jnp.stack([jnp.ones_like(x), x], axis=1)
        root = design @ lv.covariance_root(theta["log_sd"], theta["partial"])
        return multivariate_normal.logpdf(y, design @ theta["beta"], jnp.eye(len(x)) + root @ root.T)

    with jax.enable_x64(True):
        truth = three(exact, THETA)
        np.testing.assert_allclose(three(lambda t: lv.marginal(gaussian, 2, nodes)(t, group), THETA), truth, atol=1e-9)
    found = three(lambda t: lv.marginal(gaussian, 2, nodes)(t, single(group)), single(THETA))
    # Rounding only: sums of a dozen terms of the size of the value.
    np.testing.assert_allclose(found, truth, atol=50 * np.finfo(np.float32).eps * np.abs(truth).max())


@pytest.mark.parametrize(("family", "rows"), [(bernoulli, 12), also_slowly(bernoulli, 1), also_slowly(poisson, 12)])
def test_it_agrees_with_brute_force_in_two_dimensions(family, rows):
    group = a_group(family.__name__, rows)
    with jax.enable_x64(True):
        truth = three(lambda t: brute_force(family, t, group, 2), THETA)
        few, many = (
            np.abs(three(lambda t, n=n: lv.marginal(family, 2, n)(t, group), THETA) - truth).max() for n in (3, 15)
        )
    assert many < 1e-5
    # Three nodes are seen to be too few: what is measured is the quadrature.
    assert few > 1e-3


@pytest.mark.parametrize("family", [bernoulli, poisson])
def test_it_agrees_with_brute_force_in_one_dimension(family):
    def intercept(theta, z, group):
        return family({**theta, "partial": jnp.zeros(1), "log_sd": jnp.stack([theta["log_sd"][0], -30.0])},
                      jnp.concatenate([z, jnp.zeros(1)]), group) + 0.5 * jnp.log(2 * jnp.pi)  # fmt: skip

    group = a_group(family.__name__)
    with jax.enable_x64(True):
        truth = three(lambda t: brute_force(intercept, t, group, 1), THETA)
        found = three(lambda t: lv.marginal(intercept, nodes=25)(t, group), THETA)
    np.testing.assert_allclose(found, truth, atol=2e-6)


def test_float32_keeps_what_float64_finds():
    group = a_group("bernoulli", 60)
    with jax.enable_x64(True):
        wide = three(lambda t: lv.marginal(bernoulli, 2)(t, group), THETA)
    narrow = three(lambda t: lv.marginal(bernoulli, 2)(t, single(group)), single(THETA))
    np.testing.assert_allclose(narrow, wide, atol=200 * np.finfo(np.float32).eps * np.abs(wide).max())


@pytest.mark.parametrize("shape", [(), also_slowly((1,)), (3,), also_slowly((4,)), also_slowly((5,)), (2, 2)])
def test_any_shape_of_up_to_five_effects(shape):
    size = int(np.prod(shape))
    precision = np.eye(size) + 0.3 * np.ones((size, size))

    def joint(theta, z, group):
        assert z.shape == shape
        r = z.reshape(-1) - theta * group
        return -0.5 * r @ precision @ r

    value, grad = jax.value_and_grad(lv.marginal(joint, latent=shape))(jnp.float32(0.7), jnp.arange(1.0, size + 1))
    assert value == pytest.approx(0.5 * size * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(precision)[1], abs=1e-5)
    assert grad == pytest.approx(0.0, abs=1e-3)


def far(kind):
    rows = np.arange(40)
    extreme = {
        "all ones": (bernoulli, np.ones(40), 40),
        "one row": (bernoulli, np.ones(40), 1),
        "counts of 10^4": (poisson, np.full(40, 1e4), 40),
        "one count of 10^4": (poisson, np.full(40, 1e4), 1),
        "no counts": (poisson, np.zeros(40), 40),
    }
    family, y, size = extreme[kind]
    x = np.random.default_rng(1).normal(size=40)
    # As lv.groups pads: other rows could overflow where the first does not, and 0 times infinity is no derivative.
    x = np.where(rows < size, x, x[0])
    return family, single({"x": x, "y": y.astype(float), "mask": rows < size})


@partial(jax.jit, static_argnums=0)
def left_at_each(family, many, group):
    return jax.vmap(partial(left, family, group))(many)


def left(family, group, theta):
    """Newton step from the centre, in the latent effects' own sds, and the derivatives of the likelihood."""
    likelihood = lv.marginal(family, 2)
    placement = likelihood.placed(theta, group)
    slope = jax.grad(lambda z: family(theta, z, group))(placement.centre)
    whitened = jnp.linalg.solve(placement.factor, slope)
    value, grad = jax.value_and_grad(likelihood)(theta, group)
    return jnp.linalg.norm(whitened), value, jax.flatten_util.ravel_pytree(grad)[0]


@pytest.mark.parametrize("kind", ["all ones", "one row", "counts of 10^4", "one count of 10^4", "no counts"])
def test_the_mode_is_found_for_extreme_groups_and_many_thetas(kind):
    family, group = far(kind)
    rng = np.random.default_rng(2)
    many = {
        "beta": jnp.asarray(rng.normal(size=(200, 2)) * 2, jnp.float32),
        "log_sd": jnp.asarray(rng.normal(size=(200, 2)), jnp.float32),
        "partial": jnp.asarray(rng.normal(size=(200, 1)), jnp.float32),
    }
    distance, value, grad = left_at_each(family, many, group)
    assert np.isfinite(value).all()
    assert np.isfinite(grad).all()
    assert np.max(distance) < 0.1


def test_a_density_without_curvature_at_the_start_is_climbed_too():
    # Minus the Hessian is negative at 0: the density of a Student t far from its centre is convex.
    placement = place(lambda z: -jnp.log1p(jnp.sum((z - 6.0) ** 2)), 1, jnp.float32)
    assert float(placement.centre[0]) == pytest.approx(6.0, abs=1e-2)


def test_arrays_held_by_the_joint_density_serve_both_precisions():
    offset = np.array([0.5, -0.25])

    def joint(theta, z, y):
        return -0.5 * jnp.sum((y - theta - offset * z) ** 2) - 0.5 * jnp.sum(z**2)

    target = lv.Target(lambda t: -0.5 * t**2, lv.marginal(joint))
    data = np.random.default_rng(0).normal(size=(200, 2)) + 1.0
    result = lv.sample(target, data, np.float32(0.0), passes=200)
    # y ~ N(theta, I + offset offset'), theta ~ N(0, 1): conjugate.
    precision = np.linalg.inv(np.eye(2) + np.outer(offset, offset))
    variance = 1.0 / (1.0 + 200 * precision.sum())
    assert result.mean.value[0] == pytest.approx(variance * (data @ precision).sum(), abs=1e-3 * np.sqrt(variance))
    assert result.sd.value[0] == pytest.approx(np.sqrt(variance), rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (dict(log_joint=3), "log_joint must be a function"),
        (dict(latent=6), "latent must be the dimension"),
        (dict(latent=0), "latent must be the dimension"),
        (dict(latent=1.5), "latent must be the dimension"),
        (dict(nodes=2), "nodes must be a whole number"),
        (dict(nodes=7.0), "nodes must be a whole number"),
        (dict(nodes=200), "nodes must be a whole number"),
    ],
)
def test_bad_arguments_are_named(arguments, said):
    with pytest.raises(ValueError, match=said):
        lv.marginal(**{"log_joint": bernoulli, **arguments})
