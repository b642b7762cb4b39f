"""Estimates from pairs of runs at two step sizes: bias extrapolated, or the fine run told by a long coarse one."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from langevin.analysis import Estimate, estimate
from langevin.analysis.statuses import worse, worst
from langevin.engine.ledger import Ledger
from langevin.kernels import Coarse
from langevin.schedules import Constant

# What levels may differ in: their steps are looked at apart, and seeds must differ.
_OF_A_LEVEL = ("schedule", "seed", "chains", "keep", "layout", "versions")


def richardson_romberg(fine: Ledger, coarse: Ledger, order: int = 1) -> dict[str, Estimate]:
    """Averages with the leading power of the step taken off: (2^order fine - coarse) / (2^order - 1), row by row.

    `coarse` is the run of `lv.Coarse(kernel)` that differs from `fine` in nothing else, so that both are driven by one
    noise; then the difference is known well, and the bar, which sees both, is not much longer than that of `fine`. A
    bias of c1 delta + c2 delta^2 becomes -2 c2 delta^2 (order 1, in the step of `fine`); what is left is not known, so
    all values are `uncorrected`. `order` is that of the kernel's bias: 1 for SGLD and wherever gradients are noisy, 2
    for LeimkuhlerMatthews and BAOAB with exact ones. No new sampling.

    Lamberton and Pages, *Recursive computation of the invariant distribution of a diffusion* (2002); Lemaire, *An
    adaptive scheme for the approximation of dissipative systems* (2007).

    Example:
        >>> import langevin as lv
        >>> def run(kernel):
        ...     return lv.run(lv.Target(lambda t: -0.5 * t**2), None, 0.0, kernel=kernel, schedule=lv.Constant(0.4),
        ...                   num_steps=4000, chains=8)
        >>> fine, coarse = run(lv.SGLD()), run(lv.Coarse(lv.SGLD()))
        >>> found = lv.richardson_romberg(fine, coarse)["theta.variance"]  # 1.11 and 1.25 by themselves
        >>> bool(abs(found.value[0] - 0.97) < 0.2), found.status
        (True, 'uncorrected')
    """
    if isinstance(order, bool) or not isinstance(order, int) or order < 1:
        raise ValueError(f"order must be an integer of at least 1, got {order!r}. Try 1, that of SGLD.")
    _check_pair(fine, coarse)
    weight = 2.0**order / (2.0**order - 1.0)
    joined = _joined(fine, coarse, lambda one, two: weight * one + (1.0 - weight) * two)
    found = estimate(
        replace(joined, columns={n: replace(c, trace=None, hessian=None) for n, c in fine.columns.items()})
    )
    return {name: _untold(part) for name, part in found.items()}


def multilevel(base: Ledger, pairs: Sequence[tuple[Ledger, Ledger]]) -> dict[str, Estimate]:
    """Averages at the finest step as a telescoping sum: base + sum over levels of (fine - coarse).

    `pairs` are (fine, coarse) as for `richardson_romberg`, the first of which has its coarse step at that of `base`,
    each next one at half the step of the one before; all levels with seeds of their own, constant steps, and the model,
    the kernel and the minibatches of `base`. Coupled differences scatter little, so few steps are spent where steps are
    small. The bar adds up the levels' variances. The value has the bias of the finest step: `uncorrected`. Averages of
    functions only: moments about a mean are no telescoping sums. Cost: a pass over the rows; before that a gradient for
    every step of `base`, and two for every step of a pair.

    Giles, *Multilevel Monte Carlo path simulation* (2008); for SGLD Giles, Majka, Szpruch, Vollmer and Zygalakis,
    *Multi-level Monte Carlo methods for the approximation of invariant measures* (2020).

    Example:
        >>> import langevin as lv
        >>> def run(kernel, delta, steps, seed):
        ...     return lv.run(lv.Target(lambda t: -0.5 * t**2), None, 0.0, kernel=kernel, schedule=lv.Constant(delta),
        ...                   num_steps=steps, chains=8, seed=seed, observables={"square": lambda t: t**2})
        >>> base = run(lv.SGLD(), 0.8, 8000, 0)
        >>> pair = run(lv.SGLD(), 0.4, 4000, 1), run(lv.Coarse(lv.SGLD()), 0.4, 4000, 1)
        >>> bool(abs(lv.multilevel(base, [pair])["square"].value - 1.11) < 0.2)
        True
    """
    _check_ledger("base", base)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(f"pairs must be a list of pairs (fine, coarse), got {pair!r} in it. Try [(fine, coarse)].")
        _check_pair(*pair)
    if any(column.pairs is not None or column.marginals for column in base.columns.values()):
        raise ValueError("observables must be functions here, got Moments or Marginals. Try {'theta': lambda t: t}.")
    levels = [base, *(fine for fine, _ in pairs)]
    seeds = [level.manifest.parts["seed"] for level in levels]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"levels must have seeds of their own, got {seeds}: their errors add up as independent ones.")
    _check_levels(levels)
    found = {name: _untold(part) for name, part in estimate(base).items()}
    for fine, coarse in pairs:
        # References cancel in a difference.
        columns = {
            name: replace(column, reference=np.zeros_like(column.reference), trace=None, hessian=None)
            for name, column in fine.columns.items()
        }
        gap = estimate(replace(_joined(fine, coarse, np.subtract), columns=columns))
        found = {name: _sum(part, gap[name]) for name, part in found.items()}
    return found


def _joined(fine: Ledger, coarse: Ledger, join: Callable[[Any, Any], Any]) -> Ledger:
    """The ledger of the fine run with rows made of both, and nothing that would claim to know their law."""
    values = {name: join(fine.values[name], coarse.values[name]) for name in fine.values}
    return replace(fine, values=values, corrections=None, outer=None, anchor=None)


def _check_ledger(name: str, ledger: Any) -> None:
    if not isinstance(ledger, Ledger):
        raise ValueError(f"{name} must be the ledger of a run, got {ledger!r}. Try {name}=lv.run(...).")


def _check_levels(levels: Sequence[Ledger]) -> None:
    """Raises unless fine runs differ from base in steps, seeds and chains alone, each at half the step before it."""
    steps = []
    for number, level in enumerate(levels):
        name = f"pairs[{number - 1}]" if number else "base"
        differs = levels[0].manifest.difference(level.manifest, but=_OF_A_LEVEL)
        if differs is not None:
            raise ValueError(f"{name} must be of the runs of base but for steps, seed and chains, but {differs}.")
        if not isinstance(level.schedule, Constant):
            raise ValueError(
                f"{name} must have constant steps, or its averages are of no one step, got {level.schedule!r}. "
                f"Try schedule=lv.Constant(0.1)."
            )
        # As chains take them.
        steps.append(np.asarray(level.schedule.value, np.float32))
        if number and not np.array_equal(2 * steps[-1], steps[-2]):
            before = f"pairs[{number - 2}]" if number > 1 else "base"
            raise ValueError(
                f"{name} must have half the step of {before}, so that its coarse run has the same law, got "
                f"{level.schedule!r} after {levels[number - 1].schedule!r}. Order the pairs from large steps to small "
                f"ones, or run the level between."
            )


def _check_pair(fine: Ledger, coarse: Ledger) -> None:
    """Raises unless the runs differ in their kernel alone, and that as a coupled pair does."""
    _check_ledger("fine", fine)
    _check_ledger("coarse", coarse)
    if not isinstance(coarse.kernel, Coarse) or coarse.kernel.kernel != fine.kernel:
        raise ValueError(
            f"coarse must be the run of lv.Coarse({fine.kernel!r}), got {coarse.kernel!r}. Run both with the same seed."
        )
    differs = fine.manifest.difference(coarse.manifest, but=("kernel", "keep"))
    if differs is None and fine.num_steps != coarse.num_steps:
        differs = f"num_steps are {fine.num_steps} and {coarse.num_steps}"
    if differs is not None:
        raise ValueError(f"fine and coarse must be of one run but for the kernel, but {differs}.")


def _untold(part: Estimate) -> Estimate:
    return replace(part, bias=np.full_like(part.bias, np.nan), statuses=worse(part.statuses, "uncorrected"))


def _sum(one: Estimate, other: Estimate) -> Estimate:
    """Two independent estimates added up; degrees of freedom as Welch and Satterthwaite have them."""
    variances = one.stderr**2, other.stderr**2
    total = variances[0] + variances[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        df = total**2 / (variances[0] ** 2 / one.df + variances[1] ** 2 / other.df)
    return replace(
        one,
        value=one.value + other.value,
        stderr=np.sqrt(total),
        df=np.where(np.isfinite(df), df, one.df),
        sigma2=one.sigma2 * (total / variances[0]),
        skewness=one.skewness * (variances[0] / total) ** 1.5 + other.skewness * (variances[1] / total) ** 1.5,
        statuses=worst(one.statuses, other.statuses),
    )
