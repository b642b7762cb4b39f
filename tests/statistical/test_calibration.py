"""Replicates agree with what was promised of them, and sabotaged samplers do not.

Two calibrations, each with the sabotage that it must refuse:

- `verdict`: pi_m(A sin) over replicates against the exact finite-m law of the Gaussian model, bias and variance
  at two horizons. It sees the drift, the noise, the weights, the end point and the keys. The MSE alone would let
  unit weights through: they make it smaller.
- `error_bar_scores`: (value - truth)/stderr over replicates against Student's t.

A limit is set for a false alarm once in 1e9 seeds. The scores are normal up to O(1/runs), which costs less than a
factor of 10 at the limit, so each test here raises a false alarm for fewer than one seed in 1e8.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import langevin as lv
from benchmarks import agreement as study
from langevin.analysis import Estimate, errorbars, estimate
from langevin.paper import problems
from langevin.random import Clock

LEVEL = 1e-9
ALPHA, N_BATCH, RUNS = 1 / 3, 10, 8000
FRESH = lv.WithoutReplacement(N_BATCH)
# Two transitions tell the end points apart; over a thousand the weights, the drift and the keys leave their mark.
HORIZONS = (2, 1000)
LIMIT = float(stats.norm.isf(LEVEL / (2 * 2 * len(HORIZONS))))
# What a sabotaged sampler must pass the limit by. A twin whose scores had their mean only 2.33 above the limit, a
# power of 99%, would get this far once in 1e9 seeds. All twins have means above 20, so a control fails as rarely.
SURPLUS = float(2.33 + stats.norm.isf(1e-9))

Runs = dict[int, np.ndarray]


def calibration_scores(runs: Runs) -> np.ndarray:
    """Normal scores of bias and variance at each horizon."""
    law = study.exact_law(ALPHA, N_BATCH, False, HORIZONS)
    found = [study.scores(runs[m], law.bias[i], law.variance[i]) for i, m in enumerate(HORIZONS)]
    return np.array([z for cell in found for z in (cell.bias, cell.variance)])


def surprise(runs: Runs) -> float:
    return float(np.abs(calibration_scores(runs)).max())


def verdict(runs: Runs) -> bool:
    """The calibration test: whether these replicates could come from the exact law."""
    return surprise(runs) < LIMIT


def sampled(seed: int, *, subsample=FRESH, **parts) -> dict[int, lv.Ledger]:
    """A ledger of replicates for each horizon; `parts` replaces pieces of the honest sampler."""
    return {m: study.replicates(ALPHA, subsample, m, RUNS, 2 * seed + i, **parts) for i, m in enumerate(HORIZONS)}


def averages(ledgers: dict[int, lv.Ledger]) -> Runs:
    return {m: problems.average(ledger, "phi") for m, ledger in ledgers.items()}


@cache
def honest(seed: int) -> Runs:
    return averages(sampled(seed))


# The sabotaged twins, built from public parts. Their sins are numbers in pytrees, so that one compilation serves
# them all; with the defaults they are the honest sampler.


class TwinState(NamedTuple):
    theta: jax.Array
    eta: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TwinSGLD:
    """SGLD with factors on drift and noise; `fresh` = 0 takes the noise of index 0 in every step."""

    drift: float = 1.0
    noise: float = 1.0
    fresh: float = 1.0

    def init(self, theta, eta):
        return TwinState(theta, eta)

    def step(self, state, grad, eta, delta):
        used = self.fresh * eta + (1 - self.fresh) * state.eta
        theta = state.theta + 0.5 * delta * (self.drift * grad) + jnp.sqrt(delta) * (self.noise * used)
        return TwinState(theta, state.eta)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TwinMinibatch(lv.Minibatch):
    """The engine multiplies by N/n; a factor n/N takes it back."""

    factor: float = 1.0

    def term(self, log_likelihood, theta):
        return jax.tree.map(lambda g: self.factor * g, super().term(log_likelihood, theta))


@dataclass(frozen=True)
class ReusedMinibatch(lv.WithoutReplacement):
    """The minibatch of step 1 in every step."""

    def draw(self, key, first, offset, origin, num_steps, num_data):
        one = super().draw(key, Clock(jnp.uint32(1), jnp.uint32(0)), offset, origin, 1, num_data)
        return jnp.tile(one, (num_steps, *(1,) * (one.ndim - 1)))


def twin(seed: int, factor: float = 1.0, weight_power: float = 1.0, **sins: float) -> dict[int, lv.Ledger]:
    """All states are kept, so that the twins with another estimator are of the same program."""
    parts = {"kernel": TwinSGLD(**sins), "gradient": TwinMinibatch(factor)}
    return sampled(seed, weight_power=weight_power, keep=max(HORIZONS), **parts)


def along_the_path(ledgers: dict[int, lv.Ledger], right: bool) -> Runs:
    """sum delta_k phi(theta_{k-1}) / T_m from the kept states, or with the right end point theta_k."""
    phi = problems.gaussian_phi()
    runs = {}
    for m, ledger in ledgers.items():
        last = np.asarray(ledger.checkpoint.carry.state.theta)[0]
        path = np.concatenate([ledger.draws.theta[..., 0], last], axis=1)
        delta = problems.rounded_steps(problems.gaussian_steps(ALPHA), m)
        values = np.asarray(phi(path[:, 1:] if right else path[:, :-1]), np.float64)
        runs[m] = values @ delta / delta.sum()
    return runs


TWINS: dict[str, Callable[[int], Runs]] = {
    "noise sqrt(2 delta)": lambda seed: averages(twin(seed, noise=2**0.5)),
    "missing 1/2 in the drift": lambda seed: averages(twin(seed, drift=2.0)),
    "unit weights": lambda seed: averages(twin(seed, weight_power=1e-12)),
    "right end point": lambda seed: along_the_path(twin(seed), right=True),
    "forgotten N/n": lambda seed: averages(twin(seed, factor=N_BATCH / problems.gaussian().num_data)),
    "reused noise key": lambda seed: averages(twin(seed, fresh=0.0)),
    "reused minibatch key": lambda seed: averages(sampled(seed, subsample=ReusedMinibatch(N_BATCH))),
}


def test_the_honest_sampler_passes():
    runs = honest(0)
    assert verdict(runs), calibration_scores(runs)


def test_a_twin_without_its_sin_is_the_honest_sampler():
    """The same seed gives the same averages up to rounding, from the sums and from the kept states."""
    runs, ledgers = honest(0), twin(0)
    for twins in (averages(ledgers), along_the_path(ledgers, right=False)):
        for m in HORIZONS:
            np.testing.assert_allclose(twins[m], runs[m], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", TWINS)
def test_control_the_sabotaged_sampler_is_refused(name):
    runs = TWINS[name](1)
    assert not verdict(runs)
    assert surprise(runs) > LIMIT + SURPLUS, calibration_scores(runs)


# Error bars. Ten thousand runs are too many for the quick tests, where `test_coverage.py` guards intervals.


@cache
def corrected_means() -> tuple[Estimate, float]:
    """10 000 runs at a constant step, and the truth.

    On the Gaussian model theta + Sigma grad = mu_p + sigma_p^2 H, H the gradient noise of the step: the corrected
    mean is an average of independent variables and its 20 batches are Gaussian (64 steps of 10 data each).
    """
    model = problems.gaussian()
    ledger = lv.run(
        model.target, model.data, model.theta_0, schedule=lv.Constant(0.1), num_steps=1280, chains=10_000, seed=11,
        subsample=FRESH, progress=False,
        anchor=lv.laplace(model.target, model.data, np.float32(0.0)),
    )  # fmt: skip
    return estimate(ledger, "corrected", pool=False)["theta.mean"], model.mu_p


def error_bar_scores(found: Estimate, truth: float) -> np.ndarray:
    """Normal scores of the mean and the spread of (value - truth)/stderr.

    Without the allowance that `errorbars.bar` makes for kurtosis, this is Student's t with one degree of freedom
    less than there are batches. The t's become normal by their distribution function; then the sum is normal and
    the sum of squares chi-square, exactly.
    """
    allowance = 1 + np.maximum(found.kurtosis - 3, 0) / 40
    t = ((found.value - truth) / (found.stderr / allowance))[:, 0]
    normal = stats.norm.ppf(stats.t.cdf(t, int(found.num_batches) - 1))
    spread = stats.norm.ppf(stats.chi2.cdf(np.sum(normal**2), len(normal)))
    return np.array([normal.sum() / np.sqrt(len(normal)), spread])


ERROR_BAR_LIMIT = float(stats.norm.isf(LEVEL / (2 * 2)))
COVERAGES = (0.5, 0.8, 0.95, 0.99)


GAUSSIAN_SETS = 100_000


@cache
def gaussian_coverage(batches: int, level: float) -> float:
    """Coverage of the interval rule itself on Gaussian batches, by simulation."""
    x = np.random.default_rng(3).standard_normal((GAUSSIAN_SETS, batches))
    return rule_coverage(x, 0.0, level)[0]


def rule_coverage(x: np.ndarray, truth: float, level: float) -> tuple[float, float]:
    """Coverage of the interval rule on sets of batches x, (sets, batches): as it is, and blind to their skewness."""
    mean = x.mean(axis=1, keepdims=True)
    bar = errorbars.bar((x - mean)[:, None, :, None] / x.shape[1])
    t = stats.t.ppf(0.5 + level / 2, bar.df)

    def covered(skewness: np.ndarray) -> float:
        w = [errorbars.unskewed(side * t, skewness, x.shape[1]) for side in (1, -1)]
        lower, upper = mean - bar.stderr * w[0], mean - bar.stderr * w[1]
        return float(np.mean((lower <= truth) & (truth <= upper)))

    return covered(bar.skewness), covered(np.zeros_like(bar.skewness))


def covers_as_promised(found: Estimate, truth: float, level: float) -> bool:
    """Exact binomial limits around the rule's own coverage, widened by six of its standard errors."""
    lower, upper = found.interval(level)
    runs, hits = len(lower), int(np.sum((lower <= truth) & (truth <= upper)))
    p = gaussian_coverage(int(found.num_batches), level)
    slack, tail = 6 * np.sqrt(p * (1 - p) / GAUSSIAN_SETS), LEVEL / (2 * len(COVERAGES))
    low, high = p - slack, min(p + slack, 1.0)
    return bool(stats.binom.cdf(hits, runs, low) > tail and stats.binom.sf(hits - 1, runs, high) > tail)


@pytest.mark.slow
def test_error_bars_are_calibrated():
    found, truth = corrected_means()
    assert int(found.num_batches) == 20
    z = error_bar_scores(found, truth)
    assert np.abs(z).max() < ERROR_BAR_LIMIT, z


@pytest.mark.slow
def test_reported_intervals_cover_at_every_level():
    """What the interval rule promises on Gaussian batches is at least nominal, and the runs keep to it."""
    found, truth = corrected_means()
    for level in COVERAGES:
        assert level - 0.003 < gaussian_coverage(20, level) < level + 0.02
        assert covers_as_promised(found, truth, level), level


def test_intervals_of_skewed_batches_cover():
    """What a pair leaves of a second moment is at worst z^4. Blind to the skewness the rule must fail. Rate: 1e-12."""
    sets = 20_000
    x = np.mean(np.random.default_rng(4).standard_normal((5, sets, 40)) ** 4, axis=0)
    covered, blind = rule_coverage(x, 3.0, 0.95)
    assert stats.binom.cdf(round(covered * sets), sets, 0.95) > 1e-12
    assert stats.binom.cdf(round(blind * sets), sets, 0.95) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_control_an_error_bar_wrong_by_a_quarter_is_refused(factor):
    found, truth = corrected_means()
    wrong = replace(found, stderr=factor * found.stderr)
    assert np.abs(error_bar_scores(wrong, truth)).max() > ERROR_BAR_LIMIT + SURPLUS
    assert not covers_as_promised(wrong, truth, 0.8)


@pytest.mark.slow
def test_control_a_shifted_estimate_is_refused():
    """By a third of a standard error: far too little for any one run to show."""
    found, truth = corrected_means()
    wrong = replace(found, value=found.value + found.stderr / 3)
    assert np.abs(error_bar_scores(wrong, truth)).max() > ERROR_BAR_LIMIT + SURPLUS
