"""`theory.stability` names the way in which a target, or the Lyapunov function, fails, and where."""

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.theory import stability


def logistic_log_likelihood(theta, datum):
    return lv.log_sigmoid(datum[1] * jnp.dot(datum[0], theta))


def failure(found, condition):
    return next(one for one in found.failures if one.condition == condition)


HEAVY = {
    "cauchy": (lambda t: -jnp.log1p(t**2), 0.0, -2.0),
    "student": (lambda t: -4 * jnp.log1p(jnp.dot(t, t) / 5), np.ones(3), -2.0),
    "laplace": (lambda t: -jnp.sum(jnp.sqrt(1 + t**2)), np.zeros(2), -1.0),
    "almost gaussian": (lambda t: -jnp.sum((1 + t**2) ** 0.95), np.zeros(2), -0.1),
}


@pytest.mark.parametrize("name", HEAVY)
def test_heavy_tails(name):
    log_density, theta_0, power = HEAVY[name]
    found = stability(lv.Target(log_density), None, theta_0)
    assert [one.condition for one in found.failures] == ["drift"]
    assert found.failures[0].kind == "heavy tails"
    assert f"falls like r^{power:g}" in str(found)
    assert np.isnan(found.alpha) and np.isnan(found.beta) and np.isfinite(found.C_size)


def test_overshoot():
    found = stability(lv.Target(lambda t: -(t**4)), None, 0.0)
    assert [(one.condition, one.kind) for one in found.failures] == [("size", "overshoot")]
    assert found.alpha > 0 and found.beta == found.beta_for(found.alpha)
    assert np.isnan(found.C_size) and "grows like r^4" in str(found)


def test_exponential_growth_overflows_and_is_called_overshoot():
    x = np.random.default_rng(0).standard_normal((50, 2)).astype(np.float32)
    target = lv.Target(lambda t: -0.5 * jnp.dot(t, t), lambda t, d: d[1] * jnp.dot(d[0], t) - jnp.exp(jnp.dot(d[0], t)))
    found = stability(target, (x, np.ones(50, np.float32)), np.zeros(2))
    assert {one.condition: one.kind for one in found.failures} == {"noise": "overshoot", "size": "overshoot"}
    assert np.isnan(found.V).any()


def scale_model(prior_precision):
    """x ~ N(mu, exp(s)^2), theta = (mu, s) with a normal prior."""
    return lv.Target(
        lambda t: -0.5 * prior_precision * jnp.dot(t, t),
        lambda t, x: -t[1] - 0.5 * (x - t[0]) ** 2 * jnp.exp(-2 * t[1]),
    )


def test_logarithm_of_a_standard_deviation_overshoots_and_drifts_outwards_beside_the_axis():
    """At s = s_0 + b and mu -> infinity, drift / V -> N exp(-2 (s_0 + b)) (b - 1) - precision: outwards for b = 1.5."""
    x = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    found = stability(scale_model(0.01), x, np.array([0.3, 0.1]))
    kinds = {one.condition: one.kind for one in found.failures}
    assert kinds == {"noise": "overshoot", "size": "overshoot", "drift": "wrong way"}
    failed = failure(found, "drift")
    assert abs(failed.direction[0]) == 1 and failed.shift[1] == pytest.approx(1.5) and "from theta_0 +" in str(failed)
    assert f"/ V is {0.01 - 50 * np.exp(-3.2) * 0.5:.3g} " in str(failed)


def test_strong_prior_on_a_standard_deviation_holds_the_drift():
    """The pull of 1e4 outdoes the 1.02 by which the scale may push outwards; a large gradient across is no pull."""
    x = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    found = stability(scale_model(1e4), x, np.array([0.3, 0.1]))
    assert {one.condition: one.kind for one in found.failures} == {"noise": "overshoot", "size": "overshoot"}
    assert 1e3 < found.alpha <= 1e4


def test_funnel():
    found = stability(lv.Target(lambda t: -(t[0] ** 2) / 18 - jnp.dot(t[1:], t[1:]) * jnp.exp(-t[0]) / 2 - 1.5 * t[0]),
                      None, np.zeros(4))  # fmt: skip
    assert {one.condition: one.kind for one in found.failures} == {"size": "overshoot", "drift": "wrong way"}
    # At t[0] = 3 and t[1] -> infinity: t[1]^2 e^-3 (3/2 - 1).
    assert f"/ V is {-0.5 * np.exp(-3):.3g} " in str(found)


OVERFLOWING = {
    "log density": (lambda t: -0.5 * t**2 - jnp.log(jnp.cosh(t)), None, "the log density is not finite"),
    "gradient": (lambda t: -0.5 * t**2 - 1 / (1 + jnp.exp(t)), None, "the gradient is not finite"),
    "V": (lambda t: -0.5 * t**2, lambda t: 1 + jnp.log(jnp.cosh(t)) ** 2, "V is not finite"),
}


@pytest.mark.parametrize("name", OVERFLOWING)
def test_overflow_is_not_a_boundary(name):
    log_density, lyapunov, words = OVERFLOWING[name]
    found = stability(lv.Target(log_density), None, 0.0, lyapunov=lyapunov)
    assert [(one.condition, one.kind) for one in found.failures] == [("drift", "overflow")]
    assert words in str(found) and "NOT judged" in str(found) and "CANNOT BE JUDGED" in str(found)


def test_naive_logistic_model_overflows_and_the_stable_one_holds():
    """With NumPy constants, which the comparison of precisions must not show JAX in both."""
    model = lv.models.Logistic.simulate(num_data=50, seed=2)
    scale = np.array([1.0, 2.0, 3.0])

    def naive(theta, datum):
        return -jnp.log(1 + jnp.exp(-datum[1] * jnp.dot(datum[0], theta)))

    found = {}
    for likelihood in (naive, logistic_log_likelihood):
        target = lv.Target(lambda t: -0.5 * jnp.sum((t / scale) ** 2), likelihood)
        found[likelihood] = stability(target, model.data, np.zeros(3))
    assert found[logistic_log_likelihood].holds
    assert failure(found[naive], "drift").kind == "overflow" and "lv.log_sigmoid" in str(found[naive])


def test_box_has_no_density_outside():
    box = lv.Target(lambda t: jnp.where(jnp.all(jnp.abs(t) < 2), 0.0, -jnp.inf))
    for theta_0 in (0.5, np.array([0.5, 0.2])):
        found = stability(box, None, theta_0)
        assert [(one.condition, one.kind) for one in found.failures] == [("drift", "no density")]


@pytest.mark.parametrize("V", [lambda t: 1 + jnp.log1p(t**2), lambda t: jnp.sqrt(1 + t**2)])
def test_slow_lyapunov_function_is_not_blamed_on_the_target(V):
    found = stability(lv.Target(lambda t: -0.5 * t**2), None, 0.0, lyapunov=V)
    assert [(one.condition, one.kind) for one in found.failures] == [("size", "slow V")]
    assert "itself like r^2" in str(found)
    steep = stability(lv.Target(lambda t: -(t**4)), None, 0.0, lyapunov=V)
    assert failure(steep, "size").kind == "overshoot"


@pytest.mark.parametrize(("swing", "kinds"), [(0.5, []), (0.9, [("drift", "wrong way")])])
def test_ratio_that_goes_up_and_down_is_not_growth(swing, kinds):
    """The pull is 1 + swing sqrt(2) sin(2 log r + pi/4) far out: negative at times for 0.9."""
    found = stability(lv.Target(lambda t: -0.5 * t**2 * (1 + swing * jnp.sin(jnp.log1p(t**2)))), None, 0.0)
    assert [(one.condition, one.kind) for one in found.failures] == kinds


def test_wrong_way():
    found = stability(lv.Target(lambda t: jnp.where(t["b"] > 0, 1.0, -1.0) * t["b"] ** 2 - t["a"] ** 2), None,
                      {"a": 0.5, "b": -0.5})  # fmt: skip
    failed = failure(found, "drift")
    assert failed.kind == "wrong way" and failed.direction[1] > 0 and "along" in str(failed) and " b" in str(failed)


def test_steep_lyapunov_function():
    found = stability(lv.Target(lambda t: -0.5 * t**2), None, 0.0, lyapunov=lambda t: 1 + t**4)
    assert failure(found, "size").kind == "steep V"


def test_half_line():
    found = stability(lv.Target(lambda t: jnp.log(t) - t**2), None, 1.0)
    failed = failure(found, "drift")
    assert failed.kind == "no density" and failed.direction[0] == -1


def test_improper_direction_is_named():
    """A flat prior and covariates that see theta only through theta[0] + theta[1]."""
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal(40), rng.standard_normal(40)
    target = lv.Target(lambda t: 0.0 * jnp.sum(t), lambda t, d: -0.5 * (d[1] - d[0] * (t[0] + t[1])) ** 2)
    found = stability(target, (x.astype(np.float32), y.astype(np.float32)), np.array([0.3, 0.1]))
    failed = failure(found, "drift")
    assert failed.kind == "flat"
    assert abs(failed.direction @ [1, 1]) < 1e-6


def test_separable_data_with_a_flat_prior_fail_in_a_separating_direction():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((100, 2)).astype(np.float32)
    y = np.sign(x[:, 0])
    x[:, 0] += y
    target = lv.Target(lambda t: 0.0 * jnp.sum(t), logistic_log_likelihood)
    found = stability(target, (x, y), np.zeros(2))
    failed = failure(found, "drift")
    assert failed.kind == "flat"
    assert np.all(y * (x @ failed.direction) > 0)


def test_unpenalised_direction_of_a_logistic_model_is_found():
    """The curvature at theta_0 does not show it: the data dominate there. Far out the prior is alone."""
    model = lv.models.Logistic.simulate(num_data=100, seed=4)
    target = lv.Target(lambda t: -0.5 * ((t[0] - t[1]) ** 2 + t[2] ** 2), logistic_log_likelihood)
    failed = failure(stability(target, model.data, np.zeros(3)), "drift")
    np.testing.assert_allclose(np.abs(failed.direction), [0.5**0.5, 0.5**0.5, 0], atol=1e-6)
