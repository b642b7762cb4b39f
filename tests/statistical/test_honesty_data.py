"""No confident wrong answer from data: few, separable, collinear, badly scaled, constant, bounded, ambiguous data.

Exact answers come from conjugate formulas or a grid; see `test_honesty.py` for what counts as a lie, and how often a
true bar would be called one.
"""

import resource
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from benchmarks.references import reference
from benchmarks.targets import problem
from tests.statistical.test_honesty import Case, Deaf, grid, lies, words

pytestmark = pytest.mark.timeout(300)


def log_likelihood(beta, datum):
    return lv.log_sigmoid(datum["y"] * (datum["x"] @ beta))


def normal(sd):
    return lambda theta: -0.5 * jnp.sum((theta / sd) ** 2)


def flat(theta):
    return 0.0 * jnp.sum(theta)


# One target a prior, so that data of one shape share their compiled code.
LOGISTIC = {sd: lv.Target(normal(sd), log_likelihood) for sd in (1.0, 10.0)}
LOGISTIC_FLAT = lv.Target(flat, log_likelihood)
BOUNDED = lv.Target(lambda t: jnp.where(jnp.abs(t[0]) < 1.0, 0.0, -jnp.inf), lambda t, y: -0.5 * (y - t[0]) ** 2)
LINEAR_FLAT = lv.Target(flat, lambda beta, datum: -0.5 * (datum["y"] - datum["x"] @ beta) ** 2)
RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 2)).astype(np.float32)
ONES = np.ones(40, np.float32)
NOISY = np.where(RNG.random(40) < 0.6, 1.0, -1.0).astype(np.float32)


def plane(log_density, first, second, nodes=801):
    """Means and sds on a rectangle, by the rectangle rule."""
    a, b = np.meshgrid(np.linspace(*first, nodes), np.linspace(*second, nodes), indexing="ij")
    value = log_density(a, b)
    weight = np.exp(value - value.max())
    border = np.r_[weight[0], weight[-1], weight[:, 0], weight[:, -1]]
    assert border.max() < 1e-7, "the grid cuts the posterior"
    means = [np.average(axis, weights=weight) for axis in (a, b)]
    sds = [np.sqrt(np.average((axis - m) ** 2, weights=weight)) for axis, m in zip((a, b), means, strict=True)]
    return np.array(means), np.array(sds)


def logistic(x, y, sd, first, second, passes=12_000):
    """A logistic regression with two coefficients and a normal prior."""
    x, y = np.asarray(x, np.float32), np.asarray(y, np.float32)

    def log_density(a, b):
        margins = (yi * (xi[0] * a + xi[1] * b) for xi, yi in zip(x.astype(float), y, strict=True))
        return -0.5 * (a**2 + b**2) / sd**2 - sum(np.logaddexp(0.0, -margin) for margin in margins)

    return Case(LOGISTIC[sd], jnp.zeros(2), plane(log_density, first, second), {"x": x, "y": y}, passes)


def linear_log_sigma(theta, datum):
    return -0.5 * ((datum["y"] - datum["x"] @ theta[:-1]) * jnp.exp(-theta[-1])) ** 2 - theta[-1]


def five_points():
    """Regression on five points, flat prior: t with 3 degrees of freedom for beta, log chi-square for log sigma."""
    x = np.c_[np.ones(5), RNG.standard_normal(5)].astype(np.float32)
    y = (x @ [1.0, 2.0] + 0.5 * RNG.standard_normal(5)).astype(np.float32)
    xs, ys = x.astype(float), y.astype(float)
    beta, (rss,), *_ = np.linalg.lstsq(xs, ys, rcond=None)
    digamma, trigamma = 0.03648997397857652, 0.9348022005446793  # at 3/2
    mean = np.r_[beta, 0.5 * (np.log(rss) - digamma - np.log(2.0))]
    sd = np.r_[np.sqrt(rss * np.diag(np.linalg.inv(xs.T @ xs))), 0.5 * np.sqrt(trigamma)]
    return Case(lv.Target(flat, linear_log_sigma), jnp.zeros(3), (mean, sd), {"x": x, "y": y})


def bounded(centre):
    """y_i ~ N(theta, 1), twenty times `centre`, theta uniform on (-1, 1): (1 - centre) sqrt(20) sds to the bound."""
    y = np.full(20, centre, np.float32)
    truth = grid(lambda t: -10.0 * (t - float(y[0])) ** 2, -1.0, 1.0)
    return Case(BOUNDED, jnp.full(1, 0.1), truth, y)


def zero_counts(sd, passes=600):
    """A hundred Poisson counts, all zero, log rate ~ N(0, sd^2)."""
    target = lv.Target(normal(sd), lambda t, y: y * t[0] - jnp.exp(t[0]))
    truth = grid(lambda t: -100.0 * np.exp(t) - 0.5 * (t / sd) ** 2, -9.0 * sd - 5.0, 5.0)
    return Case(target, jnp.zeros(1), truth, np.zeros(100, np.float32), passes)


def labels(num_data):
    """An equal mixture of two normals with both means unknown: two modes of equal mass, each other's mirror images."""
    rng = np.random.default_rng(1)
    y = (2.0 * rng.choice([-1.0, 1.0], num_data) + rng.standard_normal(num_data)).astype(np.float32)

    def log_density(a, b):
        terms = (np.logaddexp(-0.5 * (v - a) ** 2, -0.5 * (v - b) ** 2) for v in y.astype(float))
        return -0.005 * (a**2 + b**2) + sum(terms)

    target = lv.Target(normal(10.0), lambda t, y: jnp.logaddexp(-0.5 * (y - t[0]) ** 2, -0.5 * (y - t[1]) ** 2))
    return Case(target, jnp.array([1.0, -1.0]), plane(log_density, (-4.0, 4.0), (-4.0, 4.0)), y, 200)


def clusters():
    """A Cauchy location with two clusters of data: two modes."""
    y = np.r_[np.linspace(-4.5, -3.5, 5), np.linspace(3.5, 4.5, 5)].astype(np.float32)
    target = lv.Target(normal(10.0), lambda t, y: -jnp.log1p((y - t[0]) ** 2))
    total = lambda t: -np.log1p((y[:, None].astype(float) - t) ** 2).sum(axis=0) - 0.005 * t**2  # noqa: E731
    return Case(target, jnp.full(1, -3.0), grid(total, -25.0, 25.0, 20_001), y)


def schools(centred):
    """Eight schools, tau half-Cauchy(5) on the log scale; moments by integrals over mu and tau."""
    y = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    s = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def log_density(t):
        mu, log_tau, rest = t[0], t[1], t[2:]
        effect = rest if centred else mu + jnp.exp(log_tau) * rest
        prior = -0.5 * jnp.sum(((rest - mu) * jnp.exp(-log_tau)) ** 2) - 8.0 * log_tau
        prior = prior if centred else -0.5 * jnp.sum(rest**2)
        hyper = -0.005 * mu**2 - jnp.log1p(jnp.exp(2.0 * log_tau) / 25.0) + log_tau
        return hyper + prior - 0.5 * jnp.sum(((y - effect) / s) ** 2)

    # Given mu and tau all is normal: two integrals are left.
    wide, sd = np.asarray(y, np.float64), np.asarray(s, np.float64)
    mu, log_tau = (part.ravel() for part in np.meshgrid(np.linspace(-25, 35, 601), np.linspace(-18, 6, 1201)))
    tau = np.exp(log_tau)
    total = sd**2 + tau[:, None] ** 2
    fit = -0.5 * np.sum((wide - mu[:, None]) ** 2 / total + np.log(total), axis=1)
    log_weight = fit - 0.005 * mu**2 - np.log1p(tau**2 / 25.0) + log_tau
    weight = np.exp(log_weight - log_weight.max())
    shrunk = tau[:, None] / total
    mean, variance = shrunk * (wide - mu[:, None]), sd**2 / total
    if centred:
        mean, variance = mu[:, None] + tau[:, None] * mean, tau[:, None] ** 2 * variance
    means = np.column_stack([mu, log_tau, mean])
    squares = means**2 + np.column_stack([np.zeros((len(mu), 2)), variance])
    truth = np.average(means, axis=0, weights=weight)
    sds = np.sqrt(np.average(squares, axis=0, weights=weight) - truth**2)
    return Case(lv.Target(log_density), jnp.r_[5.0, 1.0, y if centred else jnp.zeros(8)], (truth, sds))


SEPARABLE = np.sign(X[:, 0] + 0.3 * X[:, 1])
TWICE = X[:, :1] * np.array([1.0, 2.0], np.float32)
QUICK = {
    "separable": lambda: logistic(X, SEPARABLE, 10.0, (-15.0, 75.0), (-45.0, 60.0)),
    "all classes equal": lambda: logistic(np.c_[ONES, X[:, 0]], ONES, 10.0, (-10.0, 80.0), (-70.0, 70.0)),
    "column of zeros": lambda: logistic(np.c_[ONES, 0.0 * ONES], NOISY, 10.0, (-3.0, 4.0), (-70.0, 70.0)),
    "one column twice": lambda: logistic(TWICE, NOISY, 10.0, (-70.0, 70.0), (-40.0, 40.0)),
    "five data": lambda: logistic(X[:5], [1, -1, 1, -1, 1], 1.0, (-8.0, 8.0), (-8.0, 8.0)),
    "bound 1.3 sds away": lambda: bounded(0.7),
}
SLOW = {
    "bound 3.1 sds away": lambda: bounded(0.3),
    "bound 3.6 sds away": lambda: bounded(0.2),
    "five data, wide prior": lambda: logistic(X[:5], [1, -1, 1, -1, 1], 10.0, (-75.0, 75.0), (-75.0, 75.0)),
    "five data and a scale": five_points,
    "no events": lambda: zero_counts(1.0),
    "no events, wide prior": lambda: zero_counts(10.0),
    "labels": lambda: labels(200),
    "labels, minibatches": lambda: labels(2000),
    "clusters": clusters,
    "eight schools, centred": lambda: schools(True),
    "eight schools, non-centred": lambda: schools(False),
}
CASES = QUICK | SLOW


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_no_confident_wrong_answer(name):
    case = CASES[name]()
    outcomes = case.runs()
    assert not [words(outcome) for outcome in outcomes if lies(outcome, case.truth)]
    # Directions that only the prior knows are no trouble.
    if name in ("column of zeros", "one column twice", "five data"):
        assert [outcome.status for outcome in outcomes] == ["ok"] * case.seeds


def test_who_creeps_along_a_funnel_is_told_so(monkeypatch):
    """A short exact run that never reaches the neck agrees with itself on an sd of log tau a quarter too small."""
    case = replace(CASES["eight schools, centred"](), passes=10_000)
    # A seed whose chains agree: those of most others do not, and are refused for that.
    told = case.run(3)
    assert isinstance(told, lv.AnchorError) and "creep along a funnel" in str(told)
    monkeypatch.setattr("langevin.sampling.mixing._LEAST_LIVELINESS", 0.0)
    deaf = case.run(3)
    assert deaf.status == "ok" and abs(deaf.sd.value[1] - case.truth[1][1]) > 5.0 * deaf.sd.stderr[1]


def test_a_hard_bound_is_refused_with_its_cure():
    case = CASES["bound 1.3 sds away"]()
    result = case.run(0)
    assert any(trouble.refused for trouble in result.troubles)
    assert "hard bound" in str(result) and "log" in str(result)
    # Gradients do not see the bound: deaf to that alarm, the run is sure of the posterior without it.
    assert lies(Deaf(result.session), case.truth)


BAD = {
    "separable": (LOGISTIC_FLAT, X, SEPARABLE, "separable"),
    "all classes equal": (LOGISTIC_FLAT, np.c_[ONES, X[:, 0]], ONES, "separable"),
    "a column twice, logistic": (LOGISTIC_FLAT, TWICE, NOISY, "theta[0] and theta[1] cannot be told apart"),
    "a column twice, linear": (LINEAR_FLAT, TWICE, NOISY, "theta[0] and theta[1] cannot be told apart"),
    "two constant columns": (LOGISTIC_FLAT, np.c_[ONES, 3.0 * ONES], NOISY, "theta[0] and theta[1]"),
    "a column of zeros": (LOGISTIC_FLAT, np.c_[ONES, 0.0 * ONES], NOISY, "theta[1]"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_flat_prior_that_is_not_enough_is_an_error_that_names_the_trouble(name):
    target, x, y, said = BAD[name]
    data = {"x": np.asarray(x, np.float32), "y": np.asarray(y, np.float32)}
    with pytest.raises(lv.AnchorError) as raised:
        lv.sample(target, data, jnp.zeros(2), passes=1000, progress=False)
    assert said in str(raised.value) and "prior" in str(raised.value)


def test_equal_responses_leave_no_scale():
    """With y constant the scale shrinks to 0 and the density grows without bound."""
    data = {"x": np.c_[ONES, X[:, 0]], "y": ONES}
    with pytest.raises(lv.AnchorError, match="without bound"):
        lv.sample(lv.Target(flat, linear_log_sigma), data, jnp.zeros(3), passes=100, progress=False)


def test_columns_from_1e_4_to_1e4_simply_work():
    one, truth = problem("bad_scales"), reference("bad_scales")
    result = lv.sample(one.target, one.data, one.theta_0, passes=20, progress=False)
    assert result.status == "ok"
    assert not lies(result, (truth.mean, truth.sd))


def test_a_mode_that_float32_cannot_resolve_is_an_error_with_a_remedy():
    y = (1e6 + 30.0 * np.random.default_rng(0).standard_normal(900)).astype(np.float32)
    with pytest.raises(ValueError, match=r"float32.*[Cc]entre"):
        lv.sample(lv.Target(flat, lambda t, y: -0.5 * ((y - t[0]) / 30.0) ** 2), y, jnp.zeros(1), passes=20)


@pytest.mark.slow
def test_a_neural_network_runs_in_little_memory_and_is_not_trusted_blindly():
    """100-90-10 on 2000 rows, d = 10^4: a dense Hessian alone would take 0.8 GB, and there are modes without number."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((2000, 100)).astype(np.float32)
    y = np.argmax(3.0 * np.tanh(x @ rng.standard_normal((100, 10)) / 10.0) + rng.gumbel(size=(2000, 10)), axis=1)
    widths = {"first": (100, 90), "bias": (90,), "second": (90, 10), "output": (10,)}
    theta_0 = {name: (0.1 * rng.standard_normal(shape)).astype(np.float32) for name, shape in widths.items()}

    def network(theta, datum):
        hidden = jnp.tanh(datum["x"] @ theta["first"] + theta["bias"])
        return jax.nn.log_softmax(hidden @ theta["second"] + theta["output"])[datum["y"]]

    target = lv.Target(lambda theta: sum(normal(1.0)(leaf) for leaf in jax.tree.leaves(theta)), network)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = lv.sample(target, {"x": x, "y": y.astype(np.int32)}, theta_0, passes=20, progress=False)
    # Kilobytes on Linux.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2_000_000
    # Eight draws a chain are too few, whatever the chains did; and no table of 10^4 rows is printed.
    assert "too_few_batches" in [trouble.status for trouble in result.troubles] and "Extend the run" in str(result)
    assert not np.any(result.expectation(network, data={"x": x[:50], "y": y[:50]}).statuses == "ok")
    assert len(str(result).splitlines()) < 60
