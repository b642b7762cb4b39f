"""Whether step sizes and weights meet the two assumptions behind the limit theorems, and if not, why not."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# An exponent that misses 1 by rounding only, such as 0.7 * (1/0.7), counts as 1.
ROUNDING = 4 * np.finfo(np.float64).eps

# A numerical diagnosis compares the stretch (M/2, M] with the stretch (M/32, M/16], M = LAST_M.
LAST_M = 1 << 20
LAG = 16


@dataclass(frozen=True)
class StepCheck:
    """Outcome of `check_steps`: `sentences` has one entry for each condition that fails.

    `basis` says what the verdict rests on: a derivation for all m, or a finite number of steps.
    """

    ok: bool
    sentences: tuple[str, ...]
    basis: str

    def __str__(self) -> str:
        verdict = "both step-size assumptions hold" if self.ok else " ".join(self.sentences)
        return f"{verdict} ({self.basis})"


def check_power_law(delta_1: Array, alpha: Array, p: float) -> StepCheck:
    """Both assumptions for delta_m ~ c m^-alpha, 0 <= alpha <= 1, and omega_m = delta_m^p.

    They hold iff 0 < alpha < 1 and 0 < p <= 1/alpha, or alpha = p = 1. Cost: O(1). Assumes a monotone law.
    """
    # Assumption 1. delta_m decreases to 0 iff alpha > 0; T_m ~ m^(1-alpha), or log m at alpha = 1, diverges.
    #
    # Assumption 2, with s = alpha p.
    # (i)   omega_m -> 0 iff s > 0.
    # (ii)  Omega_m -> infinity iff s <= 1: like m^(1-s), and like log m at s = 1.
    # (iii) sum_{k<=m} |Delta(omega_k/delta_k)| / Omega_m bounded. omega/delta = delta^(p-1) is monotone, the
    #       sum telescopes to |delta_{m+1}^(p-1) - delta_1^(p-1)|: bounded for p >= 1, and for p < 1 of order
    #       m^(alpha-s) against m^(1-s) below. Holds for every alpha <= 1; the limit is 0, except on the edge
    #       alpha = 1, p < 1, where it is (1-p)/c.
    # (iv)  sum_m omega_m^2 / (delta_m Omega_m^2) finite. For s < 1 its terms are of order m^(alpha-2): iff
    #       alpha < 1. At s = 1 they are of order m^(alpha-2) / log^2 m, summable even at alpha = 1. For s > 1
    #       Omega_m is bounded and they are of order m^(alpha-2s), summable since 2s - alpha > 1.
    #
    # The paper's proof reads (iii) as sum_m |Delta(omega_m/delta_m)| / Omega_m finite. For p < 1 the terms
    # are of order m^(alpha-2), so this differs on the edge alpha = 1, p < 1 only, which (iv) refuses anyway.
    delta_1, alpha = np.broadcast_arrays(delta_1, alpha)
    s = alpha * p
    constant = alpha == 0

    def still_delta(i: tuple[int, ...]) -> str:
        return (
            f"delta_m does not tend to 0: it is {delta_1[i]:g} for every m, so a bias of order delta stays "
            "however long the chain runs; use a decreasing law such as alpha=1/3, or extrapolate in delta."
        )

    def still_omega(i: tuple[int, ...]) -> str:
        course = "grows with m" if s[i] < 0 else f"is {delta_1[i] ** p:g} for every m"
        return f"omega_m = delta_m^p does not tend to 0: with p={p:g} and alpha={alpha[i]:g} it {course}."

    def finite_omega(i: tuple[int, ...]) -> str:
        return (
            f"The sum of omega_m = delta_m^p stays finite: alpha p = {s[i]:g} is above 1, so the first steps "
            f"keep their share of the average for ever; use p <= 1/alpha = {1 / alpha[i]:g}."
        )

    def noisy_average(i: tuple[int, ...]) -> str:
        return (
            f"The sum of omega_m^2 / (delta_m Omega_m^2) diverges like log m: with alpha={alpha[i]:g} the "
            f"time T_m grows only like log m, and p={p:g} < 1 leaves nearly all weight on a last stretch "
            "of it that does not lengthen, so the average keeps fluctuating; use p=1, or alpha < 1."
        )

    sentences = (
        *_say(constant, still_delta),
        *_say(s <= 0, still_omega),
        *_say(s > 1 + ROUNDING, finite_omega),
        *_say((alpha >= 1 - ROUNDING) & (s < 1 - ROUNDING), noisy_average),
    )
    return StepCheck(ok=not sentences, sentences=sentences, basis="derived for all m")


def _say(fails: NDArray[np.bool_], sentence: Callable[[tuple[int, ...]], str]) -> list[str]:
    """Sentence about the first schedule that fails, with a count when there are several schedules."""
    if not np.any(fails):
        return []
    first = tuple(int(i) for i in np.argwhere(fails)[0])
    if fails.ndim == 0:
        return [sentence(first)]
    return [f"{sentence(first)} ({np.count_nonzero(fails)} of {fails.size} schedules; this is index {first}.)"]


def check_numerically(delta: Callable[[Array], Array], p: float) -> StepCheck:
    """Both assumptions for an arbitrary law, judged by its first 2^20 steps: evidence, not proof.

    Each limit is judged by how the quantity changes over a factor 16 in m. Cost: 2^20 evaluations, 60 MB.
    A law that changes its character later, or by logarithms only, can be misjudged.
    """
    d = delta(np.arange(1.0, LAST_M + 1.0))
    with np.errstate(over="ignore", under="ignore"):
        omega = d if p == 1 else np.power(d, p)
        Omega = np.cumsum(omega)
        oscillation = np.cumsum(np.abs(np.diff(omega / d))) / Omega[:-1]
        noise = omega**2 / (d * Omega**2)

    rises = np.flatnonzero(np.diff(d) > 0)
    failures = []
    if rises.size:
        k = int(rises[0])
        failures.append(f"delta_m is not decreasing: delta_{k + 1}={d[k]:g} and delta_{k + 2}={d[k + 1]:g}.")
    # A mean that falls by less than 5% has exponent below 0.02; a sum that falls by more than 10% has an
    # exponent above 1.04. Between these lie laws such as 1/log m, which pass, and 1/m, which pass.
    if (change := _change(d)) > 0.95:
        failures.append(f"delta_m does not seem to tend to 0: it {_over(change)}, and is {d[-1]:g} at the end.")
    if (change := _change(d) * LAG) < 0.9:
        failures.append(f"T_m seems to stay finite: its growth {_over(change)}, and T_m={np.sum(d):g} at the end.")
    if (change := _change(omega)) > 0.95 and p != 1:
        failures.append(f"omega_m = delta_m^{p:g} does not seem to tend to 0: it {_over(change)}.")
    if (change := _change(omega) * LAG) < 0.9 and p != 1:
        failures.append(f"Omega_m seems to stay finite with p={p:g}: its growth {_over(change)}.")
    if oscillation[-1] > 1.1 * oscillation[LAST_M // LAG]:
        failures.append(
            "The oscillation of omega/delta over Omega_m does not seem bounded: it goes from "
            f"{oscillation[LAST_M // LAG]:g} at m={LAST_M // LAG} to {oscillation[-1]:g} at m={LAST_M}."
        )
    if (change := _change(noise) * LAG) > 0.9:
        failures.append(f"The sum of omega_m^2 / (delta_m Omega_m^2) seems to diverge: its growth {_over(change)}.")
    basis = f"numerical evidence only, m up to {LAST_M}"
    return StepCheck(ok=not failures, sentences=tuple(f"{f[:-1]} ({basis})." for f in failures), basis=basis)


def _change(x: Array) -> float:
    """Mean of x over (M/2, M] divided by its mean over (M/32, M/16]."""
    late, early = x[LAST_M // 2 :], x[LAST_M // (2 * LAG) : LAST_M // LAG]
    base = float(np.mean(early))
    return float(np.mean(late)) / base if base > 0 else 0.0  # a large p underflows: gone is gone


def _over(change: float) -> str:
    """Words for a change over a factor LAG in m."""
    return f"changes by a factor {change:.3g} when m grows {LAG}-fold"
