"""`lv.sample` for models of many parameters: burn-in, pilot, and chains at two step sizes until the budget is spent."""

from dataclasses import replace
from time import monotonic
from typing import Any

from langevin.data.source import as_source
from langevin.engine.checks import read_chains, require, whole_number
from langevin.errors import Diverged
from langevin.limits import set_up, stop_requests
from langevin.networks.result import NetworkResult
from langevin.networks.settle import settle
from langevin.networks.store import DrawStore
from langevin.networks.walk import Walk
from langevin.sampling.budget import Budget
from langevin.target import Layout, Target

PyTree = Any
METHOD = "sghmc"
# Beyond so many parameters there is no dense curvature to lean on.
FROM_PARAMETERS = 5000
# Seconds of a call without a budget.
_PATIENCE = 60.0


def chosen(method: str, data: PyTree, theta_0: PyTree) -> bool:
    """Whether `lv.sample` goes this way: asked for, or too many parameters for a Gaussian model."""
    many = method == "auto" and data is not None and Layout.of(theta_0).size > FROM_PARAMETERS
    return method == METHOD or many


def sample_network(
    target: Target,
    data: PyTree,
    theta_0: PyTree,
    *,
    passes: float | None,
    time_limit: float | None,
    precision: float | None,
    chains: Any,
    seed: int,
) -> NetworkResult:
    """The run for the arguments of `lv.sample`; a `time_limit` holds for everything, passes for the sampling alone."""
    began = monotonic()
    require(isinstance(target, Target), "target", target, "an lv.Target", "lv.Target(log_prior, log_likelihood)")
    require(data is not None, "data", data, "given for method='sghmc'", "method='exact' without data")
    if precision is not None:
        raise ValueError(
            f"a budget for {Layout.of(theta_0).size:,} parameters must be passes or time_limit, got precision="
            f"{precision}: that is about every mean and sd, and here only predictions are known well. "
            f"Try time_limit=60 (seconds)."
        )
    budget = Budget(passes, _PATIENCE if passes is None and time_limit is None else time_limit).checked()
    count, seed = len(read_chains(chains)), whole_number("seed", seed, 0, 2**64 - 1)
    require(count >= 2, "chains", chains, "at least 2: they are compared with each other", "4")
    deadline = None if budget.time_limit is None else began + budget.time_limit
    with stop_requests():
        source = as_source(data)
        _ = source.fingerprint
        with set_up(deadline):
            settled = settle(target, source, theta_0, count, seed, deadline)
        store = DrawStore(2, count, Layout.of(theta_0).size)
        walk = Walk(target, source, theta_0, seed, settled, budget, store)
        try:
            return NetworkResult(walk.spend(budget, began))
        except Diverged:
            # Where the chains have come to since, the posterior bends more sharply than where the steps were measured.
            shorter = replace(settled, pair=replace(settled.pair, step=0.5 * settled.pair.step))
            return NetworkResult(replace(walk, settled=shorter).spend(budget, began))
