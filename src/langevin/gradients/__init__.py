"""Unbiased estimates of the gradient of the log posterior from a few data."""

from langevin.gradients.control_variate import ControlVariate
from langevin.gradients.plain import Minibatch
from langevin.gradients.protocol import AnchoredGradient, CustomGradient, DatumGradient, Posterior, StatefulGradient
from langevin.gradients.saga import SAGA
from langevin.gradients.svrg import SVRG
from langevin.gradients.weighted import ImportanceSampled, Stratified

__all__ = [
    "SAGA",
    "SVRG",
    "AnchoredGradient",
    "ControlVariate",
    "CustomGradient",
    "DatumGradient",
    "ImportanceSampled",
    "Minibatch",
    "Posterior",
    "StatefulGradient",
    "Stratified",
]
