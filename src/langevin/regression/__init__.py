"""A table and a formula in, a posterior out: `lv.fit`."""

from langevin.regression.fitting import Fit, fit

__all__ = ["Fit", "fit"]
