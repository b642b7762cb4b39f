"""Tuning for plain minibatches: step sizes of SGLD and of kernels with momentum, from theory, without a trial run."""

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
from langevin.kernels import SGLD, Kernel
from langevin.schedules import Polynomial
from langevin.startup import compiled
from langevin.step_sizes import search, search_settled
from langevin.target import Layout, Target

PyTree = Any
Floats = NDArray[np.float64]

# A covariance from 10^4 gradients is known to 1.4%, and the best step goes with its power 2/3.
_MOST_ROWS = 10_000
# A relative MSE above this is said in words: half of a posterior variance, root mean square.
_POOR = 0.25


@dataclass(frozen=True, eq=False)
class Tuned:
    """Step sizes for plain minibatch gradients, and the errors that theory predicts for them.

    Run them as `lv.run(target, data, tuned.anchor.mode, kernel=tuned.kernel, schedule=tuned.schedule,
    subsample=tuned.subsample, num_steps=tuned.num_steps, chains=tuned.chains)`. `bias` and `variance`, one a parameter,
    are those of the estimated posterior variance, over the posterior variance and over its square; `mean_mse` is the
    mean squared error of the estimated posterior mean over the posterior variance. `cost` counts the datum visits of
    the pilot.

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
    kernel: Kernel
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
            f"{type(self.kernel).__name__} for {self.passes:.3g} passes: {_counted(self.chains, 'chain')} of "
            f"{self.num_steps} steps, {size} of {self.num_data} data a step",
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
    kernel: Kernel | None = None,
    seed: int = 0,
) -> Tuned:
    """Step sizes (a m + b)^-alpha with the smallest predicted error of posterior variances after `passes` passes.

    For SGLD, or another `kernel` with affine steps, with plain minibatches, from the mode, and step-weighted averages
    of all chains together; `passes` is their common budget. The posterior is taken as its Laplace approximation with
    the gradient noise C at the mode. There the bias of a variance is mubar sum delta^2/T_m and its variance sigma^2/T_m
    to leading order; the constant step that balances them, (sigma^2/(2 mubar^2 m))^(1/3), starts a search over a and b
    by the exact law of finite m.
    Means have no such bias and want longer steps: what these steps do to them is reported. The average is over
    parameters. Of all schedules within 5% of the best, the one that decreases most: it stays good if the run goes on.

    Other kernels have the same search with the law of a chain that has settled, `theory.settled`, in place of that of
    finite m. Momentum leaves the bias of gradient noise as it is and lessens that of the injected noise: with plain
    minibatches, where the former rules, it gains next to nothing. Its friction is yours to choose.

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
    kernel = SGLD() if kernel is None else kernel
    if not isinstance(kernel, Kernel) or kernel.affine(1, 1.0) is None:
        raise ValueError(f"kernel must have affine steps whose law is known, got {kernel!r}. Try lv.SGHMC(1.0).")
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
    find = search if isinstance(kernel, SGLD) else partial(search_settled, kernel)
    schedule, bias, variance, mean_mse = find(anchor, noise, num_steps, chains, float(alpha))
    return Tuned(
        schedule=schedule,
        subsample=WithoutReplacement(n) if n < N else Full(),
        num_steps=num_steps,
        chains=chains,
        num_data=N,
        bias=bias,
        variance=variance,
        mean_mse=mean_mse,
        cost=anchor.cost + visits,
        anchor=anchor,
        kernel=kernel,
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


@compiled(static_argnums=(0, 1))
def _datum_grads(target: Target, layout: Layout, flat: jax.Array, batch: PyTree) -> jax.Array:
    return jax.vmap(layout.ravel)(target.datum_grads(layout.unravel(flat), batch))
