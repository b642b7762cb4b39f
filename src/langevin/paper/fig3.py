"""Figure 3: the MSE times T_m, flat or growing as alpha lies above or below 1/3"""

import numpy as np
from matplotlib.figure import Figure

from langevin import figures as style
from langevin.paper import gaussian_runs as gaussian
from langevin.paper import problems
from langevin.paper.lab import Lab
from langevin.paper.replicates import variance_score
from langevin.paper.study import Finding, Numbers, Row, agrees, judged, limit


def compute(lab: Lab) -> Numbers:
    """The runs and the exact law that figures 1 to 3 share."""
    return gaussian.decay(lab)


def scaled(numbers: Numbers) -> Numbers:
    """The same with pi_m(phi) times sqrt(T_m), so that its MSE is T_m times that of pi_m(phi)."""
    T_m, root = numbers["T_m"], np.sqrt(numbers["T_m"])
    return dict(numbers) | {
        "averages": numbers["averages"] * root[..., None],
        "bias": numbers["bias"] * root,
        "variance": numbers["variance"] * T_m,
    }


def check(numbers: Numbers) -> list[Finding]:
    """T_m times the MSE follows the exact law: above 1/3 on its way to sigma^2(phi), below growing."""
    agreement = gaussian.follows_law(
        "At every m and alpha T_m times the MSE of the runs is that of the exact finite-m law",
        "curves of the simulated T_m MSE",
        gaussian.exact_law_scores(numbers)[2],
    )
    return [agreement, _grows_below(numbers), _variance_above(numbers), _flat_above(numbers), _at_033(numbers)]


def _grows_below(numbers: Numbers) -> Finding:
    low = numbers["alpha"] < 0.33
    averages = scaled(numbers)["averages"][low]
    growth, stderr = gaussian.log_ratio(averages[:, -1], averages[:, 0])
    bound = limit(growth.size)
    found = ", ".join(
        f"{a:g}: {np.exp(g):.1f} (log {g:.2f} ± {s:.2f})"
        for a, g, s in zip(numbers["alpha"][low], growth, stderr, strict=True)
    )
    return Finding(
        claim="Below 1/3 T_m times the MSE grows",
        printed="diverges for alpha < 0.33",
        measured=f"factor from m = {numbers['m'][0]} to {gaussian.tidy(numbers['m'][-1])} by alpha: {found}",
        **judged(
            bool(np.all(growth > -bound * stderr)),
            "it falls",
            bool(np.all(growth > bound * stderr)),
            "the growth does not yet stand out from its error",
        ),
    )


def _variance_above(numbers: Numbers) -> Finding:
    high, sigma2 = numbers["alpha"] > 1 / 3, float(numbers["sigma2"])
    alpha, T_m, averages = numbers["alpha"][high], numbers["T_m"][high, -1], numbers["averages"][high, -1]
    deviations = averages - averages.mean(axis=-1, keepdims=True)
    found, stderr = gaussian.simulated_mse(deviations * np.sqrt(T_m)[:, None])
    follows, _ = agrees(gaussian.exact_law_scores(numbers)[1][high, -1], 0.0, 1.0)
    arrived, _ = agrees(variance_score(averages, sigma2 / T_m), 0.0, 1.0)
    each = zip(alpha, found, stderr, T_m * numbers["variance"][high, -1], strict=True)
    return Finding(
        claim="Above 1/3 the variance is sigma^2(phi)/T_m",
        printed="MSE as 1/T_m",
        measured=f"T_m times the variance at m = {gaussian.tidy(numbers['m'][-1])}, simulated (exact), by alpha: "
        + ", ".join(f"{a:g}: {v:.2f} ± {s:.2f} ({e:.3f})" for a, v, s, e in each)
        + f"; sigma^2(phi) = {sigma2:.3f}",
        **judged(
            follows,
            "the runs have another variance than the exact law",
            arrived,
            "the steps are still so large that the exact variance is another one",
        ),
    )


def _flat_above(numbers: Numbers) -> Finding:
    high, sigma2 = numbers["alpha"] > 1 / 3, float(numbers["sigma2"])
    alpha, share = numbers["alpha"][high], (numbers["bias"] ** 2 / gaussian.exact_mse(numbers))[high, -1]
    fit = gaussian.fitted_power(scaled(numbers), np.log(numbers["m"]))
    slope, stderr, exact = (values[high] for values in fit)
    follows, _ = agrees(slope, exact, stderr)
    level, error = (values[high, -1] for values in gaussian.simulated_mse(scaled(numbers)["averages"]))
    arrived, _ = agrees(level, sigma2, error)
    left = ", ".join(f"{100 * s:.0f}% of the MSE at alpha = {a:g}" for a, s in zip(alpha, share, strict=True))
    each = zip(alpha, slope, stderr, exact, level, error, strict=True)
    return Finding(
        claim="Above 1/3 T_m times the MSE is flat, at sigma^2(phi)",
        printed="flat for alpha > 1/3",
        measured=f"slope against log m over the decade to m = {gaussian.tidy(numbers['m'][-1])}, simulated (exact), "
        "by alpha: "
        + ", ".join(f"{a:g}: {g:+.3f} ± {s:.3f} ({e:+.3f}), level {v:.2f} ± {w:.2f}" for a, g, s, e, v, w in each)
        + f"; sigma^2(phi) = {sigma2:.3f}",
        **judged(
            follows,
            "the slopes are not those of the exact law",
            arrived and not np.any(np.abs(exact) > gaussian.VISIBLE),
            f"the squared bias, which falls faster than 1/T_m, is still {left}",
        ),
    )


def _at_033(numbers: Numbers) -> Finding:
    i = int(np.flatnonzero(numbers["alpha"] == 0.33)[0])
    averages, level = scaled(numbers)["averages"][i], gaussian.exact_mse(scaled(numbers))[i]
    growth, stderr = gaussian.log_ratio(averages[-1], averages[0])
    exact, steps = np.log(level[-1] / level[0]), f"m = {numbers['m'][0]} to {gaussian.tidy(numbers['m'][-1])}"
    follows, _ = agrees(growth, exact, stderr)
    below, above = (gaussian.two_term_T_mse(0.33, m) for m in (gaussian.FAR, 1e15))
    endless = bool(np.isinf(problems.gaussian_steps(0.33).B_limit()))
    return Finding(
        claim="At alpha = 0.33 T_m times the MSE grows, too, though slowly",
        printed="flat for alpha >= 0.33",
        measured=f"factor from {steps}: {np.exp(growth):.2f} (log {growth:.2f} ± {stderr:.2f}, exact {exact:.2f}); "
        f"two-term form {below:.3f} at m = {gaussian.tidy(gaussian.FAR)}, {above:.3f} at 1e15; B_m has no finite limit",
        **judged(
            follows and endless and above > below,
            "it does not grow as the exact law and the two-term form say",
            bool(growth > limit(1) * stderr),
            "the growth does not yet stand out from its error",
            corrected="the runs show mostly the rise to the level that alpha = 1/3 would keep; beyond it B_m^2 grows "
            "like m^0.01, since 0.33 is below 1/3, and only above 1/3 does the curve end flat at sigma^2(phi)",
        ),
        erratum=11,
    )


def table(numbers: Numbers) -> list[Row]:
    """One row for each exponent and m."""
    mse, stderr = gaussian.simulated_mse(scaled(numbers)["averages"])
    exact = gaussian.exact_mse(scaled(numbers))
    return [
        {
            "alpha": float(alpha), "m": int(m), "T_m": float(numbers["T_m"][i, j]), "T_m_mse": float(mse[i, j]),
            "T_m_mse_stderr": float(stderr[i, j]), "exact_T_m_mse": float(exact[i, j]),
            "two_term_T_m_mse": gaussian.two_term_T_mse(alpha, m), "sigma2": float(numbers["sigma2"]),
        }
        for i, alpha in enumerate(numbers["alpha"])
        for j, m in enumerate(numbers["m"])
    ]  # fmt: skip


def draw(numbers: Numbers) -> dict[str, Figure]:
    """T_m MSE against m as far as was run, and by the two-term form far beyond."""
    figure, (near, far) = style.new_figure(columns=2, width=10.4, height=4.6)
    gaussian.draw_curves(near, numbers["m"], scaled(numbers), 1.0, [f"α = {alpha:g}" for alpha in numbers["alpha"]])
    m = np.geomspace(numbers["m"][-1], gaussian.FAR, 40).round()
    for i in np.flatnonzero(numbers["alpha"] >= 0.3):
        alpha, colour = numbers["alpha"][i], style.COLOURS[i]
        levels = [gaussian.two_term_T_mse(alpha, each) for each in m]
        far.plot(m, levels, color=colour, **style.ASYMPTOTE)
        lift = 14 if levels[-1] > levels[0] else 5  # clear of the curve
        far.annotate(f"α = {alpha:g}", (m[0], levels[0]), (-8, lift), textcoords="offset points")
    far.set_xscale("log")
    far.set_yscale("log")
    far.set_ylim(0.6, 60)
    for axes in (near, far):
        axes.axhline(float(numbers["sigma2"]), color="black", linewidth=1.0, linestyle=":")
        axes.set_xlabel("number of steps m")
    near.plot([], [], color="black", linewidth=1.0, linestyle=":", label="σ²(φ)")
    gaussian.draw_key(near, two_terms=True)
    near.set_ylabel("$T_m$ x MSE")
    near.set_title("As far as was run")
    far.set_title("Beyond, by the two-term form, α ≥ 0.3")
    figure.suptitle("In the limit the curves above α = 1/3 come down to σ²(φ), and those below grow", x=0.01, ha="left")
    style.legend_outside(figure, near)
    return {"fig3": figure}
