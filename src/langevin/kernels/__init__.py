"""Transition kernels: stochastic-gradient ones are maps of numbers, exact ones correct by accept-reject."""

from langevin.kernels.hmc import HMC
from langevin.kernels.leimkuhler_matthews import LeimkuhlerMatthews
from langevin.kernels.mala import MALA
from langevin.kernels.protocol import AffineKernel, ExactKernel, Kernel
from langevin.kernels.rwm import RWM
from langevin.kernels.sgld import SGLD

__all__ = ["HMC", "MALA", "RWM", "SGLD", "AffineKernel", "ExactKernel", "Kernel", "LeimkuhlerMatthews"]
