"""Steps that bound what one gradient may do, beside SGLD and `lv.sample`: `python -m benchmarks.systems robust`.

Targets where SGLD overshoots, crawls or does not arrive, and ordinary ones; ten minutes in all. All kernels get the
same gradients, 10000 steps a chain and 16 chains, at every step size of a grid of doublings; the first quarter is left
out. An error is the root mean square over chains and parameters of what one chain is off: of means in posterior sds, of
sds as a share. A step is usable where the larger of both is below twice the smallest of all kernels. `lv.sample` gets
the gradients of one chain, four times with different seeds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gamma, logsumexp

import langevin as lv
from benchmarks.targets import problem

CHAINS, STEPS, BATCH = 16, 10_000, 32
DOUBLINGS = range(-6, 11)


class Position(NamedTuple):
    theta: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tamed(lv.Kernel):
    """theta + (delta/2 grad) / (1 + delta/2 |grad|) + sqrt(delta) eta, each coordinate for itself.

    Brosse, Durmus, Moulines and Sabanis, *The tamed unadjusted Langevin algorithm* (2019).
    """

    def init(self, theta, eta):
        return Position(theta)

    def step(self, state, grad, eta, delta):
        drift = 0.5 * delta * grad
        return Position(state.theta + drift / (1.0 + jnp.abs(drift)) + jnp.sqrt(delta) * eta)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Corrected(lv.SGLD):
    """SGLD that leaves out of its own noise what gradients with these sds bring: delta - delta^2 noise^2 / 4."""

    noise: Any = 0.0

    def step(self, state, grad, eta, delta):
        left = jnp.sqrt(jnp.maximum(1.0 - 0.25 * delta * self.noise**2, 0.0))
        return super().step(state, grad, left * eta, delta)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Barker(lv.Kernel):
    """theta + b z with b = 1 with probability 1 / (1 + exp(-z grad)), else -1, each coordinate for itself.

    z is sqrt(delta) times a standard normal, or with `narrow` a normal of mean sqrt(0.99) and sd 0.1, of the same
    second moment. With `noise`, the sds of the gradient's coordinates, z grad is replaced by
    z grad / sqrt(1 - (noise z / 1.702)^2), and by its sign where there is no root: right on average for normal noise.

    Livingstone and Zanella, *The Barker proposal* (2022); Mauri and Zanella, *Robust approximate sampling via
    stochastic gradient Barker dynamics* (2024); `narrow` is the shape that Vogrinc, Livingstone and Zanella found best
    in *Optimal design of the Barker proposal and other locally balanced Metropolis-Hastings algorithms* (2023).
    """

    narrow: bool = field(default=False, metadata={"static": True})
    noise: Any = 0.0

    noises = 2

    def init(self, theta, eta):
        return Position(theta)

    def step(self, state, grad, eta, delta):
        size = jnp.sqrt(delta) * (math.sqrt(0.99) + 0.1 * eta[0] if self.narrow else eta[0])
        left = 1.0 - (self.noise * size / 1.702) ** 2
        sharper = jnp.where(left > 0.0, size * grad / jnp.sqrt(jnp.maximum(left, 1e-12)), jnp.inf * size * grad)
        uphill = jax.scipy.stats.norm.cdf(eta[1]) < jax.nn.sigmoid(sharper)
        return Position(state.theta + jnp.where(uphill, size, -size))


class Case(NamedTuple):
    """A target, mean and sd of `seen(theta)`, the sd of gradients on minibatches if any, and how chains run on it."""

    target: lv.Target
    data: Any
    theta_0: Any
    mean: np.ndarray
    sd: np.ndarray
    seen: Callable[[Any], Any] = lambda flat: flat
    noise: np.ndarray | float = 0.0
    # Steps are in units of this: the smallest variance, where nothing else is given.
    unit: float | None = None
    parts: Any = {}  # noqa: RUF012


def quartic(start):
    sd = math.sqrt(gamma(0.75) / gamma(0.25))
    target = lv.Target(lambda t: -jnp.sum(t**4))
    return Case(target, None, np.full(5, start, np.float32), np.zeros(5), np.full(5, sd))


def student():
    target = lv.Target(lambda t: -3.0 * jnp.sum(jnp.log1p(t**2 / 5.0)))
    return Case(target, None, np.zeros(5, np.float32), np.zeros(5), np.full(5, math.sqrt(5 / 3)))


def cauchy():
    """Without moments: judged by the distribution function, which is uniform."""
    target = lv.Target(lambda t: -jnp.sum(jnp.log1p(t**2)))
    half, sd = np.full(5, 0.5), np.full(5, math.sqrt(1 / 12))
    return Case(target, None, np.zeros(5, np.float32), half, sd, lambda t: 0.5 + jnp.arctan(t) / np.pi, unit=1.0)


def schools():
    """Eight schools, centred: mu, log tau and the effects, from tau = 1. The truth by a sum over a grid of log tau."""
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    s = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def log_density(theta):
        mu, log_tau, effect = theta[0], theta[1], theta[2:]
        data = -0.5 * jnp.sum(((y - effect) / s) ** 2) - 0.5 * (mu / 5.0) ** 2
        spread = -0.5 * jnp.sum(((effect - mu) * jnp.exp(-log_tau)) ** 2) - 8.0 * log_tau
        return data + spread + log_tau - jnp.log1p(jnp.exp(2.0 * log_tau) / 25.0)

    grid = np.linspace(-12.0, 8.0, 20_001)[:, None]
    tau2 = np.exp(2.0 * grid)
    width = s**2 + tau2
    precision = 1.0 / 25.0 + np.sum(1.0 / width, axis=1)
    mu = np.sum(y / width, axis=1) / precision
    weight = grid[:, 0] - np.log1p(tau2[:, 0] / 25.0) - 0.5 * np.sum(np.log(width) + y**2 / width, axis=1)
    weight += 0.5 * precision * mu**2 - 0.5 * np.log(precision)
    weight = np.exp(weight - logsumexp(weight))
    # Given tau an effect is kept * y + (1 - kept) mu and its own noise, of variance kept s^2.
    kept = tau2 / width
    means = np.column_stack([mu, grid[:, 0], kept * y + (1.0 - kept) * mu[:, None]])
    within = np.column_stack([1 / precision, 0 * mu, kept * s**2 + (1.0 - kept) ** 2 / precision[:, None]])
    mean = weight @ means
    sd = np.sqrt(weight @ (within + (means - mean) ** 2))
    return Case(lv.Target(log_density), None, np.zeros(10, np.float32), mean, sd)


def on_data(model, start=None, units=1.0, laplace=False):
    """A regression, its truth from NUTS in Laplace units; chains in these, with control variates, if so asked.

    Without, parameters are in units of their own.
    """
    target, data = model.target, model.data
    anchor = lv.laplace(target, data, model.theta_0)
    whitened = lv.Preconditioned.by(anchor.covariance)
    ledger = lv.run(
        target, data, anchor.mode, kernel=lv.NUTS(), schedule=lv.Constant(0.6), num_steps=10_000, chains=4, seed=9,
        coordinates=whitened, progress=False,
    )  # fmt: skip
    found = lv.estimate(ledger)
    mean, sd = found["theta.mean"].value, found["theta.sd"].value
    start = anchor.mode if start is None else start
    rows = lv.WithReplacement(BATCH)
    if laplace:
        parts = {"coordinates": whitened, "gradient": lv.ControlVariate(anchor), "subsample": rows}
        return Case(target, data, start, mean, sd, unit=1.0, parts=parts)
    units = np.asarray(units, np.float32) * np.ones_like(start)
    each = jax.vmap(jax.grad(target.log_likelihood), (None, 0))(jnp.asarray(anchor.mode), data)
    noise = (len(each) / math.sqrt(BATCH) * np.asarray(each).std(axis=0) / units).astype(np.float32)
    scaled = lv.Target(lambda t: target.log_prior(t / units), lambda t, row: target.log_likelihood(t / units, row))
    return Case(scaled, data, start * units, mean * units, sd * units, noise=noise, parts={"subsample": rows})


class Regression(NamedTuple):
    target: lv.Target
    data: Any
    theta_0: np.ndarray


def counts():
    """Poisson regression, counts near 150."""
    rng = np.random.default_rng(1)
    x = np.column_stack([np.ones(1000), rng.standard_normal((1000, 2))]).astype(np.float32)
    y = rng.poisson(np.exp(x @ [5.0, 0.3, -0.3])).astype(np.float32)

    def log_likelihood(theta, row):
        eta = jnp.dot(row[:3], theta)
        return row[3] * eta - jnp.exp(eta)

    target = lv.Target(lambda t: -0.005 * jnp.dot(t, t), log_likelihood)
    return Regression(target, np.column_stack([x, y]), np.zeros(3, np.float32))


def logistic():
    return lv.models.Logistic.simulate(num_data=1000, dimension=3, seed=3)


CASES = {
    "exp(-theta^4)": lambda: quartic(0.0),
    "exp(-theta^4), from 10": lambda: quartic(10.0),
    "Student t, 5 df": student,
    "Cauchy": cauchy,
    "eight schools, centred": schools,
    # Counts would be 3000 there, and slopes point elsewhere.
    "Poisson, far start": lambda: on_data(counts(), np.array([8.0, -1.0, 1.0], np.float32)),
    "Poisson": lambda: on_data(counts()),
    "logistic": lambda: on_data(logistic()),
    "logistic, units 1, 10, 100": lambda: on_data(logistic(), units=[1.0, 10.0, 100.0]),
    "rare events, Laplace units": lambda: on_data(problem("rare_300"), laplace=True),
}


def of_chains(case, kernel, delta):
    """Root mean square errors of means and of sds over chains and parameters; None where a chain diverged."""
    mean, sd = (part.astype(np.float32) for part in (case.mean, case.sd))
    offset = lambda theta: (case.seen(theta) - mean) / sd  # noqa: E731
    try:
        ledger = lv.run(
            case.target, case.data, case.theta_0, kernel=kernel, schedule=lv.Constant(delta), num_steps=STEPS,
            chains=CHAINS, seed=1, progress=False, observables={"u": lambda t: jnp.stack([offset(t), offset(t) ** 2])},
            **case.parts,
        )  # fmt: skip
    except lv.Diverged:
        return None
    rows = ledger.m_stop > STEPS // 4
    sums = ledger.values["u"][:, rows].sum(axis=1) / ledger.sum_omega[rows].sum()
    one, two = np.moveaxis(sums.reshape(CHAINS, 2, -1) + ledger.columns["u"].reference.reshape(2, -1), 1, 0)
    width = np.sqrt(np.maximum(two - one**2, 0.0))
    return math.sqrt(np.mean(one**2)), math.sqrt(np.mean((width - 1.0) ** 2))


def by_default(case):
    """What `lv.sample` says at the gradients of one chain: statuses and errors of its runs."""
    passes = STEPS if case.data is None else STEPS * BATCH / len(jax.tree.leaves(case.data)[0])
    said, errors = [], []
    for seed in range(4):
        try:
            result = lv.sample(case.target, case.data, case.theta_0, passes=passes, seed=seed, progress=False)
        except (lv.AnchorError, lv.Diverged) as error:
            said.append(type(error).__name__)
            continue
        said.append(f"{result.status} ({result.method})")
        one, two = (np.ravel(result.expectation(lambda t, p=p: case.seen(t) ** p).value) for p in (1, 2))
        errors.append([(one - case.mean) / case.sd, np.sqrt(np.maximum(two - one**2, 0.0)) / case.sd - 1.0])
    off = [f"{math.sqrt(part):.3f}" for part in np.mean(np.square(errors), axis=(0, 2))] if errors else []
    print(f"  {'lv.sample':19s} {', '.join(said)}: {', '.join(off)}", flush=True)


def robust():
    """The grid of steps for every case and kernel, and what `lv.sample` says."""
    print("errors of means, sds; steps in units of the smallest variance (of 1 for Cauchy and in Laplace units)")
    for name, build in CASES.items():
        case = build()
        unit = float(np.min(case.sd) ** 2) if case.unit is None else case.unit
        kernels = {"SGLD": lv.SGLD(), "tamed": Tamed(), "Barker": Barker(), "Barker, narrow": Barker(True)}
        if np.any(case.noise):
            kernels |= {"SGLD, corrected": Corrected(case.noise), "Barker, corrected": Barker(True, case.noise)}
        found = {
            label: {k: of_chains(case, kernel, unit * 2.0**k) for k in DOUBLINGS} for label, kernel in kernels.items()
        }
        worst = {
            label: {k: max(errors) for k, errors in line.items() if errors is not None} for label, line in found.items()
        }
        room = 2.0 * min(error for line in worst.values() for error in line.values())
        print(f"{name}: usable below {room:.3f}")
        for label, line in worst.items():
            if not line:
                print(f"  {label:19s} diverges at every step")
                continue
            best = min(line, key=line.get)
            least, four = (
                "diverges" if errors is None else f"{errors[0]:.3f}, {errors[1]:.3f}"
                for errors in (found[label][best], found[label].get(best + 2))
            )
            usable = [k for k, error in line.items() if error < room]
            print(f"  {label:19s} up to 2^{max(line)}; best 2^{best}: {least}; at 4x: {four}; usable {usable}")
        by_default(case)
