"""Runs against the exact finite-m law: bias, variance and mean squared error of pi_m(A sin) on the Gaussian model.

    python -m benchmarks.agreement           # 54 cells of 4000 runs, seven minutes on one core
    python -m benchmarks.agreement --power   # the same question put to sabotaged samplers, 100 seeds each

The model is the paper's (section 6.1): N = 100, sigma_theta = 1, sigma_x = 5, from the mode, with steps
(m_0 + m)^-alpha. phi = A g with g(x) = sin(x - mu_p - sigma_p/2), so that pi(phi) = 0. Each chain of one call
is a replicate, and every cell has a seed of its own. Nothing is fitted: the law comes from
`theory.LinearGaussianLaw` at the rounded steps that the device used.
"""

import argparse
from functools import cache
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

import langevin as lv
from langevin.paper import problems
from langevin.paper.replicates import square_score
from langevin.theory.gaussian import AverageLaw

ALPHAS = (0.2, 1 / 3, 0.5)
HORIZONS = (100, 1000, 10_000)
BATCHES = tuple((n, replacement) for n in (1, 10, 100) for replacement in (True, False))


def subsample(n: int, replacement: bool) -> Any:
    return lv.WithReplacement(n) if replacement else lv.WithoutReplacement(n)


@cache
def exact_law(alpha: float, n: int, replacement: bool, horizons: tuple[int, ...]) -> AverageLaw:
    """Bias, variance and mean squared error at each horizon, without simulation."""
    model = problems.gaussian()
    steps = problems.rounded_steps(problems.gaussian_steps(alpha), max(horizons))
    law, start = problems.gaussian_law(n, replacement), float(model.theta_0)
    return law.average_sin(steps, start, horizons, shift=model.mu_p + model.sigma_p / 2)


def replicates(alpha: float, sampler: Any, num_steps: int, runs: int, seed: int, **parts: Any) -> lv.Ledger:
    """One call of `runs` chains; `parts` replaces pieces of the honest sampler."""
    model = problems.gaussian()
    return lv.run(
        model.target, model.data, model.theta_0, schedule=problems.gaussian_steps(alpha), num_steps=num_steps,
        chains=runs, seed=seed, subsample=sampler, observables={"phi": problems.gaussian_phi()}, progress=False,
        **parts,
    )  # fmt: skip


class Scores(NamedTuple):
    """Standard normal scores of the replicates of one cell; `correlation` is that of the first two."""

    bias: float
    variance: float
    mse: float
    correlation: float

    @property
    def largest(self) -> float:
        return max(abs(self.bias), abs(self.variance), abs(self.mse))

    @property
    def joint(self) -> float:
        """Chi-square with two degrees of freedom from bias and variance; the MSE is a function of both."""
        b, v, rho = self.bias, self.variance, self.correlation
        return (b * b - 2 * rho * b * v + v * v) / (1 - rho * rho)


def scores(values: np.ndarray, bias: float, variance: float) -> Scores:
    """How far the replicates are from a law with this bias and variance (the truth is 0)."""
    centred = values - values.mean()
    rho = float(np.corrcoef(centred, centred**2)[0, 1])
    return Scores(
        bias=float((values.mean() - bias) / np.sqrt(variance / len(values))),
        variance=float(square_score(centred, variance, len(values) - 1)),
        mse=float(square_score(values, bias**2 + variance, len(values))),
        correlation=rho,
    )


def truncation_share(values: np.ndarray, law: AverageLaw, i: int) -> float:
    """Numerical error of the law over the Monte Carlo error, the larger of those of bias and variance."""
    runs, square = len(values), (values - values.mean()) ** 2
    of_bias = law.truncation_bias[i] / np.sqrt(law.variance[i] / runs)
    return float(max(of_bias, law.truncation_variance[i] / (square.std() / np.sqrt(runs))))


def print_table(runs: int, seed: int) -> bool:
    """Prints all cells; False if a score or the joint chi-square has a probability below 1e-6."""
    print(f"{runs} runs a cell; columns z are standard normal when theory and sampler agree")
    print("alpha |   n repl |     m |  bias exact  found      z |    sd exact  found      z | mse z | trunc/MC")
    found: list[Scores] = []
    worst_share, began = 0.0, monotonic()
    for n, replacement in BATCHES:
        for alpha in ALPHAS:
            law = exact_law(alpha, n, replacement, HORIZONS)
            for i, m in enumerate(HORIZONS):
                cell_seed = seed + len(found)
                values = problems.average(replicates(alpha, subsample(n, replacement), m, runs, cell_seed), "phi")
                cell, share = scores(values, law.bias[i], law.variance[i]), truncation_share(values, law, i)
                found.append(cell)
                worst_share = max(worst_share, share)
                print(
                    f"{alpha:5.3f} | {n:3d} {'with' if replacement else 'w/o ':4s} | {m:5d} "
                    f"| {law.bias[i]:+.5f} {values.mean():+.5f} {cell.bias:+6.2f} "
                    f"| {law.variance[i] ** 0.5:.5f} {values.std():.5f} {cell.variance:+6.2f} "
                    f"| {cell.mse:+5.2f} | {share:.0e}",
                    flush=True,
                )
    joint, df = sum(cell.joint for cell in found), 2 * len(found)
    p = float(stats.chi2.sf(joint, df))
    largest, count = max(cell.largest for cell in found), 3 * len(found)
    limit = float(stats.norm.isf(1e-6 / (2 * count)))
    print(f"largest |z| of {count}: {largest:.2f}; one table in a million passes {limit:.2f}")
    print(f"joint chi-square of bias and variance: {joint:.1f} on {df} degrees of freedom, p = {p:.3f}")
    print(f"truncation error of the law over Monte Carlo error: at most {worst_share:.1e}, allowed 0.2")
    print(f"{monotonic() - began:.0f} s")
    return largest < limit and 1e-6 < p and worst_share < 0.2


def print_power(seeds: int) -> bool:
    """Prints how often the calibration test refuses each sabotaged sampler; False if one is let through."""
    from tests.statistical import test_calibration as control

    print(f"limit on |z|: {control.LIMIT:.2f}; {seeds} seeds each")
    surprises = [control.surprise(control.honest(seed)) for seed in range(seeds)]
    print(f"{'honest':24s} refused {sum(s > control.LIMIT for s in surprises):3d}; largest {max(surprises):.2f}")
    sound = max(surprises) < control.LIMIT
    for name, twin in control.TWINS.items():
        surprises = [control.surprise(twin(seed)) for seed in range(seeds)]
        refused = sum(s > control.LIMIT for s in surprises)
        print(f"{name:24s} refused {refused:3d}; smallest {min(surprises):.1f}", flush=True)
        sound &= refused == seeds
    return sound


def main() -> None:
    """Prints the table or the power, and fails when something disagrees."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=10_000, help="of the first cell; the others follow")
    parser.add_argument("--power", action="store_true", help="sabotaged samplers instead")
    parser.add_argument("--seeds", type=int, default=100, help="of each sabotaged sampler")
    options = parser.parse_args()
    sound = print_power(options.seeds) if options.power else print_table(options.runs, options.seed)
    raise SystemExit(0 if sound else 1)


if __name__ == "__main__":
    main()
