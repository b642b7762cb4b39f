"""Exact and numerical theory of SGLD: what an estimate should be, before any chain is run."""

from langevin.theory.gaussian import AverageLaw, Cumulants, LinearGaussianLaw
from langevin.theory.generator import generator, laplacian
from langevin.theory.poisson import PoissonSolution, known_solution, local_bias, solve_poisson

__all__ = [
    "AverageLaw",
    "Cumulants",
    "LinearGaussianLaw",
    "PoissonSolution",
    "generator",
    "known_solution",
    "laplacian",
    "local_bias",
    "solve_poisson",
]
