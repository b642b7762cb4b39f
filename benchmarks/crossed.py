"""Crossed effects under `lv.sample` in three forms: centred, in units of their sd, in units of what is known of them.

    python -m benchmarks.crossed gaussian known          # 20 x 15 levels, 600 rows; seconds, passes, log sds
    python -m benchmarks.crossed bernoulli centred --sds 0.5 0.1

A target written by hand, since `lv.fit` has the third form alone.
"""

import argparse
import time
from typing import Any

import jax.numpy as jnp
import numpy as np

import langevin as lv

LEVELS = (20, 15)
FORMS = ("centred", "sds", "known")


def simulated(family: str, rows: int, sds: tuple[float, float], seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    first, second = np.arange(rows) % LEVELS[0], np.arange(rows) // LEVELS[0] % LEVELS[1]
    x = rng.normal(size=rows)
    effects = [sd * rng.normal(size=size) for sd, size in zip(sds, LEVELS, strict=True)]
    eta = 0.3 + 0.5 * x + effects[0][first] + effects[1][second]
    y = eta + rng.normal(size=rows) if family == "gaussian" else 1.0 * (rng.random(rows) < 1 / (1 + np.exp(-eta)))
    return {"x": x, "y": y, "group": np.stack([first, second], axis=1).astype(np.int32)}


def posterior(data: dict[str, np.ndarray], family: str, form: str) -> tuple[lv.Target, dict[str, Any]]:
    """Target and start; the priors are those of `lv.fit`, but for the coefficients' N(0, 2.5^2)."""
    y, gaussian = data["y"], family == "gaussian"
    unit, of_a_row = (y.std(), y.std() ** -2.0) if gaussian else (1.0, y.mean() * (1 - y.mean()))
    counts = [np.bincount(own, minlength=size) for own, size in zip(data["group"].T, LEVELS, strict=True)]

    def scale(t: Any, k: int) -> Any:
        sd = jnp.exp(t["log_sd"][k])
        return {"centred": 1.0, "sds": sd, "known": sd / jnp.sqrt(1.0 + sd**2 * of_a_row * counts[k])}[form]

    def log_prior(t: Any) -> Any:
        log_sd = t["log_sd"] - np.log(unit)
        value = -0.5 * jnp.sum(t["beta"] ** 2) / 6.25 + jnp.sum(log_sd - jnp.exp(log_sd))
        for k in range(2):
            own = jnp.broadcast_to(scale(t, k) / jnp.exp(t["log_sd"][k]), (LEVELS[k],))
            value += jnp.sum(jnp.log(own) - 0.5 * (own * t["z"][k]) ** 2)
        return value + (t["log_sigma"] - jnp.exp(t["log_sigma"]) / unit if gaussian else 0.0)

    def log_likelihood(t: Any, row: Any) -> Any:
        eta = t["beta"][0] + t["beta"][1] * row["x"]
        for k in range(2):
            eta += jnp.sum(jnp.where(jnp.arange(LEVELS[k]) == row["group"][k], scale(t, k) * t["z"][k], 0.0))
        if gaussian:
            return -0.5 * ((row["y"] - eta) * jnp.exp(-t["log_sigma"])) ** 2 - t["log_sigma"]
        return lv.log_sigmoid((2.0 * row["y"] - 1.0) * eta)

    z, log_sd = [np.zeros(size) for size in LEVELS], np.full(2, -1.0)
    if form == "centred":
        # Effects of zero would draw their sd to zero, where the density has no bound.
        means = [np.bincount(own, y) / count for own, count in zip(data["group"].T, counts, strict=True)]
        z = [(mean - y.mean()) / (1.0 if gaussian else of_a_row) for mean in means]
        log_sd = np.log([one.std() for one in z])
    start = {"beta": np.zeros(2), "log_sd": log_sd, "z": z}
    return lv.Target(log_prior, log_likelihood), {**start, "log_sigma": 0.0} if gaussian else start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("family", choices=("gaussian", "bernoulli"))
    parser.add_argument("form", choices=FORMS)
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--sds", type=float, nargs=2, default=(0.7, 0.4))
    parser.add_argument("--seconds", type=float, default=60.0, help="at most")
    asked = parser.parse_args()
    data = simulated(asked.family, asked.rows, tuple(asked.sds))
    target, start = posterior(data, asked.family, asked.form)
    began = time.perf_counter()
    found = lv.sample(target, data, start, precision=0.1, time_limit=asked.seconds)
    seconds = time.perf_counter() - began
    print(
        f"{asked.family}, {asked.rows} rows, sds {asked.sds}, {asked.form}: {found.method}, {found.status}, "
        f"{seconds:.0f} s"
    )
    print(f"{found.passes:,.0f} passes, {found.setup_passes:,.0f} of set-up; log sds, their sds and those at the mode:")
    print(found.mean.value[2:4].round(2), found.sd.value[2:4].round(2), found.plan.anchor.theta[2:4].round(2))
    print("errors of the means over the sds", (found.mean.error / found.sd.value)[2:4].round(3))


if __name__ == "__main__":
    main()
