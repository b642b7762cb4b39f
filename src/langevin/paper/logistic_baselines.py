"""What Figure 6 compares SGLD with, each on the same start, the same data and the same count of passes."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import langevin as lv
from langevin.figures import COLOURS, MARKS
from langevin.paper import logistic_runs as runs
from langevin.paper import problems
from langevin.paper.lab import Lab
from langevin.paper.nuts import blackjax_or_advice, nuts
from langevin.paper.study import Numbers

DEFAULT_BATCH = 10


class Look(NamedTuple):
    """How a method appears in the picture."""

    label: str
    colour: str
    mark: str


LABELS = {
    "sgld paper": Look("SGLD, the paper's (a, b)", COLOURS[0], MARKS[0]),
    "sgld tuned": Look("SGLD, smallest cell of Figure 5", COLOURS[4], MARKS[4]),
    "mala 0.564": Look("MALA, acceptance 0.564", COLOURS[1], MARKS[1]),
    "mala 0.7": Look("MALA, acceptance 0.70", COLOURS[1], MARKS[6]),
    "nuts": Look("NUTS\n(+ {warmup:.0f} passes of warm-up)", COLOURS[3], MARKS[3]),
    "sgld + cv1": Look("SGLD + control variate\n(+ {anchor:.0f} passes for the anchor)", COLOURS[2], MARKS[2]),
    "corrected": Look(
        "Poisson-corrected default, n = {n}\n(+ {anchor:.0f} passes for the anchor)", COLOURS[6], MARKS[5]
    ),
}


class Baseline(NamedTuple):
    """How many runs, and the work behind them."""

    runs: int
    work: Callable[[], Numbers]


def methods(lab: Lab, passes: list[int], count: int) -> dict[str, Baseline]:
    """The baselines; their numbers are relative variance estimates, (passes, runs), and what it costs to set up."""
    # More runs of MALA, to tell its two acceptance rates apart.
    many = lab.choose(tiny=2, quick=4, full=2) * count
    found = {
        "mala 0.564": Baseline(many, lambda: _mala(lab, passes, many, 0.564, 2)),
        "mala 0.7": Baseline(many, lambda: _mala(lab, passes, many, 0.70, 7)),
        "control variate": Baseline(count, lambda: _control_variate(lab, passes, count)),
    }
    # These two take longer to compile than all else takes to run at the size for tests.
    if lab.size != "tiny":
        blackjax_or_advice()
        found["corrected"] = Baseline(count, lambda: _corrected(lab, passes, count))
        found["nuts"] = Baseline(count // 2, lambda: _nuts(lab, passes, count // 2))
    return found


def _mala(lab: Lab, passes: list[int], count: int, rate: float, number: int) -> Numbers:
    """One pass an iteration; the step that gives the wanted acceptance rate is found beforehand."""
    (target, data, theta_0, _), kernel = runs.plain(), lv.MALA()
    adapt: dict[str, Any] = {"target_acceptance": rate, "num_steps": 16_000, "seed": 1000 * lab.seed + 6}
    schedule = lv.adapt_step(target, data, theta_0, kernel=kernel, **adapt)
    seed = 1000 * lab.seed + number
    estimates, ledger = runs.staged(lab, passes, kernel=kernel, schedule=schedule, chains=count, seed=seed)
    accepted = np.asarray(ledger.acceptance).sum(axis=-1).mean() / ledger.num_steps
    return {f"mala {rate:.3g}": estimates, f"acceptance {rate:.3g}": accepted}


@cache
def _anchor() -> lv.Anchor:
    """The mode with its Hessian, from zero."""
    model = problems.logistic()
    return lv.laplace(model.target, model.data, jnp.zeros(3))


def _control_variate(lab: Lab, passes: list[int], count: int) -> Numbers:
    """Plain SGLD on better gradients: whitened steps (32/(100 + m))^(1/3).

    With the gradient noise gone, the relative MSE at a constant step delta, in units of the variance, is about
    delta^2/16 + 4/(delta m), least at delta = (32/m)^(1/3).
    """
    anchor = _anchor()
    scale = 32 ** (1 / 3) * anchor.covariance[0, 0]
    estimates, _ = runs.staged(
        lab,
        runs.num_steps(passes),
        subsample=lv.WithReplacement(runs.BATCH_SIZE),
        gradient=lv.ControlVariate(anchor, order=1),
        schedule=lv.Power(scale, m_0=100.0, alpha=1 / 3),
        chains=count,
        seed=1000 * lab.seed + 3,
    )
    return {"sgld + cv1": estimates, "anchor_passes": np.array(anchor.cost / runs.NUM_DATA)}


@cache
def _whitened() -> runs.Problem:
    """The problem in coordinates z, theta = mode + L z, in which the posterior is nearly N(0, I).

    A datum becomes (L'x, <x, mode>, y), so that a step costs no more than in the old coordinates.
    """
    model, anchor = problems.logistic(), _anchor()
    root = np.linalg.cholesky(anchor.covariance)
    mode, first = jnp.asarray(anchor.theta, jnp.float32), jnp.asarray(root[0], jnp.float32)
    data = tuple(part.astype(np.float32) for part in (model.x @ root, model.x @ anchor.theta, model.y))

    def log_prior(z: jax.Array) -> jax.Array:
        return model.target.log_prior(mode + jnp.asarray(root, z.dtype) @ z)

    def log_likelihood(z: jax.Array, datum: Any) -> jax.Array:
        x, offset, y = datum
        return lv.log_sigmoid(y * (offset + jnp.dot(x, z)))

    def moments(z: jax.Array) -> jax.Array:
        u = jnp.dot(first, z)
        return jnp.stack([u, u * u])

    return runs.Problem(lv.Target(log_prior, log_likelihood), data, jnp.zeros(3), moments)


def _corrected(lab: Lab, passes: list[int], count: int) -> Numbers:
    """Leimkuhler-Matthews steps on second-order control variates, averages corrected by the Laplace model's h."""
    problem = _whitened()
    anchor = lv.laplace(problem.target, problem.data, problem.theta_0)
    estimates, _ = runs.staged(
        lab,
        runs.num_steps(passes, DEFAULT_BATCH),
        problem=problem,
        corrected=True,
        kernel=lv.LeimkuhlerMatthews(),
        gradient=lv.ControlVariate(anchor, order=2),
        subsample=lv.WithReplacement(DEFAULT_BATCH),
        # (1 + m/1000)^(-1/5), without tuning
        schedule=lv.Power(1000.0**0.2, m_0=1000.0, alpha=0.2),
        anchor=anchor,
        chains=count,
        seed=1000 * lab.seed + 4,
    )
    return {"corrected": estimates}


def _nuts(lab: Lab, passes: list[int], count: int) -> Numbers:
    """Each chain's draws as far as its own gradients reach; a chain without a draw estimates a variance of zero."""
    model = problems.logistic()
    seed = 1000 * lab.seed + 5
    found = nuts(model.target, model.data, model.theta_0, gradients=max(passes), chains=count, seed=seed)
    estimates = []
    for p in passes:
        inside = found.gradients <= p
        drawn = np.maximum(inside.sum(axis=1), 1)[:, None]
        moments = np.stack([found.u, found.u**2], axis=-1) * inside[..., None]
        estimates.append(runs.relative_variance(moments.sum(axis=1) / drawn))
    return {"nuts": np.stack(estimates), "nuts_warmup": np.array(found.warmup)}
