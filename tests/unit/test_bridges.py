"""To ArviZ, from NumPyro: what is kept, what is refused and with which advice."""

import time
from concurrent.futures import ThreadPoolExecutor

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose
from numpyro.infer.util import log_density

import langevin as lv
from langevin.engine.draws import equal_places

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2)).astype(np.float32)
Y = (RNG.random(60) < 0.5).astype(np.int32)
GROUP = (np.arange(60) % 6).astype(np.int32)


def logistic(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=y)


def mixed(x, group, y, num_groups):
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    with numpyro.plate("groups", num_groups):
        z = numpyro.sample("z", dist.Normal(0.0, tau))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ beta + z[group]), obs=y)


def test_resampled_draws_come_as_often_as_they_weigh():
    places = equal_places(np.array([1.0, 2.0, 0.0, 5.0]), 80)
    assert np.bincount(places, minlength=4).tolist() == [10, 20, 0, 50]
    assert np.all(np.diff(places) >= 0)


def test_prior_and_likelihood_are_those_of_the_model():
    """Jacobians apart, which log_density does not have: log tau for tau = exp(free)."""
    bridge = lv.from_numpyro(mixed, X, GROUP, Y, 6)
    theta = {"beta": np.array([0.3, -0.2]), "tau": np.array(0.4), "z": np.linspace(-1.0, 1.0, 6)}
    own = {**theta, "tau": np.exp(theta["tau"])}
    whole = log_density(mixed, (X, GROUP, Y, 6), {}, own)[0] + theta["tau"]
    rows = [bridge.target.log_likelihood(theta, {k: v[i] for k, v in bridge.data.items()}) for i in range(60)]
    assert_allclose(bridge.target.log_prior(theta) + sum(rows), whole, rtol=1e-5)
    found = bridge.constrain(theta)
    assert sorted(found) == ["beta", "tau", "z"]
    assert_allclose(found["tau"], own["tau"], rtol=1e-6)


def test_the_density_of_a_group_is_that_of_its_rows_and_effect():
    bridge = lv.from_numpyro(mixed, X, GROUP, Y, 6, group_by="group")
    theta, z = {"beta": np.array([0.3, -0.2]), "tau": np.array(0.4)}, np.linspace(-1.0, 1.0, 6)
    group = {name: array[2] for name, array in bridge.data.arrays.items()}
    found = bridge.target.log_likelihood.log_joint(theta, z[2:3], group)
    rows = GROUP == 2
    logits = X[rows] @ theta["beta"] + z[2]
    own = np.sum(dist.Bernoulli(logits=logits).log_prob(Y[rows])) + dist.Normal(0.0, np.exp(0.4)).log_prob(z[2])
    assert_allclose(found, own, rtol=1e-5)
    assert list(bridge.theta_0) == ["beta", "log tau"]


def test_threads_call_the_model_one_after_the_other():
    """NumPyro's handlers are on one stack: two calls at once would see each other's sites."""
    inside, most = [], []

    def slow(x, y):
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.05)
        logistic(x, y)
        inside.pop()

    prior = lv.from_numpyro(slow, X, Y).target.log_prior
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(prior, [{"beta": jnp.full(2, value)} for value in (0.0, 1.0, 2.0, 3.0)]))
    assert max(most) == 1
    assert_allclose(np.diff(found, 2), -2 / 100, rtol=1e-3)


def test_sites_in_the_data_plate_are_integrated_out():
    def overdispersed(x, y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        with numpyro.plate("rows", x.shape[0]):
            z = numpyro.sample("z", dist.Normal(0.0, 0.5))
            numpyro.sample("y", dist.Poisson(jnp.exp(mu + x[:, 0] + z)), obs=y)

    bridge = lv.from_numpyro(overdispersed, X, Y)
    assert list(bridge.theta_0) == ["mu"]
    assert np.isfinite(bridge.target.log_likelihood({"mu": 0.1}, {"x": X[0], "y": Y[0]}))


def scales(x, y):
    m = numpyro.sample("m", dist.Normal(0.0, 5.0))
    s = numpyro.sample("s", dist.HalfNormal(2.0).expand([2]).to_event(1))
    p = numpyro.sample("p", dist.Beta(2.0, 2.0))
    w = numpyro.sample("w", dist.Uniform(-1.0, 1.0))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(m + p + w, s[0] + s[1]), obs=y)


def test_parameters_are_called_what_they_are_in_unconstrained_units():
    bridge = lv.from_numpyro(scales, X, X[:, 0])
    assert list(bridge.theta_0) == ["m", "log s", "logit p", "w, unconstrained"]
    assert bridge.sites == ("m", "s", "p", "w")
    theta = {"m": 1.0, "log s": np.array([0.5, -0.5]), "logit p": 0.3, "w, unconstrained": 0.2}
    found = bridge.constrain(theta)
    assert_allclose(found["s"], np.exp(theta["log s"]), rtol=1e-6)
    assert_allclose(found["p"], 1.0 / (1.0 + np.exp(-0.3)), rtol=1e-6)
    # By the names of the sites too.
    by_site = dict(zip(bridge.sites, theta.values(), strict=True))
    assert_allclose(bridge.target.log_prior(by_site), bridge.target.log_prior(theta))


def test_no_table_shows_a_site_in_other_units_under_its_own_name(tmp_path):
    pytest.importorskip("arviz_base")

    def model(y):
        m = numpyro.sample("m", dist.Normal(0.0, 5.0))
        s = numpyro.sample("s", dist.HalfNormal(2.0))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(m, s), obs=y)

    bridge = lv.from_numpyro(model, 0.7 * X[:, 0])
    result = lv.sample(bridge.target, bridge.data, bridge.theta_0, passes=200, progress=False)
    assert result.names == ("m", "log s") and "\nlog s  -0." in str(result)
    assert sorted(result.to_arviz().posterior.data_vars) == ["log s", "m"]
    assert sorted(result.to_arviz(bridge.constrain).posterior.data_vars) == ["m", "s"]
    result.save(tmp_path / "run")
    assert lv.load(tmp_path / "run").names == result.names


def test_two_sites_of_one_name_are_refused():
    def twice(x, y):
        numpyro.sample("log s", dist.Normal(0.0, 1.0))
        scales(x, y)

    with pytest.raises(ValueError, match="'log s' must have another name: 's' is called that"):
        lv.from_numpyro(twice, X, X[:, 0])


def unobserved(x, y):
    logistic(x)


def without_a_plate(x, y):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=y)


def discrete(x, y):
    k = numpyro.sample("k", dist.Bernoulli(0.5))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x[:, 0] * k), obs=y)


def subsampled(x, y):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", x.shape[0], subsample_size=10) as taken:
        numpyro.sample("y", dist.Bernoulli(logits=x[taken] @ beta), obs=y[taken])


def standardised(x, y):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=(x - x.mean(0)) @ beta), obs=y)


def scaled_prior(x, y):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0 + jnp.abs(x[:, 0]).sum()).expand([2]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=y)


def fixed_size(x, y):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", 60):
        numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=y)


REFUSED = {
    unobserved: "observed site",
    without_a_plate: "one plate",
    discrete: "'k' must be continuous",
    subsampled: "Leave subsample_size out",
    standardised: "Standardise before",
    scaled_prior: "prior must not depend on the data",
    fixed_size: "take its size from the data",
}


@pytest.mark.parametrize("model", REFUSED, ids=lambda model: model.__name__)
def test_what_cannot_be_taken_apart_is_refused_with_advice(model):
    with pytest.raises(ValueError, match=REFUSED[model]):
        lv.from_numpyro(model, X, Y)


@pytest.mark.parametrize(
    "labels, words", [("nowhere", "group_by must name"), ("y", "must come with effects"), ("x", "group_by must name")]
)
def test_groups_that_are_none_are_refused(labels, words):
    with pytest.raises(ValueError, match=words):
        lv.from_numpyro(mixed, X, GROUP, Y, 6, group_by=labels)


@pytest.mark.slow
def test_arviz_agrees_with_the_summary_and_draws_its_pictures():
    """False alarm: six averages beyond 7 of ArviZ's own errors, below 1e-10."""
    import arviz_plots
    import arviz_stats
    import matplotlib

    matplotlib.use("Agg")
    model = lv.models.Logistic.simulate(seed=1)
    result = lv.sample(model.target, model.data, model.theta_0, passes=200, progress=False)
    tree = result.to_arviz()
    seen = arviz_stats.summary(tree, round_to="none")
    assert_allclose(tree["estimates"]["mean"], result.mean.value)
    for kind in ("mean", "sd"):
        # Draws are not corrected, so what they should agree with is the raw average.
        own = result.raw[f"theta.{kind}"]
        assert np.all(np.abs(seen[kind] - own.value) < 7.0 * np.hypot(seen[f"mcse_{kind}"], own.error))
    for draw in (arviz_plots.plot_forest, arviz_plots.plot_trace, arviz_plots.plot_pair):
        draw(tree, backend="matplotlib")
    constrained = result.to_arviz(lambda theta: {"odds": jnp.exp(theta)})
    assert_allclose(constrained.posterior["odds"], np.exp(tree.posterior["theta"]), rtol=1e-5)


def constrained(x, y):
    w = numpyro.sample("w", dist.Dirichlet(jnp.ones(3)))
    root = numpyro.sample("root", dist.LKJCholesky(2, 2.0))
    sd = numpyro.sample("sd", dist.HalfNormal(2.0).expand([2]).to_event(1))
    numpyro.deterministic("rho", (root @ root.T)[0, 1])
    with numpyro.plate("rows", x.shape[0]):
        mean = (x @ w)[:, None] * jnp.array([1.0, 2.0])
        numpyro.sample("y", dist.MultivariateNormal(mean, scale_tril=sd[:, None] * root), obs=y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("name", ["logistic", "mixed", "constrained"])
def test_numpyros_own_sampler_agrees(name):
    """Means within 6 combined errors of NUTS; constant entries have no error.

    Sds within a sixth: 5 errors of NUTS's own, 1/sqrt(2 x 450) at the fewest effective draws that it has here.
    """
    import jax
    from numpyro.diagnostics import effective_sample_size
    from numpyro.infer import MCMC, NUTS

    rng = np.random.default_rng(1)
    x = rng.normal(size=(500, 3)).astype(np.float32)
    group = (np.arange(500) % 40).astype(np.int32)
    if name == "logistic":
        y = (rng.random(500) < 1.0 / (1.0 + np.exp(-x[:, 0]))).astype(np.int32)
        model, arguments, how, precision = logistic, (x[:, :2], y), {}, 0.05
    elif name == "mixed":
        odds = x[:, 0] + rng.normal(size=40)[group]
        y = (rng.random(500) < 1.0 / (1.0 + np.exp(-odds))).astype(np.int32)
        model, arguments, how, precision = mixed, (x[:, :2], group, y, 40), {"group_by": "group"}, 0.2
    else:
        noise = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.6], [0.6, 1.5]], 500)
        y = ((x @ [0.5, 0.3, 0.2])[:, None] * [1.0, 2.0] + noise).astype(np.float32)
        model, arguments, how, precision = constrained, (x, y), {}, 0.05
    bridge = lv.from_numpyro(model, *arguments, **how)
    result = lv.sample(bridge.target, bridge.data, bridge.theta_0, precision=precision, progress=False)
    assert result.status == "ok"
    nuts = MCMC(NUTS(model), num_warmup=400, num_samples=1500, progress_bar=False)
    nuts.run(jax.random.PRNGKey(0), *arguments)
    draws = nuts.get_samples(group_by_chain=True)
    for site, (mean, sd) in bridge.moments(result).items():
        theirs = np.asarray(draws[site], np.float64)
        spread = theirs.std(axis=(0, 1))
        moves = spread > 1e-6
        with np.errstate(invalid="ignore", divide="ignore"):
            error = np.hypot(spread / np.sqrt(effective_sample_size(theirs)), mean.error)
        assert np.all(np.abs(theirs.mean(axis=(0, 1)) - mean.value)[moves] < 6.0 * error[moves])
        assert_allclose(sd.value[moves], spread[moves], rtol=1 / 6)
        # What a support holds fixed is known, and no reason for doubt.
        assert mean.status == sd.status == "ok" and np.all((mean.error > 0.0) == moves)
