"""What every subsampler promises. A new one is tested by adding a line to SUBSAMPLERS."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin import random
from langevin.data.subsample import Subsample
from langevin.random import Clock

SUBSAMPLERS = [
    lv.WithReplacement(3),
    lv.WithoutReplacement(3),
    lv.Epochs(3),
    lv.Blocks(3),
    lv.Full(),
]
NUM_DATA = 11

every_subsampler = pytest.mark.parametrize("subsample", SUBSAMPLERS, ids=lambda s: type(s).__name__)


@partial(jax.jit, static_argnums=(0, 1))
def _page(subsample, num_steps, key, first, origin):
    return subsample.draw(key, first, jnp.int32(0), origin, num_steps, NUM_DATA)


def step_draws(subsample, m, num_steps, chains=None):
    """The draws of the steps m + 1 ... m + num_steps, one entry a step."""
    keys = random.stream_keys(0, np.array([0]) if chains is None else chains, random.SUBSAMPLE)
    key = tuple(jnp.asarray(k[0] if chains is None else k) for k in keys)
    flat = _page(subsample, num_steps, key, Clock.at(m + 1), subsample.origin(m, NUM_DATA))
    return [random.step_of(flat, jnp.int32(k), num_steps) for k in range(num_steps)]


@every_subsampler
def test_is_a_value(subsample):
    assert isinstance(subsample, Subsample)
    assert hash(subsample) == hash(subsample)
    assert subsample == eval(repr(subsample), vars(lv))
    assert len({*SUBSAMPLERS}) == len(SUBSAMPLERS)
    assert isinstance(subsample.iid, bool)


@every_subsampler
def test_names_rows_that_exist(subsample):
    subsample.check(NUM_DATA)
    n = subsample.size(NUM_DATA)
    for draw in step_draws(subsample, 5, 4):
        for j in range(n):
            prepared_rows = NUM_DATA + n - 1 if isinstance(subsample, lv.Blocks) else NUM_DATA
            assert 0 <= int(subsample.index(draw, jnp.int32(j))) < prepared_rows


@every_subsampler
def test_index_and_batch_name_the_same_observations(subsample):
    data = jax.tree.map(jnp.asarray, subsample.prepare(np.arange(NUM_DATA), 0))
    n = subsample.size(NUM_DATA)
    for draw in step_draws(subsample, 0, 5):
        one_by_one = [int(data[subsample.index(draw, jnp.int32(j))]) for j in range(n)]
        assert np.asarray(subsample.batch(data, draw)).tolist() == one_by_one


@every_subsampler
def test_draw_of_a_step_does_not_depend_on_the_page(subsample):
    long = step_draws(subsample, 3, 8)
    for k in range(8):
        assert np.array_equal(step_draws(subsample, 3 + k, 1)[0], long[k])


@every_subsampler
def test_draw_of_a_chain_does_not_depend_on_the_others(subsample):
    alone = step_draws(subsample, 2, 4)
    together = step_draws(subsample, 2, 4, chains=np.array([4, 0, 9]))
    for a, b in zip(alone, together, strict=True):
        assert np.array_equal(a, b[:, 1] if b.ndim == 2 else b)


@every_subsampler
def test_refuses_impossible_sizes(subsample):
    if isinstance(subsample, lv.Full):
        return
    for bad in (0, -1, 2.0, True, "3"):
        with pytest.raises(ValueError, match=r"batch_size must be .* got"):
            type(subsample)(bad)
    if not isinstance(subsample, lv.WithReplacement):
        with pytest.raises(ValueError, match="at most the number of data N=2"):
            subsample.check(2)
