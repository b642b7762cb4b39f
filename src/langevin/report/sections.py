"""What a report says, section by section, as words and tables of text."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from langevin.analysis.regimes import regime
from langevin.analysis.value import decimals
from langevin.sampling.accuracy import PUBLISHED, with_quantiles
from langevin.sampling.travel import several
from langevin.sampling.words import describe_gradient, verdict_lines

if TYPE_CHECKING:
    from langevin.regression import Fit
    from langevin.regression.check import Check
    from langevin.regression.model import Model
    from langevin.sampling.result import Result

Rows = list[tuple[str, ...]]
_MOST_ROWS = 40


@dataclass(frozen=True)
class Verdict:
    """Whether to trust the numbers: a heading, its kind ("good", "care" or "bad") and what is to be said."""

    kind: str
    head: str
    lines: list[str]


def title(result: "Result") -> str:
    """The model in a line."""
    fit = _fit(result)
    if fit is None:
        return f"Posterior of {len(result.names)} parameters"
    return f"{fit.model.family.name.capitalize()} regression: {fit.model.design.formula}"


def verdict(result: "Result") -> Verdict:
    """The answer to the first question of any reader."""
    refused = any(trouble.refused for trouble in result.troubles)
    kind, head = "care", "Read with care"
    if result.status == "ok":
        kind, head = "good", "These error bars can be used"
    elif refused:
        kind, head = "bad", "Do not trust these numbers"
    return Verdict(kind, head, verdict_lines(result))


def side_by_side(result: "Result") -> Rows:
    """Raw, corrected and Laplace values of means and sds."""
    mean, sd, raw, anchor = result.mean.value, result.sd.value, result.raw, result.plan.anchor
    ways = (
        (raw["theta.mean"].value, raw["theta.sd"].value),
        (mean, sd),
        (anchor.theta, anchor.sd),
    )
    rows: Rows = [
        ("", "raw mean", "corrected mean", "Laplace mean", "Laplace mean off by", "raw sd", "corrected sd",
         "Laplace sd", "Laplace sd off by"),
    ]  # fmt: skip
    for k, name in enumerate(result.names[:_MOST_ROWS]):
        # To a thousandth of an sd, or finer: that is what the differences show.
        places = max(decimals(float(sd[k]), 4), 0)
        means, sds = ([f"{way[part][k]:.{places}f}" for way in ways] for part in (0, 1))
        off = [f"{(ways[2][part][k] - ways[1][part][k]) / sd[k]:+.3f}" for part in (0, 1)]
        rows.append((name, *means, off[0], *sds, off[1]))
    return rows


def budget(result: "Result") -> Rows:
    """Contributions to the error of means, sds and quantiles in posterior sds: median and largest over parameters."""
    scale, kinds = result.sd.value, {"means": result.mean, "sds": result.sd}
    if _with_quantiles(result):
        kinds["quantiles"] = result.quantiles(PUBLISHED)
    every = kinds.values()
    rows: Rows = [("", *(f"{kind}, {which}" for kind in kinds for which in ("median", "largest")))]
    rows.append(("Monte Carlo standard error", *_spread([one.stderr / scale for one in every])))
    rows.append(("bias that is left, estimated", *_spread([np.abs(one.bias) / scale for one in every])))
    for name, moved in result.session.moves.items():
        words = {"quadrature": "quadrature over group effects", "rounding": "rounding to float32"}[name]
        rows.append((f"of it: {words}", *_spread(list(moved)), *["?"] * (2 * len(kinds) - 4)))
    rows.append(("half of a 95% interval", *_spread([0.5 * np.ptp(one.interval(), axis=0) / scale for one in every])))
    return rows


def _with_quantiles(result: "Result") -> bool:
    tuned = result.session.tuned
    return with_quantiles(result.ledger, tuned is not None and several(tuned.modes))


def _spread(parts: list[Any]) -> list[str]:
    found = []
    for part in parts:
        known = np.asarray(part)[np.isfinite(part)]
        found += [f"{one:.1e}" if one else "0" for one in (np.median(known), known.max())] if known.size else ["?", "?"]
    return found


def course(result: "Result") -> Rows:
    """What was run, with what, at what cost."""
    plan, rules, ledger, session = result.plan, result.plan.rules, result.ledger, result.session
    unit = "passes over the data" if rules.num_data else "gradients"
    counted = f"means, sds and quantiles from {PUBLISHED[0]:.1%} to {PUBLISHED[-1]:.1%}"
    rows: Rows = [
        ("data", f"N = {rules.num_data:,}" if rules.num_data else "none to subsample"),
        ("method", "minibatches" if result.method == "minibatch" else "exact, all the data in every step"),
        ("chains", f"{len(plan.chains)} x {session.steps:,} steps"),
        (
            "cost",
            f"{result.passes:.3g} {unit} of sampling, {result.setup_passes:.3g} of set-up, {result.seconds:.3g} s",
        ),
        ("asked for", plan.budget.words()),
        (
            "reached",
            f"{session.reached:.2g} posterior sds, the widest half of a 95% interval of "
            f"{counted if _with_quantiles(result) else 'means and sds'}",
        ),
        ("schedule of steps", _rounded(repr(ledger.schedule))),
        ("time", f"T_m = {float(result.mean.T_m):.4g} a chain"),
        (
            "B_m",
            f"{float(result.mean.B_m):.3g}; in the limit of plain averages, without the correction: {regime(ledger)}",
        ),
        ("batches behind the bars", f"{int(result.mean.num_batches)}"),
    ]
    if result.method == "minibatch":
        far = 0.0 if ledger.far is None else float(ledger.far.sum())
        n = session.batch_size
        rows += [
            ("gradients", describe_gradient(rules, n)),
            ("gradient noise", f"one-datum variance {rules.noise:.2g} in whitened units; adds at most "
                               f"{rules.inflation(plan.delta_0, n):.2%} to a posterior variance"),
            ("guard", f"{far:,.0f} of {session.steps * len(plan.chains):,} steps came from the far tail, and saw up to "
                      f"{rules.guard(n):,} times as many data"),
        ]  # fmt: skip
    return rows


def _rounded(text: str) -> str:
    """The text with four digits of every number that has a point."""
    return re.sub(r"\d+\.\d+(e[-+]?\d+)?", lambda found: f"{float(found[0]):.4g}", text)


def model(result: "Result") -> Rows | None:
    """Formula, family and priors of a fit."""
    fit = _fit(result)
    if fit is None:
        return None
    asked = fit.asked
    rows: Rows = [("formula", asked.formula), ("family", asked.family)]
    rows += [(f"prior of {name}", str(prior)) for name, prior in list(fit.model.priors.items())[:_MOST_ROWS]]
    rows += further_priors(fit.model)
    rows += [
        (name, getattr(asked, name))
        for name in ("weights", "offset", "trials")
        if isinstance(getattr(asked, name), str)
    ]
    if fit.model.levels:
        rows.append(("levels of the response", ", ".join(map(str, fit.model.levels))))
    if fit.dropped:
        rows.append(("rows left out", f"{fit.dropped:,}, with missing values"))
    if asked.source is not None:
        rows.append(("data", asked.source))
    return rows


def further_priors(model: "Model") -> Rows:
    """Of what is no coefficient, as `lv.fit` says."""
    design = model.design
    known = {
        "log sigma": ("sigma", f"exponential, mean {model.unit:.3g}"),
        "log nu": ("nu", "gamma(2, 0.1)"),
        "log phi": ("phi", "exponential, mean 1"),
    }
    rows: Rows = [(f"prior of {name}", law) for name, law in (known[more] for more in model.family.more)]
    if model.family.name == "ordinal":
        rows.append(("prior of the first cut and of log distances", "normal(0, 3)"))
    spreads = [(name, one.name) for one in design.groupings for name in one.effects]
    for (name, group), mean in zip(spreads, np.atleast_1d(model.spreads), strict=True):
        rows.append((f"prior of sd({name} | {group})", f"exponential, mean {mean:.3g}"))
    if any(len(one.effects) > 1 for one in design.groupings):
        rows.append(("prior of partial correlations between effects", "uniform"))
    return rows


def check(result: "Result") -> "Check | None":
    """The predictive check, where the data are at hand."""
    fit = _fit(result)
    if fit is None or fit.session.source is None:
        return None
    from langevin.regression.check import predictive_check

    return predictive_check(fit)


def _fit(result: "Result") -> "Fit | None":
    from langevin.regression import Fit

    return result if isinstance(result, Fit) else None
