"""Diffusion limit: chains on one Brownian path approach the Langevin diffusion

Section 5. Chains of finer and finer mesh are driven by the increments of one Brownian path W, and their distance to the
diffusion on the same path is measured in the sup norm: at the chain's own times and over all t, with the full gradient
and with minibatches, with equal and with decreasing steps. The chains go through the sampler under test; the reference
is plain SGLD on a much finer grid.
"""

from functools import partial
from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

import langevin as lv
from langevin.paper import study, style
from langevin.paper.diffusion_exact import bridge_median, chi_square_score, error_law, ito_gaps
from langevin.paper.lab import Lab
from langevin.paper.problems import gaussian, logistic
from langevin.paper.study import Finding, Numbers, Row, Verdict, agrees
from langevin.theory.coupling import DiffusionLimit, Order

PROBLEMS, GRADIENTS, STEPS = ("gaussian", "logistic"), ("full", "minibatch"), ("equal", "decreasing")
TIME = {"gaussian": 2.0, "logistic": 0.1}  # five and more relaxation times, 2/(curvature of log pi)
BATCH = {"gaussian": 10, "logistic": 30}
CASES = tuple(product(PROBLEMS, GRADIENTS, STEPS))
ALPHA = {"equal": 0.0, "decreasing": 1 / 3}
# For the eye only: this chain is too coarse for the fits, which use the others.
COARSE = 8
PICTURED = (8, 32, 256)
# A fit over finitely many meshes feels logarithms: the supremum over M points grows like sqrt(log M), and for steps
# k^-1/3 so does sqrt(sum delta^3) against 1/M. Such a factor is worth 1/(2 log M) in the order, 0.1 at M = 150.
ASYMPTOTIC = 0.1


def compute(lab: Lab) -> Numbers:
    """The errors of every problem, gradient and step law, and one path of the Gaussian problem."""
    sizes = lab.choose(
        tiny={"gaussian": (256, 32), "logistic": (256, 16)},
        quick={"gaussian": (512, 64), "logistic": (512, 32)},
        full={"gaussian": (2048, 256), "logistic": (1024, 64)},
    )
    numbers: dict[str, np.ndarray] = {}
    for problem, gradient, steps in CASES:
        finest, paths = sizes[problem]
        meshes = [COARSE, *(2**i for i in range(5, finest.bit_length()))]
        options = {"time": TIME[problem], "meshes": meshes, "alpha": ALPHA[steps], "paths": paths}
        case = f"{problem}/{gradient}/{steps}"
        batch = BATCH[problem] if gradient == "minibatch" else None
        work = partial(_coupled, lab, problem, batch, options)
        part = lab.part(f"diffusion_limit/{case}", work, batch=batch, **options)
        numbers |= {f"{case}/{name}": array for name, array in part.items()}
    return numbers


def _coupled(lab: Lab, problem: str, batch: int | None, options: dict[str, Any]) -> Numbers:
    model: Any = {"gaussian": gaussian, "logistic": logistic}[problem]()
    start = _gaussian_start() if problem == "gaussian" else model.theta_0
    options = {**options, "subsample": None if batch is None else lv.WithoutReplacement(batch)}
    result = lv.theory.diffusion_limit(model.target, model.data, start, kernel=lab.kernel, seed=lab.seed, **options)
    names = ("num_steps", "mesh", "rms_step", "error_at_mesh", "error_everywhere", "error_at_end")
    arrays = {name: getattr(result, name) for name in names}
    if problem == "gaussian":
        arrays |= {"times": result.times, "brownian": result.brownian[0, :, 0], "reference": result.reference[0, :, 0]}
        for count, times, chain in zip(result.num_steps, result.mesh_times, result.chains, strict=True):
            arrays |= {f"mesh_times_{count}": times, f"chain_{count}": chain[0, :, 0]}
    return arrays


def _gaussian_start() -> float:
    """Two standard deviations from the mean, so that the picture shows the relaxation too."""
    return gaussian().mu_p + 2 * gaussian().sigma_p


def check(numbers: Numbers) -> list[Finding]:
    """Orders of convergence, the exact law at the last time, and the identity of the proof."""
    return [
        _orders(numbers, "full", "equal", 1.0),
        _orders(numbers, "minibatch", "equal", 0.5),
        _orders(numbers, "full", "decreasing", 1.0),
        _orders(numbers, "minibatch", "decreasing", 0.5),
        _over_all_t(numbers, "equal"),
        _over_all_t(numbers, "decreasing"),
        _exact_law(numbers),
        _identity(numbers),
    ]


def _order(numbers: Numbers, case: str, errors: str, steps: str = "rms_step") -> Order:
    fitted = numbers[f"{case}/num_steps"] > COARSE
    return DiffusionLimit.order(numbers[f"{case}/{errors}"][fitted], numbers[f"{case}/{steps}"][fitted])


def _within(orders: list[Order], paths: list[int], low: float, high: float) -> bool:
    """Whether all orders are compatible with the interval, by Student's law over the paths."""
    reach = [float(stats.t.isf(study.FALSE_ALARM / (2 * len(orders)), count - 1)) for count in paths]
    return all(
        low < o.value + r * o.stderr and o.value - r * o.stderr < high for o, r in zip(orders, reach, strict=True)
    )


def _paths(numbers: Numbers, case: str) -> int:
    return numbers[f"{case}/error_at_mesh"].shape[1]


def _verdict(good: bool, otherwise: str) -> dict[str, Any]:
    return {"verdict": Verdict.REPRODUCED} if good else {"verdict": Verdict.REFUSED, "because": otherwise}


def _orders(numbers: Numbers, gradient: str, steps: str, expected: float) -> Finding:
    cases = [f"{problem}/{gradient}/{steps}" for problem in PROBLEMS]
    orders = [_order(numbers, case, "error_at_mesh") for case in cases]
    good = _within(orders, [_paths(numbers, case) for case in cases], expected - ASYMPTOTIC, expected + ASYMPTOTIC)
    words = {"full": "the full gradient", "minibatch": "minibatches"}[gradient]
    law = {"equal": "equal steps", "decreasing": "steps k^-1/3"}[steps]
    return Finding(
        claim=f"With {words} and {law} the sup-norm error at the chain's times vanishes with order {expected:g}",
        printed="convergence as the mesh vanishes; the proof bounds the error by mesh^1/2",
        measured=", ".join(f"{problem} {order}" for problem, order in zip(PROBLEMS, orders, strict=True)),
        **_verdict(good, f"the fitted order is not {expected:g}: the chains do not approach the diffusion at its rate"),
    )


def _over_all_t(numbers: Numbers, steps: str) -> Finding:
    """Equal steps: between the order of Brownian bridges alone and that of gradient noise, 1/2.

    Decreasing steps: the widest bridges are those of the first, largest steps, while all else that adds to the error
    vanishes faster than the largest step does. So the order is at least that of bridges, with no upper bound.
    """
    cases = [f"{problem}/{gradient}/{steps}" for problem in PROBLEMS for gradient in GRADIENTS]
    orders = [_order(numbers, case, "error_everywhere", "mesh") for case in cases]
    counts = numbers[f"{cases[0]}/num_steps"][1:]
    bridge = np.polyfit(-np.log(counts), np.log(bridge_median(1 / counts, counts)), 1)[0]
    # The fine grid misses some of a bridge's height, most on the finest mesh: 0.58 sqrt(1/16) of some 2 sqrt(delta),
    # which changes a slope over a factor of 8 by 0.03.
    high = 0.53 if steps == "equal" else np.inf
    good = _within(orders, [_paths(numbers, case) for case in cases], bridge - 0.03, high)
    law, order = {"equal": ("equal steps", "a little below 1/2"), "decreasing": ("steps k^-1/3", "1/2 or more")}[steps]
    return Finding(
        claim=f"Over all t the interpolated chains with {law} converge with order {order} in the mesh: "
        "what they miss is the Brownian bridges",
        printed="convergence in sup norm over [0, T], no rate",
        measured=", ".join(f"{c.rsplit('/', 1)[0]} {o}" for c, o in zip(cases, orders, strict=True))
        + f"; bridges of equal steps alone {bridge:.3f}",
        **_verdict(good, "the fitted order is not that of paths which miss no more than bridges and gradient noise"),
    )


def _exact_law(numbers: Numbers) -> Finding:
    """The error at time T is a sum of independent terms with known variance: its mean square has a chi-square law."""
    scores = []
    for gradient, steps in product(GRADIENTS, STEPS):
        case = f"gaussian/{gradient}/{steps}"
        width = numbers[f"{case}/times"][1]
        batch = BATCH["gaussian"] if gradient == "minibatch" else None
        for count, row in zip(numbers[f"{case}/num_steps"], numbers[f"{case}/error_at_end"], strict=True):
            cells = np.rint(np.diff(numbers[f"{case}/mesh_times_{count}"]) / width).astype(np.int64)
            mean, variance = error_law(cells, width, _gaussian_start(), batch)
            scores.append(chi_square_score(float(np.sum((row - mean) ** 2) / variance), row.size))
    good, largest = agrees(scores, 0.0, 1.0)
    return Finding(
        claim="On the Gaussian problem the mean squared error at time T is that of the exact linear recursion",
        printed="no constant given",
        measured=f"largest of {len(scores)} scores {largest:.1f}",
        **_verdict(good, "the mean squared distance to the diffusion is not that of SGLD"),
    )


def _identity(numbers: Numbers) -> Finding:
    """S = I(W~ + e1 + e2) against I(W~) + e1 + e2 for each mesh; without gradient noise e2 = 0 is not fitted to S."""
    right, wrong = {}, {}
    for gradient in GRADIENTS:
        case = f"gaussian/{gradient}/equal"
        gaps = []
        for count in numbers[f"{case}/num_steps"]:
            times = numbers[f"{case}/mesh_times_{count}"]
            brownian = numbers[f"{case}/brownian"][np.rint(times / numbers[f"{case}/times"][1]).astype(int)]
            gaps.append(ito_gaps(brownian, times, numbers[f"{case}/chain_{count}"], gradient == "minibatch"))
        right[gradient], wrong[gradient] = np.transpose(gaps)
    worst = max(gap.max() for gap in right.values())
    # Rounding, some thousand times, of numbers of order one; the printed form is off by some delta.
    good = worst < 1e-11 and min(gap.min() for gap in wrong.values()) > 1e-6
    right_form = "the error terms belong inside the Ito map; the conclusion stays"
    return Finding(
        claim="The interpolated chain S is the Ito map of the perturbed path W~ + e1 + e2, exactly",
        printed="S = I(W~) + e1 + e2",
        measured=f"I(W~ + e1 + e2) - S is at most {worst:.0e}; I(W~) + e1 + e2 - S falls from {wrong['full'][0]:.2g} "
        f"({COARSE} steps) to {wrong['full'][-1]:.2g} with the full gradient, from {wrong['minibatch'][0]:.2g} to "
        f"{wrong['minibatch'][-1]:.2g} with minibatches",
        verdict=Verdict.CORRECTED if good else Verdict.REFUSED,
        because=right_form if good else "S does not solve the integral equation of its own path",
        erratum=14,
    )


def table(numbers: Numbers) -> list[Row]:
    """One row per case and mesh: the mean of each error over the paths, with its standard error."""
    rows: list[Row] = []
    for problem, gradient, steps in CASES:
        case = f"{problem}/{gradient}/{steps}"
        for i, count in enumerate(numbers[f"{case}/num_steps"]):
            row: Row = {"problem": problem, "gradient": gradient, "steps": steps, "num_steps": int(count)}
            row |= {name: float(numbers[f"{case}/{name}"][i]) for name in ("mesh", "rms_step")}
            for name in ("error_at_mesh", "error_everywhere"):
                errors = numbers[f"{case}/{name}"][i]
                row |= {name: float(errors.mean()), f"{name}_stderr": _stderr(errors)}
            rows.append(row)
    return rows


def _stderr(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size))


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
    figure, panels = style.new_figure(columns=2, rows=2, width=9.6, height=7.4, sharex="col", sharey="col")
    for column, problem in enumerate(PROBLEMS):
        at_mesh, everywhere = panels[:, column]
        for i, gradient in enumerate(GRADIENTS):
            for steps in STEPS:
                _draw_case(at_mesh, numbers, f"{problem}/{gradient}/{steps}", "error_at_mesh", i)
            # Over all t equal and decreasing steps are to be measured by different steps, so one law is drawn.
            _draw_case(everywhere, numbers, f"{problem}/{gradient}/equal", "error_everywhere", i)
            _draw_guide(at_mesh, numbers, f"{problem}/{gradient}/equal", "error_at_mesh", 1.0 - 0.5 * i)
            _draw_guide(everywhere, numbers, f"{problem}/{gradient}/equal", "error_everywhere", 0.5)
        at_mesh.set_title(f"{problem.capitalize()} problem, at the chain's times")
        everywhere.set_title(f"{problem.capitalize()} problem, over all t")
        everywhere.set(xlabel="root mean square step δ (unit of θ²)", xscale="log", yscale="log")
    for axes in panels[:, 0]:
        axes.set_ylabel("sup-norm error (unit of θ)")
    case = "gaussian/full/equal"
    delta, counts = numbers[f"{case}/mesh"], numbers[f"{case}/num_steps"]
    panels[1, 0].plot(delta, bridge_median(delta, counts), color="black", **style.EXACT, label="Brownian bridges alone")
    figure.suptitle("Order 1 with the full gradient; 1/2 with minibatches, and between mesh points", x=0.01, ha="left")
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
        yerr=[_stderr(row) for row in values],
        color=style.COLOURS[i],
        marker=style.MARKS[i],
        mfc=style.COLOURS[i] if steps == "equal" else "white",
        label={"full": "full gradient", "minibatch": "minibatches"}[gradient] + f", {steps} steps",
        **style.SIMULATED,
    )


def _draw_guide(axes: Axes, numbers: Numbers, case: str, errors: str, order: float) -> None:
    """A line of this slope through the finest mesh."""
    delta, values = numbers[f"{case}/rms_step"], numbers[f"{case}/{errors}"].mean(axis=1)
    line = {1.0: style.ASYMPTOTE, 0.5: {**style.ASYMPTOTE, "linestyle": (0, (1, 2))}}[order]
    label = {1.0: "slope 1", 0.5: "slope 1/2"}[order]
    axes.plot(delta, values[-1] * (delta / delta[-1]) ** order, color="#666666", zorder=1, label=label, **line)
