"""What every subsampler promises. A new one is tested by adding a line to SUBSAMPLERS."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin import random
from langevin.data.source import ArraySource
from langevin.data.subsample import Subsample
from langevin.random import Clock

SUBSAMPLERS = [
    lv.WithReplacement(3),
    lv.WithoutReplacement(3),
    lv.Epochs(3),
    lv.Blocks(3),
    lv.Full(),
    lv.Sharded(3, sizes=(7, 1, 3), stay=2),
    lv.Sharded(3, sizes=(7, 4), stay=3, probabilities=(0.5, 0.5)),
]
NUM_DATA = 11

every_subsampler = pytest.mark.parametrize("subsample", SUBSAMPLERS, ids=lambda s: type(s).__name__)


@partial(jax.jit, static_argnums=(0, 1))
def _one_lane(subsample, num_steps, key, first, origin, data):
    page = subsample.draw(key, first, jnp.int32(0), origin, num_steps, NUM_DATA)
    return jax.vmap(lambda k: subsample.batch(data, page, k, num_steps, NUM_DATA))(jnp.arange(num_steps))


@partial(jax.jit, static_argnums=(0, 1))
def _lanes(subsample, num_steps, keys, first, origin, data):
    page = subsample.draw(keys, first, jnp.int32(0), origin, num_steps, NUM_DATA)
    one_by_one = [
        [
            data[row_of(jnp.int32(j))]
            for count, row_of in subsample.walk(page, k, num_steps, NUM_DATA)
            for j in range(count)
        ]
        for k in range(num_steps)
    ]
    return jnp.stack([jnp.stack([jnp.broadcast_to(datum, keys[0].shape) for datum in step]) for step in one_by_one])


def prepared(subsample):
    """Datum i has the value i, in the order that the subsampler wants."""
    return jnp.asarray(subsample.prepare(ArraySource.of(np.arange(NUM_DATA, dtype=np.int32))))


def seen(subsample, m, num_steps, chain=0):
    """The data that one chain sees in the steps m + 1 ... m + num_steps, gathered: (steps, n)."""
    key = tuple(jnp.asarray(k[0]) for k in random.stream_keys(0, np.array([chain]), random.SUBSAMPLE))
    origin = subsample.origin(m, NUM_DATA)
    return np.asarray(_one_lane(subsample, num_steps, key, Clock.at(m + 1), origin, prepared(subsample)))


def seen_by_lanes(subsample, m, num_steps, chains):
    """The same for chains side by side, datum by datum: (steps, n, chains)."""
    keys = tuple(jnp.asarray(k) for k in random.stream_keys(0, np.array(chains), random.SUBSAMPLE))
    origin = subsample.origin(m, NUM_DATA)
    return np.asarray(_lanes(subsample, num_steps, keys, Clock.at(m + 1), origin, prepared(subsample)))


@every_subsampler
def test_is_a_value(subsample):
    assert isinstance(subsample, Subsample)
    assert hash(subsample) == hash(subsample)
    assert subsample == eval(repr(subsample), vars(lv))
    assert len({*SUBSAMPLERS}) == len(SUBSAMPLERS)
    assert isinstance(subsample.iid, bool)


@every_subsampler
def test_sees_as_many_data_as_it_says(subsample):
    subsample.check(NUM_DATA)
    data = seen(subsample, 5, 4)
    assert data.shape == (4, subsample.size(NUM_DATA))
    assert data.min() >= 0 and data.max() < NUM_DATA


@every_subsampler
def test_lanes_and_gathered_minibatches_are_the_same_data_in_the_same_order(subsample):
    together = seen_by_lanes(subsample, 2, 4, chains=[4, 0, 9])
    for lane, chain in enumerate([4, 0, 9]):
        assert np.array_equal(together[..., lane], seen(subsample, 2, 4, chain))


@every_subsampler
def test_data_of_a_step_do_not_depend_on_the_page(subsample):
    long = seen(subsample, 3, 8)
    for k in range(8):
        assert np.array_equal(seen(subsample, 3 + k, 1)[0], long[k])


def test_control_a_subsampler_that_counts_from_its_page_is_seen():
    class FromThePage(lv.WithReplacement):
        def draw(self, key, first, offset, origin, num_steps, num_data):
            return super().draw(key, Clock.at(1), offset, origin, num_steps, num_data)

    long = seen(FromThePage(3), 3, 8)
    assert not all(np.array_equal(seen(FromThePage(3), 3 + k, 1)[0], long[k]) for k in range(8))


@every_subsampler
def test_refuses_impossible_sizes(subsample):
    if isinstance(subsample, lv.Full):
        return
    for bad in (0, -1, 2.0, True, "3"):
        with pytest.raises(ValueError, match=r"batch_size must be .* got"):
            replace(subsample, batch_size=bad)
    if not isinstance(subsample, (lv.WithReplacement, lv.Sharded)):
        with pytest.raises(ValueError, match="at most the number of data N=2"):
            subsample.check(2)
