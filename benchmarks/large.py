"""Data larger than one wants in memory: a generated `.npy` file of 6 GB, and a Parquet file of 10^7 rows.

    python -m benchmarks.large generate        # the file: 7.5e7 rows of 20 float32, signed features of a logistic model
    python -m benchmarks.large truth           # its posterior, by Newton's method in NumPy
    python -m benchmarks.large setup           # how fast set-up reads it, beside np.add.reduce
    python -m benchmarks.large sample          # lv.sample on it: status, errors against the truth, memory, seconds
    python -m benchmarks.large steps           # steps of SGLD on the file and on the same numbers in memory
    python -m benchmarks.large import          # Parquet to columns: memory, time, and a kill -9 midway

All take --folder (a temporary one otherwise is not kept between them) and --rows. Times are those of a busy machine
unless the page says otherwise: ratios are taken from interleaved rounds.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import langevin as lv

COLUMNS = 20
CHUNK = 2**18
BETA = np.concatenate([[-1.0], 0.5 * (-1.0) ** np.arange(COLUMNS - 1) / np.sqrt(np.arange(1, COLUMNS))])
TARGET = lv.Target(
    lambda theta: -0.5 * jnp.sum((theta / 10.0) ** 2), lambda theta, z: lv.log_sigmoid(jnp.dot(z, theta))
)


def anonymous():
    """Bytes of this process that no file stands behind."""
    with open("/proc/self/smaps_rollup") as rollup:
        return next(1024 * int(line.split()[1]) for line in rollup if line.startswith("Anonymous"))


@contextmanager
def watched(readings, seconds=0.05):
    """Appends the largest amount of anonymous memory seen meanwhile."""
    done, seen = threading.Event(), [anonymous()]

    def watch():
        while not done.wait(seconds):
            seen.append(anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        readings.append(max(seen))


def generate(path, rows):
    """Rows y x of a logistic regression, x = (1, normal, ...), chunk by chunk."""
    from numpy.lib import format as npy

    if path.exists():
        return
    draft = path.with_suffix(".draft")
    with open(draft, "wb") as file:
        npy.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (rows, COLUMNS)})
        for k, start in enumerate(range(0, rows, CHUNK)):
            rng = np.random.default_rng([11, k])
            x = rng.standard_normal((min(CHUNK, rows - start), COLUMNS), dtype=np.float32)
            x[:, 0] = 1.0
            up = rng.random(len(x)) < 1.0 / (1.0 + np.exp(-(x @ BETA)))
            file.write((x * np.where(up, 1, -1).astype(np.float32)[:, None]).tobytes())
    draft.rename(path)


def truth(path):
    """Posterior mean and sd by Newton's method written out in NumPy, with the skewness' shift of the mean; kept.

    mean = mode + Sigma t / 2, t_j = sum_i l'''(eta_i) z_ij (z_i' Sigma z_i): the next order is smaller by d / sqrt(N).
    """
    kept, z = path.with_suffix(".truth.npy"), np.load(path, mmap_mode="r")
    if kept.exists():
        return np.load(kept)

    def derivatives(theta, rows, sigma=None):
        grad, hessian, third = -theta / 100.0, np.eye(COLUMNS) / 100.0, np.zeros(COLUMNS)
        for start in range(0, rows, 2**14):
            part = z[start : min(start + 2**14, rows)].astype(np.float64)
            s = 1.0 / (1.0 + np.exp(part @ theta))
            weight = s * (1.0 - s)
            grad = grad + part.T @ s
            hessian = hessian + (part * weight[:, None]).T @ part
            if sigma is not None:
                # d^3/d eta^3 of log sigmoid(eta) is w (1 - 2 s) with s = sigmoid(-eta), up to sign.
                third += part.T @ (-weight * (2.0 * s - 1.0) * np.sum(part @ sigma * part, axis=1))
        return grad, hessian, third

    theta, few = np.zeros(COLUMNS), min(len(z), 10**6)
    for _ in range(8):
        grad, hessian, _ = derivatives(theta, few)
        theta = theta + np.linalg.solve(hessian, grad)
    sigma = np.linalg.inv(hessian) * few / len(z)
    for _ in range(3):
        grad, hessian, third = derivatives(theta, len(z), sigma)
        sigma = np.linalg.inv(hessian)
        theta = theta + sigma @ grad
    np.save(kept, [theta + 0.5 * sigma @ third, np.sqrt(np.diag(sigma))])
    return np.load(kept)


def setup(path):
    z, gigabytes = np.load(path, mmap_mode="r"), path.stat().st_size / 1e9

    def timed(work):
        began, used = time.monotonic(), time.process_time()
        value = work()
        return value, time.monotonic() - began, time.process_time() - used

    def line(what, passes, seconds, used):
        rate = passes * gigabytes / seconds
        print(f"{what:45s} {passes:5.2f} passes {seconds:7.1f} s {used:7.1f} cpu-s {rate:6.2f} GB/s", flush=True)
        return rate

    plain = []
    plain.append(line("np.add.reduce(map)", 1, *timed(lambda: np.add.reduce(z))[1:]))
    source, seconds, used = timed(lambda: lv.DataSource.of(path))
    check = line("check and fingerprint", 1, seconds, used)
    plain.append(line("np.add.reduce(map)", 1, *timed(lambda: np.add.reduce(z))[1:]))
    anchor, seconds, used = timed(lambda: lv.laplace(TARGET, source, jnp.zeros(COLUMNS)))
    passes = anchor.cost / source.num_data
    climb = line("lv.laplace (mode and Hessian, float64)", passes, seconds, used)
    plain.append(line("np.add.reduce(map)", 1, *timed(lambda: np.add.reduce(z))[1:]))
    print(
        f"of np.add.reduce: check {check / np.mean(plain[:2]):.2f}, mode and Hessian {climb / np.mean(plain[1:]):.2f}"
    )


def sample(path, precision):
    lv.sample(TARGET, np.ones((100, COLUMNS), np.float32), jnp.zeros(COLUMNS), passes=1)
    readings, began = [], time.monotonic()
    with watched(readings):
        result = lv.sample(TARGET, path, jnp.zeros(COLUMNS), precision=precision)
    seconds = time.monotonic() - began
    print(result.explain())
    print(f"N = {result.plan.num_data:,}, precision {precision}: status {result.status}")
    print(f"{seconds:.0f} s, of which set-up {result.plan.setup_seconds:.0f} s; {result.passes:.4f} passes sampled,")
    print(f"{result.passes * result.plan.num_data:,.0f} datum visits, {result.session.seconds:.1f} s of sampling")
    print(f"anonymous memory at most {readings[0] / 1e9:.2f} GB", flush=True)
    mean, sd = truth(path)
    off = (result.mean.value - mean) / sd
    ratio = result.sd.value / sd - 1.0
    z_mean = (result.mean.value - mean) / result.mean.stderr
    print(f"largest error of a mean {np.abs(off).max():.6f} sds, of an sd {np.abs(ratio).max():.6f} of itself")
    bars = [1.96 * (one.stderr / sd).max() for one in (result.mean, result.sd)]
    print(f"the widest 95% bar of a mean {bars[0]:.6f} sds, of an sd {bars[1]:.6f}")
    print(f"z of the means: rms {np.sqrt(np.mean(z_mean**2)):.2f}, largest {np.abs(z_mean).max():.2f}")


def steps(path, rounds, num_steps):
    """Plain SGLD at n = 100, one chain, with replacement; rounds on file and array in turn."""
    sources = {"file": lv.DataSource.of(path), "array": lv.DataSource.of(np.load(path))}
    for source in sources.values():
        assert isinstance(source.arrays, np.ndarray)
    parts = {"subsample": lv.WithReplacement(100), "schedule": lv.Constant(1e-9), "progress": False}
    theta_0 = jnp.asarray(BETA, jnp.float32)
    found = {name: [] for name in sources}
    for k in range(rounds + 1):
        ends = []
        for name, source in sources.items():
            began, used = time.monotonic(), time.process_time()
            ledger = lv.run(TARGET, source, theta_0, num_steps=num_steps, seed=k, **parts)
            ends.append(ledger.values["theta"])
            # The first round compiles.
            if k:
                found[name].append((time.monotonic() - began, time.process_time() - used))
        assert np.array_equal(*ends)
    for name, times in found.items():
        wall, used = np.median(times, axis=0)
        print(f"{name:6s} {num_steps / wall:10,.0f} steps/s {1e6 * used / num_steps:8.2f} cpu-us a step")
    wall, used = np.median(np.array(found["array"]) / np.array(found["file"]), axis=0)
    print(f"file over array, median of {rounds} rounds: {wall:.2f} by the clock, {used:.2f} by the processor")


def import_(folder, rows, rounds):
    import pyarrow as pa
    import pyarrow.parquet as parquet

    source, out = folder / "large.parquet", folder / "columns"
    if not source.exists():
        schema = pa.schema([(f"x{k}", pa.float64()) for k in range(COLUMNS)])
        with parquet.ParquetWriter(source, schema) as writer:
            for start in range(0, rows, 10**6):
                x = np.random.default_rng([12, start]).standard_normal((min(10**6, rows - start), COLUMNS))
                writer.write_table(pa.table({f"x{k}": x[:, k] for k in range(COLUMNS)}))

    def timed(code, *arguments):
        """Seconds, processor seconds and last printed line of a process of its own."""
        began, before = time.monotonic(), os.times()
        done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        return time.monotonic() - began, used, done.stdout.split()

    def clear():
        for path in (out, folder / "columns.importing", folder / "plain.npy"):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    ratios = []
    for _ in range(rounds):
        clear()
        wall, used, _ = timed(PLAIN, source, folder / "plain.npy")
        print(f"reading the Parquet and writing the bytes plainly: {wall:6.1f} s {used:6.1f} cpu-s", flush=True)
        clear()
        ours, spent, (_, memory) = timed(OURS, source, out)
        print(
            f"langevin import:                                   {ours:6.1f} s {spent:6.1f} cpu-s, anonymous memory at "
            f"most {float(memory) / 1e9:.2f} GB; {ours / wall:.2f} and {spent / used:.2f} times as long", flush=True,
        )  # fmt: skip
        ratios.append((ours / wall, spent / used))
    wall, used = np.median(ratios, axis=0)
    print(f"median of {rounds} rounds: {wall:.2f} times as long by the clock, {used:.2f} by the processor", flush=True)
    expected = lv.DataSource.of(out).fingerprint
    clear()
    process = subprocess.Popen([sys.executable, "-c", OURS, str(source), str(out)], stdout=subprocess.DEVNULL)
    time.sleep(0.6 * ours)
    process.send_signal(signal.SIGKILL)
    process.wait()
    print(f"killed with -9 after {0.6 * ours:.1f} s: visible {sorted(path.name for path in folder.iterdir())}")
    again, _, _ = timed(OURS, source, out)
    same = lv.DataSource.of(out).fingerprint == expected
    print(f"called again: {again:.1f} s, the same to the bit: {same}; {sorted(path.name for path in folder.iterdir())}")


PLAIN = """
import sys, os, numpy as np, pyarrow.parquet as parquet
with open(sys.argv[2], "wb") as file:
    for batch in parquet.ParquetFile(sys.argv[1]).iter_batches(2**16):
        for column in batch.columns:
            file.write(column.to_numpy().astype(np.float32))
    os.fsync(file.fileno())
"""

OURS = """
import sys, time
import langevin as lv
from benchmarks.large import watched
readings, began = [], time.monotonic()
with watched(readings):
    lv.import_data(sys.argv[1], sys.argv[2], columns={"x": "x*"})
print(time.monotonic() - began, readings[0])
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["generate", "truth", "setup", "sample", "steps", "import"])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=float)
    parser.add_argument("--precision", type=float, default=0.02)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100_000)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    print(f"{asked.what}: jax {jax.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    if asked.what == "import":
        return import_(asked.folder, int(asked.rows or 1e7), asked.rounds)
    rows = int(asked.rows or 7.5e7)
    path = asked.folder / f"logistic-{rows}.npy"
    generate(path, rows)
    if asked.what == "truth":
        truth(path)
    elif asked.what == "setup":
        setup(path)
    elif asked.what == "sample":
        sample(path, asked.precision)
    elif asked.what == "steps":
        steps(path, asked.rounds, asked.steps)


if __name__ == "__main__":
    main()
