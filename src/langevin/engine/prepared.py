"""A checked call: what a run is made from, here or in a worker."""

from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any

import numpy as np

from langevin.anchor import Anchor
from langevin.coordinates import Coordinates
from langevin.engine.evaluate import Parts
from langevin.engine.ledger import Column
from langevin.engine.manifest import Manifest
from langevin.engine.program import Program
from langevin.kernels import DensityKernel, Kernel
from langevin.schedules import Schedule


@dataclass(frozen=True)
class Prepared:
    """What is compiled, the arrays it runs on, and what the ledger needs to remember."""

    program: Program
    parts: Parts
    keys: dict[str, np.ndarray]
    starts: np.ndarray
    kernel: Kernel | DensityKernel
    coordinates: Coordinates
    schedule: Schedule
    weight_power: float
    chains: np.ndarray
    columns: dict[str, Column]
    anchor: Anchor | None
    cost_per_step: int
    guard: int
    keep: int
    host_source: Any
    short: bool
    manifest: Manifest
    # Those of `prepare` but for the target and the data: what a worker prepares its chains with.
    arguments: dict[str, Any]

    @property
    def rounds(self) -> tuple[int, ...]:
        """Minibatches of a step in the bulk, beyond it and in the far tail."""
        return (1, ceil(sqrt(self.guard)), self.guard)

    def of_chains(self, part: np.ndarray) -> dict[str, Any]:
        """The arguments with some of the chains, by position; they move as they would among the others."""
        starts = self.arguments.get("starts")
        return {
            **self.arguments,
            "chains": self.chains[part].tolist(),
            "layout": self.program.layout_kind,
            "starts": None if starts is None else starts[part],
        }
