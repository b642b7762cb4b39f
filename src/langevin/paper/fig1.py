"""Figure 1: decay of the MSE for six step-size exponents"""

import numpy as np
from matplotlib.figure import Figure
from scipy import optimize

from langevin import figures as style
from langevin.paper import gaussian_runs as gaussian
from langevin.paper.lab import Lab
from langevin.paper.study import Finding, Numbers, Row, judged, limit


def compute(lab: Lab) -> Numbers:
    """The runs and the exact law that figures 1 to 3 share."""
    return gaussian.decay(lab)


def check(numbers: Numbers) -> list[Finding]:
    """The runs follow the exact law; the MSE decays for every exponent; which exponent is the best."""
    agreement = gaussian.follows_law(
        "At every m and alpha the runs have the bias, the variance and the MSE of the exact finite-m law",
        "curves of the simulated MSE",
        gaussian.exact_law_scores(numbers),
    )
    return [agreement, _decays(numbers), _best_exponent(numbers)]


def _decays(numbers: Numbers) -> Finding:
    averages, m = numbers["averages"], numbers["m"]
    change, stderr = gaussian.log_ratio(averages[:, -1], averages[:, 0])
    bound = limit(change.size)
    falls = ", ".join(
        f"{alpha:g}: {c:.2f} ± {s:.2f}" for alpha, c, s in zip(numbers["alpha"], change, stderr, strict=True)
    )
    return Finding(
        claim="The MSE decays for every exponent",
        printed="algebraic decay for all six",
        measured=f"log MSE(m = {gaussian.tidy(m[-1])}) - log MSE(m = {m[0]}) by alpha: {falls}",
        **judged(
            bool(np.all(change < bound * stderr)),
            "the MSE grows with m",
            bool(np.all(change < -bound * stderr)),
            f"m = {gaussian.tidy(m[-1])} is too short for the fall to stand out from its error",
        ),
    )


def _best_exponent(numbers: Numbers) -> Finding:
    alpha, last = numbers["alpha"], numbers["averages"][:, -1]
    mse, stderr = gaussian.simulated_mse(last)
    best = int(np.argmin(gaussian.exact_mse(numbers)[:, -1]))
    others = np.arange(alpha.size) != best
    lead, error = gaussian.log_ratio(last[best], last[others])
    follows, rival = bool(np.all(lead < limit(lead.size) * error)), float(alpha[best])
    part = "squared bias" if rival > 1 / 3 else "variance"
    found = ", ".join(
        f"{alpha[i]:g}: ({1e3 * mse[i]:.2f} ± {1e3 * stderr[i]:.2f})e-3" for i in np.flatnonzero(alpha >= 0.3)
    )
    return Finding(
        claim="At the last m the smallest MSE belongs to an exponent near 1/3",
        printed="best at approximately alpha = 0.33 (said of the rate, for which see Figure 2)",
        measured=f"at m = {gaussian.tidy(numbers['m'][-1])} smallest for alpha = {alpha[best]:g} by the exact law; "
        f"simulated by alpha: {found}",
        **judged(
            follows,
            "the runs put another exponent first than the exact law does",
            rival == 0.33,
            f"the {part} still counts, and it is smaller for alpha = {rival:g}; by the two-term form alpha = 1/3 has "
            f"the smaller MSE {_ahead(rival, float(numbers['m'][-1]))}",
        ),
    )


def _ahead(other: float, last: float) -> str:
    """From which m alpha = 1/3 has a smaller MSE than `other` by the two-term form, if it is behind at the last m."""

    def behind(log_m: float) -> float:
        m = np.round(np.exp(log_m))
        return float(np.log(gaussian.two_terms(1 / 3, m) / gaussian.two_terms(other, m)))

    start, end = np.log(last), np.log(1e15)
    if behind(start) <= 0:
        return f"at m = {gaussian.tidy(last)}, too, which is not yet exact"
    if behind(end) >= 0:
        return "not before m = 1e15"
    return f"from m = {gaussian.tidy(float(np.exp(optimize.brentq(behind, start, end, xtol=1e-6))))} on"


def table(numbers: Numbers) -> list[Row]:
    """One row for each exponent and m."""
    mse, stderr = gaussian.simulated_mse(numbers["averages"])
    mean, exact = numbers["averages"].mean(axis=-1), gaussian.exact_mse(numbers)
    return [
        {
            "alpha": float(alpha), "m": int(m), "runs": numbers["averages"].shape[-1], "mse": float(mse[i, j]),
            "mse_stderr": float(stderr[i, j]), "bias": float(mean[i, j]), "exact_mse": float(exact[i, j]),
            "exact_bias": float(numbers["bias"][i, j]), "exact_variance": float(numbers["variance"][i, j]),
            "two_term_mse": float(gaussian.two_terms(alpha, m)),
        }
        for i, alpha in enumerate(numbers["alpha"])
        for j, m in enumerate(numbers["m"])
    ]  # fmt: skip


def draw(numbers: Numbers) -> dict[str, Figure]:
    """MSE against m: simulation, exact law and the two-term form."""
    figure, axes = style.new_figure(width=8.4, height=4.8)
    gaussian.draw_curves(axes, numbers["m"], numbers, 1.0, [f"α = {alpha:g}" for alpha in numbers["alpha"]])
    for alpha, colour in zip(numbers["alpha"], style.COLOURS, strict=False):
        axes.plot(numbers["m"], gaussian.two_terms(alpha, numbers["m"]), color=colour, alpha=0.7, **style.ASYMPTOTE)
    gaussian.draw_key(axes, two_terms=True)
    axes.set_xlabel("number of steps m")
    axes.set_ylabel("MSE of $\\pi_m(\\varphi)$")
    last, best = gaussian.tidy(numbers["m"][-1]), numbers["alpha"][gaussian.exact_mse(numbers)[:, -1].argmin()]
    axes.set_title(f"At m = {last} the MSE is smallest for α = {best:g}, by the exact law")
    style.legend_outside(figure, axes)
    return {"fig1": figure}
