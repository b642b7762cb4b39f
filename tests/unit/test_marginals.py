"""Streamed distribution functions: the closed Poisson solution, exactness on Gaussians, and quantiles from sums."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, stats

import langevin as lv
from langevin.analysis.marginals import _weights, linear
from langevin.engine.draws import Draws
from langevin.target import Layout
from tests.unit.ledgers import CONSTANT, ROW, ledger_of, noise

GRID = lv.Marginals.GRID
LAYOUT = Layout.of(np.zeros(1))


def corrected(x, s):
    """1{x <= c} - Phi(c) and its correction, for a parameter with anchor 0 and Laplace sd 1."""
    zero, one = jnp.zeros(1), jnp.ones(1)
    value = lv.Marginals().value(LAYOUT, jnp.array([x]), jnp.stack([zero, one]))
    return value, lv.Marginals().correction(LAYOUT, jnp.array([x]), jnp.array([s]), zero, one)


def distance(t, c, whole):
    return (float(t <= c) - whole) * stats.norm.pdf(t)


@pytest.mark.parametrize("x", [-6.0, -1.3, 0.0, 0.5, 2.2, 5.0])
def test_the_correction_is_minus_the_generator_of_the_poisson_solution(x):
    """h' = (2/phi) int_{-inf}^x (f - F) phi, A h = (g h' + h'')/2 with h'' = x h' + 2 (f - F), for any gradient g."""
    g = 0.37
    for c, value, correction in zip(GRID, *corrected(x, g), strict=True):
        f, whole = float(x <= c), stats.norm.cdf(c)
        area = integrate.quad(distance, -12, x, args=(c, whole), points=[min(c, x)])[0]
        slope = 2.0 * area / stats.norm.pdf(x)
        generator = 0.5 * (g * slope + x * slope + 2.0 * (f - whole))
        assert_allclose(value, f - whole, atol=1e-6)
        assert_allclose(correction, -generator, atol=2e-4)


def test_on_a_gaussian_every_corrected_value_is_the_same():
    for x in (-12.0, -3.0, 0.1, 4.5, 30.0):
        value, correction = corrected(x, -x)
        assert_allclose(value + correction, 0.0, atol=1e-6)


def test_interpolation_is_exact_for_cubics():
    c = np.linspace(-3.9, 3.9, 41)[None]
    weights = _weights(c, GRID)
    for power in range(4):
        assert_allclose((weights @ GRID**power)[0], c[0] ** power, atol=1e-11)


# A gamma law of shape 40 in log-like coordinates: skewed, with quantiles in closed form.
SHAPE = 40.0
GAMMA = lv.Target(lambda t: SHAPE * t[0] - jnp.exp(t[0]))
LEVELS = np.array([0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975])
TRUTH = np.log(stats.gamma.ppf(LEVELS, SHAPE))


def gamma_run(chains, num_steps=4000, seed=1, **more):
    anchor = lv.laplace(GAMMA, None, np.zeros(1))
    return lv.run(
        GAMMA, None, anchor.mode, kernel=lv.LeimkuhlerMatthews(), coordinates=lv.Whitened.by(anchor), anchor=anchor,
        schedule=lv.Power(0.25, m_0=1.0, alpha=0.05), num_steps=num_steps, chains=chains, seed=seed, progress=False,
        observables={"theta": lv.Moments(), "marginals": lv.Marginals()}, **more,
    )  # fmt: skip


def scores(ledger, shift=0.0):
    found = lv.quantiles(ledger, LEVELS)
    return (found.value[:, 0] - TRUTH - shift) / found.stderr[:, 0]


def test_quantiles_of_a_skewed_law_are_within_their_bars():
    """Seven scores of one run, 80 batches: |t| < 6.5 with a false alarm below 1e-7."""
    ledger = gamma_run(chains=64)
    z = scores(ledger)
    assert np.abs(z).max() < 6.5, z
    # Far from Laplace's values, and far finer than the draws could tell.
    found = lv.quantiles(ledger, LEVELS)
    assert np.abs(found.laplace[:, 0] - TRUTH).max() > 20 * found.stderr.max()
    assert found.status == "ok"


def test_control_a_shifted_quantile_is_refused():
    ledger = gamma_run(chains=64)
    sd = float(lv.estimate(ledger, "corrected")["theta.sd"].value[0])
    assert np.abs(scores(ledger, shift=0.05 * sd)).min() > 6.5


def test_bars_are_never_zero_and_shrink_with_the_run():
    """From draws the median's bar was exactly 0 in every seventh run of pairs: the two lie on either side in turn."""
    wide = []
    for seed in range(30):
        short = lv.quantiles(gamma_run(chains=4, num_steps=304, seed=seed), LEVELS)
        assert np.all(short.stderr > 0)
        wide.append(short.stderr)
    longer = lv.quantiles(gamma_run(chains=4, num_steps=304 * 64), LEVELS)
    ratio = np.median(wide, axis=0) / longer.stderr
    # Eight times smaller in expectation; a bar of 40 batches scatters by a ninth.
    assert np.all((ratio > 4) & (ratio < 16)), ratio


def test_a_median_from_draws_has_no_bar_of_zero():
    anchor = lv.laplace(GAMMA, None, np.zeros(1))
    for seed in range(12):
        ledger = lv.run(
            GAMMA, None, anchor.mode, kernel=lv.LeimkuhlerMatthews(), coordinates=lv.Whitened.by(anchor),
            anchor=anchor, schedule=lv.Constant(1.0), num_steps=304, chains=4, seed=seed, keep=304, progress=False,
        )  # fmt: skip
        found = lv.quantiles(ledger, 0.5)
        assert np.all(np.isnan(found.stderr) | (found.stderr > 0))


def test_without_an_anchor_they_cannot_be_streamed():
    with pytest.raises(ValueError, match="needs anchor="):
        lv.run(GAMMA, None, np.zeros(1), schedule=lv.Constant(0.01), num_steps=16, observables={"m": lv.Marginals()})


def test_precision_covers_the_published_quantiles():
    result = lv.sample(GAMMA, None, np.zeros(1), precision=0.02, progress=False)
    found = result.quantiles(LEVELS)
    lower, upper = found.interval()
    assert result.status == "ok"
    assert np.all(0.5 * (upper - lower)[:, 0] <= 0.02 * result.sd.value[0])


# Half of the probability about 0, half about 12, and nothing to speak of between 3 and 11.7: any of it is a median.
TWO = lv.Target(
    lambda t: jnp.logaddexp(-0.5 * t[0] ** 2, -0.5 * ((t[0] - 12.0) / 0.1) ** 2 - jnp.log(0.1)) + jnp.log(0.5)
)


def drawn(theta):
    """The ledger of an exact run that has kept these draws, (chains, draws, d)."""
    count = theta.shape[1]
    kept = Draws(np.arange(1, count + 1), theta.astype(np.float32), theta.astype(np.float32), np.full(count, 0.1))
    return ledger_of(noise(len(theta), ROW * 40, 1), CONSTANT, kernel=lv.MALA(), draws=kept)


def test_a_median_in_a_gap_has_a_bar_that_reaches_across():
    """400 sets of draws; the count of intervals that hold no point of the gap stays within its exact 1e-8 limit."""
    rng, missed, narrow = np.random.default_rng(0), 0, 0
    for _ in range(400):
        right = rng.random((4, 500, 1)) < 0.5
        theta = np.where(right, 12.0 + 0.1 * rng.standard_normal(right.shape), rng.standard_normal(right.shape))
        ledger = drawn(theta)
        for found, count in ((lv.quantiles(ledger, 0.5), "missed"), (linear(ledger, np.array([0.5])).found, "narrow")):
            lower, upper = (end.item() for end in found.interval())
            outside = upper < 3.0 or lower > 11.7
            missed, narrow = missed + (outside and count == "missed"), narrow + (outside and count == "narrow")
    assert missed <= stats.binom.isf(1e-8, 400, 0.05)
    # Control: bars from the density at the quantile.
    assert narrow > stats.binom.isf(1e-8, 400, 0.05)


def test_a_run_says_so_of_its_median():
    result = lv.sample(TWO, None, np.zeros(1), progress=False)
    median, tails = result.quantiles(0.5), result.quantiles((0.25, 0.975))
    lower, upper = median.interval()
    assert lower < 3.5 and upper > 11.0 and tails.stderr.max() < 0.1
    assert "The 50% quantile of theta[0] is known to +- " in str(result) and median.status == "ok"


def test_streamed_sums_know_gaps_too():
    """Modes at -2 and 2, in Laplace sds: the median's bar reaches from one to the other."""
    ledger, rng = gamma_run(chains=4), np.random.default_rng(3)
    centre, sd = ledger.columns["marginals"].reference
    shape = ledger.values["marginals"].shape
    draws = np.where(rng.random((*shape[:2], 16, 1)) < 0.5, -2.0, 2.0) + 0.3 * rng.standard_normal((*shape[:2], 16, 1))
    shares = (draws <= GRID).mean(axis=2) - stats.norm.cdf(GRID)
    sums = {**ledger.values, "marginals": ledger.sum_omega[:, None] * shares}
    flat = {name: np.zeros_like(value) for name, value in ledger.corrections.items()}
    ledger = replace(ledger, values=sums, corrections=flat)
    lower, upper = ((end.item() - centre.item()) / sd.item() for end in lv.quantiles(ledger, 0.5).interval())
    assert upper - lower > 2.0 and lower < -1.0 < 1.0 < upper


SMOOTH = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "skewed": lambda rng, size: rng.exponential(size=size),
    "heavy": lambda rng, size: rng.standard_cauchy(size),
    "two modes that overlap": lambda rng, size: rng.standard_normal(size) + np.where(rng.random(size) < 0.5, -1.5, 1.5),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_control_bars_of_smooth_densities_stay_as_they_are(name):
    """200 sets of seven quantiles, each side a false alarm of 1e-6: below 3e-3 in all."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        ledger = drawn(SMOOTH[name](rng, (4, 500, 4)))
        assert_array_equal(lv.quantiles(ledger, LEVELS).stderr, linear(ledger, LEVELS).found.stderr)


def test_control_so_do_streamed_ones():
    for seed in range(5):
        ledger = gamma_run(chains=4, num_steps=304, seed=seed)
        assert_array_equal(lv.quantiles(ledger, LEVELS).stderr, linear(ledger, LEVELS).found.stderr)
