"""Consistency on the Gaussian problem: test functions, weights and step-size laws, with exact moments beside."""

from collections.abc import Sequence
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

import langevin as lv
from langevin.paper import problems
from langevin.paper.lab import Lab
from langevin.paper.study import Floats, Numbers
from langevin.theory import Cumulants, PoissonSolution, solve_poisson

BATCH_SIZE = 10
# Off the mode by more than two posterior standard deviations: an average must also forget where it began.
THETA_0 = float(np.float32(problems.gaussian().mu_p + 1.0))
PHI_NAMES = ("tanh θ", "1{θ > 0}", "θ", "θ²", "θ⁴", "A sin")
THETA, SQUARE, FOURTH, POISSON = 2, 3, 4, 5
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
# Averages over little more than one independent value: that of theta^2 is as skewed as a square.
SKEWED = ("p=6", "frozen")


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


def first_order_mse(schedule: lv.schedules.Schedule, m: np.ndarray) -> Floats:
    """What the theorems say of the MSE of every test function and m, shape (m, phi), at omega = delta.

    (bias_m)^2 + sigma^2/T_m with bias_m = (mubar sum delta^2 + E h - h(theta_0))/T_m.
    """
    noise = problems.gaussian_law(BATCH_SIZE).grad_noise
    T, delta2 = (np.asarray(schedule.sum_power(m, p)) for p in (1.0, 2.0))
    columns = []
    for solution in solutions():
        middle = (solution.dh[1:] + solution.dh[:-1]) / 2 * np.diff(solution.theta)
        h = np.concatenate([[0.0], np.cumsum(middle)])
        start = solution.weight @ h - np.interp(THETA_0, solution.theta, h)
        bias = (solution.mubar(noise) * delta2 + start) / T
        columns.append(bias**2 + solution.sigma2 / T)
    return np.stack(columns, axis=1)


def expectations(of_theta: Cumulants) -> Floats:
    """E phi(theta) of every test function from the cumulants of theta, shape (times, phi), for positive variances.

    Those of the powers are exact. The others take a normal law with the Edgeworth terms of third and fourth order. The
    next ones matter at the first steps only: without them the mean of A sin at m = 100, alpha = 1/3, is -0.2972, not
    -0.2980, a fourteenth of its standard error with 256 chains.
    """
    mean, k2, k3, k4 = of_theta.mean, of_theta.variance, of_theta.third, of_theta.fourth
    sd = np.sqrt(k2)
    # The density is that of the normal times 1 + sum of c_r He_r(z).
    c = {3: k3 / sd**3 / 6, 4: k4 / sd**4 / 24, 6: (k3 / sd**3) ** 2 / 72}
    tanh = np.zeros_like(mean)
    for z, weight in zip(*special.roots_hermitenorm(60), strict=True):
        density = 1 + sum(c[r] * special.eval_hermitenorm(r, z) for r in c)
        tanh += weight / np.sqrt(2 * np.pi) * density * np.tanh(mean + sd * z)
    # The integral of phi(z) He_r(z) from z_0 on is phi(z_0) He_{r-1}(z_0).
    z_0 = -mean / sd
    normal = np.exp(-(z_0**2) / 2) / np.sqrt(2 * np.pi)
    positive = special.ndtr(-z_0) + normal * sum(c[r] * special.eval_hermitenorm(r - 1, z_0) for r in c)
    # exp(i(x - shift)) and x exp(i(x - shift)) from the cumulant generating function at i, x = theta - mu_p.
    model = problems.gaussian()
    x = mean - model.mu_p
    wave = np.exp(1j * (x - model.sigma_p / 2) - k2 / 2 - 1j * k3 / 6 + k4 / 24)
    linear = (x + 1j * k2 - k3 / 2 - 1j * k4 / 6) * wave
    a_sin = -0.5 * (linear.real / model.sigma_p**2 + wave.imag)
    fourth = mean**4 + 6 * mean**2 * k2 + 4 * mean * k3 + k4 + 3 * k2**2
    return np.stack([tanh, positive, mean, mean**2 + k2, fourth, a_sin], axis=1)


def exact_moments(schedule: lv.schedules.Schedule, p: float, stages: Sequence[int]) -> Numbers:
    """Mean of the weighted average of every test function, shape (stages, phi), and its variance for theta.

    With S = sum omega_k theta_{k-1}, Var S grows by 2 omega Cov(S, theta) + omega^2 Var theta in a step.
    """
    law, last = problems.gaussian_law(BATCH_SIZE), stages[-1]
    delta = problems.rounded_steps(schedule, last)
    omega = schedule.omega(np.arange(1, last + 1), p).astype(np.float32).astype(np.float64)
    start = np.asarray(phis(jnp.float32(THETA_0)), np.float64)
    path = law.cumulants(delta, THETA_0, np.arange(1, last))
    values = np.concatenate([start[None], expectations(path)])
    variance = np.concatenate([[0.0], path.variance])
    covariance, carried = 0.0, []
    for w, a, k2 in zip(omega.tolist(), law.contraction(delta).tolist(), variance.tolist(), strict=True):
        carried.append(covariance)
        covariance = a * (covariance + w * k2)
    spread = np.cumsum(2 * omega * np.array(carried) + omega**2 * variance)
    at, total = np.asarray(stages) - 1, np.cumsum(omega)
    means = np.cumsum(omega[:, None] * values, axis=0)
    return {"variance": spread[at] / total[at] ** 2, "means": means[at] / total[at, None]}


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
            f"consistency/{name}/exact", partial(exact_moments, setting.schedule, setting.p, stages), **asked,
            means=PHI_NAMES,
        )  # fmt: skip
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
    """All settings share one seed: chains with the same noise make differences between settings sharper."""
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
