"""`lv.sample` in a process of its own: a logistic regression to a wanted precision, cold and then once more, warm.

python -m benchmarks.sample_worker 10000                # one line of JSON
"""

from time import monotonic

BEGAN = monotonic()

import argparse  # noqa: E402
import json  # noqa: E402
from typing import Any  # noqa: E402

import jax  # noqa: E402
import numpy as np  # noqa: E402

import langevin as lv  # noqa: E402
from benchmarks.scaling_problem import DIMENSION, simulate  # noqa: E402

IMPORTED = monotonic()


def log_prior(theta: jax.Array) -> jax.Array:
    return -0.5 * (theta @ theta)


def log_likelihood(theta: jax.Array, datum: Any) -> jax.Array:
    x, y = datum
    return lv.log_sigmoid(y * (x @ theta))


TARGET = lv.Target(log_prior, log_likelihood)
ZERO = np.zeros(DIMENSION, np.float32)


def solve(num_data: int, seed: int, precision: float) -> dict[str, Any]:
    """The same call twice: the second one compiles nothing, so the difference is what compilation took."""
    data = simulate(num_data, seed)

    def call() -> tuple[float, lv.Result]:
        began = monotonic()
        result = lv.sample(TARGET, data, ZERO, precision=precision, seed=seed, progress=False)
        result.summary()
        return monotonic() - began, result

    (cold, _), (warm, result) = call(), call()
    setup = result.plan.setup_seconds
    mean, sd = result.mean, result.sd
    return {
        "import": IMPORTED - BEGAN,
        "compile": cold - warm,
        "setup": setup,
        "sampling": warm - setup,
        "status": result.status,
        "stopped": result.session.stopped,
        "setup_passes": result.setup_passes,
        "passes": result.passes,
        "steps": result.session.steps,
        "batch_size": result.session.batch_size,
        "worst_stderr": float(np.max(mean.stderr / sd.value)),
        "mean": mean.value.tolist(),
        "sd": sd.value.tolist(),
        "laplace_mean": result.plan.anchor.theta.tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("num_data", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", type=float, default=0.0196)
    options = parser.parse_args()
    print(json.dumps(solve(options.num_data, options.seed, options.precision)))


if __name__ == "__main__":
    main()
