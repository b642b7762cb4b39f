"""Results as ArviZ has them: a DataTree whose draws all weigh the same."""

from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from langevin.engine.draws import equal_places

if TYPE_CHECKING:
    from langevin.sampling.result import Result

PyTree = Any


def to_arviz(result: "Result", transform: Callable[[PyTree], Mapping[str, Any]] | None = None) -> Any:
    """See `Result.to_arviz`."""
    try:
        from arviz_base import dict_to_dataset, from_dict
    except ImportError as error:
        raise ImportError(
            "to_arviz() needs arviz-base, which is not installed: pip install 'langevin[arviz]'"
        ) from error

    # What comes twice stands side by side, so that estimates of the autocorrelation see it.
    theta = result.draws.theta[:, equal_places(result.draws.weight, result.draws.theta.shape[1])]
    if transform is None:
        posterior = named(theta, result)
    else:
        values = jax.vmap(jax.vmap(lambda flat: dict(transform(result.plan.anchor.layout.unravel(flat)))))
        posterior = {name: np.asarray(value) for name, value in values(jnp.asarray(theta, jnp.float32)).items()}
    tree = from_dict({"posterior": posterior})
    tree.posterior.attrs.update(
        inference_library="langevin",
        status=result.status,
        sampling_time=result.seconds,
        note="Kept draws, resampled to equal weights and not corrected; the corrected numbers are in /estimates.",
    )
    columns = {name: np.asarray(column) for name, column in result.summary().items()}
    names = columns.pop("name")
    tree["estimates"] = dict_to_dataset(
        columns,
        sample_dims=[],
        dims={name: ["parameter"] for name in columns},
        coords={"parameter": names.tolist()},
        check_conventions=False,
    )
    return tree


def named(theta: np.ndarray, result: "Result") -> dict[str, np.ndarray]:
    """Flat draws by variable: leaves of theta's pytree, or single parameters where the result has names for them."""
    layout = result.plan.anchor.layout
    if result.names != layout.names:
        return {name: theta[..., k] for k, name in enumerate(result.names)}
    found, start = {}, 0
    for shape in layout.shapes:
        size = prod(shape)
        name = layout.names[start].split("[")[0]
        found[name] = theta[..., start : start + size].reshape(*theta.shape[:2], *shape)
        start += size
    return found
