"""One posterior and one method in a process of its own: a line of JSON a seed, as each is done.

python -m benchmarks.reach.worker kidiq-kidscore_momiq langevin 0 1 2

Seconds run from the call to means and sds in hand, compilation included, imports and reading the data not.
"""

import argparse
import json
from collections.abc import Callable
from time import monotonic, process_time
from typing import Any

import jax
import numpy as np

import langevin as lv
from benchmarks.reach.nuts import moments, r_hat, rounds
from benchmarks.reach.posteriors import Posterior, posterior
from benchmarks.reach.verdicts import PRECISION, halfwidths

CHAINS, MOST_SECONDS, MOST_R_HAT = 4, 60.0, 1.01


def langevin(one: Posterior, seed: int) -> dict[str, Any]:
    """What a user gets who asks for a precision and nothing else."""
    result = lv.sample(one.target, one.data, one.theta_0, precision=PRECISION, seed=seed)
    mean, sd = result.mean, result.sd
    values = {"mean": mean.value, "sd": sd.value, "mean_stderr": mean.stderr, "sd_stderr": sd.stderr}
    return {"status": result.status, **values}


def nuts(one: Posterior, seed: int) -> dict[str, Any]:
    """NUTS until its own errors say that the same precision is reached, or its minute of processor time is over."""
    began = process_time()
    blocks: list[np.ndarray] = []
    for block in rounds(one.log_density, one.flattened(one.theta_0, 0), CHAINS, seed):
        blocks.append(block)
        draws = np.concatenate(blocks, axis=1)
        found: dict[str, Any] = moments(draws, (draws - draws.mean(axis=(0, 1))) ** 2)
        if np.all(halfwidths(found) <= PRECISION):
            return {"status": "ok" if r_hat(draws) < MOST_R_HAT else "r_hat", **found}
        if process_time() - began > MOST_SECONDS:
            return {"status": "out_of_time", **found}
    raise AssertionError("rounds have no end")


METHODS: dict[str, Callable[[Posterior, int], dict[str, Any]]] = {"langevin": langevin, "nuts": nuts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("posterior")
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("seeds", type=int, nargs="+")
    given = parser.parse_args()
    one = posterior(given.posterior)
    jax.config.update("jax_enable_x64", one.double)
    for seed in given.seeds:
        began, cpu = monotonic(), process_time()
        try:
            found = METHODS[given.method](one, seed)
        except Exception as error:  # whatever it is, it is what the user would have got
            found = {"status": type(error).__name__, "message": str(error)}
        found |= {"seed": seed, "seconds": monotonic() - began, "cpu_seconds": process_time() - cpu}
        print(json.dumps(found, default=np.ndarray.tolist), flush=True)


if __name__ == "__main__":
    main()
