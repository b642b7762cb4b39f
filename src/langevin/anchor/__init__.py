"""The anchor: the posterior mode with the curvature there, for any target and any size."""

from langevin.anchor.approximation import Anchor
from langevin.anchor.search import laplace, rough

__all__ = ["Anchor", "laplace", "rough"]
