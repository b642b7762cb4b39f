"""From a ledger to estimates with error bars, biases and a status; NumPy and SciPy only."""

from langevin.analysis.estimate import estimate
from langevin.analysis.quantiles import quantiles
from langevin.analysis.regime import STATUSES, regime
from langevin.analysis.value import Estimate

__all__ = ["STATUSES", "Estimate", "estimate", "quantiles", "regime"]
