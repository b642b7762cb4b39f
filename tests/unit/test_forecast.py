"""Forecasts for data that are not here, held against runs on data that are."""

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.sampling.forecasting import Range, _rounded

BETA = np.array([0.5, -0.3, 0.2, 1.0, 0.0])


def log_prior(theta):
    return -0.5 * jnp.dot(theta, theta)


def log_likelihood(theta, row):
    return lv.log_sigmoid(row["y"] * jnp.dot(row["x"], theta))


TARGET = lv.Target(log_prior, log_likelihood)


def table(rows):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 5)).astype(np.float32)
    return {"x": x, "y": np.where(rng.random(rows) < 1 / (1 + np.exp(-x @ BETA)), 1, -1).astype(np.float32)}


@pytest.mark.slow
@pytest.mark.parametrize("precision", [0.02, 0.001])
def test_ten_thousand_rows_forecast_a_million(precision):
    data = table(1_000_000)
    few = {name: leaf[:10_000] for name, leaf in data.items()}
    found = lv.forecast(TARGET, few, jnp.zeros(5), num_data=1e6, precision=precision)
    source = lv.DataSource.of(data)
    assert found.bytes == source.bytes and not found.refused
    result = lv.sample(TARGET, source, jnp.zeros(5), precision=precision, progress=False)
    assert result.status == "ok"
    assert found.passes.low <= result.plan.setup_cost / 1e6 <= found.passes.high
    # A run ends at the border of a block, and its guard is called by chance: a tenth more or less.
    assert 0.9 * found.steps.low <= result.ledger.num_steps <= 1.1 * found.steps.high
    assert 0.9 * found.visits.low <= result.ledger.cost <= 1.1 * found.visits.high
    # The twin that forgets how noise falls with N would ask for more than the run takes.
    here = lv.forecast(TARGET, few, jnp.zeros(5), num_data=1e4, precision=1e-3)
    there = lv.forecast(TARGET, few, jnp.zeros(5), num_data=1e6, precision=1e-3)
    assert here.visits.low > 1.1 * there.visits.high


def test_machines_share_the_passes_and_send_messages():
    few = table(2000)
    alone, many = (lv.forecast(TARGET, few, jnp.zeros(5), num_data=1e10, machines=k) for k in (1, 100))
    assert alone.messages == Range(0.0, 0.0) and alone.passes == many.passes
    # Each machine sends value, gradient and Hessian of every pass; four chains move once in a stay of a thousand steps.
    assert many.messages.low == 100 * np.ceil(many.passes.low) + 4
    assert many.sent.low == 8 * 31 * 100 * np.ceil(many.passes.low) + 4 * 40
    assert many.seconds.low < alone.seconds.low / 10
    text = str(many)
    assert "10,000,000,000 rows, from a sample of 2,000" in text and "on each of 100 machines" in text


def test_two_digits_and_no_more():
    assert [_rounded(v) for v in (0.123, 35_280.0, 2.41e11)] == ["0.12", "35,000", "2.4e11"]
    assert str(Range(3.1, 9.2)) == "3.1 to 9.2" and str(Range(5.0, 5.0)) == "5"


def test_fewer_rows_than_are_here_are_refused():
    with pytest.raises(ValueError, match="num_data must be at least the 2000 here"):
        lv.forecast(TARGET, table(2000), jnp.zeros(5), num_data=1000)
