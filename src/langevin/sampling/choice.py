"""Which method a call of `lv.sample` takes: what minibatches and exact sampling are forecast to cost."""

from dataclasses import replace
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from langevin.data.source import DataSource
from langevin.sampling.budget import Budget
from langevin.sampling.rules import WANTED_STEPS
from langevin.sampling.troubles import held
from langevin.target import Layout, Target

if TYPE_CHECKING:
    from langevin.sampling.planning import Plan

ASKED = "it was asked for"
# Gradients of a draw of the exact sampler and steps of its warm-up, in units of length that fit.
GRADIENTS_A_DRAW, _WARM_UP_STEPS = 7.0, 200
# Multiplications of two cores in a second, roughly, and those that a step of a chain takes beside its data; seconds
# that nobody who asks for an answer minds; and seconds that a call may take where it was given no limit.
_OPERATIONS, _OVERHEAD, _FREE_SECONDS, _MOST_SECONDS = 2e9, 2e4, 5.0, 900.0
# A step on minibatches takes two gradients along a direction.
_OF_A_STEP = 3.0
# A number is known to p sds at 95% from (1.96/p)^2 independent draws; the 2.5% point of a normal law from
# .025 .975 / phi(1.96)^2 = 7.1 times as many.
_NORMAL, _OF_A_QUANTILE = 1.96, 7.1
# What a forecast of seconds may be wrong by.
_MUCH_LONGER = 3.0
# Rows whose gradient is counted.
_COUNTED = 64


def operations(target: Target, source: DataSource | None, layout: Layout) -> float:
    """Multiplications of the gradient of one datum, by the program that JAX would compile; a hundred at least.

    A model that looks its parameters up takes a few, whatever their number. The same on every machine.
    """
    theta = layout.unravel(jnp.zeros(layout.size, jnp.float32))
    rows = None if source is None else source.slice(0, min(_COUNTED, source.num_data))
    program = jax.jit(jax.value_and_grad(lambda t: target.log_density(t, rows))).lower(theta)
    found = program.cost_analysis() or {}
    count = found.get("flops", 0.0) + 10.0 * found.get("transcendentals", 0.0)
    # Those of the prior and of its parameters come once a pass.
    return max(100.0, count / (1 if source is None else min(_COUNTED, source.num_data)))


def choice(plan: "Plan") -> tuple[str, str]:
    """Method and reason: minibatches where their errors can be told beforehand, else exact sampling if it can be paid.

    Exact: where the Gaussian approximation would not do; where it is rough while every step has to see all the data
    anyway, so that minibatches gain nothing; and where what lies far out, beyond the steps that fit the mode, widens an
    sd by more than a number may move without a word.
    """
    words = [trouble.status for trouble in plan.troubles if trouble.refused]
    if plan.rounding is not None and np.any(plan.rounding[0] > held(plan.budget.precision)):
        words.append("rounding")
    everything = not plan.rules.num_data or plan.batch_size == plan.rules.num_data
    rough = everything and not plan.rules.near_gaussian
    wide = not too_few_nodes(plan) and bool(np.any(plan.survey.outskirts.widening > held(None)))
    if "hard_bound" in words:
        because = "a hard bound defeats both methods"
    elif not (words or rough or wide):
        because = "the posterior is near enough to its Gaussian approximation"
    elif not affordable(plan):
        because = (
            f"exact sampling would take about {exact_passes(plan):,.0f} passes and {exact_seconds(plan):,.0f} s, more "
            f"than the budget"
        )
    elif words:
        return "exact", f"minibatches would not do here ({words[0]})"
    elif wide and not rough:
        return "exact", "what lies far from the mode widens the posterior, and minibatches are for what is near to it"
    else:
        why = (
            "there are no minibatches to gain from" if not plan.rules.num_data else "every step has to see all the data"
        )
        return "exact", f"{why}, and the posterior is not near-Gaussian"
    return "minibatch", because


def too_few_nodes(plan: "Plan") -> bool:
    """Whether quadrature is off by more than a precision: what it makes of the density says nothing for any method."""
    return plan.quadrature is not None and bool(np.any(plan.quadrature > held(plan.budget.precision)))


def exact_passes(plan: "Plan", precision: float | None = None) -> float:
    """Passes that the fewest draws of an exact run take, or those for a precision, its warm-up included."""
    chains = len(plan.chains)
    draws = float(WANTED_STEPS * chains)
    if precision is not None:
        draws = max(draws, _OF_A_QUANTILE * (_NORMAL / precision) ** 2)
    return GRADIENTS_A_DRAW * (draws + _WARM_UP_STEPS * chains)


def exact_seconds(plan: "Plan", precision: float | None = None) -> float:
    """About how long these take."""
    return exact_passes(plan, precision) * plan.num_data * plan.work / _OPERATIONS


def minibatch_steps(plan: "Plan", precision: float) -> float:
    """Steps of a chain on minibatches until means and sds are known to a precision, by what the pilot measured."""
    least = replace(plan, num_steps=WANTED_STEPS)
    error = float(max(least.expected_mean_error.max(), least.expected_sd_error.max()))
    return WANTED_STEPS * max(1.0, (_NORMAL * error / precision) ** 2)


def minibatch_seconds(plan: "Plan", steps: float, batch_size: int) -> float:
    """About how long so many steps of all chains take."""
    each = _OF_A_STEP * plan.rules.step_cost(batch_size) * plan.work + _OVERHEAD
    return steps * len(plan.chains) * each / _OPERATIONS


def exact_is_sooner(plan: "Plan", steps: float, batch_size: int) -> bool:
    """Whether an exact run reaches the precision well before so many more steps on minibatches do.

    By the same arithmetic for both, not by the clock: a seed gives the same numbers on a machine that others share.
    """
    assert plan.budget.precision is not None
    exact = exact_seconds(plan, plan.budget.precision)
    left = minibatch_seconds(plan, steps, batch_size)
    return plan.because != ASKED and left > _MUCH_LONGER * exact + _FREE_SECONDS and affordable(plan)


def allowed_passes(plan: "Plan", budget: Budget) -> float | None:
    """Passes that an exact run may take: those of the budget, or the fewest that it needs, if these take no time."""
    if budget.passes is None:
        return None
    return max(budget.passes, exact_passes(plan) if exact_seconds(plan) < _FREE_SECONDS else 0.0)


def affordable(plan: "Plan") -> bool:
    """Whether an exact run fits into the budget of a plan."""
    allowed, limit = allowed_passes(plan, plan.budget), plan.budget.time_limit
    in_time = exact_seconds(plan) <= (_MOST_SECONDS if limit is None else limit)
    return in_time and (allowed is None or exact_passes(plan) <= allowed)
