"""What Figures 5 and 6 share: the grid of (a, b), its runs, and how estimates of the variance are judged."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

import langevin as lv
from langevin.paper import problems
from langevin.paper.lab import Lab
from langevin.paper.logistic_law import VarianceLaw
from langevin.paper.replicates import standard_error
from langevin.paper.study import Finding, Floats, Numbers, judged, limit

ALPHA = 0.38
PAPER = (5.89e7, 7.90e8)
BATCH_SIZE = 30
NUM_DATA = 1000
# Powers of ten by which the grid departs from the paper's (a, b). It reaches further down in a, to nearly constant
# steps, where the valley of good parameters goes.
_A = {"tiny": (-4.0, -2.0, 0.0, 2.0), "quick": np.arange(-4.0, 2.5), "full": np.arange(-4.0, 2.25, 0.5)}
_B = {"tiny": (-2.0, -1.0, 0.0, 1.0, 2.0), "quick": np.arange(-3.0, 3.5), "full": np.arange(-3.0, 3.25, 0.5)}


@cache
def first_moments() -> Callable[[jax.Array], jax.Array]:
    """(u, u^2) with u = theta_1 minus its mode: all that the variance estimate needs, and 2 sums instead of 9."""
    mode = float(problems.logistic().map[0])

    def moments(theta: jax.Array) -> jax.Array:
        u = theta[0] - mode
        return jnp.stack([u, u * u])

    return moments


def relative_variance(averages: Floats) -> Floats:
    """The plug-in variance of theta_1, E[u^2] - E[u]^2, over the true one; `averages` ends with the two moments."""
    truth = problems.logistic().truth().covariance[0, 0]
    return (averages[..., 1] - averages[..., 0] ** 2) / truth


def num_steps(passes: Sequence[float], batch_size: int = BATCH_SIZE) -> list[int]:
    """Steps of this batch size that visit each datum `passes` times on average."""
    return [round(p * NUM_DATA / batch_size) for p in passes]


class Problem(NamedTuple):
    """What a run samples, where it starts, and the observable (u, u^2)."""

    target: lv.Target
    data: Any
    theta_0: Any
    moments: Callable[[jax.Array], jax.Array]


@cache
def plain() -> Problem:
    """The logistic problem in its own coordinates, from the mode."""
    model = problems.logistic()
    return Problem(model.target, model.data, model.theta_0, first_moments())


def staged(
    lab: Lab, horizons: Sequence[int], *, problem: Problem | None = None, corrected: bool = False, **options: Any
) -> tuple[Floats, lv.Ledger]:
    """Relative variance estimates after each of `horizons` steps, (horizons, *settings, chains), and the last ledger.

    `corrected` adds the Poisson correction, which needs an anchor among the options.
    """
    target, data, theta_0, moments = plain() if problem is None else problem
    ledger: lv.Ledger | None = None
    found = []
    for horizon in horizons:
        ledger = lab.run(target, data, theta_0, observables={"u": moments}, num_steps=horizon, resume=ledger, **options)
        averages = problems.average(ledger, "u")
        if corrected and ledger.corrections is not None:
            weight = ledger.sum_omega.sum(axis=-1)[..., None, None]
            averages = averages + ledger.corrections["u"].sum(axis=-2) / weight
        found.append(relative_variance(averages))
    return np.stack(found), cast(lv.Ledger, ledger)


def grid(lab: Lab) -> tuple[Floats, Floats, list[float], int]:
    """Values of a and of b, the two numbers of passes, and the runs a cell."""
    a, b = (centre * 10.0 ** np.asarray(powers[lab.size]) for centre, powers in zip(PAPER, (_A, _B), strict=True))
    return a, b, lab.choose(tiny=[20, 60], quick=[20, 200], full=[20, 1000]), lab.choose(tiny=128, quick=256, full=512)


def heat_map(lab: Lab) -> Floats:
    """Relative variance estimates over the grid: (horizons, a, b, runs), all cells with common random numbers.

    Minibatches are drawn with replacement, at twice the speed of random subsets: it adds 3% to the gradient noise.
    """
    a, b, passes, runs = grid(lab)
    group = min(runs, 256)

    def work(value: float, first: int) -> Numbers:
        estimates, _ = staged(
            lab,
            num_steps(passes),
            subsample=lv.WithReplacement(BATCH_SIZE),
            schedule=lv.Polynomial(a=value, b=b, alpha=ALPHA),
            chains=range(first, first + group),
            seed=1000 * lab.seed,
        )
        return {"estimates": estimates}

    def part(value: float, first: int) -> Floats:
        name = f"fig5/a={value:.3g}/runs {first} to {first + group - 1}"
        asked: dict[str, Any] = {"a": value, "b": b.tolist(), "passes": passes, "first": first, "runs": group}
        return lab.part(name, partial(work, value, first), **asked)["estimates"]

    rows = [np.concatenate([part(value, k) for k in range(0, runs, group)], axis=-1) for value in a.tolist()]
    return np.stack(rows, axis=1)


def squared_errors(estimates: Floats) -> Floats:
    """(estimate - 1)^2 of relative estimates: their mean over runs is the relative MSE."""
    return (estimates - 1.0) ** 2


def relative_mse(estimates: Floats) -> tuple[Floats, Floats]:
    """Mean squared error over runs, the last axis, of relative estimates, and its standard error."""
    errors = squared_errors(estimates)
    return errors.mean(axis=-1), standard_error(errors)


def ratio(top: Floats, bottom: Floats) -> tuple[float, float]:
    """mean(top)/mean(bottom) of paired runs, and its standard error by the delta method."""
    value = float(top.mean() / bottom.mean())
    return value, float(standard_error(top - value * bottom) / bottom.mean())


def bootstrap(errors: Floats, seed: int, samples: int = 1000) -> Floats:
    """MSE curves of resampled runs, (samples, horizons), from squared errors (horizons, runs)."""
    count = errors.shape[-1]
    weights = np.random.default_rng(seed).multinomial(count, np.full(count, 1.0 / count), size=samples)
    return weights @ errors.T / count


def slopes(passes: Floats, curves: Floats) -> Floats:
    """Least-squares slopes of log curve against log passes, the last axis."""
    x = np.log(passes) - np.log(passes).mean()
    return np.log(curves) @ x / (x @ x)


def overtaking(passes: Floats, leader: Floats, chaser: Floats) -> float:
    """Where `chaser` falls below `leader` for good, between two horizons on log scales; an end if nowhere."""
    gap = np.log(chaser / leader)
    above = np.flatnonzero(gap > 0)
    if above.size == 0:
        return float(passes[0])
    k = int(above[-1])
    if k == len(passes) - 1:
        return float(passes[-1])
    share = gap[k] / (gap[k] - gap[k + 1])
    return float(passes[k] ** (1 - share) * passes[k + 1] ** share)


def follows_law(claim: str, law: VarianceLaw, estimates: Floats, more: str) -> Finding:
    """The verdict on a claim that estimates, (*law, runs), have the mean and the spread of the linearised law."""
    scores = law.scores(estimates)
    (of_mean, of_variance), bound = np.abs(scores).reshape(2, -1).max(axis=1), limit(scores.size)
    good = bool(np.abs(scores).max() < bound)
    mean, variance = law.mean_room, np.exp(law.variance_room)
    return Finding(
        claim,
        "not in the paper: MSE estimated by simulation",
        f"largest of {scores.size} scores {of_mean:.1f} for means and {of_variance:.1f} for variances (limit "
        f"{bound:.1f}), beyond what curvature may do: {mean.min():.1%} of the mean and a factor {variance.min():.2f} "
        f"in the variance, up to {mean.max():.1%} and {variance.max():.2f} where the chain is widest; {more}",
        **judged(good, "means or variances differ from the law of SGLD by more than Monte Carlo error"),
    )
