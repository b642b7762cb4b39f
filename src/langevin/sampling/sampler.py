"""`lv.sample`: posterior expectations with error bars, from a target, data and a budget."""

from collections.abc import Sequence
from time import monotonic
from typing import Any

from langevin.data.source import as_source
from langevin.limits import stop_requests
from langevin.sampling.planning import plan
from langevin.sampling.result import Result
from langevin.sampling.session import Session
from langevin.target import Target

PyTree = Any


def sample(
    target: Target,
    data: PyTree,
    theta_0: PyTree,
    *,
    passes: float | None = None,
    time_limit: float | None = None,
    precision: float | None = None,
    chains: int | Sequence[int] = 4,
    seed: int = 0,
    progress: bool | None = None,
) -> Result:
    """Posterior means, sds and other expectations, each with an error bar and a status. There is nothing to tune.

    Finds the posterior mode, measures what a few draws of the Laplace approximation say, and from that chooses batch
    size, steps and estimator (`result.explain()` says what and why): whitened Leimkuhler-Matthews chains with
    second-order control variates, and averages corrected by the Laplace model's Poisson solution. Give at least one
    budget; the first one reached ends the run:

    passes:     sampling budget, datum visits over N (gradients, where data is None); set-up is reported beside it.
    time_limit: seconds for everything, compilation included.
    precision:  every posterior mean and sd to within this many posterior sds, at 95%.

    `chains` is even, since they go in antithetic pairs, or 1. Ctrl-C while sampling returns what there is, marked as
    interrupted. Raises `AnchorError` where the posterior has no proper mode,
    `Diverged` where the chains cannot be kept finite.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.Logistic.simulate(seed=1)
        >>> result = lv.sample(model.target, model.data, model.theta_0, passes=20)
        >>> result.status
        'ok'
    """
    began = monotonic()
    # One request for all of it: Ctrl-C between set-up and sampling must not get lost.
    with stop_requests():
        source = None if data is None else as_source(data)
        if source is not None:
            # Taken before the run: arrays that the user changes later must not pass for what was sampled.
            _ = source.fingerprint
        limits = {"passes": passes, "time_limit": time_limit, "precision": precision}
        chosen = plan(target, source, theta_0, **limits, chains=chains, seed=seed)
        session = Session(target, source, chosen, chosen.batch_size, chosen.budget)
        return Result(session.spend(chosen.budget, began, progress))
