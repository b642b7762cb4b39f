"""Unbiased estimates of the gradient of the log posterior from a few data."""

from langevin.gradients.control_variate import ControlVariate
from langevin.gradients.plain import Minibatch
from langevin.gradients.protocol import CustomGradient, DatumGradient, WhitenedGradient

__all__ = ["ControlVariate", "CustomGradient", "DatumGradient", "Minibatch", "WhitenedGradient"]
