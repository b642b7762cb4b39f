"""`lv.sample`: posterior expectations with error bars, from a target, data and a budget."""

from collections.abc import Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import numpy as np

from langevin.analysis.statuses import STATUSES
from langevin.data.source import as_source
from langevin.display import showing
from langevin.engine.checks import require
from langevin.engine.going import Engine
from langevin.engine.helpers import shared_set_up
from langevin.errors import AnchorError, Diverged
from langevin.limits import attempted, stop_requests
from langevin.networks.result import NetworkResult
from langevin.networks.sampler import chosen as many_parameters
from langevin.networks.sampler import sample_network
from langevin.sampling.planning import affordable, plan
from langevin.sampling.result import Result
from langevin.sampling.session import Session
from langevin.target import Target

PyTree = Any
# What an exact run mends. More steps are a better answer to batches that are too few, and nothing mends a hard bound.
_DOUBTFUL = set(STATUSES) - {"ok", "hard_bound", "quadrature", "too_few_batches", "transient", "uncorrected"}


def sample(
    target: Target,
    data: PyTree,
    theta_0: PyTree,
    *,
    passes: float | None = None,
    time_limit: float | None = None,
    precision: float | None = None,
    method: str = "auto",
    chains: int | Sequence[int] = 4,
    seed: int = 0,
    progress: bool | None = None,
    engine: Engine | None = None,
) -> Result | NetworkResult:
    """Posterior means, sds and other expectations, each with an error bar and a status. There is nothing to tune.

    Finds the posterior mode, measures what a few draws of the Laplace approximation say, and from that chooses the
    method (`result.explain()` says what and why). Near a Gaussian: whitened Leimkuhler-Matthews chains on minibatches
    with second-order control variates. Elsewhere, or where such a run finds that its numbers cannot be trusted: the
    No-U-Turn sampler on all the data, in the same units. Averages are corrected by the Poisson solution of a Gaussian
    model in both. `method="minibatch"` or `"exact"` insists on one. Beyond 5000 parameters, or with `method="sghmc"`:
    chains without a Gaussian model at two step sizes, a `NetworkResult`, which is asked for predictions. The first
    limit reached ends the run; without any, precision=0.02 with a time_limit of ten minutes (a minute for networks):

    passes:     sampling budget, datum visits over N (gradients, where data is None); set-up is reported beside it.
    time_limit: seconds for everything, compilation included.
    precision:  every posterior mean and sd to within this many posterior sds, at 95%.

    `chains` is even, since they go in antithetic pairs, or 1. Ctrl-C while sampling returns what there is, marked as
    interrupted. `engine=lv.Processes()` or `lv.Ray()` spreads them over processes or machines, without any change in
    the numbers. Raises `AnchorError` where the posterior has no proper mode,
    `Diverged` where the chains cannot be kept finite.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.Logistic.simulate(seed=1)
        >>> result = lv.sample(model.target, model.data, model.theta_0, passes=20)
        >>> result.status
        'ok'
    """
    if many_parameters(method, data, theta_0):
        limits = {"passes": passes, "time_limit": time_limit, "precision": precision}
        require(engine is None, "engine", engine, "None for networks: their chains stay in this process", "None")
        return sample_network(target, data, theta_0, **limits, chains=chains, seed=seed, progress=progress)
    began = monotonic()
    # One request for all of it: Ctrl-C between set-up and sampling must not get lost.
    with stop_requests() as stop_requested, showing(progress):
        source = None if data is None else as_source(data)
        if source is not None:
            # Taken before the run: arrays that the user changes later must not pass for what was sampled.
            _ = source.fingerprint
        limits = {"passes": passes, "time_limit": time_limit, "precision": precision}
        with shared_set_up(engine, target, source):
            chosen = plan(target, source, theta_0, **limits, method=method, chains=chains, seed=seed)
        result = _sampled(
            Session(target, source, chosen, chosen.batch_size, chosen.budget, engine=engine), method, began, progress
        )
        # Whoever pressed Ctrl-C while the last numbers were looked at must learn that it came.
        return Result(replace(result.session, stopped="interrupted")) if stop_requested() else result


def _sampled(session: Session, method: str, began: float, progress: bool | None) -> Result:
    """Runs what the plan has chosen, and exactly after that where a run on minibatches ends in doubt."""
    chosen = session.plan
    if chosen.method == "exact":
        return _told(Result(session.exactly(began, progress)))
    try:
        result = Result(session.spend(chosen.budget, began, progress))
    except Diverged:
        if method == "minibatch" or not affordable(chosen):
            raise
        chosen = replace(chosen, method="exact", because="the chains on minibatches could not be kept finite")
        return Result(replace(session, plan=chosen).exactly(began, progress))
    reason = None if method == "minibatch" else _doubt(result, began)
    if reason is None:
        return result
    chosen = replace(chosen, method="exact", because=f"the chains on minibatches ended with {reason}")
    second = replace(session, plan=chosen, seconds=result.session.seconds)
    limit = chosen.budget.time_limit
    exact = attempted(None if limit is None else began + limit, lambda: second.exactly(began, progress))
    # Without the time for a second run the first one stands, with what it says of itself.
    return result if exact is None else Result(exact)


def _told(result: Result) -> Result:
    """The result of an exact run; without a mode to begin with and without an answer in the end, that is the error."""
    refused = [trouble.text for trouble in result.troubles if trouble.refused]
    if result.plan.no_mode and refused:
        raise AnchorError(f"{result.plan.no_mode} Exact sampling from theta_0 did not help: {refused[0]}")
    return result


def _doubt(result: Result, began: float) -> str | None:
    """Why exact sampling should have the last word on a run on minibatches; None where it should or can not."""
    left = np.inf if result.plan.budget.time_limit is None else result.plan.budget.time_limit - (monotonic() - began)
    statuses = {*result.mean.statuses.tolist(), *result.sd.statuses.tolist()} & _DOUBTFUL
    # A second run takes as long as the first, at least.
    if result.partial or not statuses or left < result.session.seconds or not affordable(result.plan):
        return None
    return min(statuses, key=STATUSES.index)
