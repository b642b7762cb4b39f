"""Relative MSE of a posterior variance, pass by pass, for `lv.sample` and what it is measured against.

    python -m benchmarks.methods --output docs/benchmarks/methods.txt    # an hour on one idle core
    python -m benchmarks.methods --runs 16 --passes 5 20 --data-seeds 1  # a few minutes

The problem is the paper's logistic regression (section 6.2), N = 1000 and d = 3; the truth comes from quadrature. A run
of `lv.sample` is one call with a seed of its own and no argument but the budget, from theta = 0: mode, pilot and plan
are made anew each time. Runs of the other methods are chains of one call from the mode, which they get for nothing.
The rule for `lv.sample`: on every data set the relative MSE of the variance of theta_1 stays below `LIMITS` or exceeds
them by no more than two Monte Carlo errors. The exit code is 1 otherwise.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from time import monotonic

import jax
import jax.numpy as jnp
import numpy as np

import langevin as lv
from benchmarks.page import Page, output_option
from langevin.models import Logistic
from langevin.paper import logistic_baselines as baselines
from langevin.paper import logistic_runs as runs
from langevin.paper import problems
from langevin.paper.lab import Lab
from langevin.paper.logistic_law import noise_covariance, variance_law

# passes -> largest relative MSE of the variance of theta_1 that `lv.sample` may have.
LIMITS = {5: 1e-4, 20: 3e-5, 100: 6e-6}
# The data set of `problems.logistic`.
PAPER_SEED = 1
LAB = Lab("full")

Floats = np.ndarray


@dataclass(frozen=True)
class Row:
    """A method: relative variance estimates of theta_1, (passes, runs), and what came before its first pass."""

    name: str
    estimates: Floats
    before: str


@dataclass(frozen=True)
class Calls:
    """Calls of `lv.sample` with one budget: relative variances (runs, d), and what they cost."""

    variances: Floats
    raw_variances: Floats
    setup_passes: Floats
    passes: Floats
    seconds: Floats
    batch_sizes: Floats
    statuses: Counter[str]

    @property
    def mse(self) -> tuple[Floats, Floats]:
        """Relative MSE of each parameter's variance and its Monte Carlo error."""
        return runs.relative_mse(self.variances.T)


def sample_calls(model: Logistic, passes: float, count: int) -> Calls:
    """`count` calls of `lv.sample` with the seeds 0, 1, ..."""
    truth, data, zero = np.diag(model.truth().covariance), model.data, np.zeros(model.dimension, np.float32)
    results, seconds = [], []
    for seed in range(count):
        began = monotonic()
        result = lv.sample(model.target, data, zero, passes=passes, seed=seed, progress=False)
        value, raw, status = result.sd.value, result.raw["theta.sd"].value, result.status
        seconds.append(monotonic() - began)
        cost = (result.setup_passes, result.passes, result.session.batch_size)
        results.append((value**2 / truth, raw**2 / truth, *cost, status))
    variances, raws, setups, spent, sizes, statuses = zip(*results, strict=True)
    return Calls(
        variances=np.array(variances),
        raw_variances=np.array(raws),
        setup_passes=np.array(setups),
        passes=np.array(spent),
        seconds=np.array(seconds),
        batch_sizes=np.array(sizes),
        statuses=Counter(statuses),
    )


def tuned_sgld(passes: list[int], count: int) -> Iterator[Row]:
    """SGLD with the paper's (a, b), and with the best pair of Figure 5's grid for each budget.

    The pair is chosen by the law of the linearised chain and measured on runs: the smallest of many noisy cells would
    look better than it is.
    """
    a, b, _, _ = runs.grid(LAB)
    steps = runs.num_steps(passes)
    everywhere = lv.Polynomial(a=a[:, None], b=b, alpha=runs.ALPHA)
    law = variance_law(everywhere, tuple(steps), noise_covariance(runs.BATCH_SIZE, replacement=False))
    i, j = np.unravel_index(law.mse.reshape(len(steps), -1).argmin(axis=1), (len(a), len(b)))
    schedule = lv.Polynomial(a=[runs.PAPER[0], *a[i]], b=[runs.PAPER[1], *b[j]], alpha=runs.ALPHA)
    subsample = lv.WithoutReplacement(runs.BATCH_SIZE)
    estimates, _ = runs.staged(LAB, steps, schedule=schedule, subsample=subsample, chains=count, seed=1)
    yield Row("SGLD, the paper's (a, b)", estimates[:, 0], "grid of (a, b)")
    best = estimates[np.arange(len(steps)), 1 + np.arange(len(steps))]
    yield Row("SGLD, (a, b) tuned for each budget", best, f"grid of {law.mse[0].size} (a, b)")


@cache
def paper_anchor() -> lv.Anchor:
    """The mode of the paper's problem with its Hessian, from zero."""
    model = problems.logistic()
    return lv.laplace(model.target, model.data, np.zeros(3, np.float32))


def anchor_passes() -> str:
    return f"{paper_anchor().cost / runs.NUM_DATA:.0f} passes"


def corrected_sgld(passes: list[int], count: int) -> Row:
    """The paper's own chain with the Poisson correction of the Laplace model."""
    estimates, _ = runs.staged(
        LAB, runs.num_steps(passes), corrected=True, anchor=paper_anchor(), chains=count, seed=2,
        schedule=lv.Polynomial(*runs.PAPER, alpha=runs.ALPHA), subsample=lv.WithoutReplacement(runs.BATCH_SIZE),
    )  # fmt: skip
    return Row("SGLD, the paper's (a, b) + correction", estimates, anchor_passes())


def corrected_mala(passes: list[int], count: int) -> Row:
    """MALA in whitened coordinates, averages corrected as those of `lv.sample` are.

    Runs start at Laplace draws: from the mode the correction gives the Laplace value after one pass, without sampling.
    """
    model, anchor = problems.logistic(), paper_anchor()
    mode, root = anchor.theta, anchor.root[0]

    def theta(z: jax.Array) -> jax.Array:
        return jnp.asarray(mode, z.dtype) + jnp.asarray(root, z.dtype) @ z

    def moments(z: jax.Array) -> jax.Array:
        u = jnp.asarray(root[0], z.dtype) @ z
        return jnp.stack([u, u * u])

    inner, kernel, zero = model.target, lv.MALA(), np.zeros(3, np.float32)
    target = lv.Target(lambda z: inner.log_prior(theta(z)), lambda z, datum: inner.log_likelihood(theta(z), datum))
    schedule = lv.adapt_step(target, model.data, zero, kernel=kernel, target_acceptance=0.7, num_steps=16_000, seed=3)
    whitened = lv.laplace(target, model.data, zero)
    starts = np.random.default_rng(4).standard_normal((count, 3)).astype(np.float32)
    estimates = []
    for k, start in enumerate(starts):
        problem = runs.Problem(target, model.data, start, moments)
        options = {"kernel": kernel, "schedule": schedule, "anchor": whitened, "chains": [k], "seed": 5}
        estimates.append(runs.staged(LAB, passes, problem=problem, corrected=True, **options)[0])
    return Row("whitened MALA + correction", np.concatenate(estimates, axis=-1), f"{anchor_passes()} + step")


def other_methods(passes: list[int], count: int) -> Iterator[Row]:
    """All methods but `lv.sample`."""
    yield from tuned_sgld(passes, count)
    # At this size a baseline makes twice or half as many runs as it is asked for.
    mala = baselines.methods(LAB, passes, count // 2)
    for rate in ("0.564", "0.7"):
        yield Row(f"MALA, acceptance {rate}", mala[f"mala {rate}"].work()[f"mala {rate}"], "step")
    yield corrected_mala(passes, count)
    first = baselines.methods(LAB, passes, count)["control variate"].work()
    yield Row("SGLD-CV1, raw", first["sgld + cv1"], f"{first['anchor_passes']:.0f} passes")
    yield corrected_sgld(passes, count)
    nuts = baselines.methods(LAB, passes, 2 * count)["nuts"].work()
    yield Row("NUTS (blackjax)", nuts["nuts"], f"{nuts['nuts_warmup']:.0f} passes")


def number(value: float, error: float) -> str:
    return f"{value:.1e} ± {error:.0e}"


def cells(row: Row) -> list[str]:
    """The printed row of a method."""
    mse, error = runs.relative_mse(row.estimates)
    return [row.name, *map(number, mse, error), row.before]


def compare(page: Page, passes: list[int], count: int, default: list[Calls]) -> None:
    """Prints the table of methods on the paper's data."""
    page.say(f"Relative MSE of the posterior variance of theta_1, ± one Monte Carlo error, {count} runs a cell")
    rows = [cells(row) for row in other_methods(passes, count)]
    before = f"{np.mean([calls.setup_passes.mean() for calls in default]):.0f} passes"
    raw = np.stack([calls.raw_variances[:, 0] for calls in default])
    corrected = np.stack([calls.variances[:, 0] for calls in default])
    rows.append(cells(Row("LM-CV2, raw (the chains of lv.sample)", raw, before)))
    rows.append(cells(Row("lv.sample, default", corrected, before)))
    model = problems.logistic()
    laplace = (model.laplace_covariance[0, 0] / model.truth().covariance[0, 0] - 1.0) ** 2
    rows.append(["Laplace alone, no sampling", *([f"{laplace:.1e}"] * len(passes)), anchor_passes()])
    page.table(["method", *(f"{p} passes" for p in passes), "before the first pass"], rows)


def sample_table(page: Page, passes: list[int], by_data: dict[int, list[Calls]]) -> bool:
    """Prints what the calls of `lv.sample` gave on each data set; False where a limit is exceeded."""
    page.say("lv.sample: relative MSE of the variance of theta_1 and of the parameter with the largest, by data set")
    good, rows = True, []
    for seed, found in by_data.items():
        model = Logistic.simulate(seed=seed)
        laplace = (np.diag(model.laplace_covariance) / np.diag(model.truth().covariance) - 1.0) ** 2
        for p, calls in zip(passes, found, strict=True):
            mse, error = calls.mse
            limit, verdict = LIMITS.get(p), ""
            if limit is not None:
                met = bool(mse[0] - 2.0 * error[0] <= limit)
                good &= met
                verdict = f"{limit:.0e} {'met' if met else 'MISSED'}"
            worst = int(mse.argmax())
            said = ", ".join(f"{status} {times}" for status, times in calls.statuses.most_common())
            spread = f"{calls.batch_sizes.min()} to {calls.batch_sizes.max()}"
            spent = f"{calls.setup_passes.mean():.0f} + {calls.passes.mean():.4g}"
            rows.append(
                [str(seed), str(p), number(mse[0], error[0]), verdict, number(mse[worst], error[worst]),
                 f"{laplace[0]:.0e}, {laplace.max():.0e}", spread, spent, f"{np.median(calls.seconds):.3f}", said]
            )  # fmt: skip
    head = ["data", "passes", "theta_1", "limit", "worst", "Laplace alone", "n", "set-up + passes", "s a call"]
    page.table([*head, "status"], rows)
    return good


def main() -> None:
    """Prints both tables and fails when `lv.sample` exceeds a limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=256, help="an even number")
    parser.add_argument("--passes", type=int, nargs="+", default=[1, 5, 20, 100, 1000])
    parser.add_argument("--data-seeds", type=int, nargs="+", default=[PAPER_SEED, 2, 3], help="the paper's is 1")
    output_option(parser)
    options = parser.parse_args()
    page, passes, began = Page(options.output), sorted(options.passes), monotonic()
    by_data = {}
    for seed in sorted({PAPER_SEED, *options.data_seeds}):
        model = problems.logistic() if seed == PAPER_SEED else Logistic.simulate(seed=seed)
        by_data[seed] = [sample_calls(model, p, options.runs) for p in passes]
    good = sample_table(page, passes, by_data)
    page.say()
    compare(page, passes, options.runs, by_data[PAPER_SEED])
    page.say()
    page.say(f"{monotonic() - began:.0f} s")
    page.write()
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
