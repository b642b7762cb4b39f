"""Posterior means and sds on the unconstrained scale with their Monte Carlo errors, and a check of every port.

    python -m benchmarks.reach.references --posteriordb PATH          # remakes references.json
    python -m benchmarks.reach.references garch-garch11               # its entry only

From posteriordb's reference draws, ten thousand of ten chains; where it has none, from a long run of NUTS in float64.
The draws know nothing of the ports. So two identities, true of every smooth density, test each port on them, parameter
by parameter: E[d_i log pi] = 0 and E[(theta_i - c_i) d_i log pi] = -1. `scores` are these averages, less what they
should be, in standard errors.
"""

import argparse
import json
import os
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from benchmarks.reach import database
from benchmarks.reach.nuts import moments, r_hat, rounds, stderr
from benchmarks.reach.posteriors import Posterior, catalogue, posterior
from langevin.target import Layout

FILE = Path(__file__).with_name("references.json")
# About 450 scores a file: one beyond five by chance in four thousand files.
MOST_SCORE = 5.0
OWN_CHAINS, OWN_ROUNDS, MOST_R_HAT = 8, 20, 1.005

Floats = NDArray[np.float64]


def reference_draws(one: Posterior) -> tuple[Floats, str]:
    """Draws (chains, M, d) of the flat theta, and where they come from."""
    if one.draws is not None:
        draws = one.flattened(one.unconstrained(database.draws(one.draws)), 2)
        return draws, f"posteriordb {database.COMMIT}, {one.draws}"
    with jax.enable_x64(True):
        blocks = rounds(one.log_density, one.flattened(one.theta_0, 0), OWN_CHAINS, seed=0)
        found = np.concatenate(list(islice(blocks, OWN_ROUNDS)), axis=1)
    return found, f"NUTS of blackjax in float64, {OWN_CHAINS} chains of {found.shape[1]} draws"


def images(one: Posterior, draws: Floats) -> Floats:
    """The draws and, where the posterior has a mirror image, their images: (images, chains, M, d)."""
    if one.swap is None:
        return draws[None]
    layout = Layout.of(one.theta_0)
    rows = draws.reshape(-1, draws.shape[-1])
    swapped = jax.vmap(lambda flat: layout.ravel(one.swap(layout.unravel(flat))))
    with jax.enable_x64(True):
        return np.stack([draws, np.asarray(swapped(rows)).reshape(draws.shape)])


def scores(one: Posterior, draws: Floats) -> dict[str, Floats]:
    """How far each port is from the density of its draws, in standard errors. Cost: a gradient a draw, in float64."""
    with jax.enable_x64(True):
        gradient = jax.jit(lambda flat: jax.lax.map(jax.grad(one.log_density), flat, batch_size=100))
        grads = np.asarray(gradient(draws.reshape(-1, draws.shape[-1]))).reshape(draws.shape)
    virial = 1.0 + (draws - draws.mean(axis=(0, 1))) * grads
    return {
        kind: values.mean(axis=(0, 1)) / stderr(values) for kind, values in (("gradient", grads), ("virial", virial))
    }


def compute(one: Posterior) -> dict[str, Any]:
    """The entry of a posterior."""
    draws, source = reference_draws(one)
    copies = images(one, draws)
    first, centre = copies.mean(axis=0), copies.mean(axis=(0, 1, 2))
    second = ((copies - centre) ** 2).mean(axis=0)
    mixing = r_hat(np.concatenate([first, second], axis=-1))
    found = moments(first, second)
    return {
        "source": source,
        "r_hat": mixing,
        "names": list(one.names),
        **found,
        "scores": scores(one, draws),
        "log_density": probe(one, found["mean"], found["sd"]),
    }


def probe(one: Posterior, mean: Floats, sd: Floats) -> float:
    """The log density one sd off the mean: it changes with the data, the prior and the likelihood."""
    with jax.enable_x64(True):
        return float(one.log_density(mean + sd))


def reference(name: str) -> dict[str, Any]:
    """The stored entry of a posterior, checked against its port and data. Cost: one log density."""
    stored = json.loads(FILE.read_text())
    if name not in stored:
        raise ValueError(
            f"{FILE.name} has no reference for {name!r}. Run python -m benchmarks.reach.references {name}."
        )
    # By name: where a parameter lies in the flat vector is the port's affair.
    one, entry = posterior(name), stored[name]
    places = [entry["names"].index(parameter) for parameter in one.names]
    entry |= {key: np.array(entry[key])[places] for key in MOMENTS} | {"names": list(one.names)}
    if not np.isclose(probe(one, entry["mean"], entry["sd"]), entry["log_density"], 1e-9, 0.0):
        raise ValueError(
            f"{FILE.name} is stale: {name!r} is no longer the posterior that its reference was computed for. "
            f"Run python -m benchmarks.reach.references {name}."
        )
    return entry


MOMENTS = ("mean", "sd", "mean_stderr", "sd_stderr")


def main() -> None:
    """Computes, prints and writes the entries of the posteriors named, or of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("posteriors", nargs="*", help="names; all if none is given")
    parser.add_argument("--posteriordb", help=f"a checkout of posteriordb; else the variable {database.VARIABLE}")
    given = parser.parse_args()
    if given.posteriordb is not None:
        os.environ[database.VARIABLE] = given.posteriordb
    stored = json.loads(FILE.read_text()) if given.posteriors else {}
    print("posterior | d, R-hat | stderr of mean, sd in sds | largest score: gradient, virial")
    for name in given.posteriors if given.posteriors else catalogue():
        entry = compute(posterior(name))
        worst = [float(np.max(np.abs(entry["scores"][kind]))) for kind in ("gradient", "virial")]
        errors = [float(np.max(entry[kind] / entry["sd"])) for kind in ("mean_stderr", "sd_stderr")]
        print(f"{name:55s} {len(entry['names']):3d} {entry['r_hat']:.4f}", *(f"{x:.4f}" for x in errors), end="  ")
        print(*(f"{x:.2f}" for x in worst), flush=True)
        if max(worst) > MOST_SCORE:
            raise RuntimeError(f"the port of {name!r} is not the posterior of its draws: a score is {max(worst):.1f}.")
        if entry["r_hat"] > (MOST_R_HAT if posterior(name).draws is None else 1.01):
            raise RuntimeError(f"the draws of {name!r} do not agree: R-hat is {entry['r_hat']:.4f}.")
        stored[name] = entry
        FILE.write_text(json.dumps(stored, indent=1, default=np.ndarray.tolist) + "\n")


if __name__ == "__main__":
    main()
