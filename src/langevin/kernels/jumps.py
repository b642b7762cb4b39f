"""Jumps between known modes: another kernel's step, and then a proposal anywhere."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from langevin import random
from langevin.kernels.nuts import NUTS
from langevin.kernels.protocol import ExactKernel, LogDensity
from langevin.random import Clock

Array = Any
_STREAM = np.uint32(0x4A554D50)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Jumps(ExactKernel):
    """A step of the kernel `within`, then one proposal from Student laws about known modes.

        theta' ~ q = sum_k w_k t_nu(centre_k, root_k root_k'),    accepted with probability
        min(1, pi(theta') q(theta) / (pi(theta) q(theta')))

    NUTS alone stays in a mode; where q is near the posterior this changes between modes at nearly every step, and where
    it is far from it hardly ever. Exact whatever q is: shares w_k (`log_weights`, up to a constant), centres (k, d) and
    roots (k, d, d), lower triangles, decide how often a proposal is accepted and nothing else. nu = d + 4 (`freedom`):
    |root^-1 (theta - centre)|^2 scatters by about d sqrt(2/nu + 2/d) then, at most half again as much as under a normal
    law, so that what the tails cost does not grow with d. `within` is NUTS unless told otherwise.
    Cost: that of `within` and one full gradient a step.

    Example:
        >>> import jax.numpy as jnp, langevin as lv
        >>> target = lv.Target(lambda t: jnp.logaddexp(-0.5 * t[0] ** 2, -0.5 * (t[0] - 20.0) ** 2))
        >>> kernel = lv.Jumps.between([[0.0], [20.0]], [[[1.0]], [[1.0]]])
        >>> ledger = lv.run(target, None, [0.0], kernel=kernel, schedule=lv.Constant(0.5), num_steps=4000, chains=4)
        >>> abs(float(lv.estimate(ledger)["theta.mean"].value[0]) - 10.0) < 2.0
        True
    """

    within: ExactKernel
    centres: Array
    roots: Array
    inverses: Array
    log_weights: Array
    freedom: int = field(metadata={"static": True})

    @classmethod
    def between(
        cls,
        centres: ArrayLike,
        covariances: ArrayLike,
        log_weights: ArrayLike | None = None,
        within: ExactKernel | None = None,
    ) -> "Jumps":
        """Jumps between modes at `centres` (k, d) of these covariances (k, d, d) and log masses (k,), equal if None."""
        centres, covariances = np.asarray(centres, np.float64), np.asarray(covariances, np.float64)
        if centres.ndim != 2 or covariances.shape != (*centres.shape, centres.shape[1]):
            raise ValueError(
                f"centres and covariances must have shapes (k, d) and (k, d, d), got {centres.shape} and "
                f"{covariances.shape}. Stack the modes: np.stack([anchor.theta for anchor in anchors])."
            )
        masses = np.zeros(len(centres)) if log_weights is None else np.asarray(log_weights, np.float64)
        if masses.shape != (len(centres),) or not np.all(np.isfinite(masses)):
            raise ValueError(f"log_weights must be {len(centres)} finite numbers, one for each mode, got {masses!r}.")
        roots = np.linalg.cholesky(covariances)
        shares = masses - np.logaddexp.reduce(masses)
        return cls(
            within=NUTS() if within is None else within,
            centres=centres.astype(np.float32),
            roots=roots.astype(np.float32),
            inverses=np.linalg.inv(roots).astype(np.float32),
            log_weights=shares.astype(np.float32),
            freedom=centres.shape[1] + 4,
        )

    @property
    def gradients(self) -> int:
        """One more than those of `within`."""
        return self.within.gradients + 1

    def counted(self, state: Any, num_data: int) -> dict[str, Array]:
        """What `within` counts, and the visits of the proposal."""
        found = self.within.counted(state, num_data)
        return found | {"visits": found["visits"] + num_data} if "visits" in found else found

    def init(self, log_density: LogDensity, theta: Array) -> Any:
        """The state of `within` before its first step."""
        return self.within.init(log_density, theta)

    def step(self, log_density: LogDensity, state: Any, eta: Array, log_uniform: Array, delta: Array) -> Any:
        """One transition."""
        before = state.log_density
        state = self.within.step(log_density, state, eta, log_uniform, delta)
        d, tag = eta.size, jnp.full((), _STREAM)
        # A key of its own: what `within` draws from these bits has other counters.
        key = random.threefry((random.bits(log_uniform), random.bits(eta[0])), (tag, tag))
        log_choice, log_decision = random.log_uniforms(key, Clock(jnp.uint32(0), jnp.uint32(1)), 2)
        k = jnp.sum(jnp.exp(log_choice) > jnp.cumsum(jnp.exp(self.log_weights[:-1])))
        normals = random.normals(key, Clock(jnp.uint32(0), jnp.uint32(0)), 1, d + self.freedom).astype(eta.dtype)
        stretch = jnp.sqrt(self.freedom / jnp.sum(normals[d:] ** 2))
        theta = self.centres[k] + stretch * (self.roots[k] @ normals[:d])
        value, grad = log_density(theta)
        log_ratio = value - state.log_density + self._log_proposal(state.theta) - self._log_proposal(theta)
        # A proposal of undefined density is refused: nothing is larger than NaN.
        taken = log_decision < log_ratio
        there = state._replace(theta=theta, log_density=value, grad=grad)
        if "moved" in state._fields:
            # What `within` counts is of the whole step.
            there = there._replace(moved=value - before)
        return jax.tree.map(lambda new, old: jnp.where(taken, new, old), there, state)

    def _log_proposal(self, theta: Array) -> Array:
        """log q up to a constant."""
        y = jnp.einsum("kij,kj->ki", self.inverses, theta - self.centres)
        power = 0.5 * (self.freedom + theta.size)
        volume = jnp.sum(jnp.log(jnp.diagonal(self.inverses, axis1=1, axis2=2)), axis=1)
        each = self.log_weights + volume - power * jnp.log1p(jnp.sum(y * y, axis=1) / self.freedom)
        return jax.nn.logsumexp(each)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Jumps) or (self.within, self.freedom) != (other.within, other.freedom):
            return False
        pairs = zip(jax.tree.leaves(self), jax.tree.leaves(other), strict=True)
        return all(np.array_equal(one, another) for one, another in pairs)

    def __hash__(self) -> int:
        return hash((type(self), self.within, np.asarray(self.centres).tobytes()))
