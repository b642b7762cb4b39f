"""Theorem "Fluctuations": centre and spread of the average in three regimes, and the constant in its bias

The Gaussian problem of section 6.1 with phi = A h, h = sin(theta - mu_p - sigma_p/2), so that pi(phi) = 0, sigma^2 and
mubar are known, and the law of the average after m steps is known exactly. `clt_regimes` runs thousands of replicates
with decreasing steps; `clt_constant` measures the bias at constant steps, where 1/8 and 1/24 can be told apart.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from langevin import figures as style
from langevin.paper import clt_constant, clt_regimes
from langevin.paper.clt_regimes import REGIMES, last, mubar, sigma2
from langevin.paper.lab import Lab
from langevin.paper.replicates import standard_error
from langevin.paper.study import Finding, Numbers, Row

TITLES = {
    "fluctuations": "α = 1/2: fluctuations dominate",
    "balanced": "α = 1/3: bias and spread balance",
    "bias": "α = 1/5: bias dominates\n(large steps: higher orders add to it)",
}


def compute(lab: Lab) -> Numbers:
    """Replicates in three regimes, then averages at constant steps."""
    return {**clt_regimes.compute(lab), **clt_constant.compute(lab)}


def check(numbers: Numbers) -> list[Finding]:
    """The three limits, normality, the constant, and gradient noise."""
    return clt_regimes.check(numbers) + clt_constant.check(numbers)


def table(numbers: Numbers) -> list[Row]:
    """Measured values with their errors, the exact law and the limit, one row a quantity."""
    return clt_regimes.table(numbers) + clt_constant.table(numbers)


def draw(numbers: Numbers) -> dict[str, Figure]:
    """Histograms of the three regimes, and the bias against a constant step."""
    return {"clt": _draw_regimes(numbers), "clt_constant": clt_constant.draw(numbers)}


def _draw_regimes(numbers: Numbers) -> Figure:
    """Histograms beside the densities of leading order, and below them the means on their way to it."""
    figure, axes = style.new_figure(columns=3, rows=2, width=11, height=6.4)
    for i, name in enumerate(REGIMES):
        _draw_histogram(axes[0, i], numbers, name)
        _draw_means(axes[1, i], numbers, name)
        axes[0, i].set_title(TITLES[name])
    axes[0, 0].set_ylabel("density over runs")
    axes[1, 0].set_ylabel("mean of √T$_m$ π$_m$(φ)")
    handles, labels = (
        first + second for first, second in zip(*(row[0].get_legend_handles_labels() for row in axes), strict=True)
    )
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    figure.suptitle(
        "The centre of the average moves from 0 to the bias as steps shrink more slowly; its spread stays σ"
    )
    return figure


def _draw_histogram(axes: Axes, numbers: Numbers, name: str) -> None:
    scaled, T, B = last(numbers, name)
    sd = np.sqrt(sigma2())
    axes.hist(scaled, bins=40, density=True, color=style.COLOURS[4], alpha=0.6, label="runs")
    grid = np.linspace(scaled.min(), scaled.max(), 300)
    axes.plot(
        grid,
        stats.norm.pdf(grid, B * mubar(), sd),
        color=style.COLOURS[1],
        **style.EXACT,
        label="leading order, N(B$_m$μ̄, σ²)",
    )
    exact = np.sqrt(T) * numbers[f"{name}/mean"][-1]
    axes.axvline(exact, color=style.COLOURS[6], linestyle=":", linewidth=1.6, label="exact mean")
    axes.set_xlabel(f"√T$_m$ π$_m$(φ) at m = {numbers['stages'][-1]:,}")


def _draw_means(axes: Axes, numbers: Numbers, name: str) -> None:
    m, T, delta2 = numbers["stages"], numbers[f"{name}/T"], numbers[f"{name}/delta2"]
    scaled = np.sqrt(T)[:, None] * numbers[f"{name}/average"]
    axes.errorbar(
        m, scaled.mean(axis=-1), 2 * standard_error(scaled), color=style.COLOURS[0], marker=style.MARKS[0],
        label="mean of runs, ± 2 standard errors", **style.SIMULATED,
    )  # fmt: skip
    exact = np.sqrt(T) * numbers[f"{name}/mean"]
    axes.plot(m, exact, color=style.COLOURS[6], **style.EXACT, label="mean, exact law")
    leading = delta2 / np.sqrt(T) * mubar()
    axes.plot(m, leading, color=style.COLOURS[1], **style.ASYMPTOTE, label="leading term B$_m$μ̄")
    axes.set_xscale("log")
    axes.set_xlabel("number of steps m")
    axes.set_ylim(1.35 * min(exact.min(), leading.min()), 0)
