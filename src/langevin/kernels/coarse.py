"""Another kernel at twice the step, on the same noise: the coarse half of a coupled pair."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from langevin.kernels.protocol import Kernel

Array = Any


class CoarseState(NamedTuple):
    """The kernel's own state, the noise and the step of the first half, and whether that half is over."""

    theta: Array
    own: Any
    noise: Array
    first: Array
    halfway: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Coarse(Kernel):
    """Moves every second step only, by a step of `kernel` with both deltas and the noise of both:

        delta = delta_{m-1} + delta_m,    eta = (sqrt(delta_{m-1}) eta_{m-1} + sqrt(delta_m) eta_m) / sqrt(delta).

    A run of it has the law of `kernel` at twice the step; with the same seed it is driven by the Brownian path of a run
    of `kernel` itself, step m beside step m, so that the difference of the two ledgers is small. The minibatch is that
    of the second half. Cost: two gradients for a coarse step, of which the first is not used. For
    `lv.richardson_romberg` and `lv.multilevel`.

    Example:
        >>> import langevin as lv, numpy as np
        >>> H, C = np.eye(1), np.zeros((1, 1))
        >>> bool(lv.Coarse(lv.SGLD()).bias(H, C, 0.1) == lv.SGLD().bias(H, C, 0.2))
        True
    """

    kernel: Kernel

    def __post_init__(self) -> None:
        if isinstance(self.kernel, str | int | float | type):
            raise ValueError(f"kernel must be a kernel for minibatches, got {self.kernel!r}. Try lv.Coarse(lv.SGLD()).")

    @property
    def noises(self) -> int:  # type: ignore[override]
        """Those of the kernel."""
        return self.kernel.noises

    @property
    def has_theory(self) -> bool:
        """Whether the kernel has one."""
        return self.kernel.has_theory

    def check(self, coordinates: Any, starts: np.ndarray) -> None:
        """What the kernel asks for."""
        self.kernel.check(coordinates, starts)

    def init(self, theta: Array, eta: Array) -> CoarseState:
        """The kernel's own state."""
        own = self.kernel.init(theta, eta)
        return CoarseState(own.theta, own, jnp.zeros_like(eta), jnp.zeros((), theta.dtype), jnp.asarray(False))

    def step(self, state: CoarseState, grad: Array, eta: Array, delta: Array) -> CoarseState:
        """Half a transition."""
        whole = state.first + delta
        joined = (jnp.sqrt(state.first) * state.noise + jnp.sqrt(delta) * eta) / jnp.sqrt(whole)
        moved = self.kernel.step(state.own, grad, joined, whole)
        own = jax.tree.map(lambda new, old: jnp.where(state.halfway, new, old), moved, state.own)
        return CoarseState(own.theta, own, eta, jnp.asarray(delta, whole.dtype), ~state.halfway)

    def relaxation(self, precision: np.ndarray, delta: float) -> float | None:
        """Half of the kernel's at twice the step: it moves every second time."""
        rate = self.kernel.relaxation(precision, 2.0 * delta)
        return None if rate is None else 0.5 * rate

    def bias(self, precision: np.ndarray, noise: np.ndarray, delta: float) -> np.ndarray | None:
        """The kernel's at twice the step."""
        return self.kernel.bias(precision, noise, 2.0 * delta)

    def shape_error(self, precision: np.ndarray, delta: float) -> float:
        """The kernel's at twice the step."""
        return self.kernel.shape_error(precision, 2.0 * delta)
