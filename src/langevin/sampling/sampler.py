"""`lv.sample`: posterior expectations with error bars, from a target, data and a budget."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from langevin.analysis.statuses import STATUSES
from langevin.data.files import path_of
from langevin.display import showing
from langevin.engine.checks import require
from langevin.engine.entry import run
from langevin.engine.going import Engine
from langevin.engine.helpers import shared_set_up
from langevin.engine.ledger import Ledger
from langevin.errors import AnchorError, Diverged
from langevin.limits import attempted, stop_requests
from langevin.networks.result import NetworkResult
from langevin.networks.sampler import METHOD as NETWORK_METHOD
from langevin.networks.sampler import chosen as many_parameters
from langevin.networks.sampler import sample_network
from langevin.sampling.call import Call
from langevin.sampling.choice import affordable, too_few_nodes
from langevin.sampling.extending import finished, kept_apart
from langevin.sampling.pace import SLOWER
from langevin.sampling.planning import planned
from langevin.sampling.result import Result
from langevin.sampling.session import Session
from langevin.sampling.store import stored_call
from langevin.saving.journal import Journal, journal
from langevin.target import Target

PyTree = Any
# What an exact run mends. More steps are a better answer to batches that are too few, and nothing mends a hard bound.
_DOUBTFUL = set(STATUSES) - {"ok", "hard_bound", "quadrature", "too_few_batches", "transient", "uncorrected"}
_DIVERGED = "divergence of the run on minibatches"


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
    checkpoint: str | Path | None = None,
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
    precision:  every posterior mean, sd and quantile from 2.5% to 97.5% to within this many posterior sds, at 95%
                (means and sds alone where there are several modes, or an exact run has more steps than kept draws).

    `chains` is even, since they go in antithetic pairs, or 1. Ctrl-C while sampling returns what there is, marked as
    interrupted. `engine=lv.Processes()` or `lv.Ray()` spreads them over processes or machines, without any change in
    the numbers. `checkpoint="runs/x"` keeps the run in a folder, set-up included, every few seconds: the same call, or
    `lv.resume`, goes on from there after a crash, to the same bits; `lv.load` looks at it meanwhile.
    Raises `AnchorError` where the posterior has no proper mode, `Diverged` where the chains cannot be kept finite.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.Logistic.simulate(seed=1)
        >>> result = lv.sample(model.target, model.data, model.theta_0, passes=20)
        >>> result.status
        'ok'
    """
    limits = {"passes": passes, "time_limit": time_limit, "precision": precision}
    began = monotonic()
    if many_parameters(method, data, theta_0):
        require(engine is None, "engine", engine, "None for networks: their chains stay in this process", "None")
        with showing(progress):
            return sample_network(target, data, theta_0, **limits, chains=chains, seed=seed, checkpoint=checkpoint)
    # One request for all of it: Ctrl-C between set-up and sampling must not get lost.
    with stop_requests(), showing(progress):
        call = Call.checked(target, data, theta_0, **limits, method=method, chains=chains, seed=seed)
        return _done(call, began, engine, checkpoint)


def resume(
    path: str | Path,
    target: Target,
    data: PyTree = None,
    *,
    theta_0: PyTree = None,
    progress: bool | None = None,
    engine: Engine | None = None,
) -> Result | NetworkResult | Ledger:
    """Goes on with a run of `lv.sample(..., checkpoint=path)` where its last checkpoint is, with the same settings.

    target and data are those of the run; they are checked against what is known of them. Data that came from a path are
    opened there if none are given. A run in passes or for a precision ends with the bits of one that nothing has
    stopped; a `time_limit` counts the seconds of both processes. A run that is over is returned as it was; one that was
    extended, as far as that was asked. Of an
    `lv.run` without functions or parts of your own it returns the ledger; any other goes on where its call is repeated.
    `theta_0` is needed only where theta is made of other containers than dict, list and tuple. Cost: up to 8192 datum
    visits and a checksum of the data, beside what is left to do.

    Example:
        >>> import langevin as lv, tempfile
        >>> model = lv.models.Logistic.simulate(seed=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = lv.sample(model.target, model.data, model.theta_0, passes=20, checkpoint=folder)
        ...     again = lv.resume(folder, model.target, model.data)
        >>> bool((again.mean.value == result.mean.value).all())
        True
    """
    began = monotonic()
    with stop_requests(), showing(progress):
        apart = kept_apart(Path(path), target, data, theta_0)
        if apart is not None:
            return Result(finished(replace(apart, engine=engine), Path(path)))
        asked = stored_call(Path(path), theta_0)
        where = asked.pop("data")
        data = where if data is None else data
        if asked.get("method") == NETWORK_METHOD:
            require(engine is None, "engine", engine, "None for networks: their chains stay in this process", "None")
            arguments = {name: value for name, value in asked.items() if name not in ("method", "theta_0")}
            return sample_network(target, data, asked["theta_0"], **arguments, checkpoint=path)
        if "num_steps" in asked:
            return run(target, data, **asked, engine=engine, checkpoint=path)
        found = _done(Call.checked(target, data, **asked), began, engine, path)
        return found if found.partial else Result(finished(found.session, Path(path)))


def _done(call: Call, began: float, engine: Engine | None, checkpoint: str | Path | None) -> Result:
    """What a call asks for, with as much of it taken from the checkpoint as is there."""
    with stop_requests() as stop_requested:
        if call.source is not None:
            # Taken before the run: arrays that the user changes later must not pass for what was sampled.
            _ = call.source.fingerprint
        path = path_of(call.source)
        given = "target" if call.source is None or path is not None else "target, data"
        remedy = f"Go on with lv.resume({str(checkpoint)!r}, {given}), or repeat the call."
        arguments = {**call.settings, "data": path}
        with journal(checkpoint, lambda: call.manifest, arguments, call.theta_0, remedy) as kept:
            # The clock counts what earlier processes have spent.
            began -= kept.seconds_before
            with shared_set_up(engine, call.target, call.source):
                chosen = planned(call, began, kept)
            folder = None if checkpoint is None else Path(checkpoint)
            asked = call.target, call.source, chosen, chosen.batch_size, chosen.budget
            session = Session(*asked, engine=engine, folder=folder)
            result = _sampled(session, call.method, began, kept)
        # Whoever pressed Ctrl-C while the last numbers were looked at must learn that it came.
        return Result(replace(result.session, stopped="interrupted")) if stop_requested() else result


def _sampled(session: Session, method: str, began: float, kept: Journal) -> Result:
    """Runs what the plan has chosen, and exactly after that where a run on minibatches ends in doubt."""
    chosen = session.plan
    if chosen.method == "exact":
        return _told(Result(session.exactly(began, kept)))
    try:
        if _DIVERGED in kept:
            raise Diverged(kept[_DIVERGED], None)
        result = Result(session.spend(chosen.budget, began, kept, "run on minibatches"))
    except Diverged as error:
        if method == "minibatch" or not affordable(chosen):
            raise
        kept.enter(_DIVERGED, str(error))
        chosen = replace(chosen, method="exact", because="the chains on minibatches could not be kept finite")
        return Result(replace(session, plan=chosen).exactly(began, kept))
    reason = None if method == "minibatch" else _doubt(result, began)
    if reason is None:
        return result
    chosen = replace(chosen, method="exact", because=f"the chains on minibatches ended with {reason}")
    second = replace(session, plan=chosen, seconds=result.session.seconds)
    limit = chosen.budget.time_limit
    exact = attempted(None if limit is None else began + limit, lambda: second.exactly(began, kept))
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
    if result.session.stopped == SLOWER:
        return "a precision that exact sampling is forecast to reach sooner"
    statuses = {*result.mean.statuses.tolist(), *result.sd.statuses.tolist()} & _DOUBTFUL
    # A second run takes as long as the first, at least.
    late = result.partial or left < result.session.seconds
    if late or not statuses or too_few_nodes(result.plan) or not affordable(result.plan):
        return None
    return min(statuses, key=STATUSES.index)
