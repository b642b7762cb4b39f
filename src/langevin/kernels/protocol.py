"""What a kernel is: two base classes, told apart by type, and the theory that each part owns.

A stochastic `Kernel` is a map of numbers: `step(state, grad, eta, delta)` sees no data, keys or closures. An
`ExactKernel` needs the log density, to accept or reject. Both state what they know of their law on the Gaussian model

    grad = -H theta + xi,    xi independent from step to step with mean 0 and covariance C,

and what is not known is None: results of such a kernel are called `uncorrected`, never `ok`.
"""

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from langevin.kernels.pytrees import as_pytree, kinds
from langevin.startup import compiled

# A jax.Array, a tracer of one, or on the host a NumPy array.
Array = Any
# theta -> (log density, gradient) on all the data.
LogDensity = Callable[[Array], tuple[Array, Array]]


class Kernel:
    """A stochastic-gradient kernel: subclass it, state `init` and `step`, and, where it is known, the theory.

    The state is a pytree with a field `theta`, the point where the next gradient is taken and where averages look.
    `noises` standard normal vectors reach every step: eta has shape (d,), or (noises, d) for more than one. Cost of a
    step: one gradient.

    Example:
        >>> import jax, jax.numpy as jnp, langevin as lv
        >>> from typing import NamedTuple
        >>> class Position(NamedTuple):
        ...     theta: jax.Array
        >>> class Mine(lv.Kernel):
        ...     def init(self, theta, eta):
        ...         return Position(theta)
        ...     def step(self, state, grad, eta, delta):
        ...         return Position(state.theta + 0.5 * delta * grad + jnp.sqrt(delta) * eta)
        >>> ledger = lv.run(lv.Target(lambda t: -0.5 * t**2), None, 0.0, kernel=Mine(), schedule=lv.Constant(0.1),
        ...                 num_steps=1000)
        >>> lv.estimate(ledger)["theta.mean"].status
        'uncorrected'
    """

    noises: ClassVar[int] = 1

    def check(self, coordinates: Any, starts: np.ndarray) -> None:
        """Raises where the kernel cannot move in these coordinates or from these points of theta, (chains, d)."""

    def init(self, theta: Array, eta: Array) -> Any:
        """The state before the first step; eta is the noise of index 0."""
        raise NotImplementedError

    def step(self, state: Any, grad: Array, eta: Array, delta: Array) -> Any:
        """One transition."""
        raise NotImplementedError

    @property
    def has_theory(self) -> bool:
        """Whether the kernel states its relaxation and its bias."""
        return type(self).bias is not Kernel.bias and type(self).relaxation is not Kernel.relaxation

    def relaxation(self, precision: np.ndarray, delta: float) -> float | None:
        """Rate a step at which the slowest direction of the Gaussian model is forgotten; None if unknown."""
        return None

    def bias(self, precision: np.ndarray, noise: np.ndarray, delta: float) -> np.ndarray | None:
        """Stationary covariance of theta on the Gaussian model minus H^-1, for H, C and a constant step; or None."""
        return None

    def affine(self, dimension: int, delta: float) -> tuple[np.ndarray, ...] | None:
        """F, G, E and P of a step s' = F s + G grad + E eta, theta = P s; None where it is not affine, or not known."""
        return None

    def shape_error(self, precision: np.ndarray, delta: float) -> float:
        """Relative error of the third cumulants of the chain for a weak cubic part of log pi, where known."""
        return 0.0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Bare(Kernel):
    """A user's object with `init` and `step` that is no `Kernel`: nothing is known of its law."""

    part: Any

    def init(self, theta: Array, eta: Array) -> Any:
        """The part's own."""
        return self.part.init(theta, eta)

    def step(self, state: Any, grad: Array, eta: Array, delta: Array) -> Any:
        """The part's own."""
        return self.part.step(state, grad, eta, delta)


class DensityKernel:
    """A kernel that looks at the log density to accept or reject: at all of it (`ExactKernel`), or at some of it.

    `target_acceptance` is the rate that `lv.adapt_step` aims at; `gradients` a step are paid with N datum visits each.
    """

    target_acceptance: ClassVar[float] = 0.574
    has_theory: ClassVar[bool] = False

    @property
    def gradients(self) -> int:
        """Full gradients of one step, where that is known beforehand."""
        return 1

    def counted(self, state: Any, num_data: int) -> dict[str, Array]:
        """What the ledger adds up beside the averages: numbers of the last step, by name."""
        return {"acceptance": state.acceptance}

    def init(self, log_density: LogDensity, theta: Array) -> Any:
        """The state before the first step. Cost: N datum visits."""
        value, grad = log_density(theta)
        return ExactState(theta, value, grad, jnp.zeros_like(value))

    def step(self, log_density: LogDensity, state: Any, eta: Array, log_uniform: Array, delta: Array) -> Any:
        """One transition."""
        raise NotImplementedError


class ExactKernel(DensityKernel):
    """A kernel that leaves the posterior as it is, by accept-reject on all the data: no bias at any step.

    Example:
        >>> import langevin as lv
        >>> isinstance(lv.MALA(), lv.ExactKernel), isinstance(lv.SGLD(), lv.ExactKernel)
        (True, False)
    """

    # Its law is the posterior itself.
    has_theory: ClassVar[bool] = True


class DatumDensity(Protocol):
    """The log density as kernels see it that look at some of the data: all of it when called, or its parts."""

    num_data: int

    def __call__(self, theta: Array) -> tuple[Array, Array]:
        """Log density and gradient on all the data."""

    def prior(self, theta: Array) -> Array:
        """The log prior."""

    def terms(self, theta: Array, rows: Array) -> Array:
        """Log likelihoods of these rows, (n,)."""


class ExactState(NamedTuple):
    """The position with its log density and gradient, and the acceptance probability of the last proposal."""

    theta: Array
    log_density: Array
    grad: Array
    acceptance: Array

    def accept(self, proposal: "ExactState", log_ratio: Array, log_uniform: Array) -> "ExactState":
        """The proposal if log_uniform < log_ratio, else this state; a proposal of undefined density is refused."""
        return accepted(self, proposal, log_ratio, log_uniform)


def accepted(state: Any, proposal: Any, log_ratio: Array, log_uniform: Array) -> Any:
    """The same for any state with a field `acceptance`."""
    log_ratio = jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)
    acceptance = jnp.exp(jnp.minimum(log_ratio, 0.0))
    chosen = jax.tree.map(lambda new, old: jnp.where(log_uniform < log_ratio, new, old), proposal, state)
    return chosen._replace(acceptance=acceptance)


class AffineKernel(Kernel):
    """A kernel whose step is affine in (state, grad, eta): its theory on the Gaussian model follows from `step` itself.

        s' = F s + G grad + E eta,  theta = P s:   A = F - G H P,   S = A S A' + E E' + G C G',   bias = P S P' - H^-1

    with the matrices read off `step` by differentiation, exact at every step size. Cost: O(s^3) for s state numbers.

    Example:
        >>> import langevin as lv, numpy as np
        >>> kernel = lv.BAOAB(friction=1.0)
        >>> bool(np.abs(kernel.bias(np.eye(2), np.zeros((2, 2)), 0.1)).max() < 1e-12)
        True
    """

    def relaxation(self, precision: np.ndarray, delta: float) -> float:
        """-log of the spectral radius of A; 0 where the steps do not contract."""
        mean, *_ = self._matrices(precision, delta)
        radius = float(np.max(np.abs(np.linalg.eigvals(mean))))
        return max(-np.log(max(radius, 1e-300)), 0.0)

    def bias(self, precision: np.ndarray, noise: np.ndarray, delta: float) -> np.ndarray:
        """P S P' - H^-1; infinite where the steps do not contract."""
        mean, pull, kick, position = self._matrices(precision, delta)
        if np.max(np.abs(np.linalg.eigvals(mean))) >= 1.0:
            return np.full_like(precision, np.inf)
        source = kick @ kick.T + pull @ noise @ pull.T
        return position @ stationary(mean, source) @ position.T - np.linalg.inv(precision)

    def _matrices(self, precision: np.ndarray, delta: float) -> tuple[np.ndarray, ...]:
        """A, G, E and P."""
        state, pull, kick, position = self.affine(len(precision), delta)
        return state - pull @ precision @ position, pull, kick, position

    def affine(self, dimension: int, delta: float) -> tuple[np.ndarray, ...]:
        """F, G, E and P, from the derivatives of `step`."""
        own = as_pytree(self)
        with jax.enable_x64(True):
            found, elsewhere = (
                tuple(
                    np.asarray(part) for part in _jacobians(kinds(own), own, np.full(dimension, at), np.float64(delta))
                )
                for at in (0.0, 1.0)
            )
        if not all(np.allclose(one, other) for one, other in zip(found, elsewhere, strict=True)):
            raise ValueError(
                f"step of {self!r} must be affine in state, grad and eta for an lv.AffineKernel, but its derivatives "
                "change with the point. Subclass lv.Kernel instead, and state relaxation and bias where you know them."
            )
        return found


@compiled(static_argnums=0)
def _jacobians(_: tuple[type, ...], kernel: Any, theta: Array, delta: Array) -> tuple[Array, Array, Array, Array]:
    """Derivatives of a step at theta, with grad and eta of the same size."""
    eta = jnp.broadcast_to(theta, noise_shape(kernel, theta.size))
    start, back = ravel_pytree(kernel.init(theta, eta))

    def step(state: Array, grad: Array, noise: Array) -> Array:
        return ravel_pytree(kernel.step(back(state), grad, noise, delta))[0]

    state, pull, kick = jax.jacfwd(step, (0, 1, 2))(start, theta, eta)
    return state, pull, kick.reshape(start.size, -1), jax.jacfwd(lambda s: back(s).theta)(start)


def stationary(mean: np.ndarray, source: np.ndarray) -> np.ndarray:
    """S = A S A' + Q by doubling: after k rounds the sum of the first 2^k terms A^j Q A'^j."""
    total = source
    while np.max(np.abs(mean)) > 1e-20:
        total = total + mean @ total @ mean.T
        mean = mean @ mean
    return total


def in_modes(precision: np.ndarray, matrix: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """V matrix(lambda, V) V' for H = V diag(lambda) V': formulas that hold entry by entry between two modes of H."""
    rates, vectors = np.linalg.eigh(precision)
    return vectors @ matrix(rates, vectors) @ vectors.T


def noise_shape(kernel: Kernel, dimension: int) -> tuple[int, ...]:
    """Shape of the noise that a step of the kernel wants."""
    return (dimension,) if kernel.noises == 1 else (kernel.noises, dimension)


def must_be_positive(kernel: Any, name: str, meaning: str, remedy: str) -> None:
    """Raises unless a kernel's number is positive and finite."""
    value = getattr(kernel, name)
    # JAX rebuilds registered dataclasses with placeholders: only what a user could have meant is refused.
    given = isinstance(value, str | list | tuple | numbers.Real | np.ndarray | jax.Array)
    if not given or isinstance(value, jax.core.Tracer):
        return
    number = not isinstance(value, str | list | tuple | bool)
    if not number or not np.all(np.isfinite(value) & (np.asarray(value) > 0.0)):
        remedy = f"{type(kernel).__name__}({name}={remedy})"
        raise ValueError(f"{name} must be a positive finite number, got {value!r}: {meaning}. Try {remedy}.")
