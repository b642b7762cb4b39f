"""Figure 4: the MSE against likelihood evaluations for five subsample sizes"""

import numpy as np
from matplotlib.figure import Figure

from langevin import figures as style
from langevin.paper import gaussian_runs as gaussian
from langevin.paper.lab import Lab
from langevin.paper.study import Finding, Numbers, Row, judged, limit

ALPHA = 0.33


def compute(lab: Lab) -> Numbers:
    """pi_m(phi) of every chain and the exact law, by subsample size and likelihood evaluations m n.

    Keys: `n` (k), `evaluations` (e), `averages` (k, e, chains); `bias`, `variance` (k, e) of the exact law.
    """
    # Each n is a compilation of its own, so the smallest size takes the extremes and the one of the other figures.
    sizes = lab.choose(tiny=(1, 10, 100), quick=(1, 5, 10, 50, 100), full=(1, 5, 10, 50, 100))
    evaluations = gaussian.ladder(1000, lab.choose(tiny=10_000, quick=100_000, full=1_000_000))
    cells = [
        gaussian.cell(lab, f"subsample/n-{n}", ALPHA, n, [e // n for e in evaluations], number=100 + n) for n in sizes
    ]
    stacked = {key: np.stack([numbers[key] for numbers in cells]) for key in cells[0]}
    return stacked | {"n": np.array(sizes), "evaluations": np.array(evaluations)}


def check(numbers: Numbers) -> list[Finding]:
    """The runs follow the exact law for every n; the MSE decays; which n is the best at which budget."""
    scores = gaussian.exact_law_scores(numbers)
    agreement = gaussian.follows_law(
        "For every n and budget the runs have the bias, the variance and the MSE of the exact finite-m law",
        "curves of the simulated MSE",
        scores,
    )
    full_gradient = gaussian.follows_law(
        "n = N without replacement is the full gradient: the runs have the law without gradient noise",
        "n = 100 of N = 100",
        scores[:, -1],
    )
    return [agreement, full_gradient, _decays(numbers), _best_size(numbers)]


def _decays(numbers: Numbers) -> Finding:
    averages, budget = numbers["averages"], numbers["evaluations"]
    change, stderr = gaussian.log_ratio(averages[:, -1], averages[:, 0])
    exact = np.log(gaussian.exact_mse(numbers)[:, -1] / gaussian.exact_mse(numbers)[:, 0])
    bound = limit(change.size)
    held = ", ".join(str(n) for n in numbers["n"][~(change < -bound * stderr)])
    each = zip(numbers["n"], change, stderr, exact, strict=True)
    return Finding(
        claim="The MSE decreases with the number of likelihood evaluations for every n",
        printed="the MSE decreases, n = 1, 5, 10, 50, 100",
        measured=f"log of MSE({gaussian.tidy(budget[-1])} evaluations)/MSE({gaussian.tidy(budget[0])}), "
        "simulated (exact), by n: " + ", ".join(f"{n}: {c:.2f} ± {s:.2f} ({e:.2f})" for n, c, s, e in each),
        **judged(
            bool(np.all(change < np.maximum(exact, 0) + bound * stderr)),
            "the MSE grows with the budget",
            not held,
            f"n = {held}: the gradient noise keeps the bias up until the steps are far smaller",
        ),
    )


def _best_size(numbers: Numbers) -> Finding:
    sizes, averages, exact = numbers["n"], numbers["averages"], gaussian.exact_mse(numbers)
    best = exact.argmin(axis=0)
    budgets = np.arange(best.size)
    lead, stderr = gaussian.log_ratio(averages[best, budgets][None], averages)
    lead, stderr = (np.delete(x.T.ravel(), budgets * sizes.size + best) for x in (lead, stderr))
    follows = bool(np.all(lead < limit(lead.size) * stderr))
    mse, error = gaussian.simulated_mse(averages)
    excess = exact / exact.min(axis=0)
    found = "; ".join(
        f"{gaussian.tidy(numbers['evaluations'][j])}: n = {sizes[i]}, MSE {mse[i, j]:.2g} ± {error[i, j]:.1g} "
        f"(n = 1: {excess[0, j]:.3g}, n = N: {excess[-1, j]:.3g})"
        for j, i in enumerate(best)
        if np.log10(numbers["evaluations"][j]) % 1 == 0
    )
    return Finding(
        claim="At each budget the runs give the smallest MSE to the n that has it by the exact law",
        printed="five curves, no ranking in words",
        measured=f"best of {', '.join(map(str, sizes))} by evaluations, with its simulated MSE (and the exact MSEs of "
        f"the smallest and the largest n as multiples of the best n's exact one): {found}",
        **judged(follows, "the runs put another n first than the exact law does"),
    )


def table(numbers: Numbers) -> list[Row]:
    """One row for each n and budget."""
    mse, stderr = gaussian.simulated_mse(numbers["averages"])
    exact = gaussian.exact_mse(numbers)
    return [
        {
            "n": int(n), "evaluations": int(e), "m": int(e // n), "runs": numbers["averages"].shape[-1],
            "mse": float(mse[i, j]), "mse_stderr": float(stderr[i, j]), "exact_mse": float(exact[i, j]),
            "exact_bias": float(numbers["bias"][i, j]), "exact_variance": float(numbers["variance"][i, j]),
        }
        for i, n in enumerate(numbers["n"])
        for j, e in enumerate(numbers["evaluations"])
    ]  # fmt: skip


def draw(numbers: Numbers) -> dict[str, Figure]:
    """MSE against likelihood evaluations: simulation and exact law."""
    figure, axes = style.new_figure(width=8.0, height=4.6)
    gaussian.draw_curves(axes, numbers["evaluations"], numbers, 1.0, [f"n = {n}" for n in numbers["n"]])
    gaussian.draw_key(axes, two_terms=False)
    axes.set_xlabel("likelihood evaluations m n")
    axes.set_ylabel("MSE of $\\pi_m(\\varphi)$")
    exact, sizes, budget = gaussian.exact_mse(numbers)[:, -1], numbers["n"], gaussian.tidy(numbers["evaluations"][-1])
    times, best = exact[0] / exact.min(), sizes[exact.argmin()]
    axes.set_title(f"At {budget} evaluations the exact MSE of n = 1 is {times:.3g} times that of n = {best}")
    style.legend_outside(figure, axes)
    return {"fig4": figure}
