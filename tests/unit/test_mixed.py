"""Groups from tables, the error of the quadrature, and chosen groups' latent effects."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import langevin as lv
from langevin.data.source import as_source
from langevin.mixed.error import quadrature_error
from langevin.mixed.latent import edgeworth, moments


def table(num_groups=200, seed=0, sd=1.0, binary=True):
    rng = np.random.default_rng(seed)
    town = rng.permutation(np.repeat(np.arange(num_groups), rng.integers(3, 12, num_groups)))
    eta = 0.3 + sd * rng.normal(size=num_groups)[town]
    y = (
        np.where(rng.random(len(town)) < 1 / (1 + np.exp(-eta)), 1.0, -1.0)
        if binary
        else eta + rng.normal(size=len(town))
    )
    return {"y": y, "town": town}


def log_prior(theta):
    return -0.5 * jnp.sum(theta**2)


def binary(theta, z, group):
    eta = theta[0] + jnp.exp(theta[1]) * z[0]
    rows = jnp.where(group["mask"], lv.log_sigmoid(group["y"] * eta), 0.0)
    return jnp.sum(rows) - 0.5 * z[0] ** 2 - 0.5 * jnp.log(2 * jnp.pi)


def normal(theta, z, group):
    error = group["y"] - theta[0] - jnp.exp(theta[1]) * z[0]
    return jnp.sum(jnp.where(group["mask"], -0.5 * error**2, 0.0)) - 0.5 * z[0] ** 2


def test_groups_hold_every_row_once_and_padding_repeats_the_first():
    rows = table()
    rows["x"] = {"deep": np.arange(2 * len(rows["y"])).reshape(-1, 2)}
    data = lv.groups(rows, by="town")
    mask = data.arrays["mask"]
    assert data.num_data == 200 and set(data.arrays) == {"x", "y", "mask"}
    np.testing.assert_array_equal(mask.sum(axis=1), data.sizes)
    for j in (0, 57, 199):
        mine = rows["town"] == data.labels[j]
        np.testing.assert_array_equal(data.arrays["x"]["deep"][j][mask[j]], rows["x"]["deep"][mine])
        padding = data.arrays["x"]["deep"][j][~mask[j]]
        np.testing.assert_array_equal(padding, np.broadcast_to(rows["x"]["deep"][mine][:1], padding.shape))
    assert data.padding == pytest.approx(1 - len(rows["y"]) / mask.size)


def test_labels_may_be_strings_in_an_array_and_are_found_again():
    data = lv.groups({"y": np.arange(4.0)}, by=np.array(["b", "a", "c", "a"]))
    assert data.labels.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(data.numbers(["c", "a"]), [2, 0])
    with pytest.raises(ValueError, match="groups must be labels"):
        data.numbers("d")


@pytest.mark.parametrize(
    ("data", "by", "said"),
    [
        (np.ones(3), np.ones(3), "data must be a dict"),
        ({"y": np.ones(3), "mask": np.ones(3)}, np.ones(3), "must not have a key"),
        ({"y": np.ones(3)}, "town", "by must be a key of data"),
        ({"y": np.ones(3)}, np.ones(4), "one label per row"),
        ({"y": np.ones(3)}, np.array([1.0, np.nan, 2.0]), "by must be finite, .* first in row 1"),
        ({"y": np.ones(3)}, np.array([1, None, 2]), "numbers or strings"),
        ({"y": np.ones(0)}, np.ones(0), "at least one observation"),
        ({"y": np.array([1.0, np.nan])}, np.ones(2), "must be finite"),
    ],
)
def test_bad_tables_are_named(data, by, said):
    with pytest.raises(ValueError, match=said):
        lv.groups(data, by)


@pytest.fixture(scope="module")
def fitted():
    """A Gaussian family: given theta everything about z is known in closed form."""
    data = lv.groups(table(binary=False), by="town")
    target = lv.Target(log_prior, lv.marginal(normal))
    return lv.sample(target, data, jnp.zeros(2), precision=0.05, progress=False)


def test_a_gaussian_family_has_no_quadrature_error(fitted):
    assert fitted.status == "ok"
    assert fitted.plan.quadrature.max() < 1e-3


def test_latent_effects_of_a_gaussian_family(fitted):
    found = fitted.latent([3, 77])
    draws = fitted.draws
    theta, weight = draws.theta.reshape(-1, 2).astype(float), draws.weight / draws.weight.sum() / len(draws.theta)
    weight = np.broadcast_to(weight, draws.theta.shape[:2]).ravel()
    arrays = fitted.session.source.take(np.array([3, 77]))
    scale = np.exp(theta[:, 1:])
    total = np.sum(arrays["mask"] * arrays["y"], axis=1) - arrays["mask"].sum(axis=1) * theta[:, :1]
    precision = 1 + arrays["mask"].sum(axis=1) * scale**2
    mean, variance = scale * total / precision, 1 / precision
    exact = weight @ mean
    # The same draws but for the correction, which takes Monte Carlo error off: within a few of the raw average's bars.
    np.testing.assert_allclose(found.mean.value[:, 0], exact, atol=0.02 * np.sqrt(variance.mean()))
    sd = np.sqrt(weight @ (variance + mean**2) - exact**2)
    np.testing.assert_allclose(found.sd.value[:, 0], sd, rtol=0.01)
    below = weight @ norm.cdf((found.quantiles.value[:, None, :, 0] - mean) / np.sqrt(variance))
    np.testing.assert_allclose(below, np.array([[0.025], [0.5], [0.975]]) * np.ones((1, 2)), atol=2e-3)
    assert np.all(found.mean.stderr > 0) and np.all(found.mean.stderr < 0.05 * sd[:, None])


def test_latent_effects_need_a_marginal_and_groups_that_are_there(fitted):
    with pytest.raises(ValueError, match="groups must be labels"):
        fitted.latent([1000])
    model = lv.models.Logistic.simulate(seed=1)
    plain = lv.sample(model.target, model.data, model.theta_0, passes=20)
    with pytest.raises(ValueError, match="integrated out"):
        plain.latent([0])


def test_the_conditional_law_of_a_skewed_effect():
    group = {"y": jnp.ones(6), "mask": jnp.arange(6) < 5}
    theta = jnp.array([0.0, np.log(2.0)], jnp.float32)
    z = np.linspace(-8, 8, 4001)
    log_density = np.asarray(jax.vmap(lambda one: binary(theta, one[None], group))(jnp.asarray(z, jnp.float32)), float)
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean, sd, skewness, kurtosis = (float(part[0]) for part in moments(lv.marginal(binary), theta, group))
    assert mean == pytest.approx(weight @ z, abs=1e-3)
    assert sd == pytest.approx(np.sqrt(weight @ (z - mean) ** 2), rel=2e-3)
    cumulative = np.cumsum(weight) - 0.5 * weight
    for probability in (0.025, 0.5, 0.975):
        at = np.interp(probability, cumulative, z)
        corrected = float(edgeworth(jnp.float32((at - mean) / sd), skewness, kurtosis))
        assert corrected == pytest.approx(probability, abs=3e-3)
    # Without the skewness it would not be.
    assert abs(norm.cdf((np.interp(0.025, cumulative, z) - mean) / sd) - 0.025) > 3e-3


@pytest.mark.slow
def test_the_error_of_the_quadrature_is_that_of_the_posterior_and_too_few_nodes_are_named():
    data = as_source(lv.groups(table(sd=3.0), by="town"))
    few, many = (lv.Target(log_prior, lv.marginal(binary, nodes=n)) for n in (3, 41))
    coarse, fine = (lv.laplace(target, data, jnp.zeros(2)) for target in (few, many))
    found = quadrature_error(few, data, coarse, seed=0)
    shift = np.abs(fine.theta - coarse.theta) / fine.sd
    # All groups are in the sample: only what is beyond first order is left, and what 7 nodes still miss.
    np.testing.assert_allclose(found[0], shift, rtol=0.5, atol=0.02)
    assert quadrature_error(many, data, fine, seed=0).max() < 1e-3
    assert quadrature_error(lv.Target(log_prior), None, fine, seed=0) is None
    result = lv.sample(few, data, jnp.zeros(2), precision=0.1, progress=False)
    # So few nodes make mass far out that is not there, which has a graver word; no other method would do better.
    assert result.status in ("quadrature", "not_gaussian") and result.method == "minibatch"
    assert "quadrature" in {trouble.status for trouble in result.troubles} and "nodes" in str(result)
