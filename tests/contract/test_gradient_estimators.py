"""What every gradient estimator promises. A new one is tested by adding a line to ESTIMATORS."""

from dataclasses import dataclass
from functools import partial
from itertools import combinations, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.gradients import CustomGradient, DatumGradient, Posterior, StatefulGradient
from langevin.target import Layout

N, BATCH = 5, 2
DATA = {"x": np.linspace(-1, 2, N).astype(np.float32), "count": np.array([0, 2, 1, 3, 1], np.int32)}
THETA_0 = {"slope": jnp.float32(0.1), "shift": jnp.array([0.2])}


def log_prior(theta):
    return -0.5 * theta["slope"] ** 2 - 0.5 * jnp.sum(theta["shift"] ** 2)


def log_likelihood(theta, datum):
    """Poisson regression: a pytree of parameters, integers among the data, a curvature that changes."""
    rate = theta["slope"] * datum["x"] + theta["shift"][0]
    return datum["count"] * rate - jnp.exp(rate)


TARGET = lv.Target(log_prior, log_likelihood)
ANCHOR = lv.laplace(TARGET, DATA, THETA_0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RandomDatum:
    """The paper's general estimate: its own randomness U, here one datum."""

    def draw(self, key):
        return jax.random.randint(key, (), 0, N)

    def estimate(self, theta, data, u):
        datum = jax.tree.map(lambda leaf: leaf[u], data)
        both = jax.grad(log_prior)(theta), jax.grad(log_likelihood)(theta, datum)
        return jax.tree.map(lambda p, g: p + N * g, *both)

    def cost(self, num_data):
        return 1


ESTIMATORS = {
    "minibatch": lv.Minibatch(),
    "control variate 1": lv.ControlVariate(ANCHOR, order=1),
    "control variate 2": lv.ControlVariate(ANCHOR, order=2),
    "svrg": lv.SVRG(period=7),
    "saga": lv.SAGA(),
    "custom": RandomDatum(),
    "importance": lv.ImportanceSampled.by(TARGET, [1.0, 3.0, 0.5, 2.0, 4.0], BATCH),
    "strata": lv.Stratified.by(TARGET, [0, 1, 1, 0, 1], BATCH),
}
every_estimator = pytest.mark.parametrize("gradient", ESTIMATORS.values(), ids=ESTIMATORS)
# Datum visits of 20 steps, where they are not 20 minibatches: SVRG sees all data in the steps 1, 8 and 15.
VISITS = {"svrg": 3 * N + 17 * BATCH, "saga": N + 20 * BATCH, "custom": 20}


def weighted(gradient, theta, data):
    """Estimates from all rows that a gradient with chances of its own can draw, times their chance and their number."""
    if isinstance(gradient, lv.Stratified):
        drawn = list(product([0, 3], [1, 2, 4]))
        weights, chances = [np.asarray(gradient.weight)] * len(drawn), np.full(len(drawn), 1 / len(drawn))
    else:
        drawn = np.array(list(product(range(N), repeat=BATCH)))
        weights = np.asarray(gradient.weight)[drawn]
        # Weights are 1 / (n p_i) with the probabilities of the table; test_gradients_weighted.py holds it to them.
        chances = np.prod(1 / (BATCH * weights), axis=1)
        assert np.isclose(chances.sum(), 1.0, rtol=1e-12)

    def one(rows, weight, chance):
        found = gradient.estimate(theta, data, (jnp.array(rows), jnp.asarray(weight)))
        return jax.tree.map(lambda leaf: len(drawn) * chance * leaf, found)

    return list(map(one, drawn, weights, chances))


def estimates(gradient, theta):
    """All values that the estimate can take, by their chances; given what three steps elsewhere left behind."""
    data = jax.tree.map(jnp.asarray, DATA)
    if isinstance(gradient, (lv.ImportanceSampled, lv.Stratified)):
        return weighted(gradient, theta, data)
    if isinstance(gradient, CustomGradient):
        return [gradient.estimate(theta, data, jnp.int32(u)) for u in range(N)]
    if isinstance(gradient, StatefulGradient):
        layout = Layout.of(THETA_0)
        refresh = jax.jit(partial(gradient.refresh, Posterior(TARGET, layout, data, N)))
        flat = layout.ravel(theta)
        memory = gradient.remember(Posterior(TARGET, layout, data, N), flat + 1.0)
        for rows in ([0, 1], [3, 3], [4, 1]):
            _, memory, _ = refresh(memory, flat + 0.1 * rows[0] + 0.5, jnp.array(rows))
        return [layout.unravel(refresh(memory, flat, jnp.array(s))[0]) for s in combinations(range(N), BATCH)]
    base = gradient.base(TARGET, theta)
    terms = jax.vmap(lambda datum: gradient.term(lambda t: log_likelihood(t, datum), theta))(data)

    def pick(s):
        return jax.tree.map(lambda b, t: b + N / BATCH * jnp.sum(t[np.array(s)], axis=0), base, terms)

    return [pick(s) for s in combinations(range(N), BATCH)]


@every_estimator
def test_belongs_to_exactly_one_protocol(gradient):
    assert sum(isinstance(gradient, kind) for kind in (DatumGradient, StatefulGradient, CustomGradient)) == 1


@every_estimator
def test_is_a_value(gradient):
    leaves, treedef = jax.tree.flatten(gradient)
    rebuilt = treedef.unflatten(leaves)
    assert type(rebuilt) is type(gradient) and repr(rebuilt) == repr(gradient)
    assert (rebuilt == gradient) is True
    assert gradient != object()


def test_equal_control_variates_of_separate_anchors_compare():
    again = lv.ControlVariate(lv.laplace(TARGET, DATA, THETA_0), order=2)
    assert (again == ESTIMATORS["control variate 2"]) is True
    assert (again == ESTIMATORS["control variate 1"]) is False


@every_estimator
@pytest.mark.parametrize("theta", [THETA_0, {"slope": np.float32(-0.7), "shift": np.array([0.9], np.float32)}])
def test_is_unbiased_over_all_it_can_draw(gradient, theta):
    with jax.enable_x64(True):
        theta = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), theta)
        found = jax.tree.map(lambda *all_values: np.mean(all_values, axis=0), *estimates(gradient, theta))
        exact = TARGET.grad(theta, jax.tree.map(jnp.asarray, DATA))
        assert jax.tree.structure(found) == jax.tree.structure(exact)
        # float64 sums of some ten terms of order ten
        jax.tree.map(lambda f, e: np.testing.assert_allclose(f, e, rtol=1e-12, atol=1e-12), found, exact)


@every_estimator
def test_control_one_that_never_draws_some_is_biased(gradient):
    with jax.enable_x64(True):
        theta = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64) + 0.3, THETA_0)
        found = jax.tree.map(lambda *all_values: np.mean(all_values, axis=0), *estimates(gradient, theta)[:-1])
        exact = TARGET.grad(theta, jax.tree.map(jnp.asarray, DATA))
        far = jax.tree.map(lambda f, e: np.abs(f - e) > 1e-6 * np.abs(e), found, exact)
        assert all(np.all(leaf) for leaf in jax.tree.leaves(far))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_runs_and_counts_its_cost(name):
    gradient = ESTIMATORS[name]
    custom = isinstance(gradient, CustomGradient)
    ledger = lv.run(
        TARGET, DATA, THETA_0, gradient=gradient, subsample=None if custom else lv.WithoutReplacement(BATCH),
        schedule=lv.Constant(0.01), num_steps=20, chains=2, keep=8,
    )  # fmt: skip
    assert ledger.cost == len(ledger.chains) * VISITS.get(name, 20 * BATCH)
    assert ledger.finite.all() and np.isfinite(ledger.draws.grad).all()
    assert ledger.names == ("slope", "shift[0]")


def test_a_hashable_custom_gradient_needs_no_registration():
    # The protocol says: hashable or a pytree.
    @dataclass(frozen=True)
    class Plain:
        def draw(self, key):
            return jax.random.normal(key, (2,))

        def estimate(self, theta, data, u):
            return -theta + u

        def cost(self, num_data):
            return 1

    target = lv.Target(lambda t: -0.5 * jnp.dot(t, t))
    ledger = lv.run(target, None, jnp.zeros(2), gradient=Plain(), schedule=lv.Constant(0.1), num_steps=20)
    assert ledger.finite.all()
