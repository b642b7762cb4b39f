"""From a ledger to estimates with error bars, biases and a status; NumPy and SciPy only."""

from langevin.analysis.averages import estimate
from langevin.analysis.marginals import quantiles
from langevin.analysis.regimes import regime
from langevin.analysis.statuses import STATUSES
from langevin.analysis.value import Estimate

__all__ = ["STATUSES", "Estimate", "estimate", "quantiles", "regime"]
