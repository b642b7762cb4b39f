"""Models of many parameters: units, levels, draws, extrapolation, and what a result says of itself."""

from dataclasses import replace
from time import monotonic

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.data.source import as_source
from langevin.networks import store as stores
from langevin.networks.averages import BatchMeans, batch_means
from langevin.networks.extrapolate import estimated, relative_bias
from langevin.networks.levels import Pair
from langevin.networks.store import DrawStore
from langevin.networks.units import longest_step, prior_scale
from langevin.sampling.budget import Budget
from langevin.saving.journal import Journal
from langevin.target import Layout

LINE, PARABOLA = Pair(0.1, 32, False, 4), Pair(0.1, 100, True, 2)


def two_levels(lower, upper, sd=1.0, chains=4, batches=10, worth=25.0, seed=0):
    """Batch means of draws about these averages, each batch worth so many independent draws."""
    rng = np.random.default_rng(seed)
    centres = np.stack([np.atleast_1d(lower), np.atleast_1d(upper)])[:, None, None]
    noise = rng.standard_normal((2, chains, batches, centres.shape[-1])) * sd / np.sqrt(worth)
    mean = centres + noise - noise.mean(axis=(1, 2), keepdims=True)
    return BatchMeans(mean, mean**2 + sd**2 * (1.0 - 1.0 / worth))


def test_a_line_through_two_steps_ends_at_zero():
    found = estimated(two_levels(2.0 + 0.3 * 0.1, 2.0 + 0.3 * 0.4), LINE, 0.0)
    np.testing.assert_allclose(found.value, 2.0)
    found = estimated(two_levels(2.0 + 3.0 * 0.1**2, 2.0 + 3.0 * 0.2**2), PARABOLA, 0.0)
    np.testing.assert_allclose(found.value, 2.0)


def test_the_bar_is_that_of_the_combination():
    means = two_levels([0.0, 5.0], [0.0, 5.0])
    share = LINE.share
    weights = np.array([(1.0 + share) ** 2, share**2])
    expected = np.sqrt(weights @ means.mean.var(axis=(1, 2)) * 80 / 78 / 40)
    np.testing.assert_allclose(estimated(means, LINE, 0.0).stderr, expected, rtol=0.1)
    assert estimated(means, LINE, 0.0).status == "ok"


def test_relative_bias_is_read_off_many_values():
    values = np.linspace(-1.0, 1.0, 2000)
    assert relative_bias(two_levels(values, values + 0.6), LINE) == pytest.approx(0.2, rel=0.05)
    # By chance alone the levels differ by share sqrt(2 / 1000) = 0.015 posterior sds, which is taken off.
    rng = np.random.default_rng(1)
    apart = rng.standard_normal((2, 2000)) / np.sqrt(1000.0)
    assert relative_bias(two_levels(values + apart[0], values + apart[1]), LINE) < 0.01


def test_what_speaks_against_a_value_is_said():
    quiet = estimated(two_levels(0.0, 0.0), LINE, 0.0)
    assert quiet.status == "ok"
    assert estimated(two_levels(0.0, 0.9, worth=1000.0), LINE, 0.3).status == "bias_dominates"
    assert estimated(two_levels(0.0, 1.5), LINE, 0.0).status == "gradient_noise"
    assert estimated(two_levels(0.0, 0.0, worth=2.0), LINE, 0.0).status == "too_few_batches"
    moved = two_levels(0.0, 0.0)
    moved.mean[0, 0] += 0.5
    apart = estimated(moved, LINE, 0.0)
    assert apart.status == "not_mixed" and np.isnan(apart.stderr).all()


def test_the_store_thins_itself_and_goes_to_disk(monkeypatch):
    monkeypatch.setattr(stores, "_MOST_DRAWS", 8)
    monkeypatch.setattr(stores, "_FEWEST_DRAWS", 8)
    kept = DrawStore(2, 3, 5)
    for k in range(1, 22):
        kept.append(np.full((2, 3, 5), k, np.float32))
    assert kept.draws[:, 0, 0, 0].tolist() == [4, 8, 12, 16, 20] and not kept.on_disk
    monkeypatch.setattr(stores, "_IN_MEMORY", 100)
    large = DrawStore(2, 3, 5)
    for k in range(1, 22):
        large.append(np.full((2, 3, 5), k, np.float32))
    np.testing.assert_array_equal(large.draws, kept.draws)
    assert large.on_disk and isinstance(large.draws, np.memmap)
    copy = large.copy()
    copy.append(np.zeros((2, 3, 5), np.float32))
    np.testing.assert_array_equal(large.draws, kept.draws)


def linear(num_data=200, d=6, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_data, d)).astype(np.float32)
    y = (x @ rng.normal(size=d) + rng.normal(size=num_data)).astype(np.float32)
    target = lv.Target(lambda t: -0.5 * jnp.sum((t / 2.0) ** 2), lambda t, r: -0.5 * (r["y"] - r["x"] @ t) ** 2)
    return target, {"x": x, "y": y}, np.zeros(d)


def test_units_are_the_priors_and_the_longest_step_that_of_the_largest_curvature():
    def prior(t):
        return -0.5 * jnp.sum((t["w"] / 3.0) ** 2) - 0.5 * jnp.sum(t["b"] ** 2) + 0.0 * jnp.sum(t["flat"])

    theta = {"b": np.ones(2), "flat": np.ones(1), "w": np.ones((2, 2))}
    layout, rng = Layout.of(theta), np.random.default_rng(0)
    scale = prior_scale(lv.Target(prior), layout, layout.flat(theta), rng)
    # The one without curvature gets the geometric mean of the others: (1^2 3^4)^(1/6).
    np.testing.assert_allclose(scale, [1, 1, 3 ** (4 / 6), 3, 3, 3, 3], rtol=1e-5)

    target, data, start = linear()
    found = longest_step(target, as_source(data), Layout.of(start), np.full(6, 2.0), start[None], rng)
    hessian = 4.0 * (data["x"].T @ data["x"] + np.eye(6) / 4.0)
    assert found == pytest.approx(2.0 / np.sqrt(np.linalg.eigvalsh(hessian)[-1]), rel=0.03)
    with pytest.raises(ValueError, match="log_prior must be curved"):
        prior_scale(lv.Target(lambda t: 0.0 * jnp.sum(t)), Layout.of(start), start, rng)


def test_averages_of_predictions_are_those_of_a_loop(monkeypatch):
    monkeypatch.setattr("langevin.networks.averages._ROWS", 4)
    rng = np.random.default_rng(0)
    draws, rows = rng.normal(size=(43, 2, 4, 3)).astype(np.float32), rng.normal(size=(10, 3)).astype(np.float32)
    found = batch_means(draws, Layout.of(np.zeros(3)), lambda t, row: jnp.stack([row @ t, 1.0]), rows)
    values = np.einsum("klcd,rd->lckr", draws[3:], rows).reshape(2, 4, 10, 4, 10)
    np.testing.assert_allclose(found.mean[..., 0], values.mean(axis=3), atol=1e-5)
    np.testing.assert_allclose(found.square[..., 0], (values**2).mean(axis=3), atol=1e-5)
    np.testing.assert_allclose(found.mean[..., 1], 1.0)


@pytest.fixture(scope="module")
def network():
    """A network of more parameters than a Gaussian model takes, run for a short while, and its predictions."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 50)).astype(np.float32)
    data = {"x": x, "y": np.tanh(x[:, 0])}

    def net(theta, row):
        return jnp.tanh(row @ theta["layers"][0] / 7.0) @ theta["layers"][1] / 10.0

    target = lv.Target(
        lambda theta: -0.5 * sum(jnp.sum(leaf**2) for leaf in theta["layers"]),
        lambda theta, row: -0.5 * ((row["y"] - net(theta, row["x"])) / 0.3) ** 2,
    )
    theta_0 = {"layers": [np.zeros((50, 100)), np.zeros(100)]}
    return lv.sample(target, data, theta_0, passes=2000, chains=2, seed=3, progress=False), net, data


def test_many_parameters_are_summed_up_by_leaf(network):
    result, net, data = network
    assert isinstance(result, lv.NetworkResult) and result.method == "sghmc"
    columns = result.summary()
    assert columns["leaf"] == ["layers.0", "layers.1"] and columns["shape"] == [(50, 100), (100,)]
    np.testing.assert_allclose(columns["prior_sd"], 1.0, rtol=1e-4)
    # Forty observations leave nearly all of five thousand weights to the prior.
    np.testing.assert_allclose(columns["sd"][0], 1.0, atol=0.1)
    text, reasons = str(result), result.explain()
    assert len(text.splitlines()) < 10 and "5,100 parameters" in text and "layers.0" in text
    assert "all the data" in reasons
    assert result.draws.shape[0] == 2 and result.draws.shape[2] == 5100
    found = result.expectation(net, data=data["x"])
    assert found.value.shape == (40,) and np.corrcoef(found.value, data["y"])[0, 1] > 0.9
    assert result.expectation(lambda theta: theta["layers"][1][:3]).value.shape == (3,)


def test_a_run_goes_on(network):
    result = network[0]
    before, kept = result.walk.time, result.draws.copy()
    longer = result.extend(passes=500, progress=False)
    assert longer.walk.time > before and longer.passes > result.passes
    np.testing.assert_array_equal(longer.draws[:, : kept.shape[1]], kept)
    np.testing.assert_array_equal(result.draws, kept)


def test_a_time_limit_ends_a_run_however_few_its_draws_are(network):
    walk = network[0].walk
    fresh = replace(walk, store=DrawStore(2, 2, 5100), time=0, levels=None)
    short = lv.NetworkResult(fresh.spend(Budget(time_limit=0.001), monotonic(), Journal(), "network"))
    assert short.walk.time == 2 and short.walk.stopped == "time_limit"
    assert short.status != "ok" and "too_few_batches" in str(short)


def test_bad_requests_are_refused(network):
    target, data, theta_0 = linear()
    with pytest.raises(ValueError, match="passes or time_limit"):
        lv.sample(target, data, theta_0, precision=0.1, method="sghmc")
    with pytest.raises(ValueError, match="chains must be at least 2"):
        lv.sample(target, data, theta_0, passes=1, chains=1, method="sghmc")
    with pytest.raises(ValueError, match="data must be given"):
        lv.sample(lv.Target(lambda t: -0.5 * jnp.sum(t**2)), None, theta_0, passes=1, method="sghmc")
    with pytest.raises(ValueError, match="phi must be a function"):
        network[0].expectation("theta")
