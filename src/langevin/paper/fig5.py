"""Figure 5: which step sizes (a m + b)^-0.38 estimate a posterior variance best

Logistic regression, N = 1000, d = 3, n = 30: relative MSE of the step-weighted estimate of the posterior variance of
theta_1 over a logarithmic grid of (a, b), from runs that start at the mode, after few and after many passes.
"""

from typing import Any

import numpy as np
from matplotlib.patheffects import Normal, Stroke

import langevin as lv
from langevin.paper import logistic_runs as runs
from langevin.paper import style
from langevin.paper.lab import Lab
from langevin.paper.logistic_law import noise_covariance, variance_law
from langevin.paper.study import Finding, Floats, Numbers, Row, Verdict, limit

# A cell belongs to the valley of good parameters if its MSE is below this many times the smallest one.
VALLEY = 1.5


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


def _halves(numbers: Numbers) -> tuple[Floats, Floats]:
    """Squared errors of one half of the runs, to choose cells by, and of the other, to measure them with.

    The smallest of many noisy cells looks better than it is; measured on other runs it does not.
    """
    errors = runs.squared_errors(numbers["estimates"])
    return errors[..., ::2], errors[..., 1::2]


def _best(mse: Floats) -> tuple[int, int]:
    i, j = np.unravel_index(np.argmin(mse), mse.shape)
    return int(i), int(j)


def _paper_cell(numbers: Numbers) -> tuple[int, int]:
    a, b = runs.PAPER
    return int(np.argmin(np.abs(np.log(numbers["a"] / a)))), int(np.argmin(np.abs(np.log(numbers["b"] / b))))


def _agrees_with_law(numbers: Numbers) -> Finding:
    scores = runs.law_scores(numbers["estimates"], numbers["law_mean"], numbers["law_sd"])
    worst, bound = float(np.abs(scores).max()), limit(scores.size)
    simulated = runs.squared_errors(numbers["estimates"]).mean(axis=-1)
    expected = (numbers["law_mean"] - 1.0) ** 2 + numbers["law_sd"] ** 2
    middle = np.median(simulated / expected)
    good = worst < bound
    return Finding(
        "Bias and fluctuations in every cell are those of SGLD on the linearised posterior",
        "not in the paper: MSE estimated by simulation",
        f"largest of {scores.size} scores {worst:.1f} (limit {bound:.1f}); simulated/theoretical MSE, median "
        f"{middle:.3f}",
        Verdict.REPRODUCED if good else Verdict.REFUSED,
        "" if good else "mean estimates differ from the law of SGLD by more than Monte Carlo error",
    )


def _judge(value: float, error: float, below: float) -> Verdict:
    """A ratio below the bound is reproduced, one above it by chance is too noisy to tell, the rest is refused."""
    if value < below:
        return Verdict.REPRODUCED
    return Verdict.TOO_SMALL if value - limit(1) * error < below else Verdict.REFUSED


def _worst(verdicts: list[Verdict]) -> Verdict:
    return next(v for v in (Verdict.REFUSED, Verdict.TOO_SMALL, Verdict.REPRODUCED) if v in verdicts)


def _reason(verdict: Verdict, too_small: str, refused: str) -> str:
    return {Verdict.TOO_SMALL: too_small, Verdict.REFUSED: refused}.get(verdict, "")


def _valley(numbers: Numbers) -> Finding:
    """At the smallest a some b is as good as any cell, and both corners of extreme steps are worse."""
    choose, measure = _halves(numbers)
    parts, verdicts = [], []
    for h, passes in enumerate(numbers["passes"]):
        best = measure[h][_best(choose[h].mean(axis=-1))]
        flat = measure[h][0, int(np.argmin(choose[h][0].mean(axis=-1)))]
        end, end_error = runs.ratio(flat, best)
        verdicts.append(_judge(end, end_error, VALLEY))
        sides = []
        for corner in (measure[h][0, 0], measure[h][-1, -1]):
            side, error = runs.ratio(corner, best)
            sides.append(f"{side:.3g} ± {error:.2g}")
            # Turned around, so that a side counts as high when the valley's bound lies below it.
            verdicts.append(_judge(-side, error, -VALLEY))
        parts.append(
            f"{passes} passes: smallest a {end:.2f} ± {end_error:.2f} times the best MSE, largest steps {sides[0]}, "
            f"smallest steps {sides[1]}"
        )
    verdict = _worst(verdicts)
    return Finding(
        f"Good (a, b), within {VALLEY} of the smallest MSE, form a valley that runs on to nearly constant steps",
        "a range of good choices, picked from heat maps",
        "; ".join(parts),
        verdict,
        _reason(verdict, "too few runs to tell", "there is no such valley"),
    )


def _paper_choice(numbers: Numbers) -> Finding:
    choose, measure = _halves(numbers)
    cell = _paper_cell(numbers)
    parts, verdicts = [], []
    for h, passes in enumerate(numbers["passes"]):
        value, error = runs.ratio(measure[h][cell], measure[h][_best(choose[h].mean(axis=-1))])
        mse, mse_error = runs.mean_and_error(runs.squared_errors(numbers["estimates"][h][cell]))
        verdicts.append(_judge(value, error, VALLEY))
        parts.append(f"{passes} passes: MSE {mse:.3g} ± {mse_error:.1g}, {value:.2f} ± {error:.2f} times the best")
    verdict = _worst(verdicts)
    return Finding(
        "The paper's (a, b) is a good choice",
        "a = 5.89e7, b = 7.90e8",
        "; ".join(parts),
        verdict,
        _reason(verdict, "too few runs to tell", f"its MSE is more than {VALLEY} times the smallest"),
    )


def _same_region(numbers: Numbers) -> Finding:
    """Is the best nearly constant step of few passes still good after many, as the decreasing one is?"""
    choose, measure = _halves(numbers)
    few, many = (int(np.argmin(part[0].mean(axis=-1))) for part in choose)
    moved, error = runs.ratio(measure[1][0, few], measure[1][0, many])
    paper, paper_error = runs.ratio(measure[1][_paper_cell(numbers)], measure[1][_best(choose[1].mean(axis=-1))])
    seen = moved - limit(1) * error > 1.0
    passes, b = numbers["passes"], numbers["b"]
    return Finding(
        "Good parameters for few passes stay good for many where the steps decrease, not where they are constant",
        "the range of good choices seems the same in both maps",
        f"{passes[1]} passes: the paper's cell at {paper:.2f} ± {paper_error:.2f} times the best MSE; at the "
        f"smallest a the best b goes from {b[few]:.1e} to {b[many]:.1e}, and staying would cost {moved:.2f} ± "
        f"{error:.2f} times",
        Verdict.CORRECTED if seen else Verdict.TOO_SMALL,
        "a constant step that suits few passes is too large, hence biased, for many: that end of the valley moves"
        if seen
        else f"{passes[1]} passes are too few, or the runs too noisy, for the valley's end to move visibly",
    )


def _count(numbers: Numbers) -> Finding:
    return Finding(
        "Likelihood evaluations behind the first map",
        "20 passes = 200 evaluations",
        f"{numbers['passes'][0]} passes = {numbers['steps'][0]} steps of {runs.BATCH_SIZE} data = "
        f"{numbers['visits'][0]} evaluations a run",
        Verdict.CORRECTED,
        "20 passes through 1000 data are 20 000 evaluations",
        erratum=5,
    )


def table(numbers: Numbers) -> list[Row]:
    """One row a cell and horizon."""
    mse, error = runs.mean_and_error(runs.squared_errors(numbers["estimates"]))
    bias = numbers["estimates"].mean(axis=-1) - 1.0
    law = (numbers["law_mean"] - 1.0) ** 2 + numbers["law_sd"] ** 2
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


_SIMULATED: dict[str, Any] = {"color": "white", "linestyle": "solid", "linewidth": 1.8}
_THEORY: dict[str, Any] = {"color": "#E69F00", "linestyle": "dashed", "linewidth": 1.8}


def _edges(centres: Floats) -> Floats:
    """Borders of cells around equally spaced points of a log axis."""
    half = np.sqrt(centres[1] / centres[0])
    return np.append(centres / half, centres[-1] * half)


def draw(numbers: Numbers) -> dict[str, Any]:
    """Two heat maps of the MSE over the best one, with the valley, the best cell and the paper's choice."""
    figure, panels = style.new_figure(columns=2, width=9.6, height=4.6, sharey=True)
    a, b = numbers["a"], numbers["b"]
    mse = runs.squared_errors(numbers["estimates"]).mean(axis=-1)
    law = (numbers["law_mean"] - 1.0) ** 2 + numbers["law_sd"] ** 2
    outline = [Stroke(linewidth=3.2, foreground="black"), Normal()]
    for h, (axes, passes) in enumerate(zip(panels, numbers["passes"], strict=True)):
        best = _best(mse[h])
        excess = np.log10(mse[h] / mse[h][best])
        image = axes.pcolormesh(_edges(b), _edges(a), excess, cmap="viridis", vmin=0, vmax=2, rasterized=True)
        theory = np.log10(law[h] / law[h].min())
        for values, look in ((excess, _SIMULATED), (theory, _THEORY)):
            level = [np.log10(VALLEY)]
            lines = axes.contour(b, a, values, levels=level, colors=look["color"], linestyles=look["linestyle"])
            lines.set(linewidth=look["linewidth"], path_effects=outline)
        axes.plot(b[best[1]], a[best[0]], "o", color="white", markeredgecolor="black", markersize=9, label="best cell")
        axes.plot(runs.PAPER[1], runs.PAPER[0], "*", color="#D55E00", markeredgecolor="white", markersize=16)
        axes.set(xscale="log", yscale="log", xlabel="b", xlim=_edges(b)[[0, -1]], ylim=_edges(a)[[0, -1]])
        axes.set_title(f"{passes} passes, {numbers['steps'][h]} steps: smallest MSE {mse[h][best]:.2g}")
        axes.grid(False)
    panels[0].plot([], [], "*", color="#D55E00", markersize=14, label="the paper's (a, b)", linestyle="none")
    panels[0].plot([], [], path_effects=outline, label=f"simulated: {VALLEY} x smallest MSE", **_SIMULATED)
    panels[0].plot([], [], path_effects=outline, label="theory: the same", **_THEORY)
    panels[0].set_ylabel("a   (small: constant step)")
    bar = figure.colorbar(image, ax=panels, extend="max", ticks=[0, np.log10(VALLEY), np.log10(5), 1, 2])
    bar.ax.set_yticklabels(["1", f"{VALLEY}", "5", "10", "100"])
    bar.set_label("relative MSE / smallest relative MSE")
    figure.suptitle("Good steps (a m + b)$^{-0.38}$ form a flat valley, and the paper's choice lies in it")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return {"fig5": figure}
