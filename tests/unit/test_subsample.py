"""Minibatches: exact enumeration where it is possible, chi-square tests with a stated false alarm elsewhere."""

from functools import partial
from itertools import combinations, product
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from langevin import Blocks, Epochs, Full, WithoutReplacement, WithReplacement, random
from langevin.data.source import ArraySource
from langevin.random import Clock

FALSE_ALARM = 1e-9
NINE = 987654321


@partial(jax.jit, static_argnums=(0, 1, 2))
def _page(subsample, num_data, num_steps, key, first, offset, origin, data):
    page = subsample.draw(key, first, offset, origin, num_steps, num_data)
    return jax.vmap(lambda k: subsample.batch(data, page, k, num_steps, num_data))(jnp.arange(num_steps))


def page(subsample, num_data, num_steps, m=0, offset=0, chain=0):
    """Data seen in the steps m + offset + 1 onwards, (steps, n), as the engine asks for them; datum i has value i."""
    key = tuple(jnp.asarray(k[0]) for k in random.stream_keys(0, np.array([chain]), random.SUBSAMPLE))
    first, origin = Clock.at(m + offset + 1), subsample.origin(m, num_data)
    data = jnp.asarray(subsample.prepare(ArraySource.of(np.arange(num_data, dtype=np.int32))))
    return np.asarray(_page(subsample, num_data, num_steps, key, first, jnp.int32(offset), origin, data))


def assert_uniform(counts):
    assert stats.chisquare(counts).pvalue > FALSE_ALARM


# --- bounded ---


def exact_bounded(word, low_word, bound):
    return bound * ((int(word) << 32) + int(low_word)) >> 64


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 1000, 2**16 + 1, 2**30 - 1])
def test_bounded_is_the_multiplication_in_exact_integers(bound):
    rng = np.random.default_rng(bound)
    words = rng.integers(0, 2**32, (2, 2000), dtype=np.uint32)
    ours = np.asarray(random.bounded(jnp.asarray(words[0]), jnp.asarray(words[1]), bound))
    assert ours.tolist() == [exact_bounded(w, low, bound) for w, low in words.T]


@pytest.mark.parametrize("bound", [2, 3, 7, 1000, 2**16 + 1, 2**30 - 1])
def test_bounded_changes_value_at_exactly_the_right_64_bit_word(bound):
    # v needs the words ceil(v 2^64 / bound) and above, so every value has floor or ceil of 2^64 / bound of them.
    values = sorted(v for v in {1, 2, bound // 2, bound - 1} if 0 < v < bound)
    first = [-(-(v << 64) // bound) for v in values]
    x = np.array([(f >> 32, f & 0xFFFFFFFF) for f in first] + [(f - 1 >> 32, f - 1 & 0xFFFFFFFF) for f in first])
    x = jnp.asarray(x.astype(np.uint32))
    assert random.bounded(x[:, 0], x[:, 1], bound).tolist() == values + [v - 1 for v in values]


def test_bounded_uses_the_carry_of_the_low_word():
    # 3 * 0x55555555 = 0xFFFFFFFF: the low word alone decides between 0 and 1.
    word = jnp.full(2, 0x55555555, jnp.uint32)
    assert random.bounded(word, jnp.array([0x55555555, 0x55555556], jnp.uint32), 3).tolist() == [0, 1]


# --- with replacement ---


@pytest.mark.parametrize("n", [1, 2, 5])
def test_with_replacement_all_sequences_are_equally_likely(n):
    draws = page(WithReplacement(n), 4, 64 * 4**n)
    code = draws @ 4 ** np.arange(n)
    assert_uniform(np.bincount(code, minlength=4**n))


@pytest.mark.parametrize("num_data", [2**16 + 1, 10**6 + 3])
def test_with_replacement_marginals_are_uniform_for_large_data(num_data):
    draws = page(WithReplacement(8), num_data, 4096)
    assert draws.min() >= 0 and draws.max() < num_data
    assert_uniform(np.bincount(draws.ravel().astype(np.int64) * 64 // num_data, minlength=64)[:63])


# --- without replacement ---


@pytest.mark.parametrize(("num_data", "n"), [(1, 1), (5, 1), (5, 3), (4, 4), (6, 2)])
def test_floyd_maps_its_choices_onto_the_subsets_equally_often(monkeypatch, num_data, n):
    # Every sequence of choices t_j in 0 ... N-n+j once: each of the C(N, n) subsets must appear n! times.
    choices = np.array(list(product(*(range(num_data - n + j + 1) for j in range(n)))), np.uint32)
    flat = jnp.asarray(choices.reshape(-1))
    monkeypatch.setattr(random, "pairs", lambda *_: (flat, flat))
    monkeypatch.setattr(random, "bounded", lambda high, low, bound: high.astype(jnp.int32))
    key = (jnp.uint32(0), jnp.uint32(0))
    draws = WithoutReplacement(n).draw(key, Clock.at(1), jnp.int32(0), (), len(choices), num_data)
    found = [tuple(sorted(row)) for row in np.asarray(draws).reshape(-1, n).tolist()]
    times = {subset: found.count(subset) for subset in combinations(range(num_data), n)}
    assert sum(times.values()) == len(choices)
    assert set(times.values()) == {len(choices) // comb(num_data, n)}


@pytest.mark.parametrize(("num_data", "n"), [(6, 3), (7, 2), (5, 4)])
def test_without_replacement_all_subsets_are_equally_likely(num_data, n):
    draws = np.sort(page(WithoutReplacement(n), num_data, 20_000), axis=1)
    subsets = {subset: i for i, subset in enumerate(combinations(range(num_data), n))}
    assert_uniform(np.bincount([subsets[tuple(row)] for row in draws.tolist()], minlength=len(subsets)))


@pytest.mark.parametrize(("num_data", "n"), [(1, 1), (7, 7), (33, 32), (1000, 30), (2**16 + 1, 50), (10**6 + 3, 9)])
def test_without_replacement_indices_are_always_distinct_and_in_range(num_data, n):
    draws = np.sort(page(WithoutReplacement(n), num_data, 500, m=NINE), axis=1)
    assert draws.min() >= 0 and draws.max() < num_data
    assert np.all(np.diff(draws, axis=1) > 0)


def test_without_replacement_marginals_are_uniform_for_large_data():
    num_data = 2**16 + 1
    draws = page(WithoutReplacement(16), num_data, 4096).ravel().astype(np.int64)
    assert_uniform(np.bincount(draws * 64 // num_data, minlength=64)[:63])


# --- epochs ---


@pytest.mark.parametrize(("num_data", "n"), [(1, 1), (10, 3), (12, 4), (7, 7), (8, 5), (1000, 17)])
def test_every_epoch_is_a_permutation_and_remainders_roll_over(num_data, n):
    num_steps = -(-5 * num_data // n)
    draws = page(Epochs(n), num_data, num_steps).ravel()[: 5 * num_data].reshape(5, num_data)
    assert np.array_equal(np.sort(draws, axis=1), np.broadcast_to(np.arange(num_data), (5, num_data)))


def test_an_epoch_of_many_data_is_a_permutation():
    num_data = 2**17 + 3
    draws = page(Epochs(64), num_data, num_data // 64 + 1, m=0).ravel()[:num_data]
    assert np.array_equal(np.sort(draws), np.arange(num_data))


@pytest.mark.parametrize(("num_data", "n"), [(10, 3), (2**16 + 1, 50)])
@pytest.mark.parametrize("m", [0, 1, 13, 10**10])
def test_epochs_random_access_equals_sequential(num_data, n, m):
    sequential = page(Epochs(n), num_data, 40, m=m)
    for k in (1, 7, 39):
        assert np.array_equal(page(Epochs(n), num_data, 1, m=m + k)[0], sequential[k])
        assert np.array_equal(page(Epochs(n), num_data, 1, m=m, offset=k)[0], sequential[k])


def test_epochs_of_large_minibatches_do_not_depend_on_where_the_block_began():
    # The engine ends a block before its draws pass 2^32, the most that one word counts.
    subsample, num_data = Epochs(2**20), 2**20 + 7
    for offset in (2000, 4000):
        from_block_start = page(subsample, num_data, 1, m=0, offset=offset)
        assert np.array_equal(from_block_start, page(subsample, num_data, 1, m=offset))


def test_epochs_marginals_are_uniform_and_orders_differ():
    num_data, epochs = 11, 5000
    orders = page(Epochs(11), num_data, epochs)
    for position in (0, 5, 10):
        assert_uniform(np.bincount(orders[:, position], minlength=num_data))
    # 11! orders: a repetition among 200 epochs has probability 200^2 / 2 / 11! = 5e-4; all equal is impossible.
    assert len({tuple(order) for order in orders[:200].tolist()}) > 190


def test_epochs_of_two_chains_differ():
    assert not np.array_equal(page(Epochs(100), 100, 3, chain=0), page(Epochs(100), 100, 3, chain=1))


def test_neighbours_of_one_epoch_are_nearly_independent():
    # Pairs (first, second) of an epoch of 5: the 20 ordered pairs, over independent epochs.
    orders = page(Epochs(5), 5, 20_000)
    pair = orders[:, 0] * 5 + orders[:, 1]
    assert_uniform(np.bincount(pair, minlength=25)[[i * 5 + j for i in range(5) for j in range(5) if i != j]])


# --- blocks ---


def test_blocks_hold_each_row_once_and_repeat_the_start_at_the_end():
    data = {"x": np.arange(20.0, dtype=np.float32).reshape(10, 2), "y": np.arange(10)}
    prepared = Blocks(4).prepare(ArraySource.of(data))
    assert np.array_equal(np.sort(prepared["y"][:10]), np.arange(10))
    assert not np.array_equal(prepared["y"][:10], np.arange(10))
    assert np.array_equal(prepared["y"][10:], prepared["y"][:3])
    assert np.array_equal(prepared["x"], data["x"][prepared["y"]])


@pytest.mark.parametrize(("num_data", "n"), [(1, 1), (7, 3), (5, 5)])
def test_blocks_cover_each_datum_equally_often_over_all_first_rows(num_data, n):
    subsample = Blocks(n)
    data = jnp.asarray(subsample.prepare(ArraySource.of(np.arange(num_data, dtype=np.int32))))
    first_rows = jnp.arange(num_data)
    batches = np.array([subsample.batch(data, first_rows, k, num_data, num_data) for k in range(num_data)])
    assert np.array_equal(np.bincount(batches.ravel()), np.full(num_data, n))
    order = np.asarray(data[:num_data])
    for first, batch in enumerate(batches):
        assert np.array_equal(batch, order[(first + np.arange(n)) % num_data])


def test_first_rows_of_blocks_are_uniform():
    assert_uniform(np.bincount(page(Blocks(3), 13, 20_000)[:, 0], minlength=13))


# --- full ---


def test_full_sees_all_data():
    assert Full().size(7) == 7
    assert np.array_equal(page(Full(), 7, 2), [np.arange(7)] * 2)
