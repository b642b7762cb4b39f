"""Figure 5: which step sizes (a m + b)^-0.38 estimate a posterior variance best

Logistic regression, N = 1000, d = 3, n = 30: relative MSE of the step-weighted estimate of the posterior variance of
theta_1 over a logarithmic grid of (a, b), from runs that start at the mode, after few and after many passes.
"""

from typing import Any

import numpy as np
from matplotlib.patheffects import Normal, Stroke

import langevin as lv
from langevin import figures as style
from langevin.paper import logistic_runs as runs
from langevin.paper import problems
from langevin.paper.lab import Lab
from langevin.paper.logistic_law import VarianceLaw, noise_covariance, variance_law
from langevin.paper.study import Finding, Floats, Judgement, Numbers, Row, Verdict, judged, limit

# A cell belongs to the valley of good parameters if its MSE is below this many times that of theory's best cell. By
# theory the paper's cell lies at 1.06 and, after 1000 passes, at 1.25, and the corners at 3.2 or more: the runs of the
# full size tell both from this bound.
VALLEY = 1.6


def compute(lab: Lab) -> Numbers:
    """Estimates of all runs in all cells at both horizons, and the law that the linearised chain obeys."""
    a, b, passes, _ = runs.grid(lab)
    steps = runs.num_steps(passes)

    def law() -> Numbers:
        schedule = lv.Polynomial(a=a[:, None], b=b, alpha=runs.ALPHA)
        found = variance_law(schedule, tuple(steps), noise_covariance(runs.BATCH_SIZE, replacement=True))
        return {"mean": found.mean, "sd": found.sd}

    expected = lab.reference.part("fig5/law", law, a=a.tolist(), b=b.tolist(), passes=passes)
    return {
        "a": a,
        "b": b,
        "passes": np.array(passes),
        "steps": np.array(steps),
        "visits": np.array(steps) * runs.BATCH_SIZE,
        "estimates": runs.heat_map(lab),
        "law_mean": expected["mean"],
        "law_sd": expected["sd"],
    }


def check(numbers: Numbers) -> list[Finding]:
    """The map against theory, the valley and its ends, the paper's choice, and whether the valley stays."""
    return [_agrees_with_law(numbers), _valley(numbers), _paper_choice(numbers), _same_region(numbers), _count(numbers)]


def _law(numbers: Numbers) -> VarianceLaw:
    return VarianceLaw(numbers["law_mean"], numbers["law_sd"])


def _best(mse: Floats) -> tuple[int, int]:
    """The cell of the smallest MSE.

    Cells are chosen by theory and measured on runs: the smallest of many noisy cells would look better than it is.
    """
    i, j = np.unravel_index(np.argmin(mse), mse.shape)
    return int(i), int(j)


def _paper_cell(numbers: Numbers) -> tuple[int, int]:
    a, b = runs.PAPER
    return int(np.argmin(np.abs(np.log(numbers["a"] / a)))), int(np.argmin(np.abs(np.log(numbers["b"] / b))))


def _agrees_with_law(numbers: Numbers) -> Finding:
    claim = "Bias and fluctuations in every cell are those of SGLD on the linearised posterior"
    middle = np.median(runs.relative_mse(numbers["estimates"])[0] / _law(numbers).mse)
    more = f"simulated/theoretical MSE, median {middle:.3f}"
    return runs.follows_law(claim, _law(numbers), numbers["estimates"], more)


def _judge(value: float, error: float, bound: float) -> tuple[Verdict, Verdict]:
    """Verdicts on "the ratio is below the bound" and on "it is above", on the scale of logarithms."""
    excess, far = np.log(value / bound), limit(1) * error / value
    if excess < -far:
        return Verdict.REPRODUCED, Verdict.REFUSED
    return (Verdict.REFUSED, Verdict.REPRODUCED) if excess > far else (Verdict.TOO_SMALL, Verdict.TOO_SMALL)


def _all(
    verdicts: list[Verdict], wrong: str, too_small: str = "too few runs to tell", *, corrected: str = ""
) -> Judgement:
    """A claim in several parts is as good as its worst."""
    good, clear = (verdict not in verdicts for verdict in (Verdict.REFUSED, Verdict.TOO_SMALL))
    return judged(good, wrong, clear, too_small, corrected=corrected)


def _valley(numbers: Numbers) -> Finding:
    """At the smallest a some b is as good as any cell, and both corners of extreme steps are worse."""
    errors, law = runs.squared_errors(numbers["estimates"]), _law(numbers).mse
    parts, verdicts = [], []
    for h, passes in enumerate(numbers["passes"]):
        best, flat = _best(law[h]), (0, int(np.argmin(law[h, 0])))
        end, end_error = runs.ratio(errors[h][flat], errors[h][best])
        verdicts.append(_judge(end, end_error, VALLEY)[0])
        sides = []
        for corner in ((0, 0), (-1, -1)):
            side, error = runs.ratio(errors[h][corner], errors[h][best])
            sides.append(f"{side:.3g} ± {error:.2g}")
            verdicts.append(_judge(side, error, VALLEY)[1])
        among = "is the best cell" if flat == best else f"{end:.2f} ± {end_error:.2f}"
        parts.append(f"{passes} passes: smallest a {among}, largest steps {sides[0]}, smallest steps {sides[1]}")
    return Finding(
        f"Good (a, b), within a factor {VALLEY} of the smallest MSE, form a valley down to nearly constant steps",
        "a range of good choices, picked from heat maps",
        "MSE over that of theory's best cell: " + "; ".join(parts),
        **_all(verdicts, "there is no such valley"),
    )


def _paper_ratio(numbers: Numbers, horizon: int) -> tuple[float, float]:
    """MSE of the paper's cell over that of theory's best, and its standard error."""
    errors = runs.squared_errors(numbers["estimates"][horizon])
    return runs.ratio(errors[_paper_cell(numbers)], errors[_best(_law(numbers).mse[horizon])])


def _paper_choice(numbers: Numbers) -> Finding:
    parts, verdicts = [], []
    for h, passes in enumerate(numbers["passes"]):
        value, error = _paper_ratio(numbers, h)
        mse, mse_error = runs.relative_mse(numbers["estimates"][h][_paper_cell(numbers)])
        verdicts.append(_judge(value, error, VALLEY)[0])
        parts.append(f"{passes} passes: MSE {mse:.3g} ± {mse_error:.1g}, {value:.2f} ± {error:.2f} times that of "
                     "theory's best cell")  # fmt: skip
    return Finding(
        f"The paper's (a, b) is a good choice: its MSE is within a factor {VALLEY} of the smallest",
        "a = 5.89e7, b = 7.90e8",
        "; ".join(parts),
        **_all(verdicts, f"its MSE is more than {VALLEY} times the smallest"),
    )


def _same_region(numbers: Numbers) -> Finding:
    """Is the best nearly constant step of few passes still good after many, as the paper's decreasing one is?"""
    few, many = (int(np.argmin(part[0])) for part in _law(numbers).mse)
    errors = runs.squared_errors(numbers["estimates"][1, 0])
    moved, error = runs.ratio(errors[few], errors[many])
    paper, paper_error = _paper_ratio(numbers, 1)
    passes, b = numbers["passes"], numbers["b"]
    return Finding(
        "Good parameters for few passes stay good for many where the steps decrease, not where they are constant",
        "the range of good choices seems the same in both maps",
        f"{passes[1]} passes: the paper's cell at {paper:.2f} ± {paper_error:.2f} times the MSE of theory's best; at "
        f"the smallest a theory's best b goes from {b[few]:.1e} to {b[many]:.1e}, and staying costs {moved:.2f} ± "
        f"{error:.2f} times",
        **_all(
            [_judge(moved, error, 1.0)[1], _judge(paper, paper_error, VALLEY)[0]],
            "a constant step that suits few passes suits many, or the paper's decreasing one does not",
            f"{passes[1]} passes are too few, or the runs too noisy, to see the valley's end move",
            corrected="a constant step that suits few passes is too large, hence biased, for many: that end of the "
            "valley moves",
        ),
    )


def _count(numbers: Numbers) -> Finding:
    num_data, visits, passes = len(problems.logistic().y), int(numbers["visits"][0]), int(numbers["passes"][0])
    # Steps are whole, so that the count is right to half a minibatch.
    right = abs(visits - passes * num_data) <= runs.BATCH_SIZE / 2
    count = f"{passes} passes through {num_data} data are {passes * num_data} evaluations"
    return Finding(
        "Likelihood evaluations behind the first map",
        "20 passes = 200 evaluations",
        f"{passes} passes = {numbers['steps'][0]} steps of {runs.BATCH_SIZE} data = {visits} evaluations a run",
        **judged(right, f"{count}, not these", corrected=count),
        erratum=5,
    )


def table(numbers: Numbers) -> list[Row]:
    """One row a cell and horizon."""
    mse, error = runs.relative_mse(numbers["estimates"])
    bias = numbers["estimates"].mean(axis=-1) - 1.0
    law = _law(numbers).mse
    return [
        {
            "passes": int(passes),
            "steps": int(numbers["steps"][h]),
            "a": float(a),
            "b": float(b),
            "runs": numbers["estimates"].shape[-1],
            "relative_mse": float(mse[h, i, j]),
            "relative_mse_stderr": float(error[h, i, j]),
            "relative_bias": float(bias[h, i, j]),
            "linearised_mse": float(law[h, i, j]),
            "linearised_bias": float(numbers["law_mean"][h, i, j] - 1.0),
        }
        for h, passes in enumerate(numbers["passes"])
        for i, a in enumerate(numbers["a"])
        for j, b in enumerate(numbers["b"])
    ]


_BEST = "theory's best cell"
_SIMULATED: dict[str, Any] = {"color": "white", "linestyle": "solid", "linewidth": 1.8}
_THEORY: dict[str, Any] = {"color": "#E69F00", "linestyle": "dashed", "linewidth": 1.8}


def _edges(centres: Floats) -> Floats:
    """Borders of cells around equally spaced points of a log axis."""
    half = np.sqrt(centres[1] / centres[0])
    return np.append(centres / half, centres[-1] * half)


def draw(numbers: Numbers) -> dict[str, Any]:
    """Two heat maps of the MSE over that of theory's best cell, with the valley and the paper's choice."""
    figure, panels = style.new_figure(columns=2, width=9.6, height=4.6, sharey=True)
    a, b, law = numbers["a"], numbers["b"], _law(numbers).mse
    mse, error = runs.relative_mse(numbers["estimates"])
    outline = [Stroke(linewidth=3.2, foreground="black"), Normal()]
    for h, (axes, passes) in enumerate(zip(panels, numbers["passes"], strict=True)):
        best = _best(law[h])
        excess = np.log10(mse[h] / mse[h][best])
        image = axes.pcolormesh(_edges(b), _edges(a), excess, cmap="viridis", vmin=0, vmax=2, rasterized=True)
        for values, look in ((excess, _SIMULATED), (np.log10(law[h] / law[h][best]), _THEORY)):
            level = [np.log10(VALLEY)]
            lines = axes.contour(b, a, values, levels=level, colors=look["color"], linestyles=look["linestyle"])
            lines.set(linewidth=look["linewidth"], path_effects=outline)
        axes.plot(b[best[1]], a[best[0]], "o", color="white", markeredgecolor="black", markersize=9, label=_BEST)
        axes.plot(runs.PAPER[1], runs.PAPER[0], "*", color="#D55E00", markeredgecolor="white", markersize=16)
        axes.set(xscale="log", yscale="log", xlabel="b", xlim=_edges(b)[[0, -1]], ylim=_edges(a)[[0, -1]])
        axes.set_title(f"{passes} passes: MSE {mse[h][best]:.2g} ± {2 * error[h][best]:.1g} in {_BEST}")
        axes.grid(False)
    panels[0].plot([], [], "*", color="#D55E00", markersize=14, label="the paper's (a, b)", linestyle="none")
    panels[0].plot([], [], path_effects=outline, label=f"simulated: {VALLEY} x MSE there", **_SIMULATED)
    panels[0].plot([], [], path_effects=outline, label="theory: the same", **_THEORY)
    panels[0].set_ylabel("a   (small: constant step)")
    bar = figure.colorbar(image, ax=panels, extend="both", ticks=[0, np.log10(VALLEY), np.log10(5), 1, 2])
    bar.ax.set_yticklabels(["1", f"{VALLEY}", "5", "10", "100"])
    bar.set_label(f"MSE / MSE in {_BEST}")
    ratios = " and ".join(
        f"{value:.2f} ± {2 * error:.2f}" for value, error in (_paper_ratio(numbers, h) for h in (0, 1))
    )
    figure.suptitle(f"At the paper's (a, b) the MSE is {ratios} times that of {_BEST} (± 2 s.e.)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return {"fig5": figure}
