"""Counter-based random numbers against JAX's own cipher, Python integers and exact enumeration."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from langevin import random
from langevin.random import Clock

# Every test on random numbers uses fixed seeds and raises a false alarm with this probability.
FALSE_ALARM = 1e-9
KEY = np.array([0x12345678, 0x9ABCDEF0], np.uint32)


def device_key(key=KEY):
    return jnp.uint32(key[0]), jnp.uint32(key[1])


def host_pairs(key, m, per_step):
    """The words of one step by the definition: counters m W ... m W + W - 1 as 64-bit Python integers."""
    counters = [m * per_step + j for j in range(per_step)]
    low = np.array([c & 0xFFFFFFFF for c in counters], np.uint32)
    high = np.array([c >> 32 & 0xFFFFFFFF for c in counters], np.uint32)
    return random.threefry((np.full_like(low, key[0]), np.full_like(low, key[1])), (low, high))


@partial(jax.jit, static_argnums=(2, 3))
def device_pairs(key, first, num_steps, per_step):
    return random.pairs(key, first, num_steps, per_step)


# --- the cipher ---


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_meets_the_published_vectors(key, counter, expected):
    def as_arrays(pair):
        return tuple(np.array([x], np.uint32) for x in pair)

    assert tuple(int(x[0]) for x in random.threefry(as_arrays(key), as_arrays(counter))) == expected


def test_threefry_is_jax_fold_in():
    key = jax.random.wrap_key_data(jnp.asarray(KEY), impl="threefry2x32")
    for c in (0, 1, 2**31, 2**32 - 1):
        ours = random.threefry(device_key(), (jnp.uint32(0), jnp.uint32(c)))
        assert np.array_equal(np.stack(ours), jax.random.key_data(jax.random.fold_in(key, jnp.uint32(c))))


def test_threefry_is_jax_random_bits():
    # JAX's counters are (high, low) of a flat index, its 32-bit output the exclusive-or of the two words.
    key = jax.random.wrap_key_data(jnp.asarray(KEY), impl="threefry2x32")
    count = jnp.arange(1000, dtype=jnp.uint32)
    left, right = random.threefry(device_key(), (jnp.zeros_like(count), count))
    with jax.threefry_partitionable(True):
        assert np.array_equal(left ^ right, jax.random.bits(key, (1000,), jnp.uint32))


def test_host_and_device_ciphers_agree():
    counter = np.arange(100, dtype=np.uint32) * np.uint32(0x9E3779B1)
    host = random.threefry((np.full(100, KEY[0]), np.full(100, KEY[1])), (counter, counter[::-1]))
    device = random.threefry(device_key(), (jnp.asarray(counter), jnp.asarray(counter[::-1])))
    assert np.array_equal(host, device)


# --- counters ---


@pytest.mark.parametrize("m", [0, 1, 2**32 - 1, 2**32, 3 * 2**40 + 5])
def test_clock_carries_into_its_high_half(m):
    clock = Clock.at(m).plus(jnp.arange(5))
    assert [(int(h) << 32) + int(low) for low, h in zip(clock.low, clock.high, strict=True)] == list(range(m, m + 5))


@pytest.mark.parametrize(
    "m",
    [
        pytest.param(1, id="start"),
        pytest.param(2**32 - 3, id="m crosses 2^32"),
        pytest.param(2**32 // 3 - 2, id="the counter crosses 2^32 and m does not"),
        pytest.param(10**12, id="m of 10^12"),
    ],
)
def test_step_m_owns_the_counters_m_W_onwards(m):
    num_steps, per_step = 7, 3
    device = np.stack(device_pairs(device_key(), Clock.at(m), num_steps, per_step)).reshape(2, num_steps, per_step)
    for k in range(num_steps):
        assert np.array_equal(device[:, k], np.stack(host_pairs(KEY, m + k, per_step)))


@pytest.mark.parametrize("page", [1, 7, 64])
@pytest.mark.parametrize("m", [1, 2**32 - 20])
def test_words_do_not_depend_on_the_page_they_are_drawn_in(page, m):
    num_steps, per_step = 64, 3
    whole = np.stack(device_pairs(device_key(), Clock.at(m), num_steps, per_step))
    pages = []
    for start in range(0, num_steps, page):
        words = np.stack(device_pairs(device_key(), Clock.at(m + start), page, per_step))
        pages.append(words[:, : (num_steps - start) * per_step])
    assert np.array_equal(np.concatenate(pages, axis=1), whole)


def test_a_chain_has_the_same_words_alone_and_among_others():
    keys = random.stream_keys(3, np.arange(5), random.NOISE)
    together = np.stack(device_pairs((jnp.asarray(keys[0]), jnp.asarray(keys[1])), Clock.at(9), 4, 2))
    for c in range(5):
        assert np.array_equal(together[..., c], np.stack(device_pairs(device_key(keys[:, c]), Clock.at(9), 4, 2)))


def test_step_of_cuts_a_flat_page():
    page = jnp.arange(24).reshape(12, 2)
    for k in range(4):
        assert np.array_equal(random.step_of(page, jnp.int32(k), 4), np.arange(24).reshape(4, 3, 2)[k])


# --- streams ---


def test_streams_of_all_seeds_chains_and_purposes_have_different_keys():
    purposes = [random.SUBSAMPLE, random.NOISE, random.ACCEPT, random.CUSTOM]
    assert len(set(purposes)) == 4
    seeds = [0, 1, 2**32 - 1, 2**32, 2**32 + 1, 2**63]
    keys = [random.stream_keys(seed, np.arange(200), purpose) for seed in seeds for purpose in purposes]
    assert len({tuple(key) for block in keys for key in block.T.tolist()}) == 4 * 200 * len(seeds)


def test_key_of_a_chain_does_not_depend_on_the_others():
    all_keys = random.stream_keys(7, np.arange(10), random.NOISE)
    assert np.array_equal(random.stream_keys(7, np.array([8, 2]), random.NOISE), all_keys[:, [8, 2]])


def test_streams_are_uncorrelated():
    count = 2**16
    keys = [random.stream_keys(seed, np.array([c]), s)[:, 0] for seed in (0, 1) for c in (0, 1) for s in (0, 1)]
    x = np.stack([random.normals(device_key(key), Clock.at(1), count, 1) for key in keys]).astype(np.float64)
    z = np.sqrt(count) * np.corrcoef(x)[np.triu_indices(len(keys), 1)]
    assert np.abs(z).max() < stats.norm.isf(FALSE_ALARM / 2 / len(z))


# --- laws ---


def every_word(key, first, num_steps, per_step):
    """All values of the upper 23 bits of a word, in order: the whole law of what uses no more than these."""
    words = jnp.arange(2**23, dtype=jnp.uint32) << jnp.uint32(9)
    return words, words


@pytest.fixture(scope="module")
def normal_law():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(random, "pairs", every_word)
        return np.asarray(random.normals(None, None, 2**23, 1)).reshape(-1)


def test_normals_are_finite_and_exactly_symmetric(normal_law):
    assert np.isfinite(normal_law).all()
    assert np.array_equal(normal_law, -normal_law[::-1])
    assert np.all(np.diff(normal_law) >= 0)


def test_normals_are_the_midpoint_quantiles(normal_law):
    exact = ndtri((np.arange(2**23) + 0.5) / 2**23)
    # Not random: XLA's float32 erf_inv is a polynomial with a relative error of up to 6e-6, at |eta| = 4.
    np.testing.assert_allclose(normal_law, exact, rtol=1e-5, atol=2e-7)


def test_moments_of_the_normals_by_enumeration(normal_law):
    x = normal_law.astype(np.float64)
    variance = np.mean(x**2)
    assert 0 < 1 - variance < 2e-6
    # The last cells, of probability 2^-23 each, stand for all of the tail beyond them.
    assert 0 < 3 - np.mean(x**4) < 2 * 2**-23 * 5.3**4


def test_normals_pass_kolmogorov_smirnov():
    for seed in (0, 1):
        key = random.stream_keys(seed, np.array([0]), random.NOISE)[:, 0]
        x = np.asarray(random.normals(device_key(key), Clock.at(1), 2**15, 8)).reshape(-1)
        assert stats.kstest(x, "norm").pvalue > FALSE_ALARM


def test_uniforms_are_the_midpoints_and_never_0_or_1(monkeypatch):
    monkeypatch.setattr(random, "pairs", every_word)
    x = np.asarray(random.log_uniforms(None, None, 2**23)).reshape(-1)
    assert np.isfinite(x).all() and x.max() < 0
    np.testing.assert_allclose(x, np.log((np.arange(2**23) + 0.5) / 2**23), rtol=3e-7, atol=6e-8)
