"""Checks of the arguments of `run`: each refusal names the argument, the value, the rule and a remedy."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from langevin.anchor import Anchor
from langevin.coordinates import Coordinates, Linear
from langevin.data.sharded import Sharded
from langevin.data.source import DataSource
from langevin.data.subsample import Subsample, WithReplacement
from langevin.engine.program import MOST_ROUNDS
from langevin.gradients import ControlVariate, CustomGradient, DatumGradient, StatefulGradient
from langevin.kernels import DensityKernel, Kernel
from langevin.kernels.protocol import Bare
from langevin.kernels.pytrees import as_pytree
from langevin.startup import compiled
from langevin.target import Layout, Target

PyTree = Any
_LONGEST_SHOWN = 120


def whole_number(name: str, value: Any, lowest: int, highest: int | None = None, try_this: int = 1) -> int:
    """`value` as an int within the bounds, or a ValueError that names the argument."""
    good = isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= lowest
    rule = f"an integer of at least {lowest}" + (f" and at most {highest}" if highest is not None else "")
    if isinstance(value, float) and value.is_integer() and value >= lowest:
        try_this = int(value)
    require(good and (highest is None or value <= highest), name, value, rule, str(try_this))
    return int(value)


def require(good: Any, name: str, value: Any, rule: str, remedy: str) -> None:
    """Raises the ValueError of an argument unless `good`."""
    if not good:
        raise ValueError(f"{name} must be {rule}, got {_shown(value)}. Try {name}={remedy}.")


def _shown(value: Any) -> str:
    """A value on one line, cut off where it is long: whole data sets are passed in the wrong place."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]} ..."


def check_start(target: Target, layout: Layout, theta_0: PyTree, source: DataSource | None) -> None:
    """Raises where no chain can start: the log density of the prior and one datum is not finite at theta_0."""
    datum = None if source is None else jax.tree.map(lambda leaf: leaf[0], source.slice(0, 1))
    theta = layout.flat(theta_0).astype(np.float32)
    value = float(_log_density_of_one(target, layout, theta, datum))
    if not np.isfinite(value):
        raise ValueError(
            f"theta_0 must have a finite log density, got {value} (log prior plus the first datum). "
            f"Start inside the support, and check the model for log(0) and 0/0."
        )


class Unresolved(ValueError):
    """float32 cannot resolve the posterior of the parameter at this place of the flat vector."""

    def __init__(self, message: str, place: int, mode: float, sd: float) -> None:
        super().__init__(message)
        self.place, self.mode, self.sd = place, mode, sd


def check_resolution(anchor: Anchor) -> None:
    """Raises where float32 cannot resolve the posterior: its spacing at the mode is 1e-3 of a posterior sd or more."""
    spacing = np.abs(anchor.theta) * 2.0**-23 / anchor.sd
    worst = int(np.argmax(spacing))
    if spacing[worst] > 1e-3:
        mode, sd = float(anchor.theta[worst]), float(anchor.sd[worst])
        raise Unresolved(
            f"{anchor.layout.names[worst]} must be resolved by float32, got a mode of {mode:.6g} with a posterior sd "
            f"of {sd:.3g}. Centre it: write it as a constant + theta, and take the constant off the data before they "
            f"are passed on, since float32 rounds it inside the model.",
            worst, mode, sd,
        )  # fmt: skip


@compiled(static_argnums=(0, 1))
def _log_density_of_one(target: Target, layout: Layout, theta: Any, datum: PyTree) -> Any:
    value = target.log_prior(layout.unravel(theta))
    return value if datum is None else value + target.log_likelihood(layout.unravel(theta), datum)


def read_chains(chains: int | Sequence[int]) -> np.ndarray:
    """The chain numbers that the user asked for: 0 ... k-1, or as listed."""
    if isinstance(chains, (int, np.integer)):
        return np.arange(whole_number("chains", chains, 1))
    numbers = np.asarray(chains)
    good = numbers.ndim == 1 and numbers.size and numbers.dtype.kind in "iu"
    good = good and numbers.min() >= 0 and numbers.max() < 2**32 and len(set(numbers.tolist())) == numbers.size
    require(good, "chains", chains, "a number or distinct chain numbers below 2^32", "4")
    return numbers.astype(np.int64)


def checked_kernel(kernel: Any) -> Kernel | DensityKernel:
    """The kernel; an object with `init` and `step` of its own is one of which nothing is known."""
    if isinstance(kernel, (Kernel, DensityKernel)):
        return kernel
    own = not isinstance(kernel, type) and callable(getattr(kernel, "init", None))
    require(own and callable(getattr(kernel, "step", None)), "kernel", kernel, "a kernel", "lv.SGLD()")
    return Bare(as_pytree(kernel))


def checked_coordinates(coordinates: Coordinates | None, shape: Layout, anchor: Anchor | None) -> Coordinates:
    """The coordinates to move in: theta itself, where nothing is said."""
    if coordinates is None:
        return Coordinates()
    good = isinstance(coordinates, Coordinates)
    require(good, "coordinates", coordinates, "lv.Whitened.by(anchor) or lv.Preconditioned.by(matrix)", "None")
    if isinstance(coordinates, Linear) and len(coordinates.centre) != shape.size:
        raise ValueError(
            f"coordinates must be of dimension {shape.size}, that of theta_0, got {len(coordinates.centre)}."
        )
    if coordinates.paired and anchor is None:
        raise ValueError(
            "coordinates=lv.Whitened.by(anchor) needs the anchor too, got None. Pass anchor=anchor beside it."
        )
    return coordinates


def check_anchor(anchor: Anchor | None, gradient: Any, shape: Layout) -> None:
    """Raises unless the anchors of the run and of its gradient are of this target."""
    remedy = "lv.laplace(target, data, theta_0)"
    require(anchor is None or isinstance(anchor, Anchor), "anchor", anchor, "an lv.Anchor", remedy)
    for used in (anchor, gradient.anchor if isinstance(gradient, ControlVariate) else None):
        if used is not None and used.layout != shape:
            raise ValueError(
                "anchor must be of the same target: its parameters differ from theta_0. Call lv.laplace anew."
            )


def checked_guard(guard: int, coordinates: Coordinates, subsample: Subsample | None) -> int:
    """The guard's number of minibatches, one where it has none."""
    guard = whole_number("guard", guard, 1, MOST_ROUNDS - 1, try_this=100)
    rule = "1 unless coordinates are whitened: the bulk is known there only"
    require(guard == 1 or coordinates.paired, "guard", guard, rule, "1")
    return guard if isinstance(subsample, WithReplacement) else 1


def checked_subsample(
    subsample: Subsample | None, gradient: Any, kernel: Any, source: DataSource | None
) -> Subsample | None:
    """The subsampler, if one is needed and fits; None where the data are not subsampled."""
    exact = isinstance(kernel, DensityKernel)
    custom = isinstance(gradient, CustomGradient)
    known = custom or isinstance(gradient, (DatumGradient, StatefulGradient))
    if isinstance(gradient, type) or not known:
        raise ValueError(
            f"gradient must be lv.Minibatch(), lv.ControlVariate(anchor), lv.SVRG(), lv.SAGA() or an object with draw, "
            f"estimate and cost, got {gradient!r}."
        )
    if source is None and isinstance(gradient, StatefulGradient):
        raise ValueError(f"gradient must be lv.Minibatch() for a target without data, got {gradient!r}.")
    if source is None or custom or exact:
        if subsample is not None:
            reason = "there are no data" if source is None else "an exact kernel sees all the data" if exact else (
                "the gradient brings its own randomness")  # fmt: skip
            raise ValueError(f"subsample must be None here, got {subsample!r}: {reason}.")
        return None
    require(
        isinstance(subsample, Subsample),
        "subsample",
        subsample,
        "a way to draw minibatches",
        "lv.WithoutReplacement(10)",
    )
    assert subsample is not None
    subsample.check(source.num_data)
    if isinstance(subsample, Sharded) and isinstance(gradient, StatefulGradient):
        rule = "None, in proportion to the sizes, for gradients that remember: they weigh all rows alike"
        require(not subsample.weighted, "probabilities", subsample.probabilities, rule, "None")
    return subsample
