"""SGLD chains of several meshes on one Brownian path: how fast they approach the Langevin diffusion (section 5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from langevin.data.source import as_source
from langevin.data.subsample import Subsample
from langevin.engine.checks import checked_kernel, require, whole_number
from langevin.kernels import SGLD, Kernel
from langevin.target import Layout, Target
from langevin.theory._coupled import Floats, Grid, Group, Integers, Problem, PyTree

# Paths are worked through in groups whose states on the fine grid take up to 32 MB an array.
_GROUP_FLOATS = 2**22
_SGLD = SGLD()
# A step rounds the position by half an eps at most, and over the steps this adds up like a random walk; ample.
_ROUNDING = 8 * np.finfo(np.float64).eps


class Order(NamedTuple):
    """A fitted power of `rms_step`, and its standard error over the Brownian paths (NaN for a single path)."""

    value: float
    stderr: float

    def __str__(self) -> str:
        return "none" if np.isnan(self.value) else _with_error(self.value, self.stderr, ".3f", ".3f")


@dataclass(frozen=True, eq=False)
class DiffusionLimit:
    """Sup-norm distances of coupled chains to the diffusion; arrays over (meshes, paths), |.| is Euclidean.

    `mesh` is the largest step of each chain and `rms_step` its root mean square over time, sqrt(sum delta^3 / time);
    for equal steps they are one. `error_at_mesh` is max_k |theta_k - reference(T_k)|, `error_everywhere` the maximum
    over the whole fine grid of the chain's linear interpolation, `error_at_end` the vector at the last T_k; `rounding`
    is what rounding alone may make of an error, path by path. The last five fields are the first paths themselves: fine
    `times` with `brownian` and `reference` of shape (paths, times, d), and for each chain its T_k in `mesh_times` and
    theta_k in `chains`.

    Both orders are powers of `rms_step`: what the steps leave out are increments of martingales, which add up in mean
    square over time, so it is not the largest of decreasing steps that sets the error.

    Example:
        >>> import langevin as lv
        >>> found = diffusion_limit(lv.Target(lambda t: -0.5 * t**2), None, 1.0, time=2.0, meshes=[16, 32], paths=4)
        >>> found.mesh.tolist(), found.error_at_mesh.shape
        ([0.125, 0.0625], (2, 4))
    """

    num_steps: Integers
    mesh: Floats
    rms_step: Floats
    error_at_mesh: Floats
    error_everywhere: Floats
    error_at_end: Floats
    rounding: Floats
    times: Floats = field(repr=False)
    brownian: Floats = field(repr=False)
    reference: Floats = field(repr=False)
    mesh_times: tuple[Floats, ...] = field(repr=False)
    chains: tuple[Floats, ...] = field(repr=False)

    @property
    def order_at_mesh(self) -> Order:
        """p in error ~ rms_step^p at the chains' own times: 1 without gradient noise, 1/2 with it."""
        return self.order(self.error_at_mesh, self.rms_step, self.rounding)

    @property
    def order_everywhere(self) -> Order:
        """The same over all t: between mesh points a path strays by sqrt(delta log 1/delta), so a little below 1/2."""
        return self.order(self.error_everywhere, self.rms_step, self.rounding)

    @staticmethod
    def order(errors: Floats, steps: Floats, rounding: Floats | float = 0.0) -> Order:
        """Least squares on logarithms path by path: chains on one path are dependent, paths are not.

        NaN for a single mesh, and if an error does not exceed `rounding`.
        """
        if len(steps) < 2 or np.any(errors <= rounding):
            return Order(np.nan, np.nan)
        x = np.log(steps) - np.log(steps).mean()
        slopes = x @ np.log(errors) / (x @ x)
        return Order(float(slopes.mean()), _stderr(slopes))

    def __str__(self) -> str:
        paths = self.error_at_mesh.shape[1]
        equal = np.allclose(self.mesh, self.rms_step, rtol=1e-9)
        steps = {"mesh": self.mesh} if equal else {"mesh": self.mesh, "rms_step": self.rms_step}
        errors = {"at mesh points": self.error_at_mesh, "over all t": self.error_everywhere}
        who = "one Brownian path" if paths == 1 else f"mean of {paths} Brownian paths ± standard error"
        lines = [f"Sup-norm error on [0, {self.times[-1]:g}], {who}; order in {'the mesh' if equal else 'rms_step'}"]
        lines.append(_line("steps", steps, errors))
        for row, count in enumerate(self.num_steps):
            means = [_with_error(float(e[row].mean()), _stderr(e[row]), ".3g", ".1g") for e in errors.values()]
            lines.append(_line(count, [f"{step[row]:.4g}" for step in steps.values()], means))
        lines.append(_line("order", [""] * len(steps), [self.order_at_mesh, self.order_everywhere]))
        if len(self.mesh) < 2:
            return "\n".join([*lines, "No order: it takes two meshes."])
        lines += [
            f"No order {place}: errors at rounding level." for place, e in errors.items() if np.any(e <= self.rounding)
        ]
        return "\n".join(lines)


def diffusion_limit(
    target: Target,
    data: PyTree,
    theta_0: PyTree,
    *,
    time: float,
    meshes: Sequence[int],
    subsample: Subsample | None = None,
    alpha: float = 0.0,
    kernel: Any = _SGLD,
    paths: int = 64,
    refine: int = 16,
    keep_paths: int = 1,
    seed: int = 0,
) -> DiffusionLimit:
    """Chains on [0, time] with `meshes` numbers of steps, all driven by the same Brownian path W of each replicate.

        eta_k = (W(T_k) - W(T_{k-1})) / sqrt(delta_k),   delta_k = T_k - T_{k-1} proportional to k^-alpha

    go through `kernel.step` with the full gradient (`subsample` None) or with minibatches that are independent for each
    chain. The reference is plain SGLD with the full gradient on a grid of equal steps, `refine` times as many as the
    finest chain has; T_k are rounded to that grid, so that all chains share W exactly. All in float64.
    Cost: refine * max(meshes) * N datum visits a path, and memory for some paths at a time, whatever their number.

    Example:
        >>> import langevin as lv
        >>> target = lv.Target(lambda theta: -0.5 * theta**2)
        >>> result = diffusion_limit(target, None, 1.0, time=4.0, meshes=[32, 64, 128], paths=16)
        >>> abs(result.order_at_mesh.value - 1.0) < 0.1
        True
    """
    require(isinstance(target, Target), "target", target, "an lv.Target", "lv.Target(log_prior, log_likelihood)")
    kernel = checked_kernel(kernel)
    good = isinstance(kernel, Kernel) and kernel.noises == 1
    require(good, "kernel", kernel, "a kernel that takes gradients and steps", "lv.SGLD()")
    number = isinstance(time, (int, float, np.number)) and 0 < time < np.inf
    require(number, "time", time, "a positive finite number", "a few relaxation times of the posterior")
    number = isinstance(alpha, (int, float, np.number)) and 0 <= alpha < 1
    require(number, "alpha", alpha, "a number in [0, 1)", "1/3, or 0 for equal steps")
    counts = _checked_meshes(meshes)
    paths = whole_number("paths", paths, 1, try_this=64)
    refine = whole_number("refine", refine, 2, try_this=16)
    keep_paths = whole_number("keep_paths", keep_paths, 0, paths, try_this=1)
    seed = whole_number("seed", seed, 0, 2**64 - 1)
    layout = Layout.of(theta_0)
    source = None if data is None else as_source(data)
    grid = Grid(float(time), refine * max(counts))
    ends = [grid.ends(count, float(alpha)) for count in counts]
    with jax.enable_x64(True):
        problem = Problem.of(target, layout, source, subsample)
        start = np.asarray(layout.ravel(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), theta_0)))
        groups = [
            Group.run(problem, kernel, start, grid, counts, ends, numbers, keep_paths, seed)
            for numbers in _groups(paths, grid.cells * layout.size)
        ]
    result = _joined(groups, paths, keep_paths, counts, grid, ends)
    _check_finite(result)
    return result


def _groups(paths: int, floats: int) -> Iterator[Integers]:
    """Path numbers in groups of one size, so that they share a compilation; the last ones may exceed the paths."""
    count = -(-paths // max(1, _GROUP_FLOATS // floats))
    size = -(-paths // count)
    return (np.arange(first, first + size) for first in range(0, paths, size))


def _checked_meshes(meshes: Sequence[int]) -> list[int]:
    counts = np.asarray(meshes)
    good = counts.ndim == 1 and counts.size and counts.dtype.kind in "iu" and counts.min() > 0
    good = good and len(set(counts.tolist())) == counts.size and counts.max() < 2**31
    require(good, "meshes", meshes, "a list of distinct numbers of steps", "[32, 64, 128, 256]")
    return [int(count) for count in counts]


def _joined(
    groups: list[Group], paths: int, keep: int, counts: list[int], grid: Grid, ends: list[Integers]
) -> DiffusionLimit:
    """The paths of all groups, without those beyond the number asked for."""

    def errors(name: str) -> Floats:
        return np.concatenate([getattr(group, name) for group in groups], axis=1)[:, :paths]

    times: Floats = np.arange(grid.cells + 1, dtype=np.float64) * (grid.time / grid.cells)
    steps = [np.diff(times[end]) for end in ends]
    return DiffusionLimit(
        num_steps=np.array(counts),
        mesh=np.array([delta.max() for delta in steps]),
        rms_step=np.array([grid.time * np.sqrt(np.sum((delta / grid.time) ** 3)) for delta in steps]),
        error_at_mesh=errors("at_mesh"),
        error_everywhere=errors("everywhere"),
        error_at_end=errors("at_end"),
        rounding=_ROUNDING * np.sqrt(grid.cells) * np.concatenate([group.largest for group in groups])[:paths],
        times=times,
        brownian=np.concatenate([group.brownian for group in groups])[:keep],
        reference=np.concatenate([group.reference for group in groups])[:keep],
        mesh_times=tuple(times[end] for end in ends),
        chains=tuple(np.concatenate(parts)[:keep] for parts in zip(*(g.chains for g in groups), strict=True)),
    )


def _check_finite(result: DiffusionLimit) -> None:
    bad = ~np.isfinite(result.error_everywhere).all(axis=1)
    if bad.any():
        row = int(np.argmax(result.mesh * bad))
        raise ValueError(
            f"meshes must be fine enough for finite chains, got {result.num_steps[row]} steps of up to "
            f"{result.mesh[row]:.3g}, with which a chain or the reference left the finite numbers. Use more steps or a "
            f"shorter time, and start where the log density is finite."
        )


def _stderr(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else np.nan


def _with_error(value: float, stderr: float, form: str, error_form: str) -> str:
    """The value, and its standard error if there is one."""
    return f"{value:{form}}" + ("" if np.isnan(stderr) else f" ± {stderr:{error_form}}")


def _line(first: object, steps: Iterable[object], errors: Iterable[object]) -> str:
    return f"{first!s:>8}" + "".join(f"{cell!s:>12}" for cell in steps) + "".join(f"{cell!s:>24}" for cell in errors)
