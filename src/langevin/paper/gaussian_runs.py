"""What the figures of section 6.1 share: runs on the Gaussian model, their exact law, and scores between the two.

Every chain is a replicate of pi_m(phi), phi = A sin(x - mu_p - sigma_p/2), whose truth is 0. The first step,
delta_1 < sigma_p = 0.447, is below 4 sigma_p^2 = 0.8: with n = 1 as with n = N a step contracts, since the gradient
noise does not depend on theta.
"""

import re
from collections.abc import Sequence
from functools import cache, partial
from typing import NamedTuple

import jax
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

import langevin as lv
from langevin.figures import ASYMPTOTE, COLOURS, EXACT, MARKS, SIMULATED
from langevin.paper import problems
from langevin.paper.lab import Lab
from langevin.paper.replicates import mean_score, square_score, standard_error, variance_score
from langevin.paper.study import Finding, Floats, Numbers, agrees, judged, limit
from langevin.theory import PoissonSolution, known_solution

BATCH_SIZE = 10
# Chains of one part. A number for all sizes, so that one compilation serves them; 10^6 steps take half a minute.
GROUP = 256
# Slopes this near to each other look alike in a figure. It is used on the exact law only, never on simulations.
VISIBLE = 0.03
FAR = 1e12  # where the two-term form shows its asymptotic slopes


def tidy(number: float) -> str:
    """Two digits, 2e5 rather than 2e+05."""
    return re.sub(r"e\+0*", "e", f"{number:.1e}").replace(".0e", "e")


def ladder(first: int, last: int) -> list[int]:
    """1, 2, 5, 10, ... times `first`, up to `last`."""
    rungs = [first * step * 10**decade for decade in range(12) for step in (1, 2, 5)]
    return [m for m in rungs if m <= last]


def decay(lab: Lab) -> Numbers:
    """The runs behind figures 1 to 3: pi_m(phi) of every chain for six exponents at growing m, and the exact law.

    Keys: `alpha` (a), `m` (h), `averages` (a, h, chains); `bias`, `variance`, `T_m`, `sum_delta2` (a, h) of the exact
    law; `sigma2`, `mubar`.
    """
    horizons = ladder(100, lab.choose(tiny=2000, quick=100_000, full=1_000_000))
    cells = [
        cell(lab, f"gaussian/alpha-{alpha}", alpha, BATCH_SIZE, horizons, number)
        for number, alpha in enumerate(problems.ALPHAS)
    ]
    stacked = {key: np.stack([numbers[key] for numbers in cells]) for key in cells[0]}
    sigma2, mubar = constants(BATCH_SIZE)
    return stacked | {
        "alpha": np.array(problems.ALPHAS),
        "m": np.array(horizons),
        "sigma2": np.array(sigma2),
        "mubar": np.array(mubar),
    }


def cell(lab: Lab, name: str, alpha: float, batch_size: int, horizons: Sequence[int], number: int) -> Numbers:
    """Replicates and exact law for one exponent and batch size; `number` sets the cell's seed apart."""
    # The short runs of the smallest size need more replicates to tell a wrong sampler from a right one.
    groups = lab.choose(tiny=2, quick=1, full=2)
    law = lab.reference.part(
        f"{name}/law",
        lambda: _law(alpha, batch_size, horizons),
        alpha=alpha, batch_size=batch_size, horizons=list(horizons),
    )  # fmt: skip
    runs = []
    for group in range(groups):
        chains = list(range(group * GROUP, (group + 1) * GROUP))
        seed = 1000 * lab.seed + number
        part = lab.part(
            f"{name}/runs-{group}",
            partial(_replicates, lab, alpha, batch_size, horizons, chains, seed),
            alpha=alpha, batch_size=batch_size, horizons=list(horizons), chains=[chains[0], chains[-1]],
            run_seed=seed,
        )  # fmt: skip
        runs.append(part["averages"])
    return dict(law) | {"averages": np.concatenate(runs, axis=-1)}


def _replicates(
    lab: Lab, alpha: float, batch_size: int, horizons: Sequence[int], chains: list[int], seed: int
) -> Numbers:
    """`averages` = pi_m(phi), shape (horizons, chains); infinite from where one of the chains has run away."""
    model, ledger = problems.gaussian(), None
    found = np.full((len(horizons), len(chains)), np.inf)
    for i, m in enumerate(horizons):
        try:
            ledger = lab.run(
                model.target, model.data, model.theta_0, schedule=problems.gaussian_steps(alpha), num_steps=m,
                subsample=lv.WithoutReplacement(batch_size), observables={"phi": problems.gaussian_phi()},
                chains=chains, seed=seed, resume=ledger,
            )  # fmt: skip
        except lv.Diverged:
            break
        found[i] = problems.average(ledger, "phi")
    return {"averages": found}


def _law(alpha: float, batch_size: int, horizons: Sequence[int]) -> Numbers:
    model, schedule = problems.gaussian(), problems.gaussian_steps(alpha)
    law = problems.gaussian_law(batch_size).average_sin(
        problems.rounded_steps(schedule, max(horizons)),
        float(model.theta_0),
        horizons,
        shift=model.mu_p + model.sigma_p / 2,
    )
    return {
        "bias": law.bias, "variance": law.variance, "T_m": law.T_m,
        "sum_delta2": np.asarray(schedule.sum_delta2(np.array(horizons))),
    }  # fmt: skip


@cache
def _solution() -> PoissonSolution:
    model = problems.gaussian()
    mu, sd = model.mu_p, model.sigma_p

    def log_density(theta: jax.Array) -> jax.Array:
        return -0.5 * ((theta - mu) / sd) ** 2

    return known_solution(problems.gaussian_h(), log_density, mu - 10 * sd, mu + 10 * sd)


@cache
def constants(batch_size: int) -> tuple[float, float]:
    """sigma^2(phi), and mubar for the gradient noise of this batch size."""
    noise = problems.gaussian_law(batch_size).grad_noise
    return _solution().sigma2, _solution().mubar(noise)


def two_terms(alpha: float, m: ArrayLike, batch_size: int = BATCH_SIZE) -> Floats:
    """The asymptotic MSE, sigma^2/T_m + (mubar sum delta^2/T_m)^2."""
    sigma2, mubar = constants(batch_size)
    schedule, m = problems.gaussian_steps(alpha), np.asarray(m)
    T_m = schedule.T_m(m)
    return np.asarray(sigma2 / T_m + (mubar * schedule.sum_delta2(m) / T_m) ** 2)


def two_term_T_mse(alpha: float, m: float) -> float:
    """T_m times the two-term form."""
    return float(problems.gaussian_steps(alpha).T_m(np.asarray(m)) * two_terms(alpha, m))


def two_term_rate(alpha: float, m: float) -> float:
    """-d log MSE / d log m of the two-term form near m."""
    below, above = two_terms(alpha, np.round([m / 2, m * 2]))
    return float(np.log(below / above) / np.log(4))


def exact_mse(numbers: Numbers) -> Floats:
    """The MSE by the exact law."""
    return numbers["bias"] ** 2 + numbers["variance"]


def simulated_mse(averages: Floats) -> tuple[Floats, Floats]:
    """The mean square over the last axis, the replicates, and its standard error; not finite after a divergence."""
    with np.errstate(invalid="ignore"):
        return (averages**2).mean(axis=-1), standard_error(averages**2)


def log_ratio(top: Floats, bottom: Floats) -> tuple[Floats, Floats]:
    """log of the ratio of two MSEs and its standard error; the replicates, last axes, may be the same chains."""
    above, below = simulated_mse(top)[0], simulated_mse(bottom)[0]
    with np.errstate(invalid="ignore", divide="ignore"):
        influence = top**2 / above[..., None] - bottom**2 / below[..., None]
        return np.log(above / below), standard_error(influence)


class Power(NamedTuple):
    """Least-squares exponents p in MSE ~ exp(p x): simulated, with standard error, and by the exact law."""

    simulated: Floats
    stderr: Floats
    exact: Floats


def fitted_power(numbers: Numbers, x: ArrayLike) -> Power:
    """Exponents of the MSE against exp(x) over the last decade of m, one for each alpha; x is (h) or (a, h).

    The MSEs at several m come from the same chains, so the error is that of the whole fit: the infinitesimal
    jackknife, the spread over chains of what each adds to the exponent, sum_i w_i (pi_i^2/MSE_i).
    """
    window = last_decade(numbers["m"])
    x = np.broadcast_to(x, numbers["bias"].shape)[:, window]
    centred = x - x.mean(axis=-1, keepdims=True)
    weight = centred / (centred**2).sum(axis=-1, keepdims=True)
    mse, square = simulated_mse(numbers["averages"])[0][:, window], numbers["averages"][:, window] ** 2
    with np.errstate(invalid="ignore"):
        influence = np.einsum("ah,ahr->ar", weight, square / mse[..., None])
        stderr = standard_error(influence)
        simulated = (weight * np.log(mse)).sum(axis=-1)
    return Power(simulated, stderr, (weight * np.log(exact_mse(numbers)[:, window])).sum(axis=-1))


def last_decade(m: np.ndarray) -> np.ndarray:
    """Which of the horizons lie within a factor ten of the last one."""
    return np.asarray(10 * m >= m[-1])


def exact_law_scores(numbers: Numbers) -> Floats:
    """Standard normal scores of bias, variance and MSE against the exact law, along a new first axis."""
    averages, bias, variance = numbers["averages"], numbers["bias"], numbers["variance"]
    with np.errstate(invalid="ignore"):
        scores = np.stack(
            [
                mean_score(averages, bias, variance),
                variance_score(averages, variance),
                square_score(averages, bias**2 + variance, averages.shape[-1]),
            ]
        )
    return np.where(np.isfinite(scores), scores, np.inf)


def follows_law(claim: str, printed: str, scores: Floats) -> Finding:
    """The verdict on a claim that the runs have the exact law, from `exact_law_scores` or some of them."""
    same, largest = agrees(scores, 0.0, 1.0)
    return Finding(
        claim=claim,
        printed=printed,
        measured=f"largest of {scores.size} scores {largest:.1f}, limit {limit(scores.size):.1f}",
        **judged(same, "the runs do not follow the law of the sampler that the paper defines"),
    )


def draw_curves(axes: Axes, x: Floats, numbers: Numbers, scale: ArrayLike, labels: Sequence[str]) -> None:
    """MSE times `scale` against x, one colour and mark for each label: marks simulate, lines are the exact law."""
    mse, stderr = simulated_mse(numbers["averages"])
    exact, scale = exact_mse(numbers), np.broadcast_to(scale, numbers["bias"].shape)
    for i, label in enumerate(labels):
        seen = np.isfinite(mse[i])
        y, error = (scale[i] * mse[i])[seen], (scale[i] * stderr[i])[seen]
        axes.errorbar(x[seen], y, 2 * error, fmt=MARKS[i], color=COLOURS[i], **SIMULATED)
        axes.plot(x, scale[i] * exact[i], color=COLOURS[i], **EXACT)
        # An empty line for the legend, which would put error bars behind all lines.
        axes.plot([], [], marker=MARKS[i], markersize=5, color=COLOURS[i], label=label, **EXACT)
    axes.set_xscale("log")
    axes.set_yscale("log")


def draw_key(axes: Axes, *, two_terms: bool) -> None:
    """Entries of the legend that say what marks and lines are."""
    axes.plot([], [], "o", markersize=5, color="grey", label="simulation ± 2 s.e.")
    axes.plot([], [], color="grey", label="exact law", **EXACT)
    if two_terms:
        axes.plot([], [], color="grey", label="two-term form", **ASYMPTOTE)
