"""Theorem "Consistency": the average tends to the posterior's, and what breaks when an assumption fails

The Gaussian problem, started off the mode, with bounded and unbounded test functions, several weights omega = delta^p
and step-size laws inside and outside the assumptions; the logistic problem against quadrature; a heavy-tailed target.
Errors shrink along every law that the theorem covers, and the exact moments of the average say by how much.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from langevin import figures as style
from langevin.paper import consistency_checks, consistency_gaussian, consistency_others, problems
from langevin.paper.consistency_checks import errors, mse
from langevin.paper.consistency_gaussian import (
    CONSTANT_STEP,
    PHI_NAMES,
    POISSON,
    SETTINGS,
    SQUARE,
    THETA,
    truth,
)
from langevin.paper.consistency_others import HEAVY_NAMES
from langevin.paper.lab import Lab
from langevin.paper.replicates import standard_error
from langevin.paper.study import Finding, Floats, Numbers, Row


def compute(lab: Lab) -> Numbers:
    """Averages at growing m: the Gaussian problem in all its settings, then the other targets."""
    return {**consistency_gaussian.compute(lab), **consistency_others.compute(lab)}


def check(numbers: Numbers) -> list[Finding]:
    """The theorem's claims, then what happens outside its assumptions."""
    return consistency_checks.check(numbers)


def table(numbers: Numbers) -> list[Row]:
    """Mean error and root MSE over chains of every average, one row a quantity and m."""
    rows: list[Row] = []
    for name in SETTINGS:
        rows += _rows(name, PHI_NAMES, numbers[f"{name}/stages"], errors(numbers, name), truth())
    if "heavy/stages" in numbers:
        names = [f"E θ{i}" for i in range(3)] + [f"Var θ{i}" for i in range(3)]
        exact = consistency_others.logistic_truth()
        rows += _rows("logistic", names, numbers["logistic/stages"], numbers["logistic/average"] - exact, exact)
        exact = consistency_others.heavy_truth()
        rows += _rows("heavy", HEAVY_NAMES, numbers["heavy/stages"], numbers["heavy/average"] - exact, exact)
    return rows


def _rows(experiment: str, names: Sequence[str], m: np.ndarray, error: Floats, exact: Floats) -> list[Row]:
    return [
        {
            "experiment": experiment, "phi": name, "m": int(m[i]), "truth": float(exact[j]),
            "mean_error": float(error[i, :, j].mean()), "stderr": float(standard_error(error[i, :, j])),
            "root_mse": float(np.sqrt(np.mean(error[i, :, j] ** 2))),
        }
        for i in range(len(m))
        for j, name in enumerate(names)
    ]  # fmt: skip


def draw(numbers: Numbers) -> dict[str, Figure]:
    """Errors that shrink, and what breaks."""
    return {"consistency": _draw_errors(numbers), "consistency_breaks": _draw_breaks(numbers)}


def _draw_errors(numbers: Numbers) -> Figure:
    figure, axes = style.new_figure(columns=3, rows=2, width=11, height=6.6)
    m = numbers["third/stages"]
    predicted = np.sqrt(consistency_gaussian.first_order_mse(SETTINGS["third"].schedule, m))
    bias = np.abs(numbers["third/exact_means"] - truth())
    for j, panel in enumerate(axes.flat[:POISSON]):
        _fan(panel, m, errors(numbers, "third")[..., j])
        panel.plot(
            m, predicted[:, j], color=style.COLOURS[1], **style.ASYMPTOTE, label="root MSE, first order in small δ"
        )
        panel.plot(m, bias[:, j], color=style.COLOURS[6], **style.EXACT, label="|bias|, exact")
        panel.set_title(f"Gaussian, φ = {PHI_NAMES[j]}")
    if "logistic/stages" in numbers:
        exact = consistency_others.logistic_truth()
        _fan(
            axes[1, 2],
            numbers["logistic/stages"],
            (numbers["logistic/average"] - exact)[..., 0] / np.sqrt(exact[3]),
        )
    axes[1, 2].set_title("logistic, first coordinate")
    axes[1, 2].set_ylabel("|error|, posterior sds")
    for row in axes:
        row[0].set_ylabel("|π$_m$(φ) - π(φ)|")
    for panel in axes[1]:
        panel.set_xlabel("number of steps m")
    handles, labels = axes[1, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5)
    figure.suptitle("Along its trajectories the average closes in on the posterior expectation (α = 1/3)")
    return figure


def _fan(panel: Axes, m: np.ndarray, error: Floats) -> None:
    low, high = np.quantile(np.abs(error), (0.1, 0.9), axis=-1)
    root = np.sqrt(np.mean(error**2, axis=-1))
    panel.fill_between(m, low, high, color=style.COLOURS[4], alpha=0.35, linewidth=0, label="80% of chains")
    panel.plot(m, np.abs(error[:, :5]), color="#999999", linewidth=0.7)
    panel.plot([], [], color="#999999", linewidth=0.7, label="five chains")
    # The error of a root is that of the square over twice the root.
    panel.errorbar(m, root, standard_error(error**2) / root, label="root MSE of chains ± 2 s.e.", **_look(0))
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_ylim(0.3 * low.min(), 2 * high.max())


def _draw_breaks(numbers: Numbers) -> Figure:
    figure, axes = style.new_figure(columns=2, rows=2, width=11, height=8)
    _draw_spread(axes[0, 0], numbers)
    _draw_constant(axes[0, 1], numbers)
    _draw_coverage(axes[1, 0], numbers)
    _draw_exponents(axes[1, 1], numbers)
    for panel in axes.flat:
        panel.set_xscale("log")
        panel.set_xlabel("number of steps m")
        panel.legend(loc="lower left" if panel is axes[0, 0] else "best")
    figure.suptitle(
        "Outside the assumptions the average stays random, settles elsewhere, or hides its error (bars: ± 2 errors)"
    )
    return figure


def _look(i: int) -> dict[str, Any]:
    return {"color": style.COLOURS[i], "marker": style.MARKS[i], **style.SIMULATED}


def _draw_spread(panel: Axes, numbers: Numbers) -> None:
    labels = {"third": "α = 1/3, ω = δ", "p=2": "α = 1/3, ω = δ²", "p=6": "α = 1/3, ω = δ⁶", "frozen": "α = 3/2, ω = δ"}
    for i, (name, label) in enumerate(labels.items()):
        values, m = numbers[f"{name}/average"][..., THETA], numbers[f"{name}/stages"]
        sd = values.std(axis=-1, ddof=1)
        panel.errorbar(m, sd, 2 * sd / np.sqrt(2 * values.shape[-1]), label=label, **_look(i))
        panel.plot(m, np.sqrt(numbers[f"{name}/exact_variance"]), color=style.COLOURS[i], **style.EXACT)
    panel.set_yscale("log")
    panel.set_ylabel("sd of π$_m$(θ) over chains")
    panel.set_title("Finite sums of δ or ω: the spread stays (lines: exact)")


def _draw_constant(panel: Axes, numbers: Numbers) -> None:
    for i, (name, label) in enumerate({"third": "δ decreasing, α = 1/3", "constant": f"δ = {CONSTANT_STEP:g}"}.items()):
        values, m = numbers[f"{name}/average"][..., SQUARE], numbers[f"{name}/stages"]
        panel.errorbar(m, values.mean(axis=-1), 2 * standard_error(values), label=label, **_look(i))
        panel.plot(m, numbers[f"{name}/exact_means"][:, SQUARE], color=style.COLOURS[i], **style.EXACT)
    law = problems.gaussian_law(consistency_gaussian.BATCH_SIZE)
    mean, variance, _ = law.stationary(CONSTANT_STEP)
    panel.axhline(mean**2 + variance, color=style.COLOURS[1], **style.ASYMPTOTE, label="the chain's own law")
    panel.axhline(truth()[SQUARE], color=style.COLOURS[6], linestyle=":", linewidth=1.6, label="posterior")
    panel.set_ylim(bottom=0)
    panel.set_ylabel("mean of π$_m$(θ²)")
    panel.set_title("A constant step: the wrong number")


def _draw_coverage(panel: Axes, numbers: Numbers) -> None:
    panel.axhline(consistency_others.LEVEL, color=style.COLOURS[6], **style.ASYMPTOTE, label="nominal")
    if "heavy/stages" in numbers:
        covered, m = numbers["heavy/covered"], numbers["heavy/stages"]
        for i, label in enumerate(HEAVY_NAMES):
            share = covered[..., i].mean(axis=-1)
            error = 2 * np.sqrt(share * (1 - share) / covered.shape[1])
            # Side by side, since two of them nearly coincide.
            panel.errorbar(m * 1.1 ** (i - 1.5), share, error, label=label, **_look(i))
    panel.set_ylim(0, 1.02)
    panel.set_ylabel("intervals that hold the truth")
    panel.set_title("Heavy tails (Student, 3 d.o.f.): far too short for θ²")


def _draw_exponents(panel: Axes, numbers: Numbers) -> None:
    for i, (name, label) in enumerate({"third": "α = 1/3", "half": "α = 1/2"}.items()):
        value, error = mse(numbers, name)
        panel.errorbar(numbers[f"{name}/stages"], value, 2 * error, label=label, **_look(i))
        exact = numbers[f"{name}/law_bias"] ** 2 + numbers[f"{name}/law_variance"]
        panel.plot(numbers["law_stages"], exact, color=style.COLOURS[i], **style.EXACT)
    computed = f"exact law, computed to m = {numbers['law_stages'][-1]:,} only"
    panel.plot([], [], color="grey", **style.EXACT, label=computed)
    panel.set_yscale("log")
    panel.set_ylabel("MSE of π$_m$(A sin)")
    panel.set_title("Inside: at n = 10, α = 1/2 leads early on")
