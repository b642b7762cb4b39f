"""The bias per step at constant steps: 1/8 or 1/24 before the fourth derivative, and the part of gradient noise."""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import langevin as lv
from langevin import figures as style
from langevin.paper import problems
from langevin.paper.lab import Lab
from langevin.paper.replicates import standard_error
from langevin.paper.study import Finding, Floats, Numbers, Row, agrees, judged
from langevin.theory import known_solution

# Below the largest step that is stable, 0.8. A polynomial of degree 2 in delta through bias/delta at these steps misses
# the value at 0 by 0.4% of the distance between the two constants for WAVES[1]: less than a third of the Monte Carlo
# error up to 1e8 transitions a step, more than are made here. Degree 1 would miss it by 2%.
STEPS = np.array([0.05, 0.1, 0.15, 0.2])
DEGREE = 2
# Transitions that are left out: the start is forgotten like (1 - delta/(2 sigma_p^2))^m, 1e-15 at the smallest step.
BURN_IN = 256
# The step at which ways of drawing a minibatch (n, with replacement) are compared. The exact law lets it be large.
NOISY_STEP = float(STEPS[-1])
_DRAWS = ((10, True), (10, False), (100, True))


class Wave(NamedTuple):
    """h(theta) = sin(k (theta - mu_p) - shift)."""

    k: int
    shift: float


# The paper's h, and one with a large fourth derivative: there 1/8 and 1/24 differ by more than a factor of 2.
WAVES = (Wave(1, problems.gaussian().sigma_p / 2), Wave(3, np.pi / 2))


@cache
def wave_phi(wave: Wave) -> Callable[[jax.Array], jax.Array]:
    """phi = A h = -1/2 {k^2 sin(.) + k (theta - mu_p)/sigma_p^2 cos(.)}."""
    mu, precision = problems.gaussian().mu_p, problems.gaussian().sigma_p ** -2

    def phi(theta: jax.Array) -> jax.Array:
        y = theta - mu
        angle = wave.k * y - wave.shift
        return -0.5 * (wave.k**2 * jnp.sin(angle) + wave.k * precision * y * jnp.cos(angle))

    return phi


@cache
def slopes(wave: Wave) -> tuple[float, float]:
    """mubar without gradient noise, and the same with 1/24 in place of 1/8 before the fourth derivative."""
    mu, sd = problems.gaussian().mu_p, problems.gaussian().sigma_p
    rule = known_solution(
        lambda x: jnp.sin(wave.k * (x - mu) - wave.shift),
        lambda x: -0.5 * ((x - mu) / sd) ** 2,
        mu - 8 * sd,
        mu + 8 * sd,
    )
    fourth = rule.weight @ (wave.k**4 * np.sin(wave.k * (rule.theta - mu) - wave.shift))
    mubar = rule.mubar()
    return mubar, float(mubar + (1 / 8 - 1 / 24) * fourth)


def stationary_bias(wave: Wave, delta: Floats) -> Floats:
    """E phi under N(mu_p, V), V = sigma_p^2/(1 - delta/(4 sigma_p^2)), where the chain settles at a constant step.

    E sin(k y - c) = -sin(c) e and E y cos(k y - c) = sin(c) k V e with e = exp(-k^2 V/2).
    """
    variance = problems.gaussian().sigma_p ** 2
    V = variance / (1 - delta / (4 * variance))
    return 0.5 * wave.k**2 * np.sin(wave.shift) * np.exp(-(wave.k**2) * V / 2) * (1 - V / variance)


def compute(lab: Lab) -> Numbers:
    """Averages at constant steps with the full gradient, then with four ways of drawing a minibatch."""
    steps, chains = lab.choose(tiny=(2000, 1000), quick=(20_000, 1000), full=(90_000, 1000))
    bias = lab.part(
        "clt/constant", partial(_full_gradient, lab, steps, chains), deltas=STEPS.tolist(), steps=steps, chains=chains
    )
    steps, chains = lab.choose(tiny=(1000, 1000), quick=(2500, 2000), full=(25_000, 2000))
    draws = lab.choose(tiny=_DRAWS[1:2], quick=_DRAWS, full=_DRAWS)
    noisy = [
        lab.part(
            f"clt/noise{n}{'r' if replacement else ''}",
            partial(_minibatches, lab, n, replacement, steps, chains),
            delta=NOISY_STEP, steps=steps, chains=chains,
        )
        for n, replacement in draws
    ]  # fmt: skip
    # The last entry is the full gradient, from the runs above.
    full = bias["constant/bias"][0, -1]
    noisy.append({
        "measured": full.mean(), "stderr": standard_error(full), "exact": stationary_bias(WAVES[0], STEPS[-1:])[0],
    })  # fmt: skip
    numbers = dict(bias)
    numbers["noise/batch_size"] = np.array([n for n, _ in draws] + [problems.gaussian().num_data])
    numbers["noise/replacement"] = np.array([replacement for _, replacement in draws] + [False])
    for key in ("measured", "stderr", "exact"):
        numbers[f"noise/{key}"] = np.array([float(part[key]) for part in noisy])
    return numbers


def _full_gradient(lab: Lab, steps: int, chains: int) -> Numbers:
    """Averages of both phi after the burn-in, shape (waves, steps, chains)."""
    model, ledger, found = problems.gaussian(), None, []
    for m in (BURN_IN, BURN_IN + steps):
        ledger = lab.run(
            model.target, model.data, model.theta_0, schedule=lv.Constant(STEPS), subsample=lv.Full(), num_steps=m,
            observables={f"phi_{wave.k}": wave_phi(wave) for wave in WAVES}, chains=chains, seed=lab.seed,
            resume=ledger,
        )  # fmt: skip
        found.append(m * np.stack([problems.average(ledger, f"phi_{wave.k}") for wave in WAVES]))
    return {"constant/bias": (found[1] - found[0]) / steps}


def _minibatches(lab: Lab, n: int, replacement: bool, steps: int, chains: int) -> Numbers:
    """Bias after the burn-in for one way of drawing n data, measured and exact."""
    model, schedule, stops = problems.gaussian(), lv.Constant(NOISY_STEP), np.array([BURN_IN, BURN_IN + steps])
    ledger, sums = None, []
    for m in stops:
        ledger = lab.run(
            model.target, model.data, model.theta_0, schedule=schedule, num_steps=int(m), chains=chains, seed=lab.seed,
            subsample=lv.WithReplacement(n) if replacement else lv.WithoutReplacement(n),
            observables={"phi": problems.gaussian_phi()}, resume=ledger,
        )  # fmt: skip
        sums.append(m * problems.average(ledger, "phi"))
    values = (sums[1] - sums[0]) / steps
    law = problems.gaussian_law(n, replacement).average_sin(
        problems.rounded_steps(schedule, int(stops[-1])), float(model.theta_0), stops, model.mu_p + WAVES[0].shift
    )
    exact = np.diff(stops * law.bias)[0] / steps
    return {"measured": values.mean(), "stderr": standard_error(values), "exact": exact}


def slope_of(bias: Floats) -> Floats:
    """Bias per delta at delta = 0 from bias (steps, chains), for each chain by itself.

    The chains of one number share their noise over the steps; a fit a chain leaves the error bar to the chains.
    """
    # The variance of bias/delta is about sigma^2/(m delta^3).
    root_weight = STEPS**1.5
    fit = np.linalg.pinv(np.vander(STEPS, DEGREE + 1, increasing=True) * root_weight[:, None])[0] * root_weight
    return (fit / STEPS) @ bias


def check(numbers: Numbers) -> list[Finding]:
    """The stationary law, the constant, and the part of gradient noise."""
    return [_check_stationary(numbers), _check_constant(numbers), _check_noise(numbers)]


def _check_stationary(numbers: Numbers) -> Finding:
    bias = numbers["constant/bias"]
    exact = np.stack([stationary_bias(wave, STEPS) for wave in WAVES])
    ok, largest = agrees(bias.mean(axis=-1), exact, standard_error(bias))
    i = STEPS.size - 1
    return Finding(
        claim="At a constant step the chain settles on a law of its own, and the bias is that law's",
        printed="a constant step leaves a bias of order delta",
        measured=(
            f"bias at delta = {STEPS[i]:g}, h = sin(3x - π/2): {bias[1, i].mean():.4f} ± "
            f"{standard_error(bias[1, i]):.4f}, exact {exact[1, i]:.4f}; largest of {exact.size} scores {largest:.1f}"
        ),
        **judged(ok, "the bias is not that of N(mu_p, sigma_p^2/(1 - delta/(4 sigma_p^2)))"),
    )


def _check_constant(numbers: Numbers) -> Finding:
    slope = slope_of(numbers["constant/bias"][1])
    eighth, printed = slopes(WAVES[1])
    error = standard_error(slope)
    ok, score = agrees(slope.mean(), eighth, error)
    away = abs(slope.mean() - printed) / error
    first = slope_of(numbers["constant/bias"][0])
    return Finding(
        claim="The bias per step as the step goes to 0 is mubar, with 1/8 before the fourth derivative of h",
        printed=f"1/24: {printed:.3f} for h = sin(3x - π/2)",
        measured=(
            f"{slope.mean():.3f} ± {error:.3f}; with 1/8 it is {eighth:.3f} ({score:.1f} errors away), with 1/24 "
            f"{printed:.3f} ({away:.0f} errors away). For the paper's h the two are {slopes(WAVES[0])[0]:.3f} and "
            f"{slopes(WAVES[0])[1]:.3f}, too near: {first.mean():.3f} ± {standard_error(first):.3f}"
        ),
        **judged(
            ok,
            "the slope is not that of the corrected expectation",
            away > 5,
            "the error bar holds both constants",
            corrected="the fourth derivative carries E[eta^4]/4! = 1/8",
        ),
        erratum=1,
    )


def _check_noise(numbers: Numbers) -> Finding:
    measured, stderr, exact = (numbers[f"noise/{key}"] for key in ("measured", "stderr", "exact"))
    ok, largest = agrees(measured, exact, stderr)
    names, words = _draw_names(numbers), []
    # The smallest size has no pair with and without replacement.
    seen = measured.size > 2
    # Two and two are compared, the noisier one first.
    for i in range(0, measured.size, 2):
        difference, error = measured[i] - measured[i + 1], float(np.hypot(stderr[i], stderr[i + 1]))
        seen &= bool(abs(difference) > 5 * error)
        words.append(
            f"{names[i]} less {names[i + 1]} {difference:.4f} ± {error:.4f}, exact {exact[i] - exact[i + 1]:.4f}"
        )
    return Finding(
        claim="Gradient noise adds to the bias, so drawing with replacement costs more than without, even at n = N",
        printed="the bias holds E of the squared stochastic gradient",
        measured=(
            f"bias at delta = {NOISY_STEP:g}: {'; '.join(words)}; largest of {measured.size} scores {largest:.1f}"
        ),
        **judged(
            ok,
            "a bias is not that of the exact law with this gradient noise",
            seen,
            "replacement is compared at larger sizes only, or a difference is below five errors",
        ),
    )


def table(numbers: Numbers) -> list[Row]:
    """Bias at each constant step, the slope at 0, and the four ways of drawing."""
    rows: list[Row] = []
    for wave, bias in zip(WAVES, numbers["constant/bias"], strict=True):
        name, (eighth, _) = f"constant step, h = sin({wave.k}x - c)", slopes(wave)
        for delta, values, exact in zip(STEPS, bias, stationary_bias(wave, STEPS), strict=True):
            rows.append(_row(name, delta, "bias/delta", values / delta, exact / delta, eighth))
        rows.append(_row(name, 0.0, "bias/delta", slope_of(bias), eighth, eighth))
    law = problems.gaussian_law
    for i, name in enumerate(_draw_names(numbers)):
        noise = law(int(numbers["noise/batch_size"][i]), bool(numbers["noise/replacement"][i])).grad_noise
        rows.append({
            "experiment": f"constant step, {name}", "x": NOISY_STEP, "quantity": "bias",
            "measured": float(numbers["noise/measured"][i]), "stderr": float(numbers["noise/stderr"][i]),
            "exact": float(numbers["noise/exact"][i]),
            "limit": NOISY_STEP * slopes(WAVES[0])[0] * (1 + noise * problems.gaussian().sigma_p ** 2),
        })  # fmt: skip
    return rows


def _draw_names(numbers: Numbers) -> list[str]:
    """Words for each way of drawing."""
    pairs = zip(numbers["noise/batch_size"], numbers["noise/replacement"], strict=True)
    return [f"n = {n} {'with' if replacement else 'without'} replacement" for n, replacement in pairs]


def _row(name: str, x: float, quantity: str, values: Floats, exact: float, limit: float) -> Row:
    return {
        "experiment": name, "x": float(x), "quantity": quantity, "measured": float(values.mean()),
        "stderr": float(standard_error(values)), "exact": float(exact), "limit": limit,
    }  # fmt: skip


def draw(numbers: Numbers) -> Figure:
    """Bias per delta against delta, with the two candidate values at 0."""
    figure, axes = style.new_figure(columns=2, width=10, height=4.6)
    titles = ("the paper's h = sin(x - σ/2): too near to decide", "h = sin(3x - π/2): large fourth derivative")
    fine = np.linspace(1e-4, 0.21, 200)
    for panel, wave, bias, title in zip(axes, WAVES, numbers["constant/bias"], titles, strict=True):
        eighth, printed = slopes(wave)
        panel.axhline(eighth, color=style.COLOURS[2], **style.ASYMPTOTE, label="μ̄ with 1/8")
        panel.axhline(printed, color=style.COLOURS[1], linestyle=":", linewidth=1.6, label="as printed, 1/24")
        panel.plot(fine, stationary_bias(wave, fine) / fine, color=style.COLOURS[6], **style.EXACT, label="exact law")
        ratio = bias / STEPS[:, None]
        panel.errorbar(
            STEPS, ratio.mean(axis=-1), 2 * standard_error(ratio), color=style.COLOURS[0], marker=style.MARKS[0],
            label="runs, ± 2 standard errors", **style.SIMULATED,
        )  # fmt: skip
        slope = slope_of(bias)
        panel.errorbar(
            [0.0], [slope.mean()], [2 * standard_error(slope)], color=style.COLOURS[3], marker=style.MARKS[3],
            label="runs, carried to δ = 0", **style.SIMULATED,
        )  # fmt: skip
        panel.set_title(title)
        panel.set_xlabel("constant step δ")
    axes[0].set_ylabel("stationary bias of φ divided by δ")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5)
    figure.suptitle("At small constant steps the bias per step tends to the form with 1/8, not 1/24")
    return figure
