"""`langevin fit` on a table that is not held in memory: seconds, memory of its own, and the truth.

    python -m benchmarks.large_fit                    # 10 million rows, 12 predictors, 50 levels, 10,000 groups
    python -m benchmarks.large_fit --seeds 60         # coverage over data sets of 20,000 rows

Logistic regression with a random intercept, simulated, so that the truth is known. The first measures one call of the
command in a process of its own; the second counts how often nominal 95% intervals of the posterior hold the true
coefficients, which they do at the nominal rate over data sets, up to what weak priors change. The 49 contrasts of a
data set share the level that they are contrasts to, so they miss together: coverage varies much from one data set to
the next, and a second opinion on the same data stands beside it.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PREDICTORS, LEVELS, SD = 12, 50, 0.5
FORMULA = " + ".join(["y ~ x0", *(f"x{k}" for k in range(1, PREDICTORS)), "C(kind)", "(1 | town)"])


def simulated(file: Path, rows: int, groups: int, seed: int) -> dict[str, float]:
    """Writes a table and returns the true coefficients by their names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng([seed, rows])
    beta, kinds, towns = rng.normal(0, 0.3, PREDICTORS), rng.normal(0, 0.3, LEVELS), rng.normal(0, SD, groups)
    names = pa.array([f"k{k:02d}" for k in range(LEVELS)])
    writer = None
    for start in range(0, rows, 500_000):
        n = min(500_000, rows - start)
        x = rng.standard_normal((n, PREDICTORS), dtype=np.float32)
        kind, town = rng.integers(0, LEVELS, n), rng.integers(0, groups, n)
        eta = -1.0 + x @ beta + kinds[kind] + towns[town]
        columns = {f"x{k}": x[:, k] for k in range(PREDICTORS)}
        columns["kind"] = pa.DictionaryArray.from_arrays(pa.array(kind.astype(np.int32)), names)
        columns |= {"town": town.astype(np.int32), "y": (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(np.int8)}
        part = pa.table(columns)
        writer = pq.ParquetWriter(file, part.schema) if writer is None else writer
        writer.write_table(part)
    assert writer is not None
    writer.close()
    truth = {"Intercept": -1.0 + kinds[0], **{f"x{k}": beta[k] for k in range(PREDICTORS)}}
    return truth | {f"C(kind)[T.k{k:02d}]": kinds[k] - kinds[0] for k in range(1, LEVELS)}


def called(file: Path, out: Path) -> tuple[float, int, int]:
    """Seconds, the largest memory of its own in bytes, and the exit code of one call of the command."""
    command = [sys.executable, "-m", "langevin", "fit", str(file), FORMULA, "--family", "bernoulli", "--out", str(out)]
    began, peak = time.perf_counter(), 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = max(peak, *(int(line.split()[1]) * 1024 for line in status.splitlines() if "RssAnon" in line), 0)
        except (OSError, ValueError, TypeError):
            pass
        time.sleep(0.2)
    return time.perf_counter() - began, peak, process.returncode


def inside(folder: Path, truth: dict[str, float]) -> dict[str, bool]:
    """For each coefficient whether the posterior's 95% interval holds the truth."""
    import pandas

    table = pandas.read_csv(folder / "summary.csv", index_col=0)
    return {name: bool(table.loc[name, "q2.5"] <= value <= table.loc[name, "q97.5"]) for name, value in truth.items()}


def second_opinion(file: Path, groups: int, truth: dict[str, float]) -> int:
    """How many true coefficients lie in normal intervals from Newton's method on all coefficients and groups at once.

    It is told the true sd of the groups, shares no code with the library, and serves where there are few groups.
    """
    import pyarrow.parquet as pq

    table = pq.read_table(file)
    kind, town = table["kind"].combine_chunks().indices.to_numpy(), table["town"].to_numpy()
    predictors = [table[f"x{k}"].to_numpy().astype(float) for k in range(PREDICTORS)]
    x = np.column_stack([np.ones(len(town)), *predictors, np.eye(LEVELS)[kind][:, 1:], np.eye(groups)[town]])
    y, beta = table["y"].to_numpy().astype(float), np.zeros(x.shape[1])
    penalty = np.where(np.arange(x.shape[1]) < len(truth), 1e-6, 1 / SD**2)
    for _ in range(10):
        p = 1 / (1 + np.exp(-x @ beta))
        hessian = (x.T * (p * (1 - p))) @ x + np.diag(penalty)
        beta += np.linalg.solve(hessian, x.T @ (y - p) - penalty * beta)
    sds = np.sqrt(np.diag(np.linalg.inv(hessian)))
    return sum(abs(beta[k] - value) < 1.96 * sds[k] for k, value in enumerate(truth.values()))


def mean_and_error(shares: list[float]) -> str:
    return f"{np.mean(shares):.3f} +- {np.std(shares, ddof=1) / np.sqrt(len(shares)):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--groups", type=int)
    parser.add_argument("--seeds", type=int, default=1, help="data sets")
    given = parser.parse_args()
    rows = given.rows if given.rows is not None else 10_000_000 if given.seeds == 1 else 20_000
    groups = given.groups if given.groups is not None else max(rows // 1000, 100)
    ours, others = [], []
    for seed in range(given.seeds):
        with tempfile.TemporaryDirectory(dir=".") as folder:
            file, out = Path(folder) / "table.parquet", Path(folder) / "run"
            truth = simulated(file, rows, groups, seed)
            seconds, peak, code = called(file, out)
            found = inside(out, truth)
            ours.append(sum(found.values()) / len(truth))
            beside = ""
            if given.seeds > 1:
                others.append(second_opinion(file, groups, truth) / len(truth))
                beside = f" ({others[-1] * len(truth):.0f} by the second opinion)"
            print(
                f"{rows:,} rows, {groups:,} groups, data set {seed}: {file.stat().st_size / 1e6:,.0f} MB of Parquet, "
                f"{seconds:.0f} s, {peak / 1e9:.2f} GB of its own, exit code {code} (0 is ok), "
                f"{sum(found.values())} of {len(truth)} true coefficients in their 95% intervals{beside}",
                flush=True,
            )
    if given.seeds > 1:
        print(
            f"{mean_and_error(ours)} of {len(truth)} coefficients in {given.seeds} data sets; "
            f"{mean_and_error(others)} by the second opinion"
        )


if __name__ == "__main__":
    main()
