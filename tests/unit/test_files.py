"""Data in files: the same numbers as in memory, to the bit; and a plain word where a file is not what it should be."""

import fcntl
import json
import os
import subprocess
import sys
import time

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.data import files
from langevin.data.files import FileSource
from langevin.data.source import ArraySource
from langevin.engine import setup

RNG = np.random.default_rng(1)
X = RNG.normal(size=(3000, 2)).astype(np.float32)
Y = np.where(RNG.random(3000) < 1 / (1 + np.exp(-X @ [1.0, -0.5])), 1, -1).astype(np.int8)
TARGET = lv.Target(
    lambda t: -0.5 * jnp.dot(t, t), lambda t, d: lv.log_sigmoid(d["y"].astype(jnp.float32) * jnp.dot(d["x"], t))
)


@pytest.fixture
def mapped(monkeypatch):
    """Data of any size are mapped, and gathered on the host, as large ones are."""
    for module in (files, setup):
        monkeypatch.setattr(module, "FROM_BYTES", 1000)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "columns"
    folder.mkdir()
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", Y)
    return folder


@pytest.mark.parametrize(
    "parts",
    [
        {"subsample": lv.WithReplacement(20)},
        {"subsample": lv.WithoutReplacement(20), "chains": 2},
        {"subsample": lv.Epochs(20)},
        {"subsample": lv.Blocks(20)},
        {"subsample": lv.Full()},
        {"subsample": lv.WithReplacement(4), "chains": 16, "layout": "wide"},
        {"subsample": lv.WithReplacement(20), "gradient": lv.SVRG(50)},
        {"kernel": lv.MALA(), "subsample": None},
    ],
    ids=lambda parts: " ".join(str(value) for value in parts.values()),
)
def test_a_run_is_the_same_to_the_bit_in_memory_and_on_disk(parts, folder, mapped):
    schedule = lv.Constant(1e-4)
    one, other = (
        lv.run(TARGET, data, jnp.zeros(2), schedule=schedule, num_steps=80, keep=10, **parts)
        for data in (str(folder), {"x": X, "y": Y})
    )
    assert np.array_equal(one.values["theta"], other.values["theta"])
    assert np.array_equal(one.draws.theta, other.draws.theta)
    assert one.manifest.difference(other.manifest) is None


@pytest.mark.parametrize("method", ["minibatch", pytest.param("exact", marks=pytest.mark.slow)])
def test_sampling_is_the_same_to_the_bit_in_memory_and_on_disk(method, folder, mapped):
    one, other = (
        lv.sample(TARGET, data, jnp.zeros(2), passes=3 if method == "minibatch" else 200, method=method, seed=4)
        for data in (folder, {"x": X, "y": Y})
    )
    assert isinstance(one.session.source, FileSource) and len(one.session.source.files) == 2
    for name in ("mean", "sd"):
        assert np.array_equal(getattr(one, name).value, getattr(other, name).value)
        assert np.array_equal(getattr(one, name).stderr, getattr(other, name).stderr)
    assert one.plan.setup_cost == other.plan.setup_cost


@pytest.mark.parametrize("small", [True, False])
def test_a_file_is_its_array(small, tmp_path, request):
    if not small:
        request.getfixturevalue("mapped")
    np.save(tmp_path / "x.npy", X)
    source = ArraySource.of(tmp_path / "x.npy")
    assert source.num_data == 3000 and source.bytes == X.nbytes and source.fingerprint == ArraySource.of(X).fingerprint
    assert np.array_equal(source.take(np.array([7, 0])), X[[7, 0]]) and np.array_equal(source.slice(3, 5), X[3:5])
    again = FileSource.reopened(json.loads(json.dumps(source.description)))
    assert again.fingerprint == source.fingerprint and np.array_equal(again.arrays, X)
    assert len(source.files) == (0 if small else 1)


def test_small_files_are_converted_like_arrays(tmp_path):
    np.save(tmp_path / "x.npy", X.astype(np.float64))
    assert ArraySource.of(str(tmp_path / "x.npy")).fingerprint == ArraySource.of(X).fingerprint


def test_a_file_larger_than_memory_gives_the_same_rows(folder, mapped, monkeypatch):
    monkeypatch.setattr(files, "_memory", lambda: 100)
    source = ArraySource.of(folder)
    rows = RNG.integers(3000, size=333)
    taken = source.take(rows)
    assert np.array_equal(taken["x"], X[rows]) and np.array_equal(taken["y"], Y[rows])
    room = {"x": np.empty((5, 2), np.float32), "y": np.empty(5, np.int8)}
    assert source.take(rows[:5], out=room)["x"] is room["x"] and np.array_equal(room["y"], Y[rows[:5]])
    with pytest.raises(ValueError, match=r"too large .*langevin import"):
        source.shuffled(3)


def test_reading_twice_in_a_process_is_reading_once(folder, mapped, monkeypatch):
    ArraySource.of(folder)
    monkeypatch.setattr(files, "_read_through", None)
    ArraySource.of(folder)


def object_array(path):
    np.save(path, np.array([{"a": 1}, None]), allow_pickle=True)


def cut_off(path):
    np.save(path, X)
    with open(path, "r+b") as file:
        file.truncate(5000)


def with_nan(path):
    numbers = X.copy()
    numbers[2345, 1] = np.nan
    np.save(path, numbers)


REFUSED = {
    "an object array": (object_array, r"must hold numbers, got dtype object"),
    "a text file": (lambda path: path.write_text("1,2\n3,4\n"), r"not a \.npy file of numbers"),
    "a file that was cut off": (cut_off, r"truncated: its header promises 24,128 bytes, and there are 5,000"),
    "a NaN": (with_nan, r"finite, got NaN or infinity in row 2,345 .*--drop-missing"),
    "float64": (lambda path: np.save(path, X.astype(np.float64)), r"float32.*got dtype float64.*langevin import"),
    "int64": (lambda path: np.save(path, Y.astype(np.int64)), r"at most 32 bits.*got dtype int64"),
    "Fortran order": (lambda path: np.save(path, np.asfortranarray(X)), r"C order .*ascontiguousarray"),
    "a scalar": (lambda path: np.save(path, np.float32(1)), r"leading axis over observations, got shape \(\)"),
    "no rows": (lambda path: np.save(path, X[:0]), r"leading axis over observations, got shape \(0, 2\)"),
    "big-endian": (lambda path: np.save(path, X.astype(">f4")), r"got dtype >f4"),
}


@pytest.mark.parametrize(("write", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_used_is_refused(write, words, tmp_path, mapped):
    write(tmp_path / "x.npy")
    with pytest.raises(ValueError, match=words):
        ArraySource.of(tmp_path / "x.npy")


def test_columns_must_be_of_one_length(folder, mapped):
    np.save(folder / "z.npy", X[:2999])
    with pytest.raises(ValueError, match=r"share one leading axis .*x.npy has 3,000.*z.npy has 2,999"):
        ArraySource.of(folder)


def test_a_path_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"path that exists, got 'nowhere/x\.npy'"):
        lv.run(TARGET, "nowhere/x.npy", jnp.zeros(2), schedule=lv.Constant(0.1), num_steps=1)


@pytest.mark.parametrize("subsample", [lv.WithReplacement(20), lv.Full()], ids=["gathered", "all"])
@pytest.mark.parametrize("change", ["cut off", "written to"])
def test_a_file_that_changes_under_a_run_ends_it(change, subsample, folder, mapped):
    source = ArraySource.of(folder)
    parts = {"subsample": subsample, "schedule": lv.Constant(1e-4)}
    ledger = lv.run(TARGET, source, jnp.zeros(2), num_steps=32, **parts)
    if change == "cut off":
        os.truncate(folder / "x.npy", 4096)
    else:
        with open(folder / "x.npy", "r+b") as file:
            file.seek(1000)
            file.write(b"abcd")
    with pytest.raises(lv.DataChanged, match=r"x\.npy was changed while it was in use"):
        lv.run(TARGET, source, jnp.zeros(2), num_steps=64, resume=ledger, **parts)
    assert not source.unchanged


CUT_OFF = """
import os, sys, threading, time
import numpy as np, jax.numpy as jnp, langevin as lv
path = sys.argv[1]
target = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, x: -0.5 * jnp.sum((x - t) ** 2))
for parts in (
    {"subsample": lv.WithReplacement(10), "chains": 2}, {"subsample": lv.WithReplacement(10), "chains": 32},
    {"subsample": lv.Full()}, {"kernel": lv.MALA()},
):
    np.save(path, np.ones((2_500_000, 4), np.float32))
    threading.Timer(2.0, os.truncate, (path, 4096)).start()
    try:
        lv.run(target, path, np.zeros(4), schedule=lv.Constant(1e-9), num_steps=10**9, progress=False, **parts)
    except lv.DataChanged as error:
        print(str(error).split(" it was in use")[0])
"""


@pytest.mark.timeout(300)
def test_a_file_that_is_cut_off_in_the_middle_of_a_block_does_not_end_the_process(tmp_path):
    path = tmp_path / "x.npy"
    path.write_bytes(b"x")
    with open(path, "rb") as file:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as error:
            pytest.skip(f"no leases on this file system: {error}")
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    found = subprocess.run([sys.executable, "-c", CUT_OFF, path], capture_output=True, text=True, timeout=280)
    assert found.returncode == 0, found.stderr
    said = found.stdout.splitlines()
    assert len(said) == 4 and all("was opened for writing while" in one or "was changed while" in one for one in said)


def test_others_may_write_to_a_file_that_is_not_being_read(folder, mapped):
    source = ArraySource.of(folder)
    lv.run(TARGET, source, jnp.zeros(2), num_steps=32, subsample=lv.WithReplacement(20), schedule=lv.Constant(1e-4))
    began = time.monotonic()
    with open(folder / "x.npy", "r+b"):
        assert time.monotonic() - began < 5.0  # the system would let it wait for 45 seconds


def test_a_file_that_another_replaces_stays_what_it_was(folder, mapped):
    source = ArraySource.of(folder)
    np.save(folder / "new.npy", X[::-1])
    os.replace(folder / "new.npy", folder / "x.npy")
    assert np.array_equal(source.slice(0, 3)["x"], X[:3]) and source.unchanged
    assert ArraySource.of(folder).fingerprint != source.fingerprint


def test_a_description_of_other_data_is_refused(folder, mapped):
    described = ArraySource.of(folder).description
    np.save(folder / "x.npy", X[:, :1])
    with pytest.raises(ValueError, match="does not hold the data that were described"):
        FileSource.reopened(described)


def test_rows_beyond_two_to_the_thirty_are_drawn_from_a_file(tmp_path):
    """A sparse file of 1.2e9 bytes: rows in the upper half are met, and nothing of that size is held."""
    from numpy.lib import format as npy

    rows = 2**30 + 2**27
    with open(tmp_path / "x.npy", "wb") as file:
        npy.write_array_header_1_0(file, {"descr": "|i1", "fortran_order": False, "shape": (rows,)})
        start = file.tell()
        file.truncate(start + rows)
        file.seek(start + 2**30)
        file.write(np.ones(2**27, np.int8).tobytes())
    described = {"path": str(tmp_path / "x.npy"), "fingerprint": [[[rows], "int8", 0]]}
    source = FileSource.reopened(described)
    target = lv.Target(lambda t: -0.5 * t**2, lambda t, x: t * x.astype(jnp.float32))
    ledger = lv.run(
        target, source, jnp.float32(0), subsample=lv.WithReplacement(500), schedule=lv.Constant(1e-30), num_steps=64,
        observables={"t": lambda t: t}, keep=64,
    )  # fmt: skip
    # The gradient is N times the share of ones in a minibatch, which is a ninth.
    share = ledger.draws.grad.mean() / rows
    assert abs(share - 1 / 9) < 5 * np.sqrt(8 / 81 / 32000)  # false alarms: 6e-7
