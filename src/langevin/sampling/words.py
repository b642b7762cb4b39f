"""Plans and results in words: the printed table, the plan, and the explanation."""

from typing import TYPE_CHECKING

import numpy as np

from langevin.analysis.statuses import BY_WORD
from langevin.sampling import tables
from langevin.sampling.choice import exact_passes, exact_seconds, minibatch_seconds, minibatch_steps
from langevin.sampling.mixing import arrivals, divergences, r_hat
from langevin.sampling.pace import SLOWER
from langevin.sampling.rules import GUARD_FACTOR, WANTED_STEPS, Rules
from langevin.sampling.troubles import reach

if TYPE_CHECKING:
    from langevin.sampling.planning import Plan
    from langevin.sampling.result import Result

_GRADIENTS = {
    "exact": "exact gradients",
    "plain": "plain minibatch gradients",
    "cv1": "first-order control variates",
    "cv2": "second-order control variates",
}


def table(result: "Result") -> str:
    """The summary as aligned text, the cost, and one line of verdict for each trouble."""
    return "\n".join([tables.as_text(result), "", *notes(result)])


def notes(result: "Result") -> list[str]:
    """What stands below a table: what its columns are, the cost, and the verdict."""
    return [*_columns(result), _cost(result), *verdict_lines(result)]


def _columns(result: "Result") -> list[str]:
    """How to read the columns."""
    lines = ["mean to 97.5% describe the posterior; mcse is the Monte Carlo standard error, which more steps shrink."]
    status = result.quantiles().status
    if status not in (result.mean.status, result.sd.status):
        lines.append(f"The quantiles are {status}: {BY_WORD[status].meaning}.")
    return lines


def _cost(result: "Result") -> str:
    chains, steps = len(result.plan.chains), result.session.steps
    return (
        f"{_amount(result.passes, result.plan.rules)} of sampling ({_many(chains, 'chain')} x {steps:,} steps), "
        f"{result.setup_passes:.3g} of set-up, {_seconds(result.seconds)}."
    )


def _seconds(count: float) -> str:
    return f"{count:.2g} s" if count < 10 else f"{count:,.0f} s"


def _unit(rules: Rules) -> str:
    return "passes" if rules.num_data else "gradients"


def _amount(count: float, rules: Rules) -> str:
    text = f"{count:.3g}"
    unit = _unit(rules)
    return (
        f"{text} {unit.removesuffix('es') if unit == 'passes' else unit.removesuffix('s')}"
        if text == "1"
        else f"{text} {unit}"
    )


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def verdict_lines(result: "Result") -> list[str]:
    """How far to trust the numbers: a line for each thing to be said."""
    lines: list[str] = []
    if result.partial:
        lines.append("Interrupted before the budget was spent: these are the results so far.")
    if result.outdated:
        lines.append("This run has gone on since: the Result that extend returned holds more.")
    lines += _missed(result)
    refused = any(trouble.refused for trouble in result.troubles)
    if result.status == "ok":
        which = "these error bars" if result.quantiles().status == "ok" else "the error bars of means and sds"
        return [*lines, f"Status ok: nothing speaks against {which}{_modes_seen(result)}."]
    head = "Do NOT trust these numbers; no interval is given" if refused else "Read with care"
    said = [f"- {trouble.status}: {trouble.text}" for trouble in result.troubles]
    named = {trouble.status for trouble in result.troubles}
    found = {*result.mean.statuses.tolist(), *result.sd.statuses.tolist()} - named - {"ok"}
    said += [f"- {word}: {BY_WORD[word].meaning}. {BY_WORD[word].remedy}" for word in sorted(found)]
    return [*lines, f"{head}:", *said]


def _modes_seen(result: "Result") -> str:
    survey, tuned = result.plan.survey, result.session.tuned
    if tuned is not None and tuned.modes is not None and len(tuned.modes) > 1:
        came = arrivals(result.ledger, tuned.modes)
        return f" ({len(came)} modes; the chains changed between them {came.sum():,} times)"
    if not survey.num_starts:
        return ""
    unsettled = f", {survey.lost} more led to none that has any mass" if survey.lost else ""
    return f" (one mode found from {survey.num_starts - survey.lost} starts{unsettled})"


def _missed(result: "Result") -> list[str]:
    """A sentence about a precision that was asked for and not reached."""
    wanted, reached = result.session.budget.precision, result.session.reached
    if wanted is None or reached <= wanted:
        return []
    ended = {
        "precision out of reach": "more steps would not help",
        "passes": "the passes are spent",
        SLOWER: "method='exact' is forecast to reach it sooner",
    }
    why = ended.get(result.session.stopped, "time is up" if result.session.stopped == "time_limit" else "interrupted")
    return [f"The precision of {wanted:g} posterior sds was not reached, {why}: the widest interval has {reached:.2g}."]


def describe_plan(plan: "Plan") -> str:
    """The plan as a few lines."""
    rules, unit = plan.rules, _unit(plan.rules)
    steps = "as many steps as fit" if plan.num_steps is None else f"{plan.num_steps:,} steps"
    if plan.method == "exact":
        lines = [
            f"Plan for {_many(rules.dimension, 'parameter')} and {_data(rules)}, budget {plan.budget.words(unit)}:",
            f"  exact sampling, because {plan.because}",
            f"  {_many(len(plan.chains), 'chain')} of the No-U-Turn sampler on all the data, units: {_whitening(plan)}",
            f"  set-up took {_amount(plan.setup_cost / plan.num_data, rules)} and {_seconds(plan.setup_seconds)}",
            f"  expect {exact_passes(plan):,.0f} {unit} for the fewest draws",
            *_forecasts(plan),
        ]
        return "\n".join(lines)
    lines = [
        f"Plan for {_many(rules.dimension, 'parameter')} and {_data(rules)}, budget {plan.budget.words(unit)}:",
        f"  {_many(len(plan.chains), 'chain')} x {steps}, {_batch(plan.batch_size, rules)}, {_GRADIENTS[rules.order]}",
        f"  whitened steps {plan.delta_0:.3g} (1 + m/1000)^(-1/5), Leimkuhler-Matthews, Poisson-corrected averages",
        f"  set-up took {_amount(plan.setup_cost / plan.num_data, rules)} and {_seconds(plan.setup_seconds)}",
        f"  expect standard errors of {_range(plan.expected_mean_error)} posterior sds for means, "
        f"{_range(plan.expected_sd_error)} for sds" + ("" if plan.num_steps else f" after {WANTED_STEPS} steps"),
        *_forecasts(plan),
    ]
    lines.insert(1, f"  minibatches, because {plan.because} (exact: {exact_passes(plan):,.0f} {unit} at least)")
    return "\n".join([*lines, *(f"  ! {trouble.status}: {trouble.text}" for trouble in plan.troubles)])


def _forecasts(plan: "Plan") -> list[str]:
    """What either method is forecast to take for the precision, where there is one; nothing of one that is refused."""
    precision, rules = plan.budget.precision, plan.rules
    if precision is None:
        return []
    exact, seconds = exact_passes(plan, precision), exact_seconds(plan, precision)
    said = [f"exact about {exact:,.0f} {_unit(rules)} and {_roughly(seconds)}"]
    if not any(trouble.refused for trouble in plan.troubles):
        steps = minibatch_steps(plan, precision)
        size = rules.batch_size(steps * len(plan.chains))
        passes = steps * len(plan.chains) * rules.step_cost(size) / plan.num_data
        shorter = _roughly(minibatch_seconds(plan, steps, size))
        said.insert(0, f"minibatches about {passes:,.2g} {_unit(rules)} and {shorter}")
    return [f"  forecast of sampling to {precision:g} sds: {', '.join(said)}"]


def _roughly(seconds: float) -> str:
    return "less than a second" if seconds < 1.0 else f"{seconds:,.1g} s" if seconds < 10.0 else f"{seconds:,.0f} s"


def describe_gradient(rules: Rules, batch_size: int) -> str:
    """What a step sees of the data, and how its gradient is made."""
    return f"{_batch(batch_size, rules)}, {_GRADIENTS[rules.order]}"


def _range(errors: np.ndarray) -> str:
    # A Gaussian posterior has corrected values without any noise: what is left is rounding.
    low, high = (f"{max(float(error), 1e-6):.2g}" for error in (errors.min(), errors.max()))
    return low if low == high else f"{low} to {high}"


def explain(result: "Result") -> str:
    """What was run, why, and how far to trust it, in plain words."""
    plan, rules, pilot = result.plan, result.plan.rules, result.plan.pilot
    if result.session.tuned is not None:
        return "\n\n".join([_exactly(result), _searched(plan), _corrected(result), "\n".join(verdict_lines(result))])
    n = result.session.batch_size
    grown = f" (n grew from {plan.batch_size} as the run went on)" if n > plan.batch_size else ""
    parts = [
        f"The posterior has {_many(rules.dimension, 'parameter')} and {_data(rules)}. Its mode was found first, at a "
        f"cost of {_amount(plan.anchor.cost / plan.num_data, rules)}; the curvature there ({_whitening(plan)}) "
        f"makes a Gaussian approximation, and its sds are the unit of length. Importance sampling from it would keep "
        f"{pilot.ess:.0%} of the draws effective{' in the worst direction' * pilot.by_parameter}, so the posterior "
        "counts as " + ("near-Gaussian." if rules.near_gaussian else "not near-Gaussian, and steps are halved."),
        _searched(plan),
        f"{_many(len(plan.chains), 'chain')} made {result.session.steps:,} Leimkuhler-Matthews steps each, from draws "
        f"of the Gaussian approximation, with {_batch(n, rules)}{grown} and {_GRADIENTS[rules.order]}. "
        + _why_batch(result),
        _corrected(result),
        "\n".join(verdict_lines(result)),
    ]
    return "\n\n".join(parts)


def _corrected(result: "Result") -> str:
    return (
        f"Averages were corrected with the Poisson solution of the Gaussian model: {_gain(result)}. Bars come from "
        f"{int(result.mean.num_batches)} batches of equal time."
    )


def _exactly(result: "Result") -> str:
    """What an exact run did, and why it was made."""
    plan, tuned, rules = result.plan, result.session.tuned, result.plan.rules
    assert tuned is not None
    units = (
        f"the mean and covariance of the warm-up's own draws, which disagreed with {_whitening(plan)} at the mode"
        if tuned.refitted
        else f"{_whitening(plan)} at the mode"
    )
    steps = result.session.steps * len(plan.chains)
    modes = 1 if tuned.modes is None else len(tuned.modes)
    jumps = f" and jumps between {modes} modes" if modes > 1 else ""
    return (
        f"The posterior has {_many(rules.dimension, 'parameter')} and {_data(rules)}. It was sampled exactly, because "
        f"{plan.because}. Units of length are those of {units}; the warm-up took {tuned.cost / plan.num_data:,.0f} "
        f"{_unit(rules)}. {_many(len(plan.chains), 'chain')} of the No-U-Turn sampler made {result.session.steps:,} "
        f"steps{jumps} each, of sqrt({tuned.delta:.3g}), with {result.passes / steps:.1f} gradients a step on all the "
        f"data. Split R-hat is {np.max(r_hat(result.ledger)):.3f} at most, and {divergences(result.ledger):.2%} of the "
        f"paths broke off."
    )


def _searched(plan: "Plan") -> str:
    survey = plan.survey
    if not survey.num_starts:
        return "No search for other modes was made: theta is too long for it."
    found = (
        f"{survey.elsewhere} climbed to another mode."
        if survey.elsewhere
        else "none climbed to another mode that has any mass. One farther away, or behind a narrow valley, could still "
        "be missed."
    )
    return f"From {survey.num_starts} starts spread {reach(survey)} posterior sds about the mode, {found}"


def _data(rules: Rules) -> str:
    return f"N = {rules.num_data:,} data" if rules.num_data else "no data to subsample"


def _batch(size: int, rules: Rules) -> str:
    if not rules.num_data:
        return "one gradient a step"
    return "all the data in every step" if size == rules.num_data else f"n = {size} data a step"


def _whitening(plan: "Plan") -> str:
    if plan.anchor.dense:
        return "the full Hessian"
    return "a diagonal" if all(b.ndim == 1 for b in plan.anchor.root) else "blocks of the Hessian"


def _why_batch(result: "Result") -> str:
    rules, n = result.plan.rules, result.session.batch_size
    if rules.num_data and n >= rules.num_data:
        if np.isinf(rules.noise):
            return (
                f"A single datum holds {result.plan.pilot.heaviest:.2g} of the curvature, where "
                f"{rules.dimension / rules.num_data:.1g} is ordinary: minibatches would seldom see it, so that every "
                f"step sees all the data. Several rows in place of one of large weight would change that."
            )
        return "So few data leave nothing to gain from minibatches."
    if rules.order != "cv2":
        return ""
    share = float(result.ledger.far.sum()) if result.ledger.far is not None else 0.0
    return (
        f"That n keeps the steps stable in the tails (curvature spread {rules.curvature_spread:.3g}) and the excess "
        f"variance from minibatch noise (one-datum variance {rules.noise:.2g}) below {rules.inflation(1.0, n):.1%}. "
        f"Outside the bulk steps see up to {GUARD_FACTOR} times as many data; {share:.0f} steps were far out."
    )


def _gain(result: "Result") -> str:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = float(np.median(result.raw["theta.mean"].stderr / result.mean.stderr))
    if not np.isfinite(ratio):
        return "its gain cannot be told here"
    if ratio < 1.5:
        return "it gains little here"
    return f"without it the means' standard errors would be {ratio:.2g} times as large"
