"""The posterior of the flights by blackjax's NUTS on all the data, written without langevin: the demo's reference.

    python examples/flights_nuts.py        # about twenty minutes on one core; writes flights_reference.json

The sampler is given the curvature at the mode as its mass matrix and the mode as its start, which a user of NUTS would
have to find in a warm-up first. Float64, since a sum over 325,724 flights leaves float32 two digits of an energy.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

REFERENCE = Path(__file__).with_name("flights_reference.json")
# For 27 directions of unit length.
STEP = 0.7


def posterior(table: pd.DataFrame) -> tuple[Any, np.ndarray, list[str]]:
    """The log density of (intercept, slopes, log sd, effects of carriers), a start, and names as lv.fit has them."""
    columns = {name: table[name] for name in ("hour",)}
    columns["I(hour ** 2)"] = table.hour**2
    for name in ("distance", "summer", "spring", "weekend", "temperature", "humidity", "wind", "rain", "haze"):
        columns[name] = table[name]
    origins = sorted(table.origin.unique())
    columns |= {f"C(origin)[T.{one}]": table.origin == one for one in origins[1:]}
    x = np.column_stack([column.to_numpy(float) for column in columns.values()])
    y, centre, sd = table.late.to_numpy(float), x.mean(axis=0), x.std(axis=0)
    carriers = sorted(table.carrier.unique())
    # Columns of zeros and ones: adding up by index would take longer than all the rest of a gradient.
    own = np.column_stack([table.carrier == one for one in carriers])
    usual = (y.sum() + 0.5) / (len(y) + 1.0)
    link = np.log(usual / (1.0 - usual))
    design, sign, p = jnp.asarray(np.column_stack([x - centre, own])), jnp.asarray(2.0 * y - 1.0), x.shape[1]

    def log_density(theta: Any) -> Any:
        slopes, log_sd, effects = theta[1 : p + 1], theta[p + 1], theta[p + 2 :]
        level = theta[0] + centre @ slopes
        prior = -0.5 * ((level - link) / 2.5) ** 2 - 0.5 * jnp.sum((slopes * sd / 2.5) ** 2) + log_sd - jnp.exp(log_sd)
        between = -0.5 * jnp.sum(effects**2) * jnp.exp(-2.0 * log_sd) - len(carriers) * log_sd
        eta = level + design @ jnp.concatenate([slopes, effects])
        return prior + between + jnp.sum(jax.nn.log_sigmoid(sign * eta))

    start = np.zeros(p + 2 + len(carriers))
    # Effects of zero would draw their sd to zero, where the density has no bound.
    share = (table.groupby("carrier").late.sum() + 0.5) / (table.groupby("carrier").late.count() + 1.0)
    start[p + 2 :] = np.log(share / (1.0 - share))[carriers].to_numpy() - link
    start[0], start[p + 1] = link, np.log(start[p + 2 :].std())
    names = ["Intercept", *columns, "log sd(Intercept | carrier)", *(f"Intercept [carrier {one}]" for one in carriers)]
    return log_density, start, names


def nuts(table: pd.DataFrame, draws: int, seed: int = 0, seconds: float = np.inf) -> dict[str, Any]:
    """Means and sds with their Monte Carlo errors, the seconds of sampling, and the gradients taken."""
    with jax.enable_x64(True):
        log_density, theta, names = posterior(table)
        grad, hessian = jax.jit(jax.grad(log_density)), jax.jit(jax.hessian(log_density))
        for _ in range(30):
            move = np.linalg.solve(np.asarray(hessian(theta)), np.asarray(grad(theta)))
            theta = theta - move / max(1.0, 2.0 * np.abs(move).max())
        covariance = np.linalg.inv(-np.asarray(hessian(theta)))
        kernel = blackjax.nuts(log_density, step_size=STEP, inverse_mass_matrix=jnp.asarray(covariance))
        step, state = jax.jit(kernel.step), kernel.init(jnp.asarray(theta))
        key = jax.random.key(seed)
        state, _ = step(key, state)
        kept, gradients, began = [], 0, time.perf_counter()
        for k in range(draws):
            state, info = step(jax.random.fold_in(key, k + 1), state)
            kept.append(np.asarray(state.position))
            gradients += int(info.num_integration_steps)
            if time.perf_counter() - began > seconds:
                break
        spent = time.perf_counter() - began
    # The chain starts at the mode: what it takes to leave it is not counted.
    x = np.array(kept)[len(kept) // 20 :]
    centred = x - x.mean(axis=0)
    return {
        "names": names,
        "mean": x.mean(axis=0).tolist(),
        "sd": x.std(axis=0).tolist(),
        "mcse_mean": _error(x).tolist(),
        "mcse_sd": (_error(centred**2) / (2.0 * x.std(axis=0))).tolist(),
        "rows": len(table),
        "draws": len(x),
        "gradients": gradients,
        "seconds": spent,
    }


def _error(x: np.ndarray) -> np.ndarray:
    """Standard error of a mean from 30 batches."""
    batches = np.stack([part.mean(axis=0) for part in np.array_split(x, 30)])
    return batches.std(axis=0, ddof=1) / np.sqrt(len(batches))


def main() -> None:
    from flights_table import table

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=np.inf, help="stop with fewer draws after so long")
    parser.add_argument("--out", type=Path, default=REFERENCE)
    options = parser.parse_args()
    found = nuts(table()[0], options.draws, seconds=options.seconds)
    options.out.write_text(json.dumps(found, indent=1))
    print(f"{found['draws']} draws, {found['gradients']} gradients, {found['seconds']:.0f} s: {options.out}")


if __name__ == "__main__":
    main()
