"""Data in every form that users hold them in: the same numbers give the same run, bit for bit."""

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.data.source import DataSource

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
    "a source": DataSource.of(NUMBERS),
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
    source = DataSource.of(np.array([0, 1, 1], dtype))
    assert source.arrays.dtype.kind == np.dtype(dtype).kind and source.arrays.tolist() == [0, 1, 1]
    assert source.num_data == 3


def test_a_pytree_keeps_its_structure_and_a_source_passes_through():
    data = {"x": np.ones((3, 2)), "y": (np.arange(3), np.zeros(3, bool))}
    source = DataSource.of(data)
    assert source.arrays.keys() == data.keys() and isinstance(source.arrays["y"], tuple)
    assert source.rows(1, 3)["y"][0].tolist() == [1, 2]


def test_a_run_does_not_touch_the_users_data():
    data = placed(0, writeable=True)
    run(data, lv.WithoutReplacement(3))
    assert np.array_equal(data, NUMBERS)
