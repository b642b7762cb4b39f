"""`lv.marginal`: the log likelihood of a group whose latent effects are integrated out by adaptive quadrature."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import log, pi, prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from langevin.mixed.placement import Placement, place

Array = Any
PyTree = Any

MOST_LATENT = 5
_DEFAULT_NODES = {1: 9, 2: 7, 3: 5, 4: 3, 5: 3}


@dataclass(frozen=True)
class Marginal:
    """log p(y_group | theta) = log of the integral of exp(log_joint(theta, z, group)) over z; made by `lv.marginal`."""

    log_joint: Callable[[PyTree, Array, PyTree], Array]
    shape: tuple[int, ...]
    nodes: int

    def __call__(self, theta: PyTree, group: PyTree) -> Array:
        """The log likelihood of one group."""
        placement = self.placed(theta, group)
        terms = self.log_terms(placement, theta, group)
        top = lax.stop_gradient(jnp.max(terms))
        return top + placement.log_volume + jnp.log(jnp.sum(jnp.exp(terms - top)))

    @property
    def size(self) -> int:
        """Dimension of z."""
        return prod(self.shape)

    @property
    def repeats(self) -> int:
        """Evaluations of the group for one log likelihood; see `langevin.target.Repeated`."""
        return self.nodes**self.size

    def placed(self, theta: PyTree, group: PyTree) -> Placement:
        """Where the nodes are for this theta: a choice, through which no derivative goes."""
        dtype = jnp.result_type(*jax.tree.leaves(theta))
        fixed, group = lax.stop_gradient((theta, group))
        return place(lambda z: self.log_joint(fixed, z.reshape(self.shape), group), self.size, dtype)

    def log_terms(self, placement: Placement, theta: PyTree, group: PyTree) -> Array:
        """log_joint at every node plus the logarithm of the node's weight, (nodes^D,)."""
        x, log_weight = rule(self.nodes, self.size)
        z = placement.at(jnp.asarray(x, placement.centre.dtype))
        values = jax.vmap(lambda one: self.log_joint(theta, one.reshape(self.shape), group))(z)
        return values + jnp.asarray(log_weight, placement.centre.dtype)


@cache
def rule(nodes: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Points x (nodes^D, D) and log weights of the product rule:  integral of g(x) dx = sum exp(log_weight) g(x)."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    # The logarithm of w exp(x^2/2): its factors under- and overflow.
    log_w = np.log(w) + 0.5 * x**2
    grid = np.stack(np.meshgrid(*[x] * size, indexing="ij"), axis=-1).reshape(-1, size)
    return grid, np.sum(np.meshgrid(*[log_w] * size, indexing="ij"), axis=0).ravel()


def marginal(log_joint: Callable[[PyTree, Array, PyTree], Array], latent: int | tuple[int, ...] = 1, nodes: int | None = None) -> Marginal:
    """..."""
    shape = (latent,) if isinstance(latent, int) else tuple(latent)
    return Marginal(log_joint, shape, _DEFAULT_NODES[prod(shape)] if nodes is None else nodes)
