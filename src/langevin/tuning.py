"""Tuning for plain SGLD: the step sizes of the paper's own algorithm, from theory and without a trial run."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from langevin.analysis.regimes import regime_of
from langevin.anchor import Anchor, laplace
from langevin.data.source import DataSource, as_source
from langevin.data.subsample import Full, Subsample, WithoutReplacement
from langevin.engine.checks import require, whole_number
from langevin.schedules import Polynomial
from langevin.target import Layout, Target

PyTree = Any
Floats = NDArray[np.float64]

# A covariance from 10^4 gradients is known to 1.4%, and the best step goes with its power 2/3.
_MOST_ROWS = 10_000
# a m + b is this many times b, plus 1, at the end of the run: from a constant step to a thousandfold growth.
_DECREASES = np.concatenate([[0.0], np.logspace(-0.5, 3.0, 8)])
# The valley of good (a, b) is flat along its length. For this much of the smallest MSE the steps decrease.
_PRICE_OF_DECREASE = 1.05
# Average over at most this many parameters while searching, spread over the range of posterior sds.
_MOST_PARAMETERS = 6
# Half the limit of stability: beyond, a step overshoots the mode along the steepest direction.
_LARGEST_STEP = 2.0
# A relative MSE above this is said in words: half of a posterior variance, root mean square.
_POOR = 0.25
_SEARCH_GROWTH, _FINAL_GROWTH = 1 / 20, 1 / 40


@dataclass(frozen=True, eq=False)
class Tuned:
    """Step sizes for SGLD with plain minibatch gradients, and the errors that theory predicts for them.

    Run them as `lv.run(target, data, tuned.anchor.mode, schedule=tuned.schedule, subsample=tuned.subsample,
    num_steps=tuned.num_steps, chains=tuned.chains)`. `bias` and `variance`, one a parameter, are those of the estimated
    posterior variance, over the posterior variance and over its square; `mean_mse` is the mean squared error of the
    estimated posterior mean over the posterior variance. `cost` counts the datum visits of the pilot.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.LinearGaussian.simulate(seed=1)
        >>> tuned = lv.tune(model.target, model.data, 0.0, passes=100, batch_size=10)
        >>> tuned.passes, tuned.num_steps, tuned.schedule.alpha == 1 / 3
        (100.0, 1000, True)
    """

    schedule: Polynomial
    subsample: Subsample
    num_steps: int
    chains: int
    num_data: int
    bias: Floats
    variance: Floats
    mean_mse: Floats
    cost: int
    anchor: Anchor = field(repr=False)

    @property
    def predicted_mse(self) -> float:
        """Relative mean squared error of the estimated posterior variances, the average of all parameters."""
        return float(np.mean(self.bias**2 + self.variance))

    @property
    def regime(self) -> str:
        """Which term rules the error as a run with these steps goes on for ever."""
        return str(regime_of(self.schedule.B_limit()))

    @property
    def passes(self) -> float:
        """Datum visits of all chains over N."""
        return self.num_steps * self.chains * self.subsample.size(self.num_data) / self.num_data

    def __str__(self) -> str:
        first, last = self.schedule.delta([1, self.num_steps])
        a, b, alpha = (float(np.asarray(part)) for part in (self.schedule.a, self.schedule.b, self.schedule.alpha))
        law = f"({a:.3g} m + {b:.3g})^-{alpha:.3g}"
        mse = self.bias**2 + self.variance
        worst = int(np.argmax(mse))
        size = self.subsample.size(self.num_data)
        lines = [
            f"SGLD for {self.passes:.3g} passes: {_counted(self.chains, 'chain')} of {self.num_steps} steps, "
            f"{size} of {self.num_data} data a step",
            f"  steps      delta_m = {law}, from {first:.3g} to {last:.3g}",
            f"  variances  relative MSE {self.predicted_mse:.3g} = bias^2 {np.mean(self.bias**2):.2g} + variance "
            f"{np.mean(self.variance):.2g} on average, {mse[worst]:.3g} at worst ({self.anchor.layout.names[worst]})",
            f"  means      squared error {np.mean(self.mean_mse):.3g} of a posterior variance on average",
            f"  long run   {self.regime}",
            f"  pilot      {self.cost} datum visits",
        ]
        if mse[worst] > _POOR:
            lines.append(
                f"  caution    the variance of {self.anchor.layout.names[worst]} will be off by more than half: take "
                "more passes, or lv.sample, which needs far fewer"
            )
        return "\n".join(lines)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def tune(
    target: Target,
    data: PyTree,
    theta_0: PyTree,
    *,
    passes: float,
    batch_size: int | None = None,
    alpha: float = 1 / 3,
    chains: int = 1,
    seed: int = 0,
) -> Tuned:
    """Step sizes (a m + b)^-alpha with the smallest predicted error of posterior variances after `passes` passes.

    For SGLD with plain minibatches, from the mode, and step-weighted averages of all chains together; `passes` is
    their common budget. The posterior is taken as its Laplace approximation with the gradient noise C at the mode.
    There the bias of a variance is mubar sum delta^2/T_m and its variance sigma^2/T_m to leading order; the constant
    step that balances them, (sigma^2/(2 mubar^2 m))^(1/3), starts a search over a and b by the exact law of finite m.
    Means have no such bias and want longer steps: what these steps do to them is reported. The average is over
    parameters. Of all schedules within 5% of the best, the one that decreases most: it stays good if the run goes on.

    The batch size hardly matters at fixed passes: noise goes as 1/n, and steps in proportion to n give the same time
    and the same bias. The default is N/100, which keeps steps far from instability, but at most 1000 rows to gather.
    Assumes a near-Gaussian posterior, and noise that is much the same across it. Cost: the anchor and up to 10^4
    gradients; about a second.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.LinearGaussian.simulate(seed=1)
        >>> tuned = lv.tune(model.target, model.data, 0.0, passes=1000, batch_size=10)
        >>> tuned.num_steps, tuned.regime, round(tuned.predicted_mse, 3)
        (10000, 'balanced', 0.014)
    """
    source = _checked(target, data)
    passes = _positive(passes)
    require(_is_number(alpha) and 0 < alpha <= 1, "alpha", alpha, "a number in (0, 1]", "1/3")
    N = source.num_data
    default = min(max(1, N // 100), 1000)
    n = default if batch_size is None else whole_number("batch_size", batch_size, 1, N, default)
    chains = whole_number("chains", chains, 1)
    num_steps = round(passes * N / (n * chains))
    if num_steps < 2:
        raise ValueError(
            f"passes must leave every chain 2 steps, got {passes:g} passes of {N} data for {_counted(chains, 'chain')} "
            f"with {n} data a step. Try passes={4 * n * chains / N:.2g}, fewer chains or a smaller batch_size."
        )
    anchor = laplace(target, source, theta_0)
    if anchor.precision is None:
        raise ValueError(
            f"theta_0 must be small enough for a dense Hessian, got {anchor.layout.size} parameters. Use lv.sample, or "
            "tune a part of the parameters with the others held at the mode."
        )
    noise, visits = _gradient_noise(target, source, anchor, n, whole_number("seed", seed, 0))
    # Theory stands on SciPy, which importing langevin must not load.
    from langevin.theory.linearised import plug_in_law

    schedule = _search(anchor, noise, num_steps, chains, float(alpha))
    law = plug_in_law(schedule, [num_steps], anchor.precision, noise, chains=chains, growth=_FINAL_GROWTH)
    return Tuned(
        schedule=schedule,
        subsample=WithoutReplacement(n) if n < N else Full(),
        num_steps=num_steps,
        chains=chains,
        num_data=N,
        bias=law.mean[0] - 1.0,
        variance=law.variance[0],
        mean_mse=law.mean_mse[0],
        cost=anchor.cost + visits,
        anchor=anchor,
    )


def _checked(target: Target, data: PyTree) -> DataSource:
    if not isinstance(target, Target):
        raise ValueError(f"target must be an lv.Target, got {target!r}. Wrap it: lv.Target(log_prior, log_likelihood).")
    if target.log_likelihood is None or data is None:
        raise ValueError(
            "target and data must have a log_likelihood and observations: tune weighs the noise of minibatches. "
            "Without data the gradient is exact; use lv.MALA() or lv.HMC()."
        )
    return as_source(data)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _positive(passes: Any) -> float:
    require(_is_number(passes) and 0 < passes < np.inf, "passes", passes, "a positive number", "20")
    return float(passes)


def _gradient_noise(target: Target, source: DataSource, anchor: Anchor, n: int, seed: int) -> tuple[Floats, int]:
    """Covariance of the gradient of n data drawn without replacement, at the anchor, and the data visited for it.

    C = (N^2/n) (N - n)/(N - 1) Cov(grad_i), over all the data or 10^4 of them.
    """
    N = source.num_data
    rows = np.arange(N)
    if N > _MOST_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(N, _MOST_ROWS, replace=False))
    some = source.take(rows)
    grads = np.asarray(_datum_grads(target, anchor.layout, np.asarray(anchor.theta, np.float32), some), np.float64)
    spread = np.atleast_2d(np.cov(grads.T, bias=True))
    return N**2 / n * (N - n) / max(N - 1, 1) * spread, rows.size


@partial(jax.jit, static_argnums=(0, 1))
def _datum_grads(target: Target, layout: Layout, flat: jax.Array, batch: PyTree) -> jax.Array:
    return jax.vmap(layout.ravel)(target.datum_grads(layout.unravel(flat), batch))


def _search(anchor: Anchor, noise: Floats, num_steps: int, chains: int, alpha: float) -> Polynomial:
    """The (a, b) with the smallest predicted MSE but for the price of decreasing steps.

    Schedules delta (1 + s m/M)^-alpha over a grid of s and of their mean step, the latter around the constant step of
    the leading order and then around the best for each s.
    """
    from langevin.theory.linearised import plug_in_law, variance_constants

    order = np.argsort(anchor.sd)
    some = order[np.unique(np.linspace(0, order.size - 1, min(order.size, _MOST_PARAMETERS)).astype(int))]
    sigma2, mubar = variance_constants(anchor.precision, noise, some)
    balance = np.cbrt(np.mean(sigma2) / (2 * np.mean(mubar**2) * num_steps * chains))
    most = _LARGEST_STEP / np.linalg.eigvalsh(anchor.precision)[-1]
    growths = _DECREASES / num_steps
    shapes = Polynomial(a=growths, b=1.0, alpha=alpha)
    # delta_m of shape s is delta (1 + s m/M)^-alpha; this is delta_1/delta over the mean of delta_m/delta.
    steepness = shapes.delta(1) * num_steps / shapes.T_m(num_steps)

    def b_for(first: Floats) -> Floats:
        with np.errstate(over="ignore"):
            b = (first / shapes.delta(1)[:, None]) ** (-1 / alpha)
        require(np.isfinite(b).all(), "alpha", alpha, "large enough for a m + b to be a number", "1/3")
        return b

    def mse(first: Floats) -> Floats:
        b = b_for(first)
        schedule = Polynomial(a=b * growths[:, None], b=b, alpha=alpha)
        law = plug_in_law(
            schedule, [num_steps], anchor.precision, noise, coordinates=some, chains=chains, growth=_SEARCH_GROWTH
        )
        return np.mean((law.mean[0] - 1.0) ** 2 + law.variance[0], axis=-1)

    first = balance * steepness[:, None]
    for factors in (2.0 ** np.arange(-4, 5), 2.0 ** np.linspace(-0.8, 0.8, 9)):
        tried = np.minimum(first * factors, most)
        found = mse(tried)
        best = np.argmin(found, axis=1)[:, None]
        first = np.take_along_axis(tried, best, axis=1)
    smallest = np.take_along_axis(found, best, axis=1)[:, 0]
    chosen = np.flatnonzero(smallest <= _PRICE_OF_DECREASE * smallest.min())[-1]
    b = float(b_for(first)[chosen, 0])
    return Polynomial(a=b * float(growths[chosen]), b=b, alpha=alpha)
