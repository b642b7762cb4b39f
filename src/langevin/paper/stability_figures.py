"""What the study of stability shows: its table and its figures."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import special

from langevin import figures as style
from langevin.paper.study import Floats, Numbers, Row


def table(numbers: Numbers) -> list[Row]:
    """Moments by m, simulated and exact; pulls by radius."""
    rows: list[Row] = []
    for stage, times in enumerate(numbers["moments.m"]):
        for p in (1, 2):
            columns = [numbers[f"moments.{name}"][stage, p - 1] for name in ("mean", "stderr", "exact")]
            for m, mean, error, exact in zip(times, *columns, strict=True):
                rows.append(_row("E V^p(theta_m)", f"gaussian p={p}", m, mean, error, exact))
    for k, edge in enumerate(numbers["edge.edges"]):
        columns = [numbers[f"edge.{name}"][k] for name in ("mean", "stderr", "exact")]
        for m, (mean, error, exact) in enumerate(zip(*columns, strict=True), start=1):
            rows.append(_row("E (theta_m - mu_p)^2", f"gaussian delta={edge} of 4 sigma_p^2", m, mean, error, exact))
    for name in ("gaussian", "logistic", "cauchy", "quartic"):
        profile = zip(numbers[f"conditions.{name}.radius"], numbers[f"conditions.{name}.pull"], strict=True)
        # Computed, not simulated: no error, and nothing to compare with.
        empty = {"stderr": "", "exact": ""}
        rows += [{**_row("pull at radius", name, *point, 0.0, 0.0), **empty} for point in profile]
    return rows


def _row(quantity: str, case: str, at: float, value: float, stderr: float, exact: float) -> Row:
    numbers = {"at": at, "value": value, "stderr": stderr, "exact": exact}
    return {"quantity": quantity, "case": case, **{name: float(number) for name, number in numbers.items()}}


def draw(numbers: Numbers) -> dict[str, Figure]:
    """The pull of four targets beside the moments of V; an overshoot beside the largest stable step."""
    figure, (left, right) = style.new_figure(columns=2, width=10.5, height=4.4)
    _draw_pull(left, numbers)
    _draw_moments(right, numbers)
    second, (left, right) = style.new_figure(columns=2, width=10.5, height=4.2)
    _draw_path(left, numbers["quartic.path"])
    _draw_edge(right, numbers)
    return {"stability": figure, "stability_overshoot": second}


def _draw_pull(axes: Axes, numbers: Numbers) -> None:
    labels = {
        "quartic": r"$e^{-\theta^4}$: overshoots",
        "gaussian": "Gaussian model: stable",
        "logistic": "logistic model: stable",
        "cauchy": "Cauchy: heavy tails",
    }
    dashes = ("-", (0, (5, 2)), (0, (1, 1)), (0, (5, 1, 1, 1)))
    for (name, label), dash, colour in zip(labels.items(), dashes, style.COLOURS, strict=False):
        radius, pull = numbers[f"conditions.{name}.radius"], numbers[f"conditions.{name}.pull"]
        shown = (radius > 0) & (radius < 1e7) & (pull > 0)
        axes.loglog(radius[shown], pull[shown], linestyle=dash, color=colour, label=label, linewidth=1.6)
    axes.set(xlim=(1e-2, 1e6), ylim=(1e-8, 1e10))
    axes.set_xlabel(r"distance from $\theta_0$ (unit of $\theta$)")
    axes.set_ylabel(r"pull $-\frac{1}{2}\langle\nabla V, \nabla\log\pi\rangle / V$")
    axes.set_title("Far out a pull levels off, fades or grows")
    axes.legend(loc="upper left")


def _draw_moments(axes: Axes, numbers: Numbers) -> None:
    for p, colour, mark in zip((1, 2), style.COLOURS, style.MARKS, strict=False):
        m, mean, error, exact = (
            np.concatenate([part if name == "m" else part[p - 1] for part in numbers[f"moments.{name}"]])
            for name in ("m", "mean", "stderr", "exact")
        )
        m, order = np.unique(m, return_index=True)
        some = order[_spread(m)]
        axes.errorbar(
            m[_spread(m)] + 1, mean[some], yerr=2 * error[some], color=colour, marker=mark, label=f"p = {p}: simulated",
            **style.SIMULATED,
        )  # fmt: skip
        axes.plot(m + 1, exact[order], color=colour, label=f"p = {p}: exact", **style.EXACT)
    axes.set(xscale="log", yscale="log")
    axes.set_xlabel("m + 1")
    axes.set_ylabel(r"$E\,V^p(\theta_m)$ ($\pm$ 2 standard errors)")
    axes.set_title("Moments of V stay below those of the start")
    axes.legend(loc="upper right")


def _spread(m: Floats) -> Floats:
    """Indices of about 25 times, evenly spread in the logarithm."""
    wanted = np.geomspace(1, m[-1] + 1, 25)
    return np.unique(np.searchsorted(m + 1, wanted).clip(0, len(m) - 1))


def _draw_path(axes: Axes, path: Floats) -> None:
    axes.plot(
        np.arange(len(path)), path, color=style.COLOURS[1], marker="s", linewidth=0.8, markersize=5, label="one chain"
    )
    axes.set_yscale("symlog", linthresh=1.0)
    mass = special.gammainc(0.25, 1.0)  # of (-1, 1)
    axes.axhspan(-1, 1, color=style.COLOURS[2], alpha=0.2, linewidth=0, label=f"{100 * mass:.0f}% of the target's mass")
    axes.set_xticks(np.arange(len(path)))
    axes.legend(loc="upper left")
    axes.set_xlabel("m")
    axes.set_ylabel(r"$\theta_m$ (linear within $\pm 1$)")
    axes.set_title(r"Each step on $e^{-\theta^4}$ lands farther out")


def _draw_edge(axes: Axes, numbers: Numbers) -> None:
    for k, (edge, colour, mark) in enumerate(zip(numbers["edge.edges"], style.COLOURS, style.MARKS, strict=False)):
        mean, error, exact = (numbers[f"edge.{name}"][k] for name in ("mean", "stderr", "exact"))
        m = np.arange(1, mean.size + 1)
        label = rf"$\delta = {edge}\times 4\sigma_p^2$"
        axes.errorbar(
            m[::4],
            mean[::4],
            yerr=2 * error[::4],
            color=colour,
            marker=mark,
            label=f"{label}: simulated",
            **style.SIMULATED,
        )
        axes.plot(m, exact, color=colour, label=f"{label}: exact", **style.EXACT)
    axes.set_yscale("log")
    axes.set_xlabel("m")
    axes.set_ylabel(r"$E(\theta_m - \mu_p)^2$ (unit of $\theta^2$; $\pm$ 2 standard errors)")
    axes.set_title(r"Second moments are bounded for $\delta < 4\sigma_p^2$")
    axes.legend(loc="upper left")
