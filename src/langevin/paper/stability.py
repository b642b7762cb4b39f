"""Lemma "Stability": Lyapunov conditions, bounded moments, and what happens without them

Checked on both models of the paper: the three conditions with their constants, by `lv.theory.stability`; the moments
E V^p(theta_m), pi_m(V^p), pi_m^omega(V^p) and E|H|^2p along runs, against exact values. Then exp(-theta^4), which
breaks a condition and the sampler, and the largest step at which the Gaussian model has bounded second moments.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy import special

import langevin as lv
from langevin.models import Logistic
from langevin.paper import problems
from langevin.paper.lab import Lab
from langevin.paper.replicates import standard_error
from langevin.paper.stability_exact import exact_moments, noise_bound, noise_moments
from langevin.paper.stability_figures import draw, table
from langevin.paper.stability_findings import check
from langevin.paper.study import Floats, Numbers
from langevin.theory import LinearGaussianLaw, stability

__all__ = ["check", "compute", "draw", "table"]

BATCH = 10  # of the Gaussian model, N = 100
LOGISTIC_BATCH = 30  # N = 1000
KEEP = 64  # draws of a chain at every stage: all of the first 64, every 8th of 512, and so on
START = 10.0  # posterior standard deviations from the mode: V(theta_0) = 51
QUARTIC_STARTS = (0.0, 1.0, 2.0, 4.0)
QUARTIC_SECOND = float(special.gamma(0.75) / special.gamma(0.25))  # E theta^2 under exp(-theta^4)
# Steps below and above 4 sigma_p^2, in its unit.
EDGES = (0.95, 1.05)


@cache
def gaussian_V() -> Callable[[jax.Array], jax.Array]:
    """V = 1 + (theta - mu_p)^2 / (2 sigma_p^2)."""
    mu, variance = problems.gaussian().mu_p, problems.gaussian().sigma_p ** 2
    return lambda theta: 1 + (theta - mu) ** 2 / (2 * variance)


@cache
def observables() -> dict[str, Any]:
    """V and V^2: the lemma's V^(p/2) for p = 2 and 4."""
    V = gaussian_V()
    return {"V": V, "V2": lambda theta: V(theta) ** 2}


def quartic_log_density(theta: jax.Array) -> jax.Array:
    """log exp(-theta^4)."""
    return -(theta**4)


SQUARE = {"square": lambda theta: theta**2}
QUARTIC = lv.Target(quartic_log_density)
CAUCHY = lv.Target(lambda theta: -jnp.log1p(theta**2))


@cache
def prior_dominated() -> Logistic:
    """The paper's data with covariates in a unit 10 000 times as large: now lambda_min = 1 exceeds the sum of |x_i|."""
    model = problems.logistic()
    return Logistic(model.x / 1e4, model.y)


def compute(lab: Lab) -> Numbers:
    """All numbers of the study."""
    chains = lab.choose(tiny=4000, quick=4000, full=8000)
    stages = lab.choose(tiny=[64, 512], quick=[64, 512, 4096], full=[64, 512, 4096, 16384])
    logistic = lab.choose(tiny=[], quick=[1000, 1024], full=[2000, 4096])  # chains and transitions, if any
    numbers: dict[str, np.ndarray] = {}
    parts: dict[str, tuple[Callable[[], Numbers], dict[str, Any]]] = {
        "conditions": (_conditions, {}),
        "moments": (lambda: _moments(lab, chains, stages, 1.0), {"chains": chains, "stages": stages}),
        "weighted": (lambda: _moments(lab, chains, stages, 2.0), {"chains": chains, "stages": stages}),
        "logistic": (lambda: _logistic(lab, *logistic), {"run": logistic}),
        "quartic": (lambda: _quartic(lab, chains), {"chains": chains, "starts": list(QUARTIC_STARTS)}),
        "edge": (lambda: _edge(lab, chains), {"chains": chains, "edges": list(EDGES)}),
    }
    for name, (part, parameters) in parts.items():
        if name != "logistic" or logistic:
            where = lab.reference if name == "conditions" else lab
            found = where.part(f"stability/{name}", part, **parameters)
            numbers.update({f"{name}.{key}": value for key, value in found.items()})
    return numbers


def _conditions() -> Numbers:
    """The Lyapunov conditions of five targets, with profiles of the pull to draw."""
    gaussian, logistic, small = problems.gaussian(), problems.logistic(), prior_dominated()
    found = {
        "gaussian": stability(gaussian.target, gaussian.data, gaussian.theta_0, lyapunov=gaussian_V()),
        "logistic": stability(logistic.target, logistic.data, np.zeros(3)),  # from 0, V = 1 + |theta|^2
        "small": stability(small.target, small.data, np.zeros(3)),
        "cauchy": stability(CAUCHY, None, 0.0),
        "quartic": stability(QUARTIC, None, 0.0),
    }
    numbers: dict[str, np.ndarray] = {}
    for name, one in found.items():
        # From theta_0 away from the mode of the logistic model; on the line either way will do.
        towards = one.directions @ logistic.map if len(one.names) > 1 else np.zeros(len(one.directions))
        ray = int(np.argmin(np.where(one.shifts.any(axis=1), np.inf, towards)))
        numbers[f"{name}.radius"], numbers[f"{name}.pull"] = one.radii[ray], one.pull[ray]
        numbers[f"{name}.kinds"] = np.array([f"{fail.condition}: {fail.kind}" for fail in one.failures], dtype=np.str_)
        numbers[f"{name}.constants"] = np.array([one.alpha, one.beta, one.C_size, one.C_noise])
    for name, model in (("logistic", logistic), ("small", small)):
        total = float(np.linalg.norm(model.x, axis=1).sum())
        smallest = model.prior_sd**-2
        printed = smallest / 4, total**2 / (4 * smallest)  # alpha, and beta: the maximum over |theta| that is printed
        numbers[f"{name}.printed"] = np.array([*printed, found[name].beta_for(printed[0])])
        right = model.drift_constants
        # Just below 1/prior_sd^2: at it, rounding decides far out.
        numbers[f"{name}.right"] = np.array([*right, found[name].beta_for(right[0] * (1 - 1e-9))])
    return numbers


def _moments(lab: Lab, chains: int, stages: list[int], weight_power: float) -> Numbers:
    """E V^p(theta_m), pi_m(V^p) and the moments of H by simulation, and exactly."""
    model, law, schedule = problems.gaussian(), problems.gaussian_law(BATCH), problems.gaussian_steps(1 / 3)
    start = np.asarray(model.mu_p + START * model.sigma_p, np.float32).astype(np.float64)
    delta = problems.rounded_steps(schedule, stages[-1])
    exact = exact_moments(law, delta, float(start), np.arange(stages[-1] + 1))
    omega = np.cumsum(delta**weight_power)
    averages = np.cumsum(delta**weight_power * exact[:, :-1], axis=1) / omega
    found: dict[str, list[Any]] = {key: [] for key in ("m", "mean", "stderr", "window", "average", "noise")}
    ledger = None
    for stage in stages:
        ledger = _run_gaussian(lab, schedule, start, chains, stage, weight_power, ledger)
        m, theta, grad = _kept(ledger, stage)
        V = np.stack([model.lyapunov(theta[..., 0]), model.lyapunov(theta[..., 0]) ** 2])
        H = grad[..., 0] - model.grad(theta[..., 0])
        pi_m = [(np.nan, np.nan)] * 2
        if ledger is not None:
            pi_m = [_mean_stderr(problems.average(ledger, name)) for name in ("V", "V2")]
        # One number a chain: averages over a stage are closer to normal than V^2 at one time.
        window = [_mean_stderr(one.mean(axis=1)) for one in V]
        found["m"].append(m - 1)
        found["mean"].append(V.mean(axis=1))
        found["stderr"].append(standard_error(V.swapaxes(1, 2)))
        found["window"].append(np.column_stack([window, exact[:, m - 1].mean(axis=1)]))
        found["average"].append(np.column_stack([pi_m, averages[:, stage - 1]]))
        found["noise"].append([_mean_stderr((H**power).mean(axis=1)) for power in (2, 4)])
    numbers = {key: np.asarray(value) for key, value in found.items()}
    numbers["exact"] = np.stack([exact[:, m] for m in numbers["m"]])
    numbers["noise_exact"] = np.array([law.grad_noise, 3 * law.grad_noise**2 + law.grad_noise_fourth])
    numbers["sup"] = exact.max(axis=1)
    numbers["last"] = exact[:, -1]
    # What erratum 13 is about: E V(theta_1) - V - delta (A V) = c V'' delta^2 E[g^2], with c = 1/8.
    V_0, pull, second = model.lyapunov(start), model.lyapunov_grad(start) * model.grad(start) / 2, model.sigma_p**-2
    unit = second * delta[0] ** 2 * (model.grad(start) ** 2 + law.grad_noise)
    first = (numbers["mean"][0, 0, 1] - V_0 - delta[0] * (pull + second / 2)) / unit
    numbers["one_step"] = np.array([first, numbers["stderr"][0, 0, 1] / unit])
    return numbers


def _run_gaussian(
    lab: Lab, schedule: Any, start: Any, chains: int, num_steps: int, weight_power: float, resume: lv.Ledger | None
) -> lv.Ledger | None:
    """The ledger up to num_steps; None if a chain diverged, as those of a wrong sampler may."""
    model = problems.gaussian()
    try:
        return lab.run(
            model.target, model.data, start, schedule=schedule, num_steps=num_steps, chains=chains, keep=KEEP,
            subsample=lv.WithoutReplacement(BATCH), observables=observables(), seed=lab.seed + int(weight_power),
            weight_power=weight_power, resume=resume,
        )  # fmt: skip
    except lv.Diverged:
        return None


def _kept(ledger: lv.Ledger | None, num_steps: int, dimension: int = 1) -> tuple[NDArray[np.int64], Floats, Floats]:
    """m, theta_{m-1} and its stochastic gradient, shape (chains, draws, d); nan if there is no ledger."""
    if ledger is None:
        lost = np.full((2, KEEP, dimension), np.nan)
        return num_steps // KEEP * np.arange(1, KEEP + 1), lost, lost
    assert ledger.draws is not None
    return ledger.draws.m, ledger.draws.theta.astype(np.float64), ledger.draws.grad.astype(np.float64)


def _mean_stderr(values: Floats) -> tuple[float, float]:
    return float(values.mean()), float(standard_error(values))


def _logistic(lab: Lab, chains: int, num_steps: int) -> Numbers:
    """E V^p(theta_m) and E|H|^2p of the logistic model, from a start at the edge of the prior."""
    model = problems.logistic()
    start = np.array([3.0, -3.0, 3.0])
    try:
        ledger: lv.Ledger | None = lab.run(
            model.target, model.data, start, schedule=lv.Power(scale=0.01, m_0=10.0, alpha=1 / 3), num_steps=num_steps,
            chains=chains, keep=KEEP, subsample=lv.WithoutReplacement(LOGISTIC_BATCH), seed=lab.seed,
        )  # fmt: skip
    except lv.Diverged:
        ledger = None
    m, theta, grad = _kept(ledger, num_steps, model.dimension)
    V = model.lyapunov(theta)
    likelihood, *exact = noise_moments(model, theta, LOGISTIC_BATCH)
    H2 = ((grad - (likelihood - theta / model.prior_sd**2)) ** 2).sum(axis=-1)
    return {
        "m": m - 1,
        "V": np.stack([(V**p).mean(axis=0) for p in (1, 2)]),
        "V_stderr": np.stack([standard_error((V**p).T) for p in (1, 2)]),
        "start": np.array([model.lyapunov(start), model.lyapunov(start) ** 2]),
        "noise": np.array([_mean_stderr((H2**p / exact[p - 1]).mean(axis=1)) for p in (1, 2)]),
        "noise_mean": H2.mean(axis=0),
        "noise_bound": np.array(noise_bound(model, LOGISTIC_BATCH)),
    }


def _quartic(lab: Lab, chains: int) -> Numbers:
    """exp(-theta^4): what the engine says from four starts, one path in full, and MALA from the same starts."""
    schedule = problems.gaussian_steps(1 / 3)
    messages, second = [], []
    for start in QUARTIC_STARTS:
        options: dict[str, Any] = {"schedule": schedule, "observables": SQUARE, "seed": lab.seed, "num_steps": 512}
        try:
            lab.run(QUARTIC, None, start, chains=chains, **options)
            messages.append("")
        except lv.Diverged as error:
            messages.append(str(error))
        ledger = lab.run(QUARTIC, None, start, kernel=lv.MALA(), chains=256, **options)
        late = ledger.m_stop > 64  # the first 64 transitions forget the start, if it can be left
        sums = ledger.values["square"][:, late, 0].sum(axis=1) / ledger.sum_omega[late].sum()
        second.append(_mean_stderr(sums + ledger.columns["square"].reference[0]))
    eta = np.random.default_rng(lab.seed).standard_normal(64)
    state, path = lab.kernel.init(jnp.float32(2.0), jnp.float32(0.0)), [2.0]
    while abs(path[-1]) < 1e12 and len(path) < eta.size:
        m = len(path)
        grad = jax.grad(quartic_log_density)(state.theta)
        state = lab.kernel.step(state, grad, jnp.float32(eta[m]), jnp.float32(schedule.delta(m)))
        path.append(float(state.theta))
    return {
        "starts": np.array(QUARTIC_STARTS),
        "messages": np.array(messages, dtype=np.str_),
        "second": np.asarray(second),
        "second_exact": np.array(QUARTIC_SECOND),
        "path": np.asarray(path),
    }


def _edge(lab: Lab, chains: int) -> Numbers:
    """E (theta_m - mu_p)^2 at constant steps just below and above 4 sigma_p^2; and the printed rule in other units."""
    model, law = problems.gaussian(), problems.gaussian_law(BATCH)
    means, errors, exact = [], [], []
    for edge in EDGES:
        delta = edge * 4 * model.sigma_p**2
        ledger = _run_gaussian(lab, lv.Constant(delta), model.theta_0, chains, KEEP, 1.0, None)
        y2 = (_kept(ledger, KEEP)[1][..., 0] - model.mu_p) ** 2
        law_at = law.cumulants(np.full(KEEP, np.float32(delta), np.float64), float(model.theta_0), np.arange(KEEP))
        means.append(y2.mean(axis=0)[1:])
        errors.append(standard_error(y2.T)[1:])
        exact.append((law_at.variance + (law_at.mean - model.mu_p) ** 2)[1:])
    # The same problem with theta and x measured in units ten times as large: its posterior sd is a tenth.
    tenth = LinearGaussianLaw(model.x / 10, model.sigma_theta / 10, model.sigma_x / 10, BATCH, False)
    step = 0.99 * tenth.sigma_p
    printed = tenth.cumulants(np.full(64, step), tenth.mu_p, [64]).variance[0] / tenth.sigma_p**2
    return {
        "mean": np.array(means),
        "stderr": np.array(errors),
        "exact": np.array(exact),
        "edges": np.array(EDGES),
        "limit": np.array(4 * model.sigma_p**2),
        "printed": np.array([step, 4 * tenth.sigma_p**2, printed]),
    }
