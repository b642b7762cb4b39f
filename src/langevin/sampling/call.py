"""A call of `lv.sample`, checked: what was asked, and what tells it from another."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from langevin.data.source import DataSource, as_source
from langevin.engine.checks import read_chains, require, whole_number
from langevin.engine.manifest import Manifest
from langevin.sampling.budget import Budget
from langevin.target import Layout, Target

PyTree = Any
METHODS = ("auto", "minibatch", "exact")


@dataclass(frozen=True, eq=False)
class Call:
    """What was asked."""

    target: Target
    source: DataSource | None
    theta_0: PyTree
    budget: Budget
    method: str
    chains: np.ndarray
    seed: int

    @classmethod
    def checked(
        cls,
        target: Target,
        data: PyTree,
        theta_0: PyTree,
        *,
        passes: float | None,
        time_limit: float | None,
        precision: float | None,
        method: str,
        chains: int | Sequence[int],
        seed: int,
    ) -> "Call":
        """The arguments of `lv.sample`, or an error that names the first that will not do."""
        require(isinstance(target, Target), "target", target, "an lv.Target", "lv.Target(log_prior, log_likelihood)")
        budget = Budget.of(passes, time_limit, precision)
        require(method in METHODS, "method", method, f"one of {', '.join(METHODS)}", "'auto'")
        numbers = _in_pairs(read_chains(chains))
        seed = whole_number("seed", seed, 0, 2**64 - 1)
        return cls(target, None if data is None else as_source(data), theta_0, budget, method, numbers, seed)

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of `lv.sample`, but for target, data and theta_0."""
        return {**vars(self.budget), "method": self.method, "chains": tuple(self.chains.tolist()), "seed": self.seed}

    @cached_property
    def manifest(self) -> Manifest:
        """What a checkpoint compares."""
        layout = Layout.of(self.theta_0)
        self.target.check(self.theta_0, None if self.source is None else self.source.arrays)
        return Manifest.of(self.target, self.source, layout, layout.flat(self.theta_0), self.settings)


def _in_pairs(chains: np.ndarray) -> np.ndarray:
    """The chain numbers, if they are one or complete pairs 2k and 2k + 1."""
    pairs = np.unique(chains // 2, return_counts=True)[1]
    require(len(chains) == 1 or np.all(pairs == 2), "chains", chains.tolist(), "1 or even: they go in pairs", "4")
    return chains
