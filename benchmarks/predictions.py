"""How long 100,000 predictions take: a logistic regression with ten predictors, `fit.predict` and `result.expectation`.

    python -m benchmarks.predictions

Prints seconds by the wall and by the processor for the first call of a process, which compiles, and for later ones.
"""

from collections.abc import Callable
from time import perf_counter, process_time

import jax.numpy as jnp
import numpy as np

import langevin as lv

ROWS, NEW_ROWS, DIMENSION = 5000, 100_000, 10
CALLS = 4


def timed(call: Callable[[], object]) -> list[tuple[float, float]]:
    """Seconds by the wall and by the processor of some calls, the first of which compiles."""
    found = []
    for _ in range(CALLS):
        wall, processor = perf_counter(), process_time()
        call()
        found.append((perf_counter() - wall, process_time() - processor))
    return found


def measured() -> dict[str, list[tuple[float, float]]]:
    """Both ways to predict, each timed."""
    rng = np.random.default_rng(0)
    x, new = (rng.standard_normal((rows, DIMENSION)).astype(np.float32) for rows in (ROWS, NEW_ROWS))
    late = rng.random(ROWS) < 1.0 / (1.0 + np.exp(x[:, 1] - x[:, 0]))
    names = [f"x{k}" for k in range(DIMENSION)]
    table = {**dict(zip(names, x.T, strict=True)), "late": late}
    fit = lv.fit(table, f"late ~ {' + '.join(names)}", family="bernoulli", progress=False)
    columns = dict(zip(names, new.T, strict=True))

    def probability(theta: dict, row: jnp.ndarray) -> jnp.ndarray:
        coefficients = theta["coefficients"]
        return lv.sigmoid(coefficients[0] + row @ coefficients[1:])

    return {
        "fit.predict": timed(lambda: fit.predict(columns)),
        "result.expectation": timed(lambda: fit.expectation(probability, data=new)),
    }


if __name__ == "__main__":
    print(f"{NEW_ROWS:,} predictions of a logistic regression with {DIMENSION} predictors, seconds by wall (processor)")
    for name, seconds in measured().items():
        first, *rest = [f"{wall:.2f} ({processor:.2f})" for wall, processor in seconds]
        print(f"{name:20} first {first}   then {', '.join(rest)}")
