"""How well a run knows what it was asked for: the precision that it has reached, and the statuses along with it."""

import numpy as np

from langevin.analysis.averages import estimate
from langevin.analysis.marginals import linear
from langevin.analysis.value import Estimate, quieter
from langevin.engine.ledger import Ledger
from langevin.outskirts import Outskirts
from langevin.sampling.visits import widened

# The points of a 95% interval, of a 90% one, the quartiles and the median: what people publish.
PUBLISHED = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)


def best(ledger: Ledger) -> dict[str, Estimate]:
    """Every estimate corrected, or raw where that is much quieter."""
    corrected, raw = estimate(ledger, "corrected"), estimate(ledger, "raw")
    return {name: quieter(corrected[name], raw[name], ledger.exact) for name in corrected}


def accuracy(ledger: Ledger, several_modes: bool, outskirts: Outskirts) -> tuple[set[str], float]:
    """Statuses of the means and sds, and the widest half-width of 95% intervals in posterior sds.

    The published quantiles count too, see `with_quantiles`; and of exact runs what few visits far out leave open, which
    more steps make less of.
    """
    found = best(ledger) if ledger.exact else estimate(ledger, "corrected")
    mean, sd = found["theta.mean"], found["theta.sd"]
    parts = [mean, widened(sd, ledger, outskirts) if ledger.exact else sd]
    if with_quantiles(ledger, several_modes):
        # Without a look for gaps: more steps do not close one.
        parts.append(linear(ledger, np.array(PUBLISHED)).found)
    halves = [np.max(0.5 * np.ptp(np.stack(part.interval()), axis=0) / sd.value) for part in parts]
    return {mean.status, sd.status}, float(np.max(halves))


def with_quantiles(ledger: Ledger, several_modes: bool) -> bool:
    """Whether a precision is about quantiles too.

    Not where there are `several_modes`: between two of them the least change of their shares moves one from the one
    mode to the other. Nor where an exact run has thinned its kept draws, which more steps do not make more of.
    """
    whole = ledger.exact and ledger.draws is not None and len(ledger.draws.m) == ledger.num_steps
    return not several_modes and (whole or any(column.marginals for column in ledger.columns.values()))
