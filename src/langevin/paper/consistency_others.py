"""Consistency away from the Gaussian: the logistic problem against quadrature, and a target with heavy tails."""

from collections.abc import Sequence
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy import integrate, linalg, stats

import langevin as lv
from langevin.paper import logistic_runs, problems
from langevin.paper.lab import Lab
from langevin.paper.study import Floats, Numbers
from langevin.theory import LinearGaussianLaw

BATCH_SIZE = logistic_runs.BATCH_SIZE
# The (a, b) of section 6.2. There they belong to the exponent 0.38; with 1/3 steps are 3 to 4 times as large.
LOGISTIC_STEPS = lv.Polynomial(*logistic_runs.PAPER, alpha=1 / 3)
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


def _grad_covariance(theta: Floats) -> Floats:
    """Covariance of the stochastic gradient of the logistic problem."""
    model = problems.logistic()
    N, n = model.num_data, BATCH_SIZE
    signed = model.x * model.y[:, None]
    grads = signed / (1 + np.exp(signed @ theta))[:, None]
    return N**2 / n * (N - n) / (N - 1) * np.cov(grads.T, bias=True)


def logistic_bias(stages: Sequence[int]) -> Numbers:
    """Errors of the averages of theta and (theta - E theta)^2, started at the mode, shape (stages, 6).

    With the gradient linear about the mode, P minus the Hessian and V the covariance of the stochastic gradient,

        C <- (1 - delta P/2) C (1 - delta P/2) + delta + delta^2 V/4,  b <- (1 - delta P/2) b + delta D3[C]/4

    give covariance and mean to all orders in delta, the mean moved by the third derivative D3 of log pi. What is left
    out, the curvature of higher order, changes the posterior's variances by 0.5% and V by 0.4%. Of the bias that is a
    tenth of its Monte Carlo error here.
    """
    model = problems.logistic()
    # In the eigenvectors of P all is elementwise but D3.
    p, Q = linalg.eigh(-model.hessian(model.map))
    shift = 1e-3 * Q.T / np.sqrt(p)[:, None]
    rises = [(model.hessian(model.map + s) - model.hessian(model.map - s)) / (2 * np.linalg.norm(s)) for s in shift]
    third = np.stack([Q.T @ rise @ Q for rise in rises]).reshape(p.size, -1)
    V = Q.T @ _grad_covariance(model.map) @ Q
    C, b, one, total = np.zeros_like(V), np.zeros_like(p), np.eye(p.size), 0.0
    sum_C, sum_b, rows, wanted = np.zeros_like(V), np.zeros_like(p), [], set(stages)
    limit = third @ np.diag(1 / p).ravel() / (2 * p)
    for m, delta in enumerate(problems.rounded_steps(LOGISTIC_STEPS, stages[-1]).tolist(), start=1):
        total, sum_C, sum_b = total + delta, sum_C + delta * C, sum_b + delta * b
        a = 1 - delta * p / 2
        b = a * b + delta / 4 * (third @ C.ravel())
        C = a[:, None] * a * C + delta * one + delta**2 / 4 * V
        if m in wanted:
            variances = np.diag(Q @ (sum_C / total - np.diag(1 / p)) @ Q.T)
            rows.append(np.concatenate([Q @ (sum_b / total - limit), variances]))
    return {"bias": np.array(rows)}


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


def control_mean(stages: Sequence[int]) -> Numbers:
    """Exact mean of the average of theta^2 for the normal coordinate."""
    standard = LinearGaussianLaw([0.0], np.sqrt(2), np.sqrt(2), 1, replacement=False)
    delta, at = problems.rounded_steps(HEAVY_STEPS, stages[-1]), np.asarray(stages) - 1
    variance = standard.cumulants(delta, 0.0, np.arange(stages[-1])).variance
    return {"control": np.cumsum(delta * variance)[at] / np.cumsum(delta)[at]}


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
    theory = lab.reference.part(
        "consistency/logistic/theory", partial(logistic_bias, stages), schedule=repr(LOGISTIC_STEPS),
        stages=list(stages),
    )  # fmt: skip
    numbers["logistic/bias"] = theory["bias"]
    far: Sequence[int] = lab.choose(tiny=(), quick=(316, 3162, 31_623), full=(316, 3162, 31_623, 316_228))
    numbers |= lab.part(
        "consistency/heavy", partial(_heavy, lab, far, 512), schedule=repr(HEAVY_STEPS), stages=list(far), chains=512
    )
    control = lab.reference.part(
        "consistency/heavy/control", partial(control_mean, far), schedule=repr(HEAVY_STEPS), stages=list(far)
    )
    numbers |= {"heavy/stages": np.asarray(far), "heavy/control": control["control"]}
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
