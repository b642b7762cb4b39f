"""Data in every form that users hold them in: the same numbers give the same run, bit for bit."""

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.data.source import ArraySource, DataSource, as_source

NUMBERS = np.arange(64.0).reshape(32, 2) / 16  # exact in float16 and wider
TARGET = lv.Target(lambda t: -0.5 * jnp.dot(t, t), lambda t, x: -0.5 * jnp.sum((x - t) ** 2))


def placed(offset, writeable):
    """A float32 copy that starts `offset` bytes after a 64-byte border."""
    raw = np.empty(NUMBERS.size * 4 + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    array = raw[start : start + NUMBERS.size * 4].view(np.float32).reshape(NUMBERS.shape)
    array[...] = NUMBERS
    array.flags.writeable = writeable
    return array


FORMS = {
    "float64": NUMBERS,
    "float32": NUMBERS.astype(np.float32),
    "float16": NUMBERS.astype(np.float16),
    "big-endian": NUMBERS.astype(">f4"),
    "every second column": np.repeat(NUMBERS, 2, axis=1).astype(np.float32)[:, ::2],
    "Fortran order": np.asfortranarray(NUMBERS.astype(np.float32)),
    "on a 64-byte border": placed(0, writeable=True),
    "off the border": placed(4, writeable=True),
    "read-only on a 64-byte border": placed(0, writeable=False),
    "read-only off the border": placed(4, writeable=False),
    "a JAX array": jnp.asarray(NUMBERS, jnp.float32),
    "a source": ArraySource.of(NUMBERS),
}


def run(data, subsample):
    return lv.run(TARGET, data, jnp.zeros(2), subsample=subsample, schedule=lv.Constant(0.01), num_steps=40)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("subsample", [lv.WithoutReplacement(3), lv.Blocks(3)], ids=["gathered", "blocks"])
def test_the_form_of_the_data_does_not_matter(form, subsample):
    expected = run(NUMBERS, subsample)
    assert np.array_equal(run(form, subsample).values["theta"], expected.values["theta"])


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int32, np.int64, np.uint32])
def test_integers_and_booleans_stay_what_they_are(dtype):
    source = ArraySource.of(np.array([0, 1, 1], dtype))
    assert source.arrays.dtype.kind == np.dtype(dtype).kind and source.arrays.tolist() == [0, 1, 1]
    assert source.num_data == 3


def test_a_pytree_keeps_its_structure_and_a_source_passes_through():
    data = {"x": np.ones((3, 2)), "y": (np.arange(3), np.zeros(3, bool))}
    source = ArraySource.of(data)
    assert source.arrays.keys() == data.keys() and isinstance(source.arrays["y"], tuple)
    assert source.slice(1, 3)["y"][0].tolist() == [1, 2]
    assert as_source(source) is source and "fingerprint" not in vars(source)  # which would cost a pass


class Squares:
    """The smallest source that is not made of arrays in memory."""

    num_data, bytes, fingerprint = 4, 16, (((4,), "float32", 0),)
    arrays = property(lambda self: self.slice(0, 4))

    def take(self, rows, out=None):
        return np.square(rows, out=out, dtype=np.float32)

    def slice(self, start, stop):
        return self.take(np.arange(start, stop))

    def aligned(self):
        return self.arrays

    def shuffled(self, repeated):
        return self.take(np.array([2, 0, 3, 1, 2, 0, 3])[: 4 + repeated])


def test_whoever_keeps_the_protocol_is_a_source():
    kept, not_kept = Squares(), {"take": np.ones(3)}
    assert as_source(kept) is kept and not isinstance(not_kept, DataSource)
    target = lv.Target(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
    own, array = (
        lv.run(target, data, jnp.float32(0), subsample=lv.WithReplacement(2), schedule=lv.Constant(0.1), num_steps=40)
        for data in (kept, np.array([0.0, 1.0, 4.0, 9.0]))
    )
    assert np.array_equal(own.values["theta"], array.values["theta"])


def test_rows_are_taken_into_buffers():
    source = ArraySource.of({"x": NUMBERS, "y": np.arange(32)})
    out = {"x": np.empty((3, 2), np.float32), "y": np.empty(3, np.int32)}
    taken = source.take(np.array([5, 0, 5]), out=out)
    assert taken["x"] is out["x"] and np.array_equal(out["x"], NUMBERS[[5, 0, 5]]) and out["y"].tolist() == [5, 0, 5]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_fingerprint_is_that_of_the_numbers(form):
    assert as_source(form).fingerprint == ArraySource.of(NUMBERS).fingerprint


@pytest.mark.parametrize("row", [0, 1, 50_000, 99_998, 99_999])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool])
def test_the_fingerprint_sees_a_change_of_any_row(row, dtype):
    data = np.ones((100_000, 3), dtype)
    before = ArraySource.of(data).fingerprint
    data[row, 1] = 0
    assert ArraySource.of(data).fingerprint != before


def test_the_fingerprint_sees_rows_that_change_places():
    data = NUMBERS[::-1].copy()
    assert ArraySource.of(data).fingerprint != ArraySource.of(NUMBERS).fingerprint


@pytest.mark.parametrize("dtype", [">i4", ">i2", ">f8"])
def test_foreign_byte_order_is_read(dtype):
    source = ArraySource.of(np.array([1, 2, 300], dtype))
    assert source.arrays.tolist() == [1, 2, 300] and source.arrays.dtype.isnative


def test_a_run_does_not_touch_the_users_data():
    data = placed(0, writeable=True)
    run(data, lv.WithoutReplacement(3))
    assert np.array_equal(data, NUMBERS)
