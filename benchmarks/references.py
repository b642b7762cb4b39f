"""Posterior means, sds and quantiles of every target in the catalogue, with errors that a run cannot see.

    python -m benchmarks.references            # remakes references.json
    python -m benchmarks.references poisson    # its entry only

Importance sampling everywhere, quadrature in its place where d <= 3. Nothing here stands on `lv.laplace` or on a
chain, which are what the references judge: the mode is found anew, and the answer does not depend on it.
"""

import hashlib
import json
import sys
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import langevin as lv
from benchmarks.importance import Floats, Moments, importance
from benchmarks.targets import Problem, catalogue, problem
from langevin.data.source import as_source
from langevin.models import posterior_moments
from langevin.precision import isolated
from langevin.target import Layout

FILE = Path(__file__).with_name("references.json")
PAIRS = 2**19
DATUM_VISITS = 8e9  # the most that one target may cost: three minutes on one core, for a hundred thousand data
# Rules laid 1.3 times wider than the Laplace approximation reach the long tail of a variance component as well.
QUADRATURE_ERROR, QUADRATURE_WIDTH = 1e-7, 1.3


@dataclass(frozen=True, eq=False)
class Reference(Moments):
    """Moments of a target, the Laplace approximation beside them, how they were found and in how many seconds."""

    mode: Floats
    laplace_sd: Floats
    method: str
    seconds: float

    @property
    def probe(self) -> Floats:
        """Where the log density is remembered: off the mode, so that a changed prior shows."""
        return self.mode + self.laplace_sd


class Density:
    """Log density of a problem and its mode in float64, for arrays of flat parameters. Cost: N datum visits a row."""

    def __init__(self, one: Problem) -> None:
        self.layout = Layout.of(one.theta_0)
        self.start = np.concatenate([np.ravel(np.asarray(x, np.float64)) for x in jax.tree.leaves(one.theta_0)])
        self.target = lv.Target(isolated(one.target.log_prior), isolated(one.target.log_likelihood))
        source = as_source(one.data)
        self.num_data = source.num_data
        self.data = jax.tree.map(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, source.arrays)

    def __call__(self, thetas: Floats) -> Floats:
        with jax.enable_x64(True):
            return np.asarray(_log_densities(self.target, self.layout, self.num_data, thetas, self.data))

    def laplace(self) -> tuple[Floats, Floats]:
        """Mode and Laplace covariance by damped Newton steps, indifferent to the parameters' units."""
        theta, value = self.start, float(self(self.start[None])[0])
        for _ in range(200):
            with jax.enable_x64(True):
                grad, hessian = map(np.asarray, _derivatives(self.target, self.layout, theta, self.data))
            units = np.abs(np.diag(hessian)) ** -0.5
            curvatures, axes = np.linalg.eigh(-hessian * np.outer(units, units))
            step = units * (axes @ ((axes.T @ (units * grad)) / np.maximum(np.abs(curvatures), 1e-3)))
            decrement, scale = float(grad @ step), 1.0
            if decrement < 1e-14:
                return theta, np.outer(units, units) * (axes / curvatures @ axes.T)
            while decrement > 1e-8 and self((theta + scale * step)[None])[0] < value:
                scale /= 2
            theta = theta + scale * step
            value = float(self(theta[None])[0])
        raise RuntimeError(f"no mode within 200 Newton steps: |theta| is {np.linalg.norm(theta):.3g}.")


@partial(jax.jit, static_argnums=(0, 1, 2))
def _log_densities(target: lv.Target, layout: Layout, num_data: int, thetas: Any, data: Any) -> Any:
    # 2^18 intermediate numbers at a time stay in the cache.
    rows = max(1, 2**18 // num_data)
    return jax.lax.map(lambda t: target.log_density(layout.unravel(t), data), thetas, batch_size=rows)


@partial(jax.jit, static_argnums=(0, 1))
def _derivatives(target: lv.Target, layout: Layout, theta: Any, data: Any) -> tuple:
    def value(t: Any) -> Any:
        return target.log_density(layout.unravel(t), data)

    return jax.grad(value)(theta), jax.hessian(value)(theta)


def compute(one: Problem, seed: int = 0) -> Reference:
    """The reference of a problem: quadrature where d <= 3, else importance sampling. Prints how well the two agree."""
    start, method = time.perf_counter(), "importance"
    density = Density(one)
    mode, covariance = density.laplace()
    pairs = int(min(PAIRS, DATUM_VISITS / density.num_data / 2))
    pilot = importance(density, mode, covariance, pairs // 8, seed)
    # Centred and scaled as the pilot says, the proposal halves the error or better where the posterior is skewed.
    laplace_sd = np.sqrt(np.diag(covariance))
    ratio = pilot.sd / laplace_sd
    found = importance(density, pilot.mean, covariance * np.outer(ratio, ratio), pairs, seed + 1)
    if len(mode) <= 3:
        exact = posterior_moments(density, mode, QUADRATURE_WIDTH**2 * covariance, QUADRATURE_ERROR)
        z = np.concatenate([(found.mean - exact.mean) / found.mean_stderr, (found.sd - exact.sd) / found.sd_stderr])
        print(f"    importance sampling against quadrature: largest |z| {np.max(np.abs(z)):.2f} of {len(z)}")
        error = exact.error * exact.sd
        sharper = {"mean": exact.mean, "sd": exact.sd, "mean_stderr": error, "sd_stderr": error}
        method, found = "quadrature", replace(found, **sharper)
    seconds = round(time.perf_counter() - start, 1)
    values = asdict(found) | {"laplace_ess": pilot.laplace_ess}
    return Reference(**values, mode=mode, laplace_sd=laplace_sd, method=method, seconds=seconds)


def fingerprint(one: Problem, theta: Floats) -> dict[str, Any]:
    """What ties a reference to its posterior: the names, a digest of all the data, the log density at theta."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(as_source(one.data).arrays):
        digest.update(f"{leaf.shape} {leaf.dtype}".encode() + np.ascontiguousarray(leaf).tobytes())
    return {"names": list(one.names), "data": digest.hexdigest(), "log_density": float(Density(one)(theta[None])[0])}


def check(name: str, one: Problem, entry: dict[str, Any]) -> Reference:
    """A stored entry as a Reference; ValueError when it was made for other data, another prior or likelihood."""
    fields: dict[str, Any] = {k: np.array(v) if isinstance(v, list) else v for k, v in entry.items()}
    then = fields.pop("fingerprint")
    found = Reference(**fields)
    now = fingerprint(one, found.probe) if list(one.names) == then["names"] else {}
    if now.get("data") != then["data"] or not np.isclose(now["log_density"], then["log_density"], 1e-9, 0.0):
        raise ValueError(
            f"{FILE.name} is stale: {name!r} is no longer the posterior that its reference was computed for. "
            f"Run python -m benchmarks.references."
        )
    return found


def reference(name: str) -> Reference:
    """The stored reference of a target, checked. Cost: one log density and a second of compilation."""
    one, stored = problem(name), json.loads(FILE.read_text())
    if name not in stored:
        raise ValueError(f"{FILE.name} has no reference for {name!r}. Run python -m benchmarks.references.")
    return check(name, one, stored[name])


def line(name: str, found: Reference) -> str:
    """One line of the table: cost, accuracy and departure from the Laplace approximation."""
    shift = np.max(np.abs(found.mean - found.mode) / found.laplace_sd)
    ratio = found.sd / found.laplace_sd
    mean_error, sd_error = np.max(found.mean_stderr / found.sd), np.max(found.sd_stderr / found.sd)
    return (
        f"{name:18s} {problem(name).num_data:6d} {len(found.mean):3d} {found.method:10s} {found.seconds:5.0f} s  "
        f"{found.ess:.3f} {found.laplace_ess:.3f}  {mean_error:.1e} {sd_error:.1e}  {shift:.3f} "
        f"{ratio.min():.3f}-{ratio.max():.3f}"
    )


def main() -> None:
    """Computes, prints and writes the entries of the targets named, or of all."""
    chosen = sys.argv[1:] if len(sys.argv) > 1 else catalogue() + catalogue(real=True)
    stored = json.loads(FILE.read_text()) if len(sys.argv) > 1 else {}
    print("target N d method seconds | ess, of Laplace draws | stderr of mean, sd in sds | shift, sd over Laplace")
    for name in chosen:
        found = compute(problem(name))
        print(line(name, found), flush=True)
        stored[name] = asdict(found) | {"fingerprint": fingerprint(problem(name), found.probe)}
    FILE.write_text(json.dumps(stored, indent=1, default=np.ndarray.tolist) + "\n")


if __name__ == "__main__":
    main()
