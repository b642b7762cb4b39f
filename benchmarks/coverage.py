"""Coverage of nominal 95% intervals over many runs, each chain of one call being one run.

    python -m benchmarks.coverage            # the full table, 1000 runs a row, two minutes on one core

A row gives the share of runs whose interval holds the truth, the median half-width over 1.96 empirical
standard deviations, the bias in empirical standard deviations and how often each status was given. The
rules of `langevin.analysis` were chosen on the seeds 1, 2, 3 and 5, which the tests use; the default here is
another.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

import langevin as lv
from langevin.analysis import STATUSES, Estimate, estimate

# Steps (a m + b)^-1/3 for the logistic problem, delta_1 a fifth of the smallest posterior variance: the
# paper's choice for 20 passes, and one that decreases less.
PAPER, GENTLE = (5.89e7, 7.90e8), (2.0e7, 1.0e9)


@cache
def gaussian(seed: int = 1) -> tuple[lv.models.LinearGaussian, lv.Anchor, Callable[[jax.Array], jax.Array]]:
    """The paper's location model, its anchor and phi = A sin(theta - mu_p - sigma_p / 2), pi(phi) = 0."""
    model = lv.models.LinearGaussian.simulate(seed=seed)
    mu, sd = model.mu_p, model.sigma_p

    def phi(theta: jax.Array) -> jax.Array:
        x = theta - mu - sd / 2
        return -0.5 * (theta - mu) / sd**2 * jnp.cos(x) - 0.5 * jnp.sin(x)

    return model, lv.laplace(model.target, model.data, np.float32(0.0)), phi


@cache
def logistic(seed: int = 1) -> tuple[lv.models.Logistic, lv.Anchor]:
    """The paper's logistic problem, N = 1000 and d = 3, and its anchor."""
    model = lv.models.Logistic.simulate(seed=seed)
    return model, lv.laplace(model.target, model.data, np.zeros(3, np.float32))


def run_gaussian(
    alpha: float, num_steps: int, chains: int, *, scale: float = 1.0, seed: int = 5, model_seed: int = 1
) -> lv.Ledger:
    """The paper's chain on the Gaussian model, n = 10, delta_m = scale (m_0 + m)^-alpha, from the mode."""
    model, anchor, phi = gaussian(model_seed)
    schedule = lv.Power(scale=scale, m_0=float(lv.schedules.m_0_for(alpha, model.sigma_p)), alpha=alpha)
    return lv.run(
        model.target, model.data, model.theta_0, schedule=schedule, num_steps=num_steps,
        chains=chains, seed=seed, subsample=lv.WithoutReplacement(10),
        observables={"theta": lv.Moments(), "phi": phi},
        anchor=anchor, progress=False,
    )  # fmt: skip


def run_logistic(
    law: tuple[float, float], num_steps: int, chains: int, *, model_seed: int = 1, seed: int = 3
) -> lv.Ledger:
    """The paper's chain on the logistic problem, n = 30, delta_m = (a m + b)^-1/3, from the mode."""
    model, anchor = logistic(model_seed)
    return lv.run(
        model.target, model.data, model.theta_0, schedule=lv.Polynomial(a=law[0], b=law[1], alpha=1 / 3),
        num_steps=num_steps, chains=chains, seed=seed, subsample=lv.WithoutReplacement(30),
        observables={"theta": lv.Moments()}, anchor=anchor, progress=False,
    )  # fmt: skip


def gaussian_truth(model_seed: int = 1) -> dict[str, np.ndarray]:
    """Expectations of the Gaussian model by name."""
    model, _, _ = gaussian(model_seed)
    variance = np.array([model.sigma_p**2])
    truth = {"theta.mean": np.array([model.mu_p]), "theta.variance": variance, "theta.sd": np.sqrt(variance)}
    return truth | {"phi": np.zeros(())}


def logistic_truth(model_seed: int = 1) -> dict[str, np.ndarray]:
    """Expectations of the logistic problem by name, by quadrature."""
    truth = logistic(model_seed)[0].truth()
    variance = np.diag(truth.covariance)
    return {"theta.mean": truth.mean, "theta.variance": variance, "theta.sd": np.sqrt(variance)}


@dataclass(frozen=True)
class Coverage:
    """What the runs of one row did; arrays have the shape of the observable."""

    hits: np.ndarray
    runs: int
    width: np.ndarray
    bias: np.ndarray
    flagged: dict[str, float]

    @property
    def share(self) -> np.ndarray:
        return self.hits / self.runs

    def __str__(self) -> str:
        def row(x: np.ndarray, form: str) -> str:
            return " ".join(f"{v:{form}}" for v in np.ravel(x))

        words = ", ".join(f"{s} {100 * share:.1f}%" for s, share in self.flagged.items() if share)
        shares, widths = f"{row(self.share, '.3f'):18s}", f"{row(self.width, '.2f'):14s}"
        return f"{shares} | {widths} | {row(self.bias, '+.2f'):17s} | {words}"


def coverage(estimates: Estimate, truth: np.ndarray, level: float = 0.95) -> Coverage:
    """Coverage of `truth` by unpooled estimates, one chain a run."""
    lower, upper = estimates.interval(level)
    inside = (lower <= truth) & (truth <= upper)
    sd = estimates.value.std(axis=0)
    ranks = np.array([[STATUSES.index(s) for s in np.ravel(row)] for row in estimates.statuses]).min(axis=1)
    flagged = {status: float(np.mean(ranks == rank)) for rank, status in enumerate(STATUSES)}
    return Coverage(
        hits=inside.sum(axis=0),
        runs=len(inside),
        width=np.median(upper - lower, axis=0) / 2 / 1.96 / sd,
        bias=(estimates.value.mean(axis=0) - truth) / sd,
        flagged=flagged,
    )


def report(title: str, ledger: lv.Ledger, truth: dict[str, np.ndarray], rows: list[tuple[str, str]]) -> None:
    """Prints one line for each (method, name)."""
    for method in dict.fromkeys(method for method, _ in rows):
        found = estimate(ledger, method=method, pool=False)
        for name in (name for m, name in rows if m == method):
            print(f"{title:34s} | {method:9s} | {name:14s} | {coverage(found[name], truth[name])}", flush=True)


def without_anchor(ledger: lv.Ledger) -> lv.Ledger:
    """The ledger that the same run would have left without an anchor."""
    columns = {name: replace(column, hessian=None) for name, column in ledger.columns.items()}
    return replace(ledger, anchor=None, corrections=None, outer=None, columns=columns)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1000, help="of the chains; data sets are seed, seed + 1")
    options = parser.parse_args()
    runs, seed = options.runs, options.seed
    print(f"{runs} runs a row; one standard error of a coverage of 0.95 is {math.sqrt(0.95 * 0.05 / runs):.3f}")
    print("run | method | of | coverage | half-width / 1.96 sd | bias / sd | statuses")
    moments = [("corrected", "theta.mean"), ("corrected", "theta.variance")]
    for model_seed in (seed, seed + 1):
        for label, law in (("paper", PAPER), ("gentle", GENTLE)):
            for passes, steps in ((20, 667), (100, 3333)):
                ledger = run_logistic(law, steps, runs, model_seed=model_seed, seed=seed)
                more = [("corrected", "theta.sd"), ("raw", "theta.mean"), ("raw", "theta.variance")]
                rows = moments + (more if label == "paper" and model_seed == seed else [])
                title = f"logistic {model_seed}, {label} steps, {passes} passes"
                report(title, ledger, logistic_truth(model_seed), rows)
    for alpha in (1 / 3, 0.4, 0.5):
        for steps in (10_000, 100_000):
            ledger = run_gaussian(alpha, steps, runs, seed=seed, model_seed=seed)
            title, truth = f"gaussian, alpha {alpha:.3g}, m = {steps:g}", gaussian_truth(seed)
            rows = [("raw", "phi"), ("raw", "theta.variance"), ("corrected", "phi"), ("intercept", "phi")]
            report(title, ledger, truth, (moments if alpha < 0.34 else []) + rows)
            report(f"{title}, no anchor", without_anchor(ledger), truth, [("raw", "phi"), ("raw", "theta.mean")])
    # 20, 100 and 10 000 passes; with scale 0.1 delta_1 is a fifth of the posterior variance.
    for scale, steps in ((1.0, 200), (1.0, 1000), (0.1, 200), (0.1, 1000), (0.1, 100_000)):
        ledger = run_gaussian(1 / 3, steps, runs, scale=scale, seed=seed, model_seed=seed)
        title = f"gaussian, alpha 0.333, m = {steps:g}, scale {scale:g}"
        report(title, ledger, gaussian_truth(seed), [*moments, ("raw", "phi")])


if __name__ == "__main__":
    main()
