"""`lv.sample` for models of many parameters: burn-in, pilot, and chains at two step sizes until the budget is spent."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from langevin.data.files import path_of
from langevin.data.source import DataSource, as_source
from langevin.engine.checks import read_chains, require, whole_number
from langevin.engine.manifest import Manifest
from langevin.errors import Diverged
from langevin.kernels.momentum import MomentumState
from langevin.limits import set_up, stop_requests
from langevin.networks.levels import Pair
from langevin.networks.result import NetworkResult
from langevin.networks.settle import Settled, settle
from langevin.networks.store import DrawStore
from langevin.networks.walk import Walk
from langevin.sampling.budget import Budget
from langevin.saving.journal import CALL, Journal, journal
from langevin.saving.packing import storable
from langevin.target import Layout, Target

PyTree = Any
storable(Budget, MomentumState, Pair, Settled)
METHOD, NETWORK = "sghmc", "network"
_DIVERGED = "divergence of the first chains"
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
    checkpoint: str | Path | None = None,
) -> NetworkResult:
    """The run for the arguments of `lv.sample`; a `time_limit` holds for everything, passes for the sampling alone."""
    began = monotonic()
    require(isinstance(target, Target), "target", target, "an lv.Target", "lv.Target(log_prior, log_likelihood)")
    if data is None:
        raise ValueError(
            "data must be given for method='sghmc', which goes through them in minibatches, got None. Pass the "
            "observations; a target without data is for method='exact'."
        )
    if precision is not None:
        raise ValueError(
            f"a budget for {Layout.of(theta_0).size:,} parameters must be passes or time_limit, got precision="
            f"{precision}: that is about every mean and sd, and here only predictions are known well. "
            f"Try time_limit=60 (seconds)."
        )
    budget = Budget(passes, _PATIENCE if passes is None and time_limit is None else time_limit).checked()
    numbers, seed = read_chains(chains), whole_number("seed", seed, 0, 2**64 - 1)
    count = len(numbers)
    require(count >= 2, "chains", chains, "at least 2: they are compared with each other", "4")
    settings = {**vars(budget), "method": METHOD, "chains": tuple(numbers.tolist()), "seed": seed}
    with stop_requests():
        source = as_source(data)
        _ = source.fingerprint
        path = path_of(source)
        given = "target" if path is not None else "target, data"
        remedy = f"Go on with lv.resume({str(checkpoint)!r}, {given}), or repeat the call."
        arguments = {**settings, "data": path}
        identity = partial(_manifest, target, source, theta_0, settings)
        with journal(checkpoint, identity, arguments, theta_0, remedy) as kept:
            # The clock counts what earlier processes have spent.
            began -= kept.seconds_before
            deadline = None if budget.time_limit is None else began + budget.time_limit
            with set_up(deadline):
                settled = kept.found("settled", lambda: settle(target, source, theta_0, count, seed, deadline))
            store = DrawStore(2, count, Layout.of(theta_0).size)
            return NetworkResult(_walked(Walk(target, source, theta_0, seed, settled, budget, store), began, kept))


def _walked(walk: Walk, began: float, kept: Journal) -> Walk:
    if _DIVERGED not in kept:
        try:
            return walk.kept(walk.budget, began, kept, NETWORK)
        except Diverged as error:
            if kept.under_way is not None:
                kept.forget(kept.under_way)
            kept.enter(_DIVERGED, str(error))
    # Where the chains have come to since, the posterior bends more sharply than where the steps were measured.
    shorter = replace(walk.settled, pair=replace(walk.settled.pair, step=0.5 * walk.settled.pair.step))
    return replace(walk, settled=shorter).kept(walk.budget, began, kept, f"{NETWORK}, shorter steps")


def _manifest(target: Target, source: DataSource, theta_0: PyTree, settings: dict[str, Any]) -> Manifest:
    """What a checkpoint compares."""
    layout = Layout.of(theta_0)
    target.check(theta_0, source.arrays)
    return Manifest.of(target, source, layout, layout.flat(theta_0), settings)


def stored_network(kept: Journal, path: Path, target: Target | None, data: PyTree) -> NetworkResult | None:
    """The run of a folder, as far as it has come; None where the folder holds another kind of run."""
    stored = kept.last(lambda name: name.startswith(NETWORK))
    if stored is None:
        return None
    if target is None or data is None:
        raise ValueError(
            f"target and data must be given: {path} holds a run for many parameters, which is judged by what it says "
            f"of the data. Call lv.load(path, target, data)."
        )
    require(isinstance(target, Target), "target", target, "an lv.Target", "lv.Target(log_prior, log_likelihood)")
    source, then = as_source(data), kept[CALL]["manifest"]
    theta_0 = then.layout.unravel(kept[CALL]["arguments"]["theta_0"])
    target.check(theta_0, source.arrays)
    now = replace(then, target=target, data=source)
    differs = then.difference(now, but=["versions"])
    if differs is not None:
        raise ValueError(f"target and data must be those of the saved run, but {differs}, saved and given.")
    arguments = kept[CALL]["arguments"]
    store = DrawStore.again(stored["store"])
    walk = Walk(target, source, theta_0, arguments["seed"], stored["settled"], stored["budget"], store)
    return NetworkResult(walk.again(stored))
