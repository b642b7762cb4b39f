"""What a run is made of: the one description that resuming, stacking and loading compare, name by name."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np

from langevin.data.source import DataSource
from langevin.engine.describe import Words, describe
from langevin.precision import for_float32
from langevin.startup import compiled
from langevin.target import Layout, Target

PyTree = Any
# Rows at which a target is recognised, how many at once, and how well another machine must reproduce their slopes.
_PROBE_ROWS, _AT_ONCE, _PROBE_TOLERANCE = 4096, 64, 1e-3
# Goes up with every change that moves a bit of a run (those under *Numerics* in the CHANGELOG).
_NUMERICS = 4


class Probe(NamedTuple):
    """What tells targets apart, and what a file remembers of one.

    `slopes`, at two points: gradients of the log prior, and of each row that was looked at the slope of its log
    likelihood in one direction. A sum over rows would hide the few that differ.
    """

    slopes: tuple[np.ndarray, ...]
    code: Words

    def fits(self, other: "Probe") -> bool:
        """Whether both are of one target, written and compiled in whatever way."""
        return all(_close(mine, theirs) for mine, theirs in zip(self.slopes, other.slopes, strict=True))


@dataclass(frozen=True, eq=False)
class Manifest:
    """Target and data (or what a file remembers of them), two points, and every other part by its name.

    Sums are relative to the `reference`; `beside` it, at another point, targets are told apart as well.
    """

    target: Any
    data: Any
    layout: Layout
    reference: np.ndarray
    beside: np.ndarray
    parts: Mapping[str, Any]

    @classmethod
    def of(
        cls, target: Target, data: DataSource | None, layout: Layout, reference: np.ndarray, parts: Mapping[str, Any]
    ) -> "Manifest":
        """That of a call in this process."""
        anchor, reference = parts.get("anchor"), reference.astype(np.float64)
        # At the mode two priors of different width have the same gradient: beside it they have not.
        beside = reference + (0.1 * (1.0 + np.abs(reference)) if anchor is None else anchor.sd)
        versions = f"numerics {_NUMERICS} on jax {jax.__version__}, {jax.default_backend()}"
        return cls(target, data, layout, reference, beside, {"versions": versions, **parts})

    def difference(self, other: "Manifest", but: Iterable[str] = ()) -> str | None:
        """The first thing that differs, in words; None if the two belong together. `but` names what may differ."""
        if self.layout != other.layout:
            return f"the parameters are {_listed(self.layout)} and {_listed(other.layout)}"
        if self.parts.keys() != other.parts.keys():
            return "they are calls of two functions, lv.run and lv.sample"
        for name, value in self.parts.items():
            if name not in but and not _same(value, other.parts[name]):
                return f"{name} is {value!r} and {other.parts[name]!r}"
        if not np.array_equal(self.reference, other.reference):
            return f"the reference point of the sums is {_point(self.reference)} and {_point(other.reference)}"
        if self.data is not other.data and fingerprint(self.data) != fingerprint(other.data):
            return f"the data are {_described(self.data)} and {_described(other.data)}"
        if not self._same_target(other):
            return "the target's gradient differs: another prior, likelihood or meaning of theta"
        return None

    def _same_target(self, other: "Manifest") -> bool:
        if isinstance(self.target, Target) and isinstance(other.target, Target) and self.target == other.target:
            return True
        mine, theirs = self.probe(), other.probe()
        if len(mine.slopes) != len(theirs.slopes) or not mine.fits(theirs):
            return False
        leaves, silent = fingerprint(self.data), len(mine.slopes) == 1
        num_data = 0 if leaves is None or silent else leaves[0][0][0]
        if num_data > _PROBE_ROWS and mine.code != theirs.code:
            warnings.warn(
                f"the target's functions are not written as they were. They agree at {_PROBE_ROWS:,} of {num_data:,} "
                f"rows, and no other was looked at: if the model has changed, start a new run.",
                RuntimeWarning,
                stacklevel=2,
            )
        return True

    def probe(self) -> Probe:
        """The target at two points and some rows, evenly spread over the data; all rows where these are few."""
        if not isinstance(self.target, Target):
            return self.target
        silent = self.data is None or self.target.log_likelihood is None
        rows = None if silent else self.data.take(_spread(self.data.num_data))
        points = np.stack([self.reference, self.beside]).astype(np.float32)
        # Every parameter counts, in units of what is far for it.
        direction = ((self.beside - self.reference) * np.cos(np.arange(self.layout.size))).astype(np.float32)
        narrow = for_float32(self.target)
        with jax.enable_x64(False):
            found = [_probe(narrow, self.layout, point, direction, rows) for point in points]
        slopes = tuple(np.nan_to_num(np.stack(pair), posinf=0.0, neginf=0.0) for pair in zip(*found, strict=True))
        return Probe(slopes, Words(describe(self.target)))

    @cached_property
    def remembered(self) -> "Manifest":
        """The same as a file can hold it: the target's probe, the data's fingerprint, all else in words."""
        parts = {name: Words(describe(part)) for name, part in self.parts.items()}
        return Manifest(self.probe(), fingerprint(self.data), self.layout, self.reference, self.beside, parts)


def _same(part: Any, other: Any) -> bool:
    # Functions have no equality of their own, and a file holds words.
    return bool(part is other or part == other) or describe(part) == describe(other)


def fingerprint(data: Any) -> tuple | None:
    """What tells these data from others; a fingerprint stays what it is."""
    return data if data is None or isinstance(data, tuple) else data.fingerprint


def _spread(num_data: int) -> np.ndarray:
    return np.unique(np.linspace(0, num_data - 1, _PROBE_ROWS).astype(np.int64))


def _close(mine: np.ndarray, theirs: np.ndarray) -> bool:
    """Whether slopes agree but for rounding: each to its own size, or where terms cancel to that of all."""
    size = np.abs(mine)
    return bool(np.all(np.abs(mine - theirs) <= _PROBE_TOLERANCE * (size + size.mean(axis=1, keepdims=True))))


@compiled(static_argnums=(0, 1))
def _probe(
    target: Target, layout: Layout, theta: jax.Array, direction: jax.Array, rows: PyTree
) -> tuple[jax.Array, ...]:
    prior = jax.grad(lambda t: target.log_prior(layout.unravel(t)))(theta)
    if rows is None:
        return (prior,)

    def slope(row: PyTree) -> jax.Array:
        return jax.grad(lambda t: target.log_likelihood(layout.unravel(t), row))(theta) @ direction

    return prior, jax.lax.map(slope, rows, batch_size=_AT_ONCE)


def _listed(layout: Layout) -> str:
    more = ", ..." if len(layout.names) > 4 else ""
    return f"{', '.join(layout.names[:4])}{more} ({layout.size} in all)"


def _point(theta: np.ndarray) -> str:
    return f"({', '.join(f'{value:.6g}' for value in theta[:4])}{', ...' if len(theta) > 4 else ''})"


def _described(data: DataSource | tuple | None) -> str:
    """Data in words, their checksums included: shapes alone may agree."""
    found = fingerprint(data)
    if found is None:
        return "none"
    return "arrays " + ", ".join(f"{dtype} {shape} (checksum {crc:08x})" for shape, dtype, crc in found)
