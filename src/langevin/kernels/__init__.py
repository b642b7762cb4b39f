"""Transition kernels: stochastic-gradient ones are maps of numbers, exact ones correct by accept-reject."""

from langevin.kernels.baoab import BAOAB
from langevin.kernels.hmc import HMC
from langevin.kernels.jumps import Jumps
from langevin.kernels.leimkuhler_matthews import LeimkuhlerMatthews
from langevin.kernels.mala import MALA
from langevin.kernels.nuts import NUTS
from langevin.kernels.protocol import AffineKernel, ExactKernel, Kernel
from langevin.kernels.rwm import RWM
from langevin.kernels.sghmc import SGHMC
from langevin.kernels.sgld import SGLD
from langevin.kernels.ubu import UBU

__all__ = [
    "BAOAB",
    "HMC",
    "MALA",
    "NUTS",
    "RWM",
    "SGHMC",
    "SGLD",
    "UBU",
    "AffineKernel",
    "ExactKernel",
    "Jumps",
    "Kernel",
    "LeimkuhlerMatthews",
]
