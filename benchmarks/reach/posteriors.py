"""The catalogue: what a posterior of posteriordb is to `lv.sample`, and all of them by name."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import langevin as lv
from benchmarks.reach.database import Draws
from langevin.target import Layout

Floats = NDArray[np.float64]
PyTree = Any


@dataclass(frozen=True, eq=False)
class Posterior:
    """A posterior on the unconstrained scale, Jacobian included, and where a user would start.

    `unconstrained` takes reference draws to pytrees like theta_0 with the axes (chains, draws) in front. `draws` names
    them, None where posteriordb has none. `double`: float32 cannot hold the model. `swap` is a relabelling that leaves
    the density unchanged, for a posterior of two mirrored modes.
    """

    target: lv.Target
    data: PyTree
    theta_0: PyTree
    unconstrained: Callable[[Draws], PyTree]
    draws: str | None
    double: bool = False
    swap: Callable[[PyTree], PyTree] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the flat parameters, d of them."""
        return Layout.of(self.theta_0).names

    @property
    def num_data(self) -> int:
        """Rows of the data, 0 where the likelihood does not come apart into rows."""
        return 0 if self.data is None else len(jax.tree.leaves(self.data)[0])

    def log_density(self, flat: Any) -> Any:
        """Unnormalised log density of a flat theta, traceable; in float64 under x64."""
        return self.target.log_density(Layout.of(self.theta_0).unravel(jnp.asarray(flat)), self.data)

    def flattened(self, tree: PyTree, leading: int) -> Floats:
        """A pytree like theta_0 as one array in the order of the flat vector, `leading` axes kept in front."""
        leaves = [np.asarray(leaf, np.float64) for leaf in Layout.of(self.theta_0).leaves(tree)]
        return np.concatenate([leaf.reshape(*leaf.shape[:leading], -1) for leaf in leaves], axis=-1)


BUILDERS: dict[str, Callable[[], Posterior]] = {}


def listed(name: str) -> Callable[[Callable[[], Posterior]], Callable[[], Posterior]]:
    """Enters a builder in the catalogue; its posterior is made once, so that compiled code is reused."""

    def enter(build: Callable[[], Posterior]) -> Callable[[], Posterior]:
        BUILDERS[name] = cache(build)
        return BUILDERS[name]

    return enter


def catalogue() -> list[str]:
    """Names of all posteriors, as posteriordb has them."""
    from benchmarks.reach import hierarchies, mixtures, processes, regressions, series  # noqa: F401

    return list(BUILDERS)


def posterior(name: str) -> Posterior:
    """The posterior of that name; the same object every time."""
    if name not in catalogue():
        raise ValueError(f"name must be one of {', '.join(BUILDERS)}, got {name!r}.")
    return BUILDERS[name]()


def normal(x: Any, mean: Any, sd: Any) -> jax.Array:
    """Log density of independent N(mean, sd^2) up to a constant; an infinite sd is a flat prior."""
    return -0.5 * jnp.sum(((x - mean) / sd) ** 2)


def half_cauchy(log_x: Any, scale: Any) -> jax.Array:
    """Log density of log x for x of a Cauchy law on the positive half line; an infinite scale is a flat prior of x."""
    return log_x - jnp.log1p((jnp.exp(log_x) / scale) ** 2)


def half_normal(log_x: Any, sd: Any) -> jax.Array:
    """Log densities of log x, summed, for x of a normal law on the positive half line."""
    return jnp.sum(log_x) + normal(jnp.exp(log_x), 0.0, sd)


def beta(logit: Any, a: Any, b: Any) -> jax.Array:
    """Log density of the logit of a Beta(a, b) variable up to a constant."""
    return a * jax.nn.log_sigmoid(logit) + b * jax.nn.log_sigmoid(-logit)


def logit(p: Floats) -> Floats:
    return np.log(p) - np.log1p(-p)
