"""Unbiased estimates of the gradient of the log posterior from a few data."""

from langevin.gradients.control_variate import ControlVariate
from langevin.gradients.plain import Minibatch
from langevin.gradients.protocol import AnchoredGradient, CustomGradient, DatumGradient, Posterior, StatefulGradient

__all__ = [
    "AnchoredGradient",
    "ControlVariate",
    "CustomGradient",
    "DatumGradient",
    "Minibatch",
    "Posterior",
    "StatefulGradient",
]
