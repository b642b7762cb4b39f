"""Transition kernels: stochastic-gradient ones are maps of numbers, exact ones correct by accept-reject."""

from langevin.kernels.baoab import BAOAB
from langevin.kernels.coarse import Coarse
from langevin.kernels.crank_nicolson import PCN, CrankNicolsonLangevin
from langevin.kernels.hmc import HMC
from langevin.kernels.jumps import Jumps
from langevin.kernels.leimkuhler_matthews import LeimkuhlerMatthews
from langevin.kernels.mala import MALA
from langevin.kernels.manifold import ManifoldMALA
from langevin.kernels.nuts import NUTS
from langevin.kernels.preconditioned import PreconditionedSGLD
from langevin.kernels.protocol import AffineKernel, DensityKernel, ExactKernel, Kernel
from langevin.kernels.rwm import RWM
from langevin.kernels.sgfs import SGFS
from langevin.kernels.sghmc import SGHMC
from langevin.kernels.sgld import SGLD
from langevin.kernels.sgnht import SGNHT
from langevin.kernels.sgrld import SGRLD
from langevin.kernels.tested import AusterityMH, ConfidenceMH
from langevin.kernels.ubu import UBU

__all__ = [
    "BAOAB",
    "HMC",
    "MALA",
    "NUTS",
    "PCN",
    "RWM",
    "SGFS",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "SGRLD",
    "UBU",
    "AffineKernel",
    "AusterityMH",
    "Coarse",
    "ConfidenceMH",
    "CrankNicolsonLangevin",
    "DensityKernel",
    "ExactKernel",
    "Jumps",
    "Kernel",
    "LeimkuhlerMatthews",
    "ManifoldMALA",
    "PreconditionedSGLD",
]
