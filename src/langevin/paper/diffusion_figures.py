"""Figures of the diffusion limit: chains beside the diffusion, and the errors against the step."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from langevin import figures as style
from langevin.paper.diffusion_exact import bridge_median
from langevin.paper.diffusion_runs import ALPHA, DIMENSION, GRADIENTS, PROBLEMS, STEPS, TIME
from langevin.paper.replicates import standard_error
from langevin.paper.study import Numbers

PICTURED = (8, 32, 256)
_HALF = {**style.ASYMPTOTE, "linestyle": (0, (1, 2))}
_BRIDGES: dict[str, dict[str, Any]] = {"equal": style.EXACT, "decreasing": {**style.EXACT, "linestyle": "-."}}


def draw(numbers: Numbers) -> dict[str, Figure]:
    """One Brownian path with chains of three meshes, and the errors of all paths against the step."""
    return {"diffusion_limit": _draw_paths(numbers), "diffusion_limit_orders": _draw_orders(numbers)}


def _draw_paths(numbers: Numbers) -> Figure:
    figure, panels = style.new_figure(rows=2, width=8.2, height=6.4, sharex=True)
    titles = (
        "Full gradient: the chains close in on the diffusion fast",
        "Minibatches of 10 of the 100 data: they do so more slowly",
    )
    for axes, gradient, title in zip(panels, GRADIENTS, titles, strict=True):
        case = f"gaussian/{gradient}/equal"
        axes.plot(
            numbers[f"{case}/times"], numbers[f"{case}/reference"], color="black", lw=0.9, label="diffusion", zorder=2
        )
        for i, count in enumerate(PICTURED):
            axes.plot(
                numbers[f"{case}/mesh_times_{count}"],
                numbers[f"{case}/chain_{count}"],
                color=style.COLOURS[i],
                marker=style.MARKS[i],
                markersize=(6, 4, 2)[i],
                lw=0.8,
                zorder=5 - i,
                label=f"SGLD, {count} steps",
            )
        axes.set(title=title, ylabel="θ")
    panels[1].set_xlabel("time t (sum of the steps; the relaxation time is 0.4)")
    figure.suptitle("SGLD chains driven by one Brownian path, finer and finer steps", x=0.01, ha="left")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _draw_orders(numbers: Numbers) -> Figure:
    figure, panels = style.new_figure(columns=2, rows=2, width=9.6, height=7.6, sharex="col", sharey="row")
    for column, problem in enumerate(PROBLEMS):
        at_mesh, everywhere = panels[:, column]
        for i, gradient in enumerate(GRADIENTS):
            for steps in STEPS:
                _draw_case(at_mesh, numbers, f"{problem}/{gradient}/{steps}", "error_at_mesh", i)
                _draw_case(everywhere, numbers, f"{problem}/{gradient}/{steps}", "error_everywhere", i)
        _draw_guide(at_mesh, numbers, f"{problem}/full/equal", "error_at_mesh", 1.0)
        _draw_guide(at_mesh, numbers, f"{problem}/minibatch/equal", "error_at_mesh", 0.5)
        _draw_guide(everywhere, numbers, f"{problem}/minibatch/equal", "error_everywhere", 0.5)
        for steps in STEPS:
            counts, delta = (numbers[f"{problem}/full/{steps}/{name}"] for name in ("num_steps", "rms_step"))
            bridges = [bridge_median(TIME[problem], count, ALPHA[steps], DIMENSION[problem]) for count in counts]
            label = f"bridges alone (median), {steps} steps"
            everywhere.plot(delta, bridges, color="black", zorder=1, label=label, **_BRIDGES[steps])
        at_mesh.set_title(f"{problem.capitalize()} problem, at the chain's times")
        everywhere.set_title(f"{problem.capitalize()} problem, over all t")
        everywhere.set(xlabel="root mean square step δ (unit of θ²)", xscale="log", yscale="log")
    for axes in panels[:, 0]:
        axes.set(yscale="log", ylabel="mean sup-norm error ± 2 s.e. (unit of θ)")
    title = (
        "Order 1 with the full gradient, 1/2 with minibatches; between the chain's times Brownian bridges are missed"
    )
    figure.suptitle(title, x=0.01, ha="left")
    labelled: dict[str, Any] = {}
    for handles, labels in (axes.get_legend_handles_labels() for axes in panels[:, 0]):
        labelled |= dict(zip(labels, handles, strict=True))
    figure.legend(labelled.values(), labelled.keys(), loc="outside lower center", ncols=4)
    return figure


def _draw_case(axes: Axes, numbers: Numbers, case: str, errors: str, i: int) -> None:
    values = numbers[f"{case}/{errors}"]
    _, gradient, steps = case.split("/")
    axes.errorbar(
        numbers[f"{case}/rms_step"],
        values.mean(axis=1),
        yerr=2 * standard_error(values),
        color=style.COLOURS[i],
        marker=style.MARKS[i],
        mfc=style.COLOURS[i] if steps == "equal" else "white",
        label={"full": "full gradient", "minibatch": "minibatches"}[gradient] + f", {steps} steps",
        **style.SIMULATED,
    )


def _draw_guide(axes: Axes, numbers: Numbers, case: str, errors: str, order: float) -> None:
    """A line of this slope through the finest mesh."""
    delta, values = numbers[f"{case}/rms_step"], numbers[f"{case}/{errors}"].mean(axis=1)
    line, label = {1.0: (style.ASYMPTOTE, "slope 1"), 0.5: (_HALF, "slope 1/2")}[order]
    axes.plot(delta, values[-1] * (delta / delta[-1]) ** order, color="#666666", zorder=1, label=label, **line)
