"""Visits to shards: exact enumeration of what a step can see, and who sees which rows when."""

from dataclasses import replace
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import langevin as lv
from langevin import random
from langevin.engine import setup
from langevin.engine.run import Run

FALSE_ALARM = 1e-9
X = np.array([-2.0, -0.5, 0.3, 1.0, 4.0], np.float32)
COUNT = np.array([0, 2, 1, 3, 1], np.int32)
SIZES, VISITS, BATCH = (4, 1), (0.5, 0.5), 2


def log_prior(theta):
    return -0.5 * jnp.dot(theta, theta)


def log_likelihood(theta, datum):
    """Poisson regression: a curvature that changes."""
    rate = theta[0] + theta[1] * datum["x"]
    return datum["count"] * rate - jnp.exp(rate)


TARGET, DATA = lv.Target(log_prior, log_likelihood), {"x": X, "count": COUNT}
ANCHOR = lv.laplace(TARGET, DATA, jnp.zeros(2))
GRADIENTS = [lv.Minibatch(), lv.ControlVariate(ANCHOR, order=1), lv.ControlVariate(ANCHOR, order=2)]


def enumerated(gradient, subsample, theta, weight):
    """Every gradient that a step can have, with its probability: shard s, then n rows of it."""
    with jax.enable_x64(True):
        theta = jnp.asarray(theta, jnp.float64)
        data = jax.tree.map(jnp.asarray, DATA)
        terms = np.asarray(jax.vmap(lambda row: gradient.term(lambda t: log_likelihood(t, row), theta))(data))
        base = np.asarray(gradient.base(TARGET, theta))
        exact = np.asarray(TARGET.grad(theta, data))
    values, chances, start = [], [], 0
    for s, size in enumerate(subsample.sizes):
        for rows in product(range(start, start + size), repeat=subsample.batch_size):
            values.append(base + weight[s] * terms[list(rows)].sum(axis=0))
            chances.append(subsample.visits[s] / size**subsample.batch_size)
        start += size
    return np.array(values), np.array(chances), terms, exact


def right_weight(subsample):
    return np.array(subsample.sizes) / (subsample.batch_size * subsample.visits)


@pytest.mark.parametrize("gradient", GRADIENTS, ids=["plain", "cv1", "cv2"])
@pytest.mark.parametrize("visits", [VISITS, (0.125, 0.875), None])
def test_a_step_is_unbiased_over_shards_and_rows_with_the_stated_variance(gradient, visits):
    subsample = lv.Sharded(BATCH, sizes=SIZES, probabilities=visits)
    values, chances, terms, exact = enumerated(gradient, subsample, [0.3, -0.2], right_weight(subsample))
    # Visits are multiples of 2^-32, weights are of these: in proportion to the sizes they are equal to 2^-32.
    np.testing.assert_allclose(chances.sum(), 1.0, rtol=1e-12)
    np.testing.assert_allclose(chances @ values, exact, rtol=1e-12, atol=1e-12)
    shards = np.split(terms, np.cumsum(SIZES)[:-1])
    within = sum(len(g) ** 2 / (BATCH * q) * np.var(g, axis=0) for g, q in zip(shards, subsample.visits, strict=True))
    totals = np.array([g.sum(axis=0) for g in shards])
    between = subsample.visits @ (totals / subsample.visits[:, None] - totals.sum(axis=0)) ** 2
    np.testing.assert_allclose(chances @ (values - exact) ** 2, within + between, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("gradient", GRADIENTS, ids=["plain", "cv1", "cv2"])
def test_weights_that_forget_how_often_a_shard_is_visited_are_biased(gradient):
    subsample = lv.Sharded(BATCH, sizes=SIZES, probabilities=VISITS)
    wrong = np.full(2, sum(SIZES) / BATCH)
    values, chances, _, exact = enumerated(gradient, subsample, [0.3, -0.2], wrong)
    assert np.max(np.abs(chances @ values - exact)) > 0.05


def test_the_engine_weighs_by_what_is_enumerated():
    # Steps too small to move a float32: every kept gradient is one of the enumerated ones.
    subsample = lv.Sharded(BATCH, sizes=SIZES, stay=3, probabilities=VISITS)
    theta = np.array([0.3, -0.2], np.float32)
    values, *_ = enumerated(lv.Minibatch(), subsample, theta, right_weight(subsample))
    for layout in ("chain", "wide"):
        ledger = lv.run(TARGET, DATA, theta, subsample=subsample, schedule=lv.Constant(1e-20), num_steps=64, chains=4,
                        keep=64, layout=layout)  # fmt: skip
        seen = ledger.draws.grad.reshape(-1, 2)
        distance = np.abs(seen[:, None] - values).max(axis=-1).min(axis=1)
        # float32 sums of three terms of order ten
        assert distance.max() < 1e-4
        assert len(np.unique(np.round(seen, 3), axis=0)) > 8


def shards_of(subsample, m, num_steps, chain=0):
    key = tuple(jnp.asarray(k[0]) for k in random.stream_keys(0, np.array([chain]), random.SUBSAMPLE))
    return np.asarray(subsample.shard(key, subsample.origin(m, 0), jnp.arange(num_steps)))


def test_a_chain_stays_and_then_visits_independently_by_the_probabilities():
    subsample = lv.Sharded(1, sizes=(10, 20, 30), stay=5, probabilities=(0.5, 0.125, 0.375))
    found = shards_of(subsample, 0, 5 * 20_000).reshape(-1, 5)
    assert np.all(found == found[:, :1])
    counts = np.bincount(found[:, 0], minlength=3)
    assert stats.chisquare(counts, 20_000 * subsample.visits).pvalue > FALSE_ALARM
    pairs = np.bincount(3 * found[:-1, 0] + found[1:, 0], minlength=9)
    expected = (len(found) - 1) * np.outer(subsample.visits, subsample.visits).ravel()
    assert stats.chisquare(pairs, expected).pvalue > FALSE_ALARM
    assert stats.chisquare(counts, 20_000 * np.full(3, 1 / 3)).pvalue < FALSE_ALARM


@pytest.mark.parametrize("m", [0, 3, 7 * 2**32 - 3, 10**15])
def test_visits_are_a_function_of_the_step_alone(m):
    subsample = lv.Sharded(1, sizes=(1, 1, 1, 1), stay=7)
    long = shards_of(subsample, m, 40)
    assert np.array_equal(shards_of(subsample, m + 13, 27), long[13:])
    borders = np.flatnonzero(np.diff(long)) + 1
    assert np.all((m + borders) % 7 == 0) and len(borders)
    assert not np.array_equal(shards_of(subsample, m, 40, chain=1), long)


def test_the_owner_of_a_shard_runs_a_stay_to_the_same_bit():
    # The carry of a chain and m go in, rows and the carry come out: the segment that a worker with one shard runs.
    stay, sizes = 40, (20, 30)
    rng = np.random.default_rng(1)
    data = {"x": rng.normal(size=50).astype(np.float32), "count": rng.poisson(1.0, 50).astype(np.int32)}
    whole = lv.Sharded(5, sizes=sizes, stay=stay, probabilities=(0.5, 0.5))
    parts = {
        "schedule": lv.Constant(1e-3), "kernel": lv.SGLD(), "gradient": lv.Minibatch(), "coordinates": None, "seed": 5,
        "observables": None, "chains": [3], "anchor": None, "weight_power": 1.0, "keep": 0, "layout": None, "guard": 1,
    }  # fmt: skip
    everything = Run(setup.prepare(TARGET, data, jnp.zeros(2), subsample=whole, **parts))
    owners = [
        Run(setup.prepare(TARGET, jax.tree.map(lambda leaf, a=a, b=b: leaf[a:b], data), jnp.zeros(2),
                          subsample=replace(whole, home=s), **parts))
        for s, (a, b) in enumerate([(0, 20), (20, 50)])
    ]  # fmt: skip
    seen = []
    for visit in range(6):
        s = _visited(whole, visit * stay)
        seen.append(s)
        if visit:
            owners[s].restore(everything.ledger().checkpoint, everything.m)
        owners[s].advance((visit + 1) * stay)
        everything.advance((visit + 1) * stay)
        mine, theirs = jax.tree.leaves(everything.carry()), jax.tree.leaves(owners[s].carry())
        assert all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))
    assert set(seen) == {0, 1}


def _visited(subsample, m):
    key = tuple(jnp.asarray(k[0]) for k in random.stream_keys(5, np.array([3]), random.SUBSAMPLE))
    return int(subsample.shard(key, subsample.origin(m, 0), jnp.arange(1))[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": ()}, "sizes must be the number of rows of each shard"),
        ({"sizes": (3, 0)}, "sizes must be the number of rows of each shard"),
        ({"stay": 0}, "stay must be an integer of at least 1"),
        ({"stay": 2.0}, "stay must be an integer of at least 1"),
        ({"probabilities": (1.0,)}, "probabilities must be one number for each of the 2 shards"),
        ({"probabilities": (0.6, 0.6)}, "and 1 in all"),
        ({"probabilities": (1.0, 0.0)}, "at least 2\\^-20 each"),
        ({"home": 2}, "home must be the number of a shard, 0 to 1"),
    ],
)
def test_impossible_shards_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        lv.Sharded(**{"batch_size": 3, "sizes": (4, 1), **change})


def test_sizes_that_do_not_fit_the_data_and_gradients_that_cannot_weigh_are_refused():
    call = {"schedule": lv.Constant(0.01), "num_steps": 10}
    with pytest.raises(ValueError, match="all shards together should have 6 rows, got data of 5"):
        lv.run(TARGET, DATA, jnp.zeros(2), subsample=lv.Sharded(2, sizes=(4, 2)), **call)
    weighted = lv.Sharded(2, sizes=SIZES, probabilities=VISITS)
    with pytest.raises(ValueError, match="probabilities must be None"):
        lv.run(TARGET, DATA, jnp.zeros(2), subsample=weighted, gradient=lv.SAGA(), **call)
