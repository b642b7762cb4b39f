"""Memory of the topic model, documents in a file: `python -m benchmarks.topics_memory [--documents 100000 2000000]`.

Each corpus has a process of its own, which maps its file and runs SGRLD on minibatches of 20 documents. What is read is
anonymous memory, the program's own: pages of the file are the system's, which takes them back when it needs room. Rule:
the largest reading of the larger corpus is above that of the smaller one by at most 16 MB, the noise of what libraries
hold on to; the exit code is 1 otherwise. `--loaded` reads the files into memory first, as a control.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import langevin as lv
from langevin.compare.topics import simulated

LENGTH, WORDS, MOST_GROWTH = 100, 500, 16.0


def write(path, documents):
    """Documents drawn with replacement from 2000 simulated ones, some at a time."""
    counts, _ = simulated(np.random.default_rng(0))
    some = np.full((len(counts), LENGTH), -1, np.int32)
    for row, document in zip(some, counts, strict=True):
        words = np.repeat(np.arange(WORDS), document)[:LENGTH]
        row[: len(words)] = words
    rng, room = np.random.default_rng(0), np.lib.format.open_memmap(path, "w+", np.int32, (documents, LENGTH))
    for start in range(0, documents, 50_000):
        part = room[start : start + 50_000]
        part[:] = some[rng.integers(len(some), size=len(part))]
    room.flush()


def anonymous():
    """Anonymous memory of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def largest(path, steps, loaded):
    """The largest reading of a run, one before each block of its steps and one at the end."""
    readings = []

    def delta(m):
        readings.append(anonymous())
        return np.full(np.shape(m), 0.01)

    model = lv.models.LDA(lv.DataSource.of(np.load(path)) if loaded else path, topics=20, words=WORDS)
    lv.run(
        model.target, model.data, model.theta_0(), kernel=lv.SGRLD(), gradient=model.gradient(20, sweeps=10),
        schedule=lv.Custom(delta), num_steps=steps, observables={"first": lambda theta: theta[0, 0]}, progress=False,
    )  # fmt: skip
    return max(*readings, anonymous())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, nargs=2, default=(100_000, 2_000_000))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--loaded", action="store_true")
    parser.add_argument("--path", help="read this file and print one number: for the processes of this command")
    options = parser.parse_args()
    if options.path:
        print(largest(options.path, options.steps, options.loaded))
        return
    found = []
    for documents in options.documents:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "documents.npy")
            write(path, documents)
            asked = ["--path", str(path), "--steps", str(options.steps), *(["--loaded"] if options.loaded else [])]
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.topics_memory", *asked],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            found.append(float(done.stdout))
            size = path.stat().st_size / 2**20
            print(f"{documents:9,} documents, a file of {size:6.0f} MB, {options.steps} steps of 20 documents: "
                  f"{found[-1]:.0f} MB of memory of its own", flush=True)  # fmt: skip
    print(f"more memory for more documents: {found[1] - found[0]:+.1f} MB, allowed {MOST_GROWTH:.0f}")
    raise SystemExit(0 if found[1] - found[0] <= MOST_GROWTH else 1)


if __name__ == "__main__":
    main()
