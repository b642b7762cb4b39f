"""Logistic regressions with hundreds to thousands of parameters: `lv.laplace` beside NumPy, and what `lv.sample` says.

    python -m benchmarks.many_parameters --parameters 1000 2000 --output docs/benchmarks/many_parameters.txt

Independent standard normal columns, N = 1e5, prior N(0, I). "NumPy" is Newton's method as one would write it: float64,
A'A with A = sqrt(W) X, LAPACK's solver, to the same decrement of 1e-6 as `lv.laplace`. Both run in this process, in
turn; compilation is counted. Seconds are wall clock and processor time.
"""

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

import langevin as lv
from benchmarks.page import Page, output_option

TARGET = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, row: lv.log_sigmoid(row["y"] * jnp.dot(row["x"], t)))


def simulated(num_data: int, dimension: int) -> dict[str, np.ndarray]:
    """Rows x and labels y = -1 or 1; the coefficients have norm 1."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((num_data, dimension), dtype=np.float32)
    theta = rng.standard_normal(dimension) / np.sqrt(dimension)
    y = np.where(rng.random(num_data) < 1.0 / (1.0 + np.exp(-x @ theta)), 1.0, -1.0)
    return {"x": x, "y": y.astype(np.float32)}


def by_numpy(data: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mode and Laplace covariance."""
    x, y = (part.astype(np.float64) for part in (data["x"], data["y"]))
    theta = np.zeros(x.shape[1])
    while True:
        p = 1.0 / (1.0 + np.exp(y * (x @ theta)))
        grad = x.T @ (y * p) - theta
        half = x * np.sqrt(p * (1.0 - p))[:, None]
        precision = half.T @ half + np.eye(len(theta))
        step = np.linalg.solve(precision, grad)
        if grad @ step < 1e-6:
            return theta, np.linalg.inv(precision)
        theta = theta + step


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """The result, seconds of wall clock and of processor time."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = call()
    return found, time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    """Prints a table for each number of parameters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=int, nargs="+", default=[500, 1000, 2000])
    parser.add_argument("--data", type=int, default=100_000)
    parser.add_argument("--passes", type=float, default=0.0, help="budget of lv.sample; 0 leaves it out")
    output_option(parser)
    given = parser.parse_args()
    page, rows = Page(given.output), []
    for dimension in given.parameters:
        data = simulated(given.data, dimension)
        (mode, covariance), wall, cpu = timed(lambda data=data: by_numpy(data))
        sd = np.sqrt(np.diag(covariance))
        rows.append([f"NumPy, d = {dimension}", f"{wall:.1f}", f"{cpu:.1f}", "", ""])
        start = np.zeros(dimension)
        anchor, wall, cpu = timed(lambda data=data, start=start: lv.laplace(TARGET, data, start))
        worst = f"mode {np.max(np.abs(anchor.theta - mode) / sd):.1e}, sds {np.max(np.abs(anchor.sd / sd - 1)):.1e}"
        rows.append([f"lv.laplace, d = {dimension}", f"{wall:.1f}", f"{cpu:.1f}", worst, ""])
        if given.passes:
            call = lambda data=data, start=start: lv.sample(TARGET, data, start, passes=given.passes)  # noqa: E731
            result, wall, cpu = timed(call)
            bars = f"bars {np.max(result.mean.stderr / result.sd.value):.1e} sds"
            rows.append([f"lv.sample, d = {dimension}", f"{wall:.1f}", f"{cpu:.1f}", bars, result.status])
    page.say(f"Logistic regression, N = {given.data:,}")
    page.table(["", "wall s", "cpu s", "largest", "status"], rows)
    page.say(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")
    page.write()


if __name__ == "__main__":
    main()
