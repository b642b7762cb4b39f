"""The error bars of `lv.sample` cover at their nominal rate, and those of sabotaged samplers do not.

A small version of `benchmarks.error_bars`. Coverage is pooled over means and sds; the number of runs, not of intervals,
enters the binomial test, since the intervals of one run share their chains. Rate: 1e-8 a target for a coverage inside
[0.93, 0.97].
"""

from dataclasses import dataclass

import jax
import numpy as np
import pytest
from scipy import stats

import langevin as lv
from benchmarks.references import reference
from benchmarks.sampled import runs
from benchmarks.targets import problem
from langevin.sampling import strategies

LEVEL, RUNS = 1e-8, 200


def coverage(name, steps=1000):
    """Pooled coverage, the lowest of one parameter, the median half-width over 1.96 sds, and the share of ok."""
    one, truth = problem(name), reference(name)
    found = list(runs(one.target, one.data, one.theta_0, steps=steps, count=RUNS, seed=11))
    true = np.stack([truth.mean, truth.sd])
    lower, upper = (np.array([[r.mean.interval()[k], r.sd.interval()[k]] for r in found]) for k in (0, 1))
    values = np.array([[r.mean.value, r.sd.value] for r in found])
    covered = ((lower <= true) & (true <= upper)).mean(axis=0)
    width = np.median(0.5 * (upper - lower), axis=0) / (1.96 * values.std(axis=0, ddof=1))
    return covered.mean(), covered.min(), np.median(width), np.mean([r.status == "ok" for r in found])


def inside(share):
    hits = round(share * RUNS)
    return stats.binom.cdf(hits, RUNS, 0.93) > LEVEL and stats.binom.sf(hits - 1, RUNS, 0.97) > LEVEL


@pytest.mark.parametrize("name", ["logistic_paper", "linear", pytest.param("poisson", marks=pytest.mark.slow)])
def test_intervals_cover_and_are_not_wide(name):
    pooled, _, width, ok = coverage(name)
    assert inside(pooled), pooled
    # 200 runs know an empirical sd to 5%: its median over parameters is far below 1.3 unless the bars are wide.
    assert width < 1.3
    assert stats.binom.cdf(round(ok * RUNS), RUNS, 0.98) > LEVEL


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TooMuchNoise(lv.LeimkuhlerMatthews):
    """Noise of variance 2 delta: the mistake of taking another library's step for ours."""

    def step(self, state, grad, eta, delta):
        after = super().step(state, grad, eta, delta)
        return after._replace(theta=after.theta + (2**0.5 - 1) * delta**0.5 * 0.5 * (state.eta + eta))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WrongRemainder(lv.ControlVariate):
    """A gradient whose remainder is half too large."""

    def term(self, log_likelihood, theta):
        return jax.tree.map(lambda leaf: 1.5 * leaf, super().term(log_likelihood, theta))


@pytest.mark.parametrize(
    ("part", "twin"),
    [
        ("LeimkuhlerMatthews", TooMuchNoise),
        pytest.param("ControlVariate", WrongRemainder, marks=pytest.mark.slow),
    ],
)
def test_a_sabotaged_sampler_is_refused(monkeypatch, part, twin):
    monkeypatch.setattr(strategies, part, twin)
    pooled, _, _, _ = coverage("linear")
    assert not inside(pooled), pooled


def test_bars_that_are_too_short_are_refused(monkeypatch):
    """Standard errors from the variance of single steps, as if they were independent draws of half the variance."""
    from langevin.analysis import errorbars

    honest = errorbars.bar

    def short(influence, lost=1):
        bar = honest(influence, lost)
        return bar._replace(stderr=0.5 * bar.stderr)

    monkeypatch.setattr(errorbars, "bar", short)
    pooled, _, _, _ = coverage("linear")
    assert not inside(pooled), pooled
