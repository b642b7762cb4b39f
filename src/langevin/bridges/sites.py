"""What single sites and plates of a NumPyro model say, and which of them have a place in a target."""

from collections.abc import Mapping
from typing import Any

import numpy as np

Site = dict[str, Any]


def is_sample(site: Site, observed: bool) -> bool:
    """Whether a site is a random variable, observed or not."""
    return site["type"] == "sample" and bool(site["is_observed"]) == observed


def plates_of(site: Site) -> dict[str, int]:
    """Names and sizes of the plates around a site."""
    return {frame.name: frame.size for frame in site.get("cond_indep_stack", ())}


def log_prob_of(site: Site) -> Any:
    """Log density of a site at its value, by entry."""
    log_prob = site["fn"].log_prob(site["value"])
    return log_prob if site["scale"] is None else site["scale"] * log_prob


def free_shape(site: Site) -> tuple[int, ...]:
    """Shape of a site in unconstrained units."""
    from numpyro.distributions import biject_to

    return biject_to(site["fn"].support).inverse_shape(np.shape(site["value"]))


def free_name(site: Site) -> str:
    """What a site is called in unconstrained units: "log s" or "logit p" where that is what they are."""
    from numpyro.distributions import biject_to, transforms

    transform = biject_to(site["fn"].support)
    while isinstance(transform, transforms.IndependentTransform):
        transform = transform.base_transform
    words = {
        transforms.IdentityTransform: "{}",
        transforms.ExpTransform: "log {}",
        transforms.SigmoidTransform: "logit {}",
    }
    return words.get(type(transform), "{}, unconstrained").format(site["name"])


def check_sites(sites: Mapping[str, Site]) -> None:
    """Raises for what has no place in a posterior by gradients over data."""
    if not any(is_sample(site, observed=True) for site in sites.values()):
        raise ValueError("model must have an observed site, got none. Pass the responses, e.g. y=y, with obs=y inside.")
    for name, site in sites.items():
        if site["type"] == "plate" and site["args"][1] not in (None, site["args"][0]):
            raise ValueError(
                f"the plate {name!r} must hold all of its rows, got subsample_size={site['args'][1]} of "
                f"{site['args'][0]}. Leave subsample_size out: langevin takes minibatches itself."
            )
        if is_sample(site, observed=False) and site["fn"].support.is_discrete:
            raise ValueError(
                f"the site {name!r} must be continuous, got {type(site['fn']).__name__}: gradients need real numbers. "
                f"Sum it out in the model, e.g. with numpyro.distributions.MixtureSameFamily."
            )
        if is_sample(site, observed=False) and free_name(site) != name and free_name(site) in sites:
            raise ValueError(
                f"the site {free_name(site)!r} must have another name: {name!r} is called that in unconstrained units."
            )


def data_plate(observed: list[Site], latent: list[Site]) -> tuple[str, int]:
    """Name and size of the plate around all observed sites; one without latent sites where there are several."""
    shared = set.intersection(*(set(plates_of(site)) for site in observed))
    if not shared:
        outside = next((site["name"] for site in observed if not plates_of(site)), observed[0]["name"])
        raise ValueError(
            f"all observed sites must lie in one plate, and {outside!r} does not: rows of data are told apart by it. "
            f"Write with numpyro.plate('rows', y.shape[0]): around them; a factor belongs there too."
        )
    clear = [name for name in shared if not any(name in plates_of(site) for site in latent)]
    # Of nested plates without latent sites any serves that is the leading axis: the outermost.
    dims = {frame.name: frame.dim for frame in observed[0]["cond_indep_stack"]}
    plate = min(clear or shared, key=lambda name: dims[name])
    return plate, plates_of(observed[0])[plate]


def group_labels(rows: Mapping[str, np.ndarray], group_by: str, size: int) -> np.ndarray:
    """The group of each row, checked to be 0 to J - 1."""
    labels = rows.get(group_by)
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iu":
        known = ", ".join(repr(name) for name, value in rows.items() if value.ndim == 1 and value.dtype.kind in "iu")
        raise ValueError(
            f"group_by must name an argument with a whole number for each of {size} rows, got {group_by!r}; there is "
            f"{known or 'none'}."
        )
    if labels.min() < 0 or len(np.unique(labels)) != labels.max() + 1:
        raise ValueError(
            f"group_by={group_by!r} must hold 0, 1, ..., J - 1, each at least once; it has {len(np.unique(labels))} "
            f"groups from {labels.min()} to {labels.max()}. Number them with np.unique(..., return_inverse=True)[1]."
        )
    return labels
