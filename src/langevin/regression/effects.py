"""The effects of one grouping in a model: their law, and the coordinates in which they are sampled."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from langevin.mixed.covariance import covariance_root

Array = Any
PyTree = Any
Floats = np.ndarray


@dataclass(frozen=True, eq=False)
class Effects:
    """Effects e_j ~ N(0, L L') of groups j; parameters z_j of the model where `labels` has the groups.

    `group` names the grouping, `names` the effects; `sds` and `partials` are their places among all log sds and partial
    correlations of the model. Sampled effects are centred, e_j = z_j, or standardised with the `information` I_j that
    the data have about them, (groups, q, q):

        e_j = L D_j z_j,    D_j = (1 + diag(L' I_j L))^(-1/2),    log p(z_j) = -|D_j z_j|^2/2 + log det D_j

    Where the data say much, L D_j is I_j^(-1/2), whatever L is: centred, but for a constant. Where they say little, D_j
    is 1 and z_j ~ N(0, 1). Given the rest z_j has about a unit sd either way, so that no funnel is left, and the
    density has a mode: near that of the log sds with the effects integrated out. I_j need not be right.
    """

    group: str
    names: tuple[str, ...]
    sds: slice
    partials: slice
    labels: tuple[Any, ...]
    information: Floats | None

    @property
    def spread_names(self) -> list[str]:
        """Of the log sds."""
        return [f"log sd({name} | {self.group})" for name in self.names]

    @property
    def correlation_names(self) -> list[str]:
        """Of the partial correlations."""
        return [f"atanh cor({a}, {b} | {self.group})" for i, a in enumerate(self.names) for b in self.names[:i]]

    @property
    def sampled_names(self) -> list[str]:
        """Of the effects that are parameters."""
        how = "" if self.information is None else "standardised "
        return [f"{how}{name} [{self.group} {label}]" for label in self.labels for name in self.names]

    def root(self, theta: PyTree) -> Array:
        """L."""
        return covariance_root(theta["log_sd"][self.sds], theta.get("partial", jnp.zeros(0))[self.partials])

    def values(self, theta: PyTree) -> Array:
        """e of all groups that are sampled, (groups, q)."""
        z = theta["effects"][self.group]
        if self.information is None:
            return z
        root = self.root(theta)
        return (self._shrinkage(root) * z) @ root.T

    def log_density(self, theta: PyTree) -> Array:
        """log p(z | log sds, correlations), up to a constant."""
        z, root = theta["effects"][self.group], self.root(theta)
        if self.information is None:
            own = solve_triangular(root, z.T, lower=True)
            return -0.5 * jnp.sum(own**2) - len(self.labels) * jnp.sum(jnp.log(jnp.diagonal(root)))
        shrinkage = self._shrinkage(root)
        return -0.5 * jnp.sum((shrinkage * z) ** 2) + jnp.sum(jnp.log(shrinkage))

    def of_rows(self, theta: PyTree, numbers: Array) -> Array:
        """e of the groups with these numbers, (..., q); 0 for -1."""
        # Products with zeros and ones: the gradient of a look-up is slow.
        return (jnp.arange(len(self.labels)) == numbers[..., None]).astype(jnp.float32) @ self.values(theta)

    def _shrinkage(self, root: Array) -> Array:
        """The diagonals of all D_j, (groups, q)."""
        told = jnp.einsum("ik,jil,lk->jk", root, jnp.asarray(self.information, jnp.float32), root)
        return (1.0 + told) ** -0.5


def first_effects(means: Floats, columns: tuple[str, ...]) -> tuple[Floats, Floats]:
    """A start for centred effects and their log sds: what the means of groups say of an intercept, zeros else."""
    effects = np.where(np.array(columns) == "Intercept", means[:, None], 0.0).astype(np.float32)
    # Effects of zero would draw their sd to zero, where the density has no bound.
    spread = np.sqrt(np.mean(effects**2, axis=0))
    return effects, np.where(spread > 0, np.log(np.maximum(spread, 1e-3)), -1.0).astype(np.float32)


def numbers_of(groups: tuple[tuple[Any, ...], ...], labels: tuple[Floats, ...]) -> Floats:
    """Numbers of each row's labels among the sampled groups, a column for each grouping; -1 for those not there."""
    columns = []
    for own, asked in zip(groups, labels, strict=True):
        place = {label: k for k, label in enumerate(own)}
        columns.append([place.get(label, -1) for label in asked.tolist()])
    return np.array(columns, np.int32).T
