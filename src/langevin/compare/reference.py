"""What is true of each target: means, sds and 95% points, in closed form or stored with their errors.

    python -m langevin.compare.reference [TARGET ...]      # remakes the stored ones, in a checkout of the repository

Stored ones come from importance sampling (`benchmarks/references.py`), with quadrature in its place for means and sds
where d <= 3: no chain and no method of the table has a part in them. Predictions come from a long run of chains,
written apart from the library (`benchmarks/long_run.py`): nothing else reaches every mode of a network.
"""

import hashlib
import json
import sys
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy import special, stats

from langevin.compare.problem import Floats, Problem
from langevin.compare.targets import CAUCHY, COUNTS, EACH, TARGETS, WIDE, problem
from langevin.data.source import as_source
from langevin.models import LinearGaussian

FILE = Path(__file__).with_name("references.json")
LEVELS = (0.025, 0.975)
_MOST_VISITS = 2e9
# Of a chain; beyond this R-hat chains do not say the same.
_TRANSITIONS, _MOST_RHAT = 40_000, 1.01


@dataclass(frozen=True, eq=False)
class Reference:
    """Means, sds and points (2, d) of what is compared, how they were found, and the largest error in sds."""

    mean: Floats
    sd: Floats
    points: Floats
    how: str
    mean_error: float
    sd_error: float
    points_error: float


def reference(name: str) -> Reference:
    """The reference of a target; ValueError where the stored one belongs to other data."""
    if name in _CLOSED:
        return _CLOSED[name]()
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    if name not in stored:
        raise ValueError(f"{FILE.name} has no entry for {name}. Make it: python -m langevin.compare.reference {name}.")
    entry: dict[str, Any] = stored[name]
    if entry.pop("data") != digest(problem(name)):
        raise ValueError(
            f"{FILE.name} is stale: {name} has other data than its reference was computed for. Another version of "
            f"{', '.join(TARGETS[name].needs)}? Remake it: python -m langevin.compare.reference {name}."
        )
    fields: dict[str, Any] = {
        key: np.array(value) if isinstance(value, list) else value for key, value in entry.items()
    }
    return Reference(**fields)


def digest(one: Problem) -> str:
    """Of all the data, to the bit."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves((as_source(one.data).arrays, one.rows)):
        found.update(f"{leaf.shape} {leaf.dtype}".encode() + np.ascontiguousarray(leaf).tobytes())
    return found.hexdigest()[:16]


def _gaussian() -> Reference:
    model = LinearGaussian.simulate(seed=1)
    mean, sd = np.array([model.mu_p]), np.array([model.sigma_p])
    return Reference(mean, sd, mean + sd * special.ndtri(LEVELS)[:, None], "closed form", 0.0, 0.0, 0.0)


def _counts() -> Reference:
    """theta is the log of a Gamma variable: its mean is a digamma, its variance a trigamma function."""
    shape, rate = COUNTS + 0.5, EACH + 0.5
    points = np.log(stats.gamma(shape, scale=1.0 / rate).ppf(np.array(LEVELS)[:, None]))
    sd = np.sqrt(special.polygamma(1, shape))
    return Reference(special.digamma(shape) - np.log(rate), sd, points, "closed form", 0.0, 0.0, 0.0)


def _heavy() -> Reference:
    """Parameters are independent, each a sum over a fine grid in sinh(t), which reaches 1e4 sds."""
    t = np.linspace(-12.0, 12.0, 200_001)
    grid = np.sinh(t)
    y = CAUCHY.astype(np.float64)
    log_weight = -np.log1p((y[:, :, None] - grid) ** 2).sum(axis=1) - 0.5 * (grid / WIDE) ** 2 + np.log(np.cosh(t))
    weight = np.exp(log_weight)
    weight /= weight.sum(axis=1, keepdims=True)
    mean = weight @ grid
    sd = np.sqrt((weight * (grid - mean[:, None]) ** 2).sum(axis=1))
    below = np.cumsum(weight, axis=1) - 0.5 * weight
    points = np.stack([np.interp(LEVELS, below[k], grid) for k in range(len(y))], axis=1)
    return Reference(mean, sd, points, "quadrature", 1e-6, 1e-6, 1e-6)


_CLOSED = {"gaussian": _gaussian, "counts": _counts, "heavy": _heavy}


def compute(name: str) -> dict[str, Any]:
    """The entry of a target."""
    found = _by_weights(name) if problem(name).predict is None else _by_chains(name)
    return asdict(found) | {"data": digest(problem(name))}


def _by_weights(name: str) -> Reference:
    # Development code of the repository, which an installed package does not have.
    references = import_module("benchmarks.references")
    # A group of the mixed model costs as much as a hundred rows.
    references.__dict__["DATUM_VISITS"] = _MOST_VISITS / (100.0 if name == "mixed" else 1.0)
    made = references.compute(problem(name))
    levels = import_module("benchmarks.importance").LEVELS
    chosen = [levels.index(level) for level in LEVELS]
    return Reference(
        mean=made.mean,
        sd=made.sd,
        points=made.quantiles[chosen],
        how=f"{made.method}, effective share {made.ess:.2f}",
        mean_error=float(np.max(made.mean_stderr / made.sd)),
        sd_error=float(np.max(made.sd_stderr / made.sd)),
        points_error=float(np.max(made.quantiles_stderr[chosen] / made.sd)),
    )


def _by_chains(name: str) -> Reference:
    made = import_module("benchmarks.long_run").long_run(problem(name), _TRANSITIONS)
    if not made.r_hat < _MOST_RHAT:
        raise ArithmeticError(f"the chains of {name} have not met: R-hat {made.r_hat:.3f}")
    return Reference(
        mean=made.mean,
        sd=made.sd,
        points=made.points,
        how=f"{made.chains} chains of Hamiltonian Monte Carlo from the prior, {made.draws:,} draws in all, largest "
        f"R-hat {made.r_hat:.4f}",
        mean_error=float(np.max(made.mean_stderr / made.sd)),
        sd_error=float(np.max(made.sd_stderr / made.sd)),
        points_error=float(np.max(made.points_stderr / made.sd)),
    )


def main() -> None:
    """Computes, prints and stores the entries of the targets named, or of all that have no closed form."""
    stored = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    for name in sys.argv[1:] or [name for name in TARGETS if name not in _CLOSED]:
        stored[name] = compute(name)
        errors = ", ".join(f"{stored[name][f'{part}_error']:.1e}" for part in ("mean", "sd", "points"))
        print(f"{name}: {stored[name]['how']}; largest errors of means, sds, points in sds: {errors}", flush=True)
        FILE.write_text(json.dumps(stored, indent=1, default=np.ndarray.tolist) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
