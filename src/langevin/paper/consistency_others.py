"""Consistency away from the Gaussian: the logistic problem against quadrature, and a target with heavy tails."""

from collections.abc import Sequence
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import integrate, linalg, stats

import langevin as lv
from langevin.paper import problems
from langevin.paper.lab import Lab
from langevin.paper.study import Floats, Numbers

BATCH_SIZE = 30
# The steps that section 6.2 finds best for its budget.
LOGISTIC_STEPS = lv.Polynomial(a=5.89e7, b=7.90e8, alpha=1 / 3)
# Student's t with 3 degrees of freedom: grad log pi tends to 0 in the tails, E theta^2 = 3, E theta^4 is infinite.
# Beside it, as a control in the same runs, an independent standard normal coordinate.
FREEDOM = 3.0
HEAVY_STEPS = lv.Power(scale=0.5, alpha=0.5)
LEVEL = 0.95


@cache
def logistic_phis() -> lv.observables.Function:
    """theta and (theta - E theta)^2, six numbers in d = 3."""
    centre = jnp.asarray(problems.logistic().truth().mean, jnp.float32)
    return lv.observables.Function(lambda theta: jnp.concatenate([theta, (theta - centre) ** 2]), "moments")


def logistic_truth() -> Floats:
    """E theta and the posterior variances, by quadrature."""
    truth = problems.logistic().truth()
    return np.concatenate([truth.mean, truth.variance])


class LogisticBias(NamedTuple):
    """Bias per unit of sum delta^2/T_m, and the share by which a step delta may change it, per delta."""

    slope: Floats
    share: float


def logistic_bias() -> LogisticBias:
    """Of the mean and of the variances, with pi replaced by its Laplace approximation and its third derivatives.

    At a constant step the covariance is Sigma + delta X with P X + X P = (V + P)/2, P = Sigma^-1, V the covariance
    of the stochastic gradient at the mode. To keep E grad log pi = 0 the mean then moves by P^-1 D3[X]/2, D3 the third
    derivative.
    """
    model = problems.logistic()
    N, n = model.num_data, BATCH_SIZE
    signed = model.x * model.y[:, None]
    grads = signed / (1 + np.exp(signed @ model.map))[:, None]
    V = N**2 / n * (N - n) / (N - 1) * np.cov(grads.T, bias=True)
    P = -model.hessian(model.map)
    X = linalg.solve_continuous_lyapunov(P, (V + P) / 2)
    # D3[X] as second differences of the gradient along the columns of a root of X, on the scale of the posterior.
    shift = 1e-3 * linalg.cholesky(X, lower=True).T
    third = (model.grad(model.map + shift) + model.grad(model.map - shift) - 2 * model.grad(model.map)).sum(axis=0)
    mean = 0.5 * linalg.solve(P, third / 1e-6)
    return LogisticBias(np.concatenate([mean, np.diag(X)]), float(linalg.eigvals(X @ P).real.max()))


def heavy_log_density(theta: jax.Array) -> jax.Array:
    """log pi of a Student and an independent normal coordinate."""
    return -0.5 * (FREEDOM + 1) * jnp.log1p(theta[0] ** 2 / FREEDOM) - 0.5 * theta[1] ** 2


HEAVY = lv.Target(heavy_log_density)
HEAVY_NAMES = ("tanh² θ, Student", "tanh² θ, normal", "θ², Student", "θ², normal")


def heavy_phis(theta: jax.Array) -> jax.Array:
    """A bounded and an unbounded even function of both coordinates."""
    return jnp.concatenate([jnp.tanh(theta) ** 2, theta**2])


@cache
def heavy_truth() -> Floats:
    """Their expectations."""
    student, normal = (
        integrate.quad(lambda x, pdf=pdf: np.tanh(x) ** 2 * pdf(x), -np.inf, np.inf)[0]
        for pdf in (stats.t(FREEDOM).pdf, stats.norm.pdf)
    )
    return np.array([student, normal, FREEDOM / (FREEDOM - 2), 1.0])


def compute(lab: Lab) -> Numbers:
    """Averages of the logistic problem at growing m; coverage of nominal intervals under heavy tails.

    Nothing at the smallest size, where the two compilations would be most of the time.
    """
    if lab.size == "tiny":
        return {}
    stages: Sequence[int] = lab.choose(
        tiny=(), quick=(100, 1000, 10_000, 31_623), full=(100, 1000, 10_000, 100_000, 316_228)
    )
    chains = 64
    logistic = lab.part(
        "consistency/logistic", partial(_logistic, lab, stages, chains), schedule=repr(LOGISTIC_STEPS),
        stages=list(stages), chains=chains,
    )  # fmt: skip
    numbers: dict[str, np.ndarray] = {"logistic/stages": np.asarray(stages), **logistic}
    far: Sequence[int] = lab.choose(tiny=(), quick=(316, 3162, 31_623), full=(316, 3162, 31_623, 316_228))
    numbers |= lab.part(
        "consistency/heavy", partial(_heavy, lab, far, 512), schedule=repr(HEAVY_STEPS), stages=list(far), chains=512
    )
    numbers["heavy/stages"] = np.asarray(far)
    return numbers


def _logistic(lab: Lab, stages: Sequence[int], chains: int) -> Numbers:
    model, ledger, rows = problems.logistic(), None, []
    for m in stages:
        ledger = lab.run(
            model.target, model.data, model.theta_0, schedule=LOGISTIC_STEPS, chains=chains, seed=lab.seed,
            subsample=lv.WithoutReplacement(BATCH_SIZE), observables={"moments": logistic_phis()}, num_steps=m,
            resume=ledger,
        )  # fmt: skip
        rows.append(problems.average(ledger, "moments"))
    return {"logistic/average": np.stack(rows)}


def _heavy(lab: Lab, stages: Sequence[int], chains: int) -> Numbers:
    """Averages, and whether the interval of each chain by itself holds the truth, shape (stages, chains, phi)."""
    ledger, values, covered = None, [], []
    for m in stages:
        ledger = lab.run(
            HEAVY, None, jnp.zeros(2, jnp.float32), schedule=HEAVY_STEPS, observables={"phi": heavy_phis}, num_steps=m,
            chains=chains, seed=lab.seed, resume=ledger,
        )  # fmt: skip
        lower, upper = lv.estimate(ledger, pool=False)["phi"].interval(LEVEL)
        values.append(problems.average(ledger, "phi"))
        covered.append((lower <= heavy_truth()) & (heavy_truth() <= upper))
    return {"heavy/average": np.stack(values), "heavy/covered": np.stack(covered)}
