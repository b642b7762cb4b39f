"""Consistency on the Gaussian problem: test functions, weights and step-size laws, with exact moments beside."""

from collections.abc import Sequence
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import langevin as lv
from langevin.paper import problems
from langevin.paper.lab import Lab
from langevin.paper.study import Floats, Numbers
from langevin.theory import PoissonSolution, solve_poisson

BATCH_SIZE = 10
# Off the mode by more than two posterior standard deviations: an average must also forget where it began.
THETA_0 = float(np.float32(problems.gaussian().mu_p + 1.0))
PHI_NAMES = ("tanh θ", "1{θ > 0}", "θ", "θ²", "θ⁴", "A sin")
# The means of the powers are known exactly at every m; the average of A sin has an exact law.
POWERS, THETA, SQUARE, FOURTH, POISSON = slice(2, 5), 2, 3, 4, 5
CONSTANT_STEP = 0.2


def phis(theta: jax.Array) -> jax.Array:
    """Two bounded test functions, three unbounded ones, and phi = A h with pi(phi) = 0."""
    indicator = jnp.where(theta > 0, 1.0, 0.0)
    return jnp.stack([jnp.tanh(theta), indicator, theta, theta**2, theta**4, problems.gaussian_phi()(theta)])


def frozen_steps(m: Floats) -> Floats:
    """Steps with a finite sum, 0.4 zeta(3/2) = 1.04: after that much time the chain stands still."""
    return 0.4 * m**-1.5


class Setting(NamedTuple):
    """One step-size law with weights omega = delta^p; `long` ones run ten times as far."""

    schedule: lv.schedules.Schedule
    p: float = 1.0
    long: bool = False


SETTINGS = {
    "third": Setting(problems.gaussian_steps(1 / 3), long=True),
    "half": Setting(problems.gaussian_steps(0.5), long=True),
    "p=0.5": Setting(problems.gaussian_steps(1 / 3), p=0.5),
    "p=2": Setting(problems.gaussian_steps(1 / 3), p=2.0),
    "p=6": Setting(problems.gaussian_steps(1 / 3), p=6.0),
    "frozen": Setting(lv.Custom(frozen_steps)),
    "constant": Setting(lv.Constant(CONSTANT_STEP)),
}
# Those that meet the assumptions: 0 < p < 1/alpha.
SOUND = ("third", "half", "p=0.5", "p=2")


@cache
def solutions() -> tuple[PoissonSolution, ...]:
    """pi(phi), sigma^2 and mubar of every test function."""
    mu, sd = problems.gaussian().mu_p, problems.gaussian().sigma_p

    def log_density(x: jax.Array) -> jax.Array:
        return -0.5 * ((x - mu) / sd) ** 2

    def solve(i: int) -> PoissonSolution:
        return solve_poisson(lambda x: phis(x)[i], log_density, mu - 9 * sd, mu + 9 * sd, breaks=(0.0,))

    return tuple(solve(i) for i in range(len(PHI_NAMES)))


@cache
def truth() -> Floats:
    """pi(phi) of every test function."""
    return np.array([solution.mean for solution in solutions()])


class Prediction(NamedTuple):
    """What the theorems say of the error of pi_m(phi): bias, what the next order may add, and standard deviation."""

    bias: Floats
    next_order: Floats
    sd: Floats


def predict(schedule: lv.schedules.Schedule, m: np.ndarray) -> Prediction:
    """For every test function and m, shape (m, phi), at omega = delta.

        bias = (mubar sum delta^2 + E h - h(theta_0))/T_m,  sd = (sigma^2/T_m)^(1/2)

    The terms of next order are sum delta^3/T_m times a number that is not computed. At the constant step delta the
    chain's variance is too large by a share c delta + O(delta^2), c = (noise + 1/sigma_p^2)/4, so c delta times the
    first order, without the cancellations in it, is their size.
    """
    law, sd_p = problems.gaussian_law(BATCH_SIZE), problems.gaussian().sigma_p
    noise = law.grad_noise
    T, delta2, delta3 = (np.asarray(schedule.sum_power(m, p))[:, None] for p in (1.0, 2.0, 3.0))
    mubar, gross, start, sigma2 = [], [], [], []
    for solution in solutions():
        mubar.append(solution.mubar(noise))
        gross.append(solution.weight @ np.abs(solution.d2h) * (noise + sd_p**-2) / 8)
        middle = (solution.dh[1:] + solution.dh[:-1]) / 2 * np.diff(solution.theta)
        h = np.concatenate([[0.0], np.cumsum(middle)])
        start.append(solution.weight @ h - np.interp(THETA_0, solution.theta, h))
        sigma2.append(solution.sigma2)
    share = (noise + sd_p**-2) / 4
    return Prediction(
        bias=(np.array(mubar) * delta2 + np.array(start)) / T,
        next_order=share * np.array(gross) * delta3 / T,
        sd=np.sqrt(np.array(sigma2) / T),
    )


@cache
def noise_fourth() -> float:
    """Fourth cumulant of the gradient noise, from log |cf(t)| = -k2 t^2/2 + k4 t^4/24 - k6 t^6/720 + ..."""
    law = problems.gaussian_law(BATCH_SIZE)
    u = np.linspace(0.02, 1.0, 50)
    # Even powers up to u^12, u = t sd: the first one left out is below 1e-8 here.
    powers = np.stack([u ** (2 * r) for r in range(1, 7)], axis=1)
    fit = np.linalg.lstsq(powers, np.log(np.abs(law.noise_cf(u / law.grad_noise**0.5))), rcond=None)[0]
    return float(24 * fit[1] * law.grad_noise**2)


def exact_moments(schedule: lv.schedules.Schedule, p: float, stages: Sequence[int]) -> Numbers:
    """Variance of the weighted average of theta, and the means of those of theta, theta^2 and theta^4.

    y = theta - mu_p is a sum of independent noises, so its cumulants obey k_r <- a^r k_r + (delta/2)^r k_r(H) +
    delta [r = 2]. With S = sum omega_k y_{k-1}, Var S grows by 2 omega Cov(S, y) + omega^2 Var y in a step.
    """
    law = problems.gaussian_law(BATCH_SIZE)
    of_noise = (law.grad_noise / 4, law.grad_noise_third / 8, noise_fourth() / 16)
    delta = problems.rounded_steps(schedule, stages[-1])
    omega = schedule.omega(np.arange(1, stages[-1] + 1), p).astype(np.float32).astype(np.float64)
    mean, k2, k3, k4, covariance, spread = THETA_0 - law.mu_p, 0.0, 0.0, 0.0, 0.0, 0.0
    total, first, second, fourth = 0.0, 0.0, 0.0, 0.0
    rows, wanted = [], set(stages)
    steps = zip(delta.tolist(), omega.tolist(), law.contraction(delta).tolist(), strict=True)
    for m, (d, w, a) in enumerate(steps, start=1):
        centre = law.mu_p + mean
        total += w
        first += w * centre
        second += w * (centre**2 + k2)
        fourth += w * (centre**4 + 6 * centre**2 * k2 + 4 * centre * k3 + k4 + 3 * k2**2)
        spread += 2 * w * covariance + w * w * k2
        covariance = a * (covariance + w * k2)
        mean, k2 = a * mean, a**2 * k2 + d + d**2 * of_noise[0]
        k3, k4 = a**3 * k3 + d**3 * of_noise[1], a**4 * k4 + d**4 * of_noise[2]
        if m in wanted:
            rows.append((spread / total**2, first / total, second / total, fourth / total))
    exact = np.array(rows)
    return {"variance": exact[:, 0], "means": exact[:, 1:]}


def compute(lab: Lab) -> Numbers:
    """pi_m(phi) of every chain, setting and stage, shape (stages, chains, phi), and the exact moments."""
    short: Sequence[int] = lab.choose(tiny=(100, 1000), quick=(100, 1000, 10_000), full=(100, 1000, 10_000, 100_000))
    far: Sequence[int] = lab.choose(
        tiny=short, quick=(100, 316, 1000, 3162, 10_000, 31_623, 100_000),
        full=(100, 316, 1000, 3162, 10_000, 31_623, 100_000, 316_228, 1_000_000),
    )  # fmt: skip
    chains = lab.choose(tiny=256, quick=256, full=192)
    numbers: dict[str, np.ndarray] = {}
    for name, setting in SETTINGS.items():
        stages = far if setting.long else short
        asked = {"schedule": repr(setting.schedule), "p": setting.p, "stages": list(stages)}
        runs = lab.part(f"consistency/{name}", partial(_averages, lab, setting, stages, chains), **asked, chains=chains)
        exact = lab.reference.part(
            f"consistency/{name}/exact", partial(exact_moments, setting.schedule, setting.p, stages), **asked
        )
        numbers |= {f"{name}/average": runs["average"], f"{name}/stages": np.asarray(stages)}
        numbers |= {f"{name}/exact_{key}": value for key, value in exact.items()}
    # Further out the law of A sin costs more than its runs.
    at = [m for m in short if m <= 10_000]
    for name in ("third", "half"):
        schedule = SETTINGS[name].schedule
        law = lab.reference.part(
            f"consistency/{name}/law", partial(_average_law, schedule, at), schedule=repr(schedule), stages=at
        )
        numbers |= {f"{name}/law_{key}": value for key, value in law.items()} | {"law_stages": np.asarray(at)}
    return numbers


def _averages(lab: Lab, setting: Setting, stages: Sequence[int], chains: int) -> Numbers:
    model, ledger, rows = problems.gaussian(), None, []
    for m in stages:
        ledger = lab.run(
            model.target, model.data, jnp.float32(THETA_0), schedule=setting.schedule, weight_power=setting.p,
            subsample=lv.WithoutReplacement(BATCH_SIZE), observables={"phi": phis}, num_steps=m, chains=chains,
            seed=lab.seed, resume=ledger,
        )  # fmt: skip
        rows.append(problems.average(ledger, "phi"))
    return {"average": np.stack(rows)}


def _average_law(schedule: lv.schedules.Schedule, at: Sequence[int]) -> Numbers:
    model = problems.gaussian()
    steps = problems.rounded_steps(schedule, at[-1])
    law = problems.gaussian_law(BATCH_SIZE).average_sin(steps, THETA_0, at, model.mu_p + model.sigma_p / 2)
    return {"bias": law.bias, "variance": law.variance}
