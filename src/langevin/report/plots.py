"""Pictures of a result with matplotlib: forest, marginals, running means, pairs, a predictive check."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from langevin.report import contents

if TYPE_CHECKING:
    from langevin.sampling.result import Result

Figure = Any
_LAPLACE = {"color": "#D55E00", "linestyle": (0, (4, 2)), "linewidth": 1.2}
_BLUE = "#0072B2"
# Inches of a row of the forest plot, and of a small picture.
_ROW, _SMALL = 0.27, 2.3


def plot(result: "Result", kind: str, names: Sequence[str] | None) -> Figure:
    """A figure of one kind; see `Result.plot`."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    try:
        from langevin.figures import house_style
    except ImportError as error:
        raise ImportError("plot needs matplotlib: pip install 'langevin[plot]'") from error
    with house_style():
        return KINDS[kind](result, names)


def _forest(result: "Result", names: Sequence[str] | None) -> Figure:
    from langevin.figures import new_figure

    shown = contents.forest(result, names)
    panels = [np.flatnonzero(shown.panel == number) for number in range(shown.panel.max() + 1)]
    heights = [len(rows) + 1.6 for rows in panels]
    figure, axes = new_figure(
        rows=len(panels), height=_ROW * sum(heights) + 0.8, squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    for axis, rows in zip(axes[:, 0], panels, strict=True):
        at = np.arange(len(rows))
        axis.hlines(at, *shown.ends[:, rows], color=_BLUE, linewidth=1.6, label="95% of the posterior")
        axis.hlines(at, *shown.quartiles[:, rows], color=_BLUE, linewidth=5, alpha=0.45, label="50% of the posterior")
        axis.plot(shown.mean[rows], at, "o", color="white", markeredgecolor=_BLUE, markersize=5, label="mean")
        axis.hlines(at, *shown.error[:, rows], color="black", linewidth=2.4, label="95% Monte Carlo error of the mean")
        low, high = shown.ends[0, rows].min(), shown.ends[1, rows].max()
        if low < 0.0 < high:
            axis.axvline(0.0, color="#888888", linewidth=0.8, zorder=0)
        axis.set_yticks(at, [_labelled(shown, k) for k in rows.tolist()])
        axis.set_ylim(len(rows) - 0.4, -0.6)
        axis.grid(axis="y", visible=False)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    figure.suptitle("Posterior, each panel with a scale of its own" if len(panels) > 1 else "Posterior", fontsize=11)
    return figure


def _labelled(shown: contents.Forest, k: int) -> str:
    return _text(shown.names[k]) + ("" if shown.statuses[k] == "ok" else f" ({shown.statuses[k]})")


def _marginals(result: "Result", names: Sequence[str] | None) -> Figure:
    curves = contents.marginals(result, names)
    figure, axes = _grid(len(curves))
    for axis, curve in zip(axes, curves, strict=True):
        axis.fill_between(curve.x, curve.density, color=_BLUE, alpha=0.25, linewidth=0)
        axis.plot(curve.x, curve.density, color=_BLUE, linewidth=1.4, label="posterior")
        axis.plot(curve.x, curve.laplace, label="Laplace approximation", **_LAPLACE)
        axis.set_title(_text(curve.name), fontsize=9)
        axis.set_yticks([])
        axis.spines["left"].set_visible(False)
        axis.locator_params(axis="x", nbins=4)
        axis.set_ylim(0.0)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _running(result: "Result", names: Sequence[str] | None) -> Figure:
    shown = contents.running(result, names)
    figure, axes = _grid(len(shown.names))
    for k, (axis, name) in enumerate(zip(axes, shown.names, strict=True)):
        axis.fill_between(
            shown.time, shown.low[:, k], shown.high[:, k], color=_BLUE, alpha=0.25, linewidth=0, label="95% interval"
        )
        axis.plot(shown.time, shown.value[:, k], color=_BLUE, linewidth=1.4, label="estimate")
        axis.plot(shown.time, shown.raw[:, k], color="#999999", linewidth=1.0, label="plain average")
        axis.set_xscale("log", subs=[])
        axis.set_title(_text(name), fontsize=9)
        axis.locator_params(axis="y", nbins=4)
        axis.ticklabel_format(axis="y", useOffset=False)
        axis.tick_params(axis="y", labelsize=8)
        axis.set_xticks(shown.marks, [f"{time:,.0f}" for time in shown.marks])
        axis.minorticks_off()
        axis.set_xlabel("time $T_m$ covered by a chain", fontsize=8)
        axis.set_ylim(*shown.range(k))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _pairs(result: "Result", names: Sequence[str] | None) -> Figure:
    from langevin.figures import new_figure

    shown, points = contents.pairs(result, names)
    if len(shown) < 2:
        raise ValueError(f"a picture of pairs must have two parameters or more, got {shown}.")
    count = len(shown) - 1
    size = _SMALL * count + 0.6
    figure, axes = new_figure(count, count, size, size, squeeze=False, sharex="col", sharey="row")
    for row in range(count):
        for column in range(count):
            axis = axes[row, column]
            if column > row:
                axis.set_visible(False)
                continue
            axis.plot(points[:, column], points[:, row + 1], ".", color=_BLUE, alpha=0.35, markersize=3, linestyle="")
            axis.locator_params(nbins=4)
            if row == count - 1:
                axis.set_xlabel(_text(shown[column]), fontsize=9)
            if column == 0:
                axis.set_ylabel(_text(shown[row + 1]), fontsize=9)
    figure.suptitle("Draws of the posterior", fontsize=11)
    return figure


def _predictive(result: "Result", names: Sequence[str] | None) -> Figure:
    from langevin.figures import new_figure
    from langevin.regression.check import predictive_check
    from langevin.regression.fitting import Fit

    if not isinstance(result, Fit):
        raise ValueError("kind 'predictive' needs a fit: a result of lv.sample does not know what its data mean.")
    found = predictive_check(result)
    figure, axis = new_figure()
    axis.vlines(found.place, found.low, found.high, color=_BLUE, alpha=0.4, linewidth=6, label="95% of replicated data")
    axis.plot(found.place, found.observed, "o", color="black", markersize=4, linestyle="", label="observed")
    if found.calibration:
        axis.plot([min(found.place), max(found.place)], [min(found.place), max(found.place)], color="#999999", lw=1)
    axis.set_xlabel(_text(found.what))
    axis.set_ylabel(found.share)
    figure.suptitle("Predictive check: the data beside what the model draws", fontsize=11)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _grid(count: int) -> tuple[Figure, list[Any]]:
    from langevin.figures import new_figure

    columns = min(count, 3)
    rows = -(-count // columns)
    figure, axes = new_figure(columns, rows, 3.0 * columns if columns > 1 else 4.5, 2.1 * rows + 0.7, squeeze=False)
    for axis in axes.flat[count:]:
        axis.set_visible(False)
    return figure, list(axes.flat[:count])


def _text(name: str) -> str:
    """A name as it is: a dollar sign would begin a formula, and long ones would leave no room for the picture."""
    short = name if len(name) <= 40 else f"{name[:24]}…{name[-15:]}"
    return short.replace("$", r"\$")


KINDS: dict[str, Callable[["Result", Sequence[str] | None], Figure]] = {
    "forest": _forest,
    "marginals": _marginals,
    "running": _running,
    "pairs": _pairs,
    "predictive": _predictive,
}
