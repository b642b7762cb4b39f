"""Figure 2: rates of decay of the MSE against the step-size exponent"""

import numpy as np
from matplotlib.figure import Figure

from langevin import figures as style
from langevin.paper import gaussian_runs as gaussian
from langevin.paper import problems
from langevin.paper.lab import Lab
from langevin.paper.study import Finding, Floats, Numbers, Row, agrees, judged, limit

ASTRAY = "the runs do not decay as the exact law does"


def compute(lab: Lab) -> Numbers:
    """The runs and the exact law that figures 1 to 3 share."""
    return gaussian.decay(lab)


def asymptotic_rate(alpha: Floats) -> Floats:
    """min(2 alpha, 1 - alpha)."""
    return np.minimum(2 * alpha, 1 - alpha)


def rates(numbers: Numbers) -> gaussian.Power:
    """-d log MSE / d log m over the last decade, for each exponent."""
    power = gaussian.fitted_power(numbers, np.log(numbers["m"]))
    return power._replace(simulated=-power.simulated, exact=-power.exact)


def check(numbers: Numbers) -> list[Finding]:
    """The rates of the runs against those of the exact law, of the limit, and of the paper's words."""
    rate = rates(numbers)
    same, largest = agrees(rate.simulated, rate.exact, rate.stderr)
    agreement = Finding(
        claim="Over the last decade of m the MSE of the runs falls as fast as that of the exact law",
        printed="slopes estimated from Figure 1",
        measured=f"{_listed(numbers, rate)}; largest score {largest:.1f}, limit {limit(rate.exact.size):.1f}",
        **judged(same, ASTRAY),
    )
    return [
        agreement, _limits(numbers, rate, same), _steepest(numbers, rate, same),
        _abstract(numbers, rate), _bias_regime(numbers),
    ]  # fmt: skip


def _listed(numbers: Numbers, rate: gaussian.Power) -> str:
    each = zip(numbers["alpha"], rate.simulated, rate.stderr, rate.exact, strict=True)
    return "simulated (exact) by alpha: " + ", ".join(f"{a:g}: {r:.3f} ± {s:.3f} ({e:.3f})" for a, r, s, e in each)


def _limits(numbers: Numbers, rate: gaussian.Power, same: bool) -> Finding:
    alpha = numbers["alpha"]
    gap = rate.exact - asymptotic_rate(alpha)
    seen = np.abs(gap) < gaussian.VISIBLE
    reasons = []
    if np.any(~seen & (alpha < 1 / 3)):
        m_0 = problems.gaussian_steps(alpha[0]).m_0
        reasons.append(f"below 1/3 m_0 delays the decrease of the steps (m_0 = {m_0:.0f} at alpha = {alpha[0]:g})")
    if np.any(~seen & (alpha > 1 / 3)):
        reasons.append("above 1/3 the squared bias, which falls faster than 1/T_m, is still a good part of the MSE")
    off = ", ".join(f"{g:+.3f} at {a:g}" for a, g in zip(alpha[~seen], gap[~seen], strict=True))
    near = ", ".join(f"{a:g}" for a in alpha[seen])
    far = ", ".join(f"{a:g}: {gaussian.two_term_rate(a, gaussian.FAR):.3f}" for a in alpha)
    return Finding(
        claim="The MSE falls like m^-min(2 alpha, 1 - alpha)",
        printed="good match with the theoretical rates",
        measured=f"exact law within {gaussian.VISIBLE} of it for alpha in {{{near}}} over the "
        f"decade to m = {gaussian.tidy(numbers['m'][-1])}; two-term form at m = {gaussian.tidy(gaussian.FAR)}: {far}",
        **judged(same, ASTRAY, bool(seen.all()), f"the exact law is still off by {off}: {'; '.join(reasons)}"),
    )


def _steepest(numbers: Numbers, rate: gaussian.Power, same: bool) -> Finding:
    alpha = numbers["alpha"]
    steepest = float(alpha[np.argmax(rate.exact)])
    third, other = (gaussian.two_term_rate(a, gaussian.FAR) for a in (1 / 3, 0.4))
    return Finding(
        claim="The rate is largest at alpha = 1/3",
        printed="fastest rate, 2/3, at alpha = 1/3",
        measured=f"largest rate of the exact law in this window at alpha = {steepest:g}: {rate.exact.max():.3f}",
        **judged(
            same,
            ASTRAY,
            steepest == 0.33,
            "where the squared bias still counts it steepens the fall for alpha above 1/3; by the two-term form the "
            f"rate at m = {gaussian.tidy(gaussian.FAR)} is {third:.3f} for alpha = 1/3 and {other:.3f} for 0.4",
        ),
    )


def _abstract(numbers: Numbers, rate: gaussian.Power) -> Finding:
    """Rate 2/3 against 1/3 at the exponent nearest to 1/3."""
    i = int(np.flatnonzero(numbers["alpha"] == 0.33)[0])
    follows, _ = agrees(rate.simulated[i], rate.exact[i], rate.stderr[i])
    score = (rate.simulated[i] - 1 / 3) / rate.stderr[i]
    far = gaussian.two_term_rate(1 / 3, gaussian.FAR)
    return Finding(
        claim="At alpha = 1/3 the MSE falls like m^-2/3",
        printed="MSE at rate m^-1/3",
        measured=f"{rate.simulated[i]:.3f} ± {rate.stderr[i]:.3f} at alpha = 0.33, {score:.1f} standard errors above "
        f"1/3; two-term form at alpha = 1/3, m = {gaussian.tidy(gaussian.FAR)}: {far:.4f}",
        **judged(
            follows and not score < -limit(1),
            ASTRAY,
            not score < limit(1),
            "the rate is not known well enough to tell 2/3 from 1/3",
            corrected="m^-1/3 is the rate of the root of the MSE; the MSE falls like m^-2/3",
        ),
        erratum=3,
    )


def _bias_regime(numbers: Numbers) -> Finding:
    """MSE ~ (sum delta^2 / T_m)^p below 1/3: p = 2, not 1. Free of m_0, which bends the slopes in m."""
    low = numbers["alpha"] < 0.33
    alpha = numbers["alpha"][low]
    fit = gaussian.fitted_power(numbers, np.log(numbers["sum_delta2"] / numbers["T_m"]))
    power, stderr, exact = (values[low] for values in fit)
    follows, _ = agrees(power, exact, stderr)
    scores = (power - 1) / stderr
    far = ", ".join(f"{gaussian.two_term_rate(a, gaussian.FAR):.3f}" for a in alpha)
    each = zip(alpha, power, stderr, exact, strict=True)
    return Finding(
        claim="Below alpha = 1/3 the MSE scales as (sum delta^2/T_m)^2, so that its rate is 2 alpha",
        printed="as sum delta^2/T_m, the first power",
        measured="power by alpha, simulated (exact): "
        + ", ".join(f"{a:g}: {p:.2f} ± {s:.2f} ({e:.2f})" for a, p, s, e in each)
        + f"; rates of the two-term form at m = {gaussian.tidy(gaussian.FAR)}: {far}",
        **judged(
            follows,
            ASTRAY,
            bool(np.all((scores > limit(scores.size)) & (exact > 1.5))),  # not 1, and nearer to 2
            "the steps have hardly decreased, which leaves the power uncertain",
            corrected="the MSE is the square of a bias that scales as that ratio; what separates the powers from 2 "
            "here, higher orders of delta and the variance, the exact law has, too",
        ),
        erratum=4,
    )  # fmt: skip


def table(numbers: Numbers) -> list[Row]:
    """One row for each exponent."""
    rate, limits, window = rates(numbers), asymptotic_rate(numbers["alpha"]), gaussian.last_decade(numbers["m"])
    return [
        {
            "alpha": float(alpha), "from_m": int(numbers["m"][window][0]), "to_m": int(numbers["m"][-1]),
            "rate": float(rate.simulated[i]), "rate_stderr": float(rate.stderr[i]), "exact_rate": float(rate.exact[i]),
            "asymptotic_rate": float(limits[i]), "two_term_rate_at_1e12": gaussian.two_term_rate(alpha, gaussian.FAR),
        }
        for i, alpha in enumerate(numbers["alpha"])
    ]  # fmt: skip


def draw(numbers: Numbers) -> dict[str, Figure]:
    """Rates against alpha: simulated, exact, and the limit."""
    figure, axes = style.new_figure(width=8.6)
    alpha, rate, m = numbers["alpha"], rates(numbers), numbers["m"]
    window = f"m = {gaussian.tidy(m[gaussian.last_decade(m)][0])} to {gaussian.tidy(m[-1])}"
    corners = np.array([0.08, 1 / 3, 0.52])
    seen = np.isfinite(rate.simulated)
    simulated, stderr = rate.simulated[seen], rate.stderr[seen]
    axes.errorbar(
        alpha[seen],
        simulated,
        2 * stderr,
        fmt="o",
        color=style.COLOURS[0],
        label=f"simulation ± 2 s.e.,\n{window}",
        **style.SIMULATED,
    )
    axes.plot(alpha, rate.exact, color=style.COLOURS[0], label="exact law,\nsame window", **style.EXACT)
    axes.plot(
        corners, asymptotic_rate(corners), color=style.COLOURS[1], label="limit,\nmin(2α, 1 - α)", **style.ASYMPTOTE
    )
    axes.set_xlabel("step-size exponent α")
    axes.set_ylabel("rate: -d log MSE / d log m")
    _, largest = agrees(simulated, rate.exact[seen], stderr) if seen.any() else (False, np.nan)
    gap = np.abs(rate.exact - asymptotic_rate(alpha)).max()
    axes.set_title(f"Runs and exact law differ by {largest:.1f} s.e. at most, exact law and limit by {gap:.2f}")
    style.legend_outside(figure, axes)
    return {"fig2": figure}
