"""The average after m steps in the three regimes: fluctuations dominate, balance, bias dominates."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy import stats

import langevin as lv
from langevin.paper import gaussian_runs, problems
from langevin.paper.gaussian_runs import BATCH_SIZE
from langevin.paper.lab import Lab
from langevin.paper.replicates import mean_score, standard_error, variance_score
from langevin.paper.study import Finding, Floats, Numbers, Row, agrees, judged, limit

# The scales are such that the limit laws are near at an m that can be run, and that at alpha = 1/3 the bias is about
# 0.75 standard deviations: seen by eye, and still no more than the spread.
REGIMES = {
    "fluctuations": lv.Power(scale=0.5, m_0=1.0, alpha=0.5),
    "balanced": lv.Power(scale=0.5, m_0=1.0, alpha=1 / 3),
    "bias": lv.Power(scale=0.6, m_0=10.0, alpha=0.2),
}


def sigma2() -> float:
    """Limit of T_m times the variance."""
    return gaussian_runs.constants(BATCH_SIZE)[0]


def mubar() -> float:
    """Bias per unit of sum delta^2/T_m, gradient noise included."""
    return gaussian_runs.constants(BATCH_SIZE)[1]


def third_cumulant() -> float:
    """Limit of T_m^2 times the third cumulant of the time average: -6 E[(h - E h) h'^2].

    The cumulants of a time average are the Taylor coefficients of the largest eigenvalue of A + s phi, and
    perturbation of third order gives pi(phi h^2) = -pi(h h'^2) for h of mean 0. Here h = sin u with u normal of mean
    -sigma_p/2, and h h'^2 = (sin u + sin 3u)/4.
    """
    sd = problems.gaussian().sigma_p
    first, third = (-np.sin(k * sd / 2) * np.exp(-((k * sd) ** 2) / 2) for k in (1, 3))
    return float(-6 * ((first + third) / 4 - first * sigma2()))


def compute(lab: Lab) -> Numbers:
    """pi_m(phi) of every replicate at a few m, with the exact mean and variance beside, for each regime."""
    stages: Sequence[int] = lab.choose(
        tiny=(100, 1000), quick=(100, 300, 1000, 3000, 10_000), full=(100, 1000, 3000, 10_000, 30_000, 100_000)
    )
    batches, chains = lab.choose(tiny=(1, 1000), quick=(2, 2000), full=(2, 2000))
    numbers: dict[str, np.ndarray] = {"stages": np.asarray(stages)}
    for number, (name, schedule) in enumerate(REGIMES.items()):
        seed = 1000 * lab.seed + 100 + number
        asked = {"schedule": repr(schedule), "stages": list(stages)}
        law = lab.reference.part(f"clt/{name}/law", partial(_law, schedule, stages), **asked)
        runs = [
            lab.part(
                f"clt/{name}/runs{b}",
                partial(_averages, lab, schedule, stages, range(b * chains, (b + 1) * chains), seed),
                **asked, chains=chains, run_seed=seed,
            )
            for b in range(batches)
        ]  # fmt: skip
        numbers[f"{name}/average"] = np.concatenate([run["average"] for run in runs], axis=-1)
        numbers |= {f"{name}/{key}": value for key, value in law.items()}
    return numbers


def _averages(lab: Lab, schedule: lv.Power, stages: Sequence[int], chains: range, seed: int) -> Numbers:
    model, ledger, rows = problems.gaussian(), None, []
    for m in stages:
        ledger = lab.run(
            model.target, model.data, model.theta_0, schedule=schedule, subsample=lv.WithoutReplacement(BATCH_SIZE),
            observables={"phi": problems.gaussian_phi()}, num_steps=m, chains=list(chains), seed=seed,
            resume=ledger,
        )  # fmt: skip
        rows.append(problems.average(ledger, "phi"))
    return {"average": np.stack(rows)}


def _law(schedule: lv.Power, stages: Sequence[int]) -> Numbers:
    model, m = problems.gaussian(), np.asarray(stages)
    steps = problems.rounded_steps(schedule, stages[-1])
    law = problems.gaussian_law(BATCH_SIZE).average_sin(
        steps, float(model.theta_0), stages, model.mu_p + model.sigma_p / 2
    )
    sums = [np.cumsum(steps**p)[m - 1] for p in (1, 2, 3)]
    return {"mean": law.bias, "variance": law.variance, "T": sums[0], "delta2": sums[1], "delta3": sums[2]}


def _extrapolated(numbers: Numbers, name: str, averages: Floats) -> Floats:
    """pi_m(phi)/(sum delta^2/T_m), carried to step 0 along x = sum delta^3/sum delta^2, for each column.

    The ratio is mubar + c x + O(x^2) in the mean. Two values of m a decade apart remove the term c x.
    """
    stages = numbers["stages"]
    pair = [int(np.flatnonzero(stages <= stages[-1] / 10)[-1]), -1]
    T, delta2, delta3 = (numbers[f"{name}/{key}"][pair] for key in ("T", "delta2", "delta3"))
    early, late = averages[pair] * (T / delta2)[:, None]
    x = delta3 / delta2
    return (x[0] * late - x[1] * early) / (x[0] - x[1])


def nearest(found: float, limit: float, exact: float) -> float:
    """The value between the limit and the exact law at this m that lies nearest to what was found.

    A limit theorem does not say how near the limit is, the exact law does: `found` may lie anywhere between the two.
    """
    return min(max(found, min(limit, exact)), max(limit, exact))


def _slope(numbers: Numbers, name: str) -> tuple[Floats, float, bool, float]:
    """The extrapolated ratio of every replicate, the same of the exact law, whether mubar fits, and the score."""
    carried = _extrapolated(numbers, name, numbers[f"{name}/average"])
    exact = float(_extrapolated(numbers, name, numbers[f"{name}/mean"][:, None])[0])
    found = float(carried.mean())
    return carried, exact, *agrees(found, nearest(found, mubar(), exact), standard_error(carried))


def _spread_score(numbers: Numbers, name: str) -> float:
    """Score of T_m times the variance at the last m, against the nearest value between sigma^2 and the exact law."""
    scaled, T, _ = last(numbers, name)
    exact = T * numbers[f"{name}/variance"][-1]
    return float(variance_score(scaled, nearest(scaled.var(ddof=1), sigma2(), exact)))


def check(numbers: Numbers) -> list[Finding]:
    """The exact law at every m; then the three limits, and the shape."""
    return [
        _check_exact(numbers),
        _check_fluctuations(numbers),
        _check_balanced(numbers),
        _check_bias(numbers),
        _check_shape(numbers),
    ]


def _check_exact(numbers: Numbers) -> Finding:
    scores = []
    for name in REGIMES:
        values, mean, variance = (numbers[f"{name}/{key}"] for key in ("average", "mean", "variance"))
        scores += [mean_score(values, mean, variance), variance_score(values, variance)]
    ok, largest = agrees(np.concatenate(scores), 0.0, 1.0)
    runs = numbers["bias/average"].shape[-1]
    return Finding(
        claim="Mean and variance of the average at finite m, three regimes, are those of the exact law of the sampler",
        printed="the limits only",
        measured=f"largest of {np.concatenate(scores).size} scores {largest:.1f} ({runs} runs a regime, n = 10)",
        **judged(ok, "mean or variance is not that of SGLD on this posterior"),
    )


def last(numbers: Numbers, name: str) -> tuple[Floats, float, float]:
    """sqrt(T_m) pi_m(phi) of every replicate at the last m, T_m, and B_m."""
    T, delta2 = numbers[f"{name}/T"][-1], numbers[f"{name}/delta2"][-1]
    return np.sqrt(T) * numbers[f"{name}/average"][-1], T, delta2 / np.sqrt(T)


def _check_fluctuations(numbers: Numbers) -> Finding:
    scaled, T, B = last(numbers, "fluctuations")
    first_B = numbers["fluctuations/delta2"][0] / np.sqrt(numbers["fluctuations/T"][0])
    error = standard_error(scaled)
    # B_m falls like log m/m^(1/4): at any m that can be run the mean is still B_m mubar, not yet 0.
    exact = np.sqrt(T) * numbers["fluctuations/mean"][-1]
    centre = nearest(scaled.mean(), B * mubar(), exact)
    scores = [mean_score(scaled, centre, sigma2()), _spread_score(numbers, "fluctuations")]
    ok, largest = agrees(np.array(scores), 0.0, 1.0)
    return Finding(
        claim="If B_m tends to 0 (alpha = 1/2), sqrt(T_m)(pi_m - pi) tends to a centred normal of variance sigma^2",
        printed="N(0, sigma^2), sigma^2 = E|grad h|^2",
        measured=(
            f"variance {_spread(numbers, 'fluctuations')}; mean {scaled.mean():.3f} ± {error:.3f}, exact {exact:.3f}, "
            f"on its way to 0 as B_m mubar = {B * mubar():.3f} (B_m fell from {first_B:.2f} to {B:.2f}); largest "
            f"score {largest:.1f}"
        ),
        **judged(ok, "variance or mean is away from sigma^2 and B_m mubar"),
    )


def _spread(numbers: Numbers, name: str) -> str:
    """T_m times the variance at the last m with its standard error, exact and in the limit."""
    scaled, T, _ = last(numbers, name)
    error = standard_error((scaled - scaled.mean()) ** 2)
    exact = T * numbers[f"{name}/variance"][-1]
    return f"{scaled.var(ddof=1):.3f} ± {error:.3f}, exact {exact:.3f}, limit {sigma2():.3f}"


def _check_balanced(numbers: Numbers) -> Finding:
    scaled, _, B = last(numbers, "balanced")
    limit_B = float(np.asarray(REGIMES["balanced"].B_limit()))
    carried, exact, near, score = _slope(numbers, "balanced")
    ok, spread_score = agrees(_spread_score(numbers, "balanced"), 0.0, 1.0)
    ok &= near
    return Finding(
        claim="If B_m has a limit (alpha = 1/3), the limit is normal with mean B_inf mubar and variance sigma^2",
        printed="mean B_inf times an expectation with 1/24 on the fourth derivative",
        measured=(
            f"mean {scaled.mean():.3f} ± {standard_error(scaled):.3f} at B_m = {B:.3f}, limit {limit_B * mubar():.3f} "
            f"at B_inf = {limit_B:.3f}; bias per sum delta^2/T_m, carried to step 0: {carried.mean():.3f} ± "
            f"{standard_error(carried):.3f}, exact {exact:.3f}, mubar {mubar():.3f}; variance "
            f"{_spread(numbers, 'balanced')}; scores {score:.1f} and {spread_score:.1f}"
        ),
        **judged(ok, "mean or variance is away from its limit", corrected="mubar holds 1/8, not 1/24"),
        erratum=1,
    )


def _check_bias(numbers: Numbers) -> Finding:
    stages = numbers["stages"]
    ratio = numbers["bias/average"] * (numbers["bias/T"] / numbers["bias/delta2"])[:, None]
    carried, exact, ok, score = _slope(numbers, "bias")
    spread, away = ratio.std(axis=-1, ddof=1), ratio - ratio.mean(axis=-1, keepdims=True)
    fall, error = gaussian_runs.log_ratio(away[0], away[-1])
    return Finding(
        claim="If B_m tends to infinity (alpha = 1/5), (pi_m - pi)/(sum delta^2/T_m) tends to the constant mubar",
        printed="the limit is mu = B_inf mubar, here infinite",
        measured=(
            f"ratio {ratio[-1].mean():.3f} ± {standard_error(ratio[-1]):.3f} at m = {stages[-1]}, carried to step 0 "
            f"{carried.mean():.3f} ± {standard_error(carried):.3f} (score {score:.1f}), exact {exact:.3f}, "
            f"mubar {mubar():.3f}; spread over runs {spread[0]:.2f} at m = {stages[0]}, "
            f"{spread[-1]:.2f} at the end (smaller by {fall / error:.0f} errors of their ratio)"
        ),
        **judged(
            ok and not fall < -limit(1) * error,
            "the ratio does not settle at mubar",
            bool(fall > limit(1) * error),
            "too few runs or steps to be sure that the spread falls",
            corrected="the limit is mubar, without B_inf",
        ),
        erratum=2,
    )


def _check_shape(numbers: Numbers) -> Finding:
    found, scores = [], []
    for name in ("fluctuations", "balanced"):
        scaled, T, _ = last(numbers, name)
        # The skewness of a time average falls like 1/sqrt(T), its excess kurtosis like 1/T.
        expected = third_cumulant() / sigma2() ** 1.5 / np.sqrt(T)
        skewness, kurtosis = stats.skew(scaled), stats.kurtosis(scaled)
        scores += [(skewness - expected) / np.sqrt(6 / scaled.size), stats.kurtosistest(scaled).statistic]
        found.append(f"{name}: skewness {skewness:.3f} (expected {expected:.3f}), excess kurtosis {kurtosis:.3f}")
    ok, largest = agrees(np.array(scores), 0.0, 1.0)
    error = np.sqrt(6 / scaled.size)
    return Finding(
        claim="The fluctuations are normal: skewness as its leading term, of order T_m^-1/2, and no excess kurtosis",
        printed="normal in the limit",
        measured=f"{'; '.join(found)}; errors {error:.3f} and {2 * error:.3f}; largest score {largest:.1f}",
        **judged(ok, "skewness or kurtosis is away from that of a near-normal time average"),
    )


def table(numbers: Numbers) -> list[Row]:
    """Scaled mean and variance of each regime at each m: measured, exact, limit."""
    rows: list[Row] = []
    for name in REGIMES:
        T, delta2 = numbers[f"{name}/T"], numbers[f"{name}/delta2"]
        for i, m in enumerate(numbers["stages"]):
            scaled = np.sqrt(T[i]) * numbers[f"{name}/average"][i]
            common: Row = {"experiment": name, "x": int(m)}
            square = (scaled - scaled.mean()) ** 2
            rows += [
                common | {
                    "quantity": "sqrt(T) mean", "measured": scaled.mean(), "stderr": standard_error(scaled),
                    "exact": np.sqrt(T[i]) * numbers[f"{name}/mean"][i], "limit": mubar() * delta2[i] / np.sqrt(T[i]),
                },
                common | {
                    "quantity": "T variance", "measured": scaled.var(ddof=1), "stderr": standard_error(square),
                    "exact": T[i] * numbers[f"{name}/variance"][i], "limit": sigma2(),
                },
            ]  # fmt: skip
    return rows
