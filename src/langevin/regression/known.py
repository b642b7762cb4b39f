"""What a fit knows of its groups: the posterior of their effects where these are parameters, and what to say of it."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from langevin.analysis.marginals import quantiles
from langevin.mixed.latent import PROBABILITIES, Latent, mean_and_sd, shaped
from langevin.precision import in_float32
from langevin.regression.effects import Effects, numbers_of
from langevin.regression.model import Model

if TYPE_CHECKING:
    from langevin.regression.fitting import Fit


def about_groups(model: Model) -> list[str]:
    """What groupings mean for the table and for predictions, a sentence or two."""
    if model.forgets_groups:
        return ["Predictions are for groups that were not seen; groups='sample' makes them know those that were."]
    if len(model.effects) < 2:
        return []
    named, first = " and ".join(f"{one.group} ({len(one.labels):,})" for one in model.effects), model.effects[0]
    return [
        f"Several groupings do not factorise into independent groups: effects of {named} were sampled along with the "
        f"coefficients, and are standardised in the table. As they are: fit.effects([{first.labels[0]!r}], "
        f"by={first.group!r})."
    ]


@in_float32
def of_sampled(fit: "Fit", labels: Any, by: str | None) -> Latent:
    """The effects of groups with these labels, whatever the coordinates in which they were sampled."""
    effects = _grouping(fit.model, by)
    names = np.atleast_1d(np.asarray(labels))
    numbers = numbers_of((effects.labels,), (names,))[:, 0]
    if np.any(numbers < 0):
        lost = names[numbers < 0].tolist()[0]
        raise ValueError(f"groups must be labels of the data, got {lost!r}, which is none of {effects.group!r}.")
    draws, ledger, layout = fit.draws, fit.ledger, fit.plan.anchor.layout
    every = jax.vmap(lambda flat: effects.values(layout.unravel(flat))[numbers])
    kept = np.stack([np.asarray(every(jnp.asarray(chain, jnp.float32)), np.float64) for chain in draws.theta])
    centre, scale = kept.mean(axis=(0, 1)), np.maximum(kept.std(axis=(0, 1)), 1e-12)

    def standardised(theta: Any) -> Any:
        u = (effects.values(theta)[numbers] - centre) / scale
        return jnp.stack([u, u**2], axis=-1)

    mean, sd = mean_and_sd(replace(fit.expectation(standardised), laplace=None), scale, centre)
    flat = replace(draws, theta=kept.reshape(*kept.shape[:2], -1))
    found = fit._judged(quantiles(replace(ledger, draws=flat, columns={}), PROBABILITIES))
    return Latent(names, mean, sd, shaped(found, (len(PROBABILITIES), *centre.shape)))


def _grouping(model: Model, by: str | None) -> Effects:
    if not model.groups:
        raise ValueError(
            "effects needs groups whose effects were sampled: lv.fit(..., groups='sample'), or several groupings. "
            "result.latent(labels) has those that were integrated out, in units of their sds."
        )
    named = {one.group: one for one in model.effects}
    name = model.effects[0].group if by is None and len(named) == 1 else by
    if name is None or name not in named:
        raise ValueError(f"by must name one of the groupings, {', '.join(map(repr, named))}, got {by!r}.")
    return named[name]
