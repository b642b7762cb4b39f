"""Exact and numerical theory of SGLD: what an estimate should be, before any chain is run."""

from langevin.theory.coupling import DiffusionLimit, diffusion_limit
from langevin.theory.gaussian import AverageLaw, Cumulants, LinearGaussianLaw
from langevin.theory.lyapunov import Failure, Stability, stability
from langevin.theory.operators import generator, laplacian
from langevin.theory.poisson import PoissonSolution, known_solution, local_bias, solve_poisson

__all__ = [
    "AverageLaw",
    "Cumulants",
    "DiffusionLimit",
    "Failure",
    "LinearGaussianLaw",
    "PoissonSolution",
    "Stability",
    "diffusion_limit",
    "generator",
    "known_solution",
    "laplacian",
    "local_bias",
    "solve_poisson",
    "stability",
]
