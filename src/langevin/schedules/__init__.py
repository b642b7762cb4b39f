"""Laws for the step sizes delta_m, the sums they make, and checks of the paper's assumptions on them."""

from langevin.schedules.checks import StepCheck
from langevin.schedules.laws import Constant, Custom, Polynomial, Power, Schedule, check_steps
from langevin.schedules.parameters import m_0_for

__all__ = ["Constant", "Custom", "Polynomial", "Power", "Schedule", "StepCheck", "check_steps", "m_0_for"]
