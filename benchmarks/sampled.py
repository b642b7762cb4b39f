"""Many runs of `lv.sample` at once: the same plan, parts and chains, batched; one run is four neighbouring chains."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import langevin as lv
from langevin.data.source import as_source
from langevin.sampling.pace import Pace
from langevin.sampling.session import Session

CHAINS = 4


def runs(target: lv.Target, data: Any, theta_0: Any, *, steps: int, count: int, seed: int) -> Iterator[lv.Result]:
    """`count` runs of `steps` steps a chain that share the set-up of this seed.

    Run r holds chains 4r ... 4r + 3, and is bit for bit what lv.sample(..., chains=[4r, ... 4r + 3], seed=seed) gives
    after as many steps.
    """
    source = None if data is None else as_source(data)
    plan = lv.plan(target, source, theta_0, passes=1.0, method="minibatch", chains=CHAINS, seed=seed)
    size = plan.rules.batch_size(float(steps * CHAINS))
    plan = replace(plan, batch_size=size, num_steps=steps)
    wide = replace(plan, chains=np.arange(CHAINS * count))
    session = Session(target, source, wide, size, wide.budget)
    run = session.prepared()
    # The batch size of a single run of this length, not of all of them together.
    Pace(plan, plan.budget, run, 0.0, size).set_batch_size(steps)
    run.advance(steps)
    ledger = run.ledger()
    for k in range(count):
        part = ledger.select(slice(CHAINS * k, CHAINS * (k + 1)))
        yield lv.Result(replace(session, plan=replace(plan, chains=part.chains), ledger=part, stopped="passes"))
