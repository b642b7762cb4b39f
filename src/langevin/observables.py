"""Test functions phi and the correction that the Laplace model's Poisson solution gives each of them.

Write u = theta - anchor, Sigma the Laplace covariance, s = Sigma grad. For phi with gradient b and Hessian Q at the
anchor, the Poisson equation A h = phi - pi(phi) of the Laplace model (whitened Langevin dynamics) has the solution
h = -2 b.u - u'Qu / 2, so that

    phi - A h = phi + b.s + u'Qs / 2 + tr(Sigma Q) / 2,

nearly constant in theta when the posterior is near-Gaussian, and with mean pi(phi) since pi(A h) = 0. A stochastic
gradient in s keeps it unbiased.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import erfc, sqrt
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from langevin.anchor import Anchor
from langevin.target import Layout

# A jax.Array, a tracer of one, or on the host a NumPy array.
Array = Any
# Second moments of more parameters than this are kept for the diagonal only.
_FULL_COVARIANCE_UP_TO = 32


class Observable(Protocol):
    """What the engine needs of a test function; flat theta in, a flat vector of values out."""

    def size(self, layout: Layout) -> int:
        """Number of values."""

    def reference(self, layout: Layout, centre: Array, anchor: Anchor | None) -> Array:
        """What `value` subtracts, computed once from the flat theta that sums are centred at."""

    def value(self, layout: Layout, theta: Array, reference: Array) -> Array:
        """phi(theta), centred at the reference."""

    def correction(self, layout: Layout, theta: Array, s: Array, anchor: Array, trace: Array) -> Array:
        """-A h(theta) = b.s + u'Qs / 2 + trace / 2, where trace = tr(Sigma Q)."""

    def hessian(self, anchor: Anchor) -> np.ndarray | None:
        """Q of every value at the anchor, shape (size, d, d), float64; None where there is none."""

    def trace(self, anchor: Anchor) -> np.ndarray:
        """tr(Sigma Q) of every value."""


@dataclass(frozen=True)
class Function:
    """Any JAX function of theta with values in arrays. Cost of its correction: about three evaluations."""

    phi: Callable[[Any], Any]
    name: str = ""

    def shape(self, layout: Layout) -> tuple[int, ...]:
        """Shape of one value."""
        value = jax.eval_shape(lambda t: self.phi(layout.unravel(t)), jax.ShapeDtypeStruct((layout.size,), jnp.float32))
        if not hasattr(value, "shape"):
            raise ValueError(
                f"observable {self.name!r} must return one array, got {type(value).__name__}. "
                f"Split it into several named observables."
            )
        return value.shape

    def size(self, layout: Layout) -> int:
        """See `Observable`."""
        return int(np.prod(self.shape(layout)))

    def _flat(self, layout: Layout, theta: Array) -> Array:
        # An indicator counts as 0 or 1.
        return jnp.reshape(self.phi(layout.unravel(theta)), -1).astype(theta.dtype)

    def reference(self, layout: Layout, centre: Array, anchor: Anchor | None) -> Array:
        """phi(centre)."""
        return self._flat(layout, centre)

    def value(self, layout: Layout, theta: Array, reference: Array) -> Array:
        """phi(theta) - phi(centre)."""
        return self._flat(layout, theta) - reference

    def correction(self, layout: Layout, theta: Array, s: Array, anchor: Array, trace: Array) -> Array:
        """See `Observable`; b.s and u'Qs are one nested directional derivative."""

        def along_s(t: Array) -> Array:
            return jax.jvp(lambda r: self._flat(layout, r), (t,), (s,))[1]

        first, second = jax.jvp(along_s, (anchor,), (theta - anchor,))
        return first + 0.5 * (second + trace)

    def hessian(self, anchor: Anchor) -> np.ndarray:
        """See `Observable`."""
        # In the device's precision: seven digits are enough, and the device uses the same derivatives along the run.
        at = jnp.asarray(anchor.theta, jnp.float32)
        return np.asarray(jax.hessian(lambda t: self._flat(anchor.layout, t))(at), np.float64)

    def trace(self, anchor: Anchor) -> np.ndarray:
        """See `Observable`."""
        at, columns = (jnp.asarray(part, jnp.float32) for part in (anchor.theta, anchor.root[0].T))
        return np.asarray(self.trace_along(anchor.layout, at, columns), np.float64)

    def trace_along(self, layout: Layout, at: Array, columns: Array) -> Array:
        """The sum over the columns l of a root of Sigma of l'Ql; no second derivative is stored."""

        def along(total: Array, column: Array) -> tuple[Array, None]:
            def first(t: Array) -> Array:
                return jax.jvp(lambda r: self._flat(layout, r), (t,), (column,))[1]

            return total + jax.jvp(first, (at,), (column,))[1], None

        return lax.scan(along, jnp.zeros(self.size(layout)), columns)[0]


@dataclass(frozen=True)
class Moments:
    """First and second moments of theta jointly, so that means, variances, sds and covariances come with error bars.

    Values: u and u_i u_j, centred at the anchor or the first state. All pairs up to d = 32, else the diagonal only;
    `covariance` overrides. Corrected: u + s and u_i u_j + (u_i s_j + u_j s_i) / 2 + Sigma_ij. Cost: d^2 a step.

    Example:
        >>> rows, columns = Moments().pairs(2)
        >>> list(zip(rows.tolist(), columns.tolist()))
        [(0, 0), (0, 1), (1, 1)]
    """

    covariance: bool | None = None

    def pairs(self, dimension: int) -> tuple[np.ndarray, np.ndarray]:
        """Index pairs i <= j whose second moments are kept."""
        full = dimension <= _FULL_COVARIANCE_UP_TO if self.covariance is None else self.covariance
        if full:
            return np.triu_indices(dimension)
        return np.arange(dimension), np.arange(dimension)

    def size(self, layout: Layout) -> int:
        """See `Observable`."""
        return layout.size + len(self.pairs(layout.size)[0])

    def reference(self, layout: Layout, centre: Array, anchor: Anchor | None) -> Array:
        """The centre itself."""
        return centre

    def value(self, layout: Layout, theta: Array, reference: Array) -> Array:
        """(u, u_i u_j), u = theta - centre."""
        u = theta - reference
        i, j = self.pairs(layout.size)
        return jnp.concatenate([u, u[i] * u[j]])

    def correction(self, layout: Layout, theta: Array, s: Array, anchor: Array, trace: Array) -> Array:
        """See `Observable`."""
        u = theta - anchor
        i, j = self.pairs(layout.size)
        return jnp.concatenate([s, 0.5 * (u[i] * s[j] + u[j] * s[i])]) + 0.5 * trace

    def hessian(self, anchor: Anchor) -> np.ndarray:
        """See `Observable`."""
        d = anchor.layout.size
        i, j = self.pairs(d)
        second = np.zeros((len(i), d, d))
        second[np.arange(len(i)), i, j] += 1.0
        second[np.arange(len(i)), j, i] += 1.0
        return np.concatenate([np.zeros((d, d, d)), second])

    def trace(self, anchor: Anchor) -> np.ndarray:
        """See `Observable`."""
        i, j = self.pairs(anchor.layout.size)
        if np.array_equal(i, j):
            return np.concatenate([np.zeros(anchor.layout.size), 2.0 * anchor.sd**2])
        return np.concatenate([np.zeros(anchor.layout.size), 2.0 * anchor.covariance[i, j]])


@dataclass(frozen=True)
class Marginals:
    """Distribution functions of all parameters on a grid of Laplace quantiles: quantiles, streamed from every step.

    With x = (theta_j - anchor_j)/sd_j and r = x + s_j/sd_j (zero on the Gaussian model), the indicator of x <= c has
    the closed Poisson solution h'(x) = 2 k_c(x) in one dimension, and the corrected value

        1{x <= c} - A h = Phi(c) - r k_c(x),    k_c(x) = (Phi(min(x, c)) - Phi(c) Phi(x)) / phi(x),

    is continuous, bounded in the tails, and constant where the posterior is Gaussian. Needs an anchor. Values are
    1{x <= c} - Phi(c). Cost: three transcendental functions a parameter, and the grid.

    Example:
        >>> import langevin as lv, numpy as np
        >>> target = lv.Target(lambda t: -0.5 * t**2)
        >>> anchor = lv.laplace(target, None, 0.0)
        >>> ledger = lv.run(target, None, 0.0, anchor=anchor, observables={"marginals": lv.Marginals()},
        ...                 kernel=lv.LeimkuhlerMatthews(), schedule=lv.Constant(0.5), num_steps=1000)
        >>> np.round(lv.quantiles(ledger, (0.025, 0.975)).value[:, 0], 2).tolist()
        [-1.96, 1.96]
    """

    # Spacing half an sd: what is interpolated between is (F - Phi)/phi, a cubic for a skewed, kurtotic posterior.
    GRID: ClassVar[np.ndarray] = np.linspace(-4.0, 4.0, 17)

    def size(self, layout: Layout) -> int:
        """See `Observable`."""
        return layout.size * self.GRID.size

    def reference(self, layout: Layout, centre: Array, anchor: Anchor | None) -> Array:
        """Anchor and Laplace sds, (2, d)."""
        if anchor is None:
            raise ValueError("Marginals() needs anchor=lv.laplace(target, data, theta_0): its sds are the unit.")
        return np.stack([centre, anchor.sd]).astype(np.float32)

    def value(self, layout: Layout, theta: Array, reference: Array) -> Array:
        """1{x <= c} - Phi(c)."""
        x = (theta - reference[0]) / reference[1]
        below = (x[:, None] <= self.GRID.astype(np.float32)).astype(theta.dtype)
        return jnp.reshape(below - _PHI, -1)

    def correction(self, layout: Layout, theta: Array, s: Array, anchor: Array, trace: Array) -> Array:
        """Phi(c) - 1{x <= c} - r k_c(x); `trace` holds the Laplace sds."""
        x = (theta - anchor) / trace
        r = x + s / trace
        # Beyond ten sds the two ratios below would leave float32, and k_c there is what it is at ten.
        y = jnp.clip(x, -10.0, 10.0)
        density = jnp.exp(-0.5 * y * y) * np.float32(1.0 / np.sqrt(2.0 * np.pi))
        left, right = (0.5 * lax.erfc(side * y * np.float32(np.sqrt(0.5))) / density for side in (-1.0, 1.0))
        below = x[:, None] <= self.GRID.astype(np.float32)
        k = jnp.where(below, left[:, None] * (1.0 - _PHI), right[:, None] * _PHI)
        return jnp.reshape(_PHI - below.astype(theta.dtype) - r[:, None] * k, -1)

    def hessian(self, anchor: Anchor) -> np.ndarray | None:
        """None: an indicator is flat where it is not broken."""
        return None

    def trace(self, anchor: Anchor) -> np.ndarray:
        """The Laplace sds."""
        return anchor.sd


_PHI = np.array([0.5 * erfc(-c / sqrt(2.0)) for c in Marginals.GRID], np.float32)


def named(observables: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The user's mapping as static (name, observable) pairs; plain functions become `Function`."""
    if not isinstance(observables, Mapping) or not observables:
        raise ValueError(
            f"observables must be a non-empty mapping of names to functions of theta or lv.Moments(), got "
            f"{observables!r}. Try observables={{'theta': lv.Moments()}}."
        )
    pairs = []
    for name, observable in observables.items():
        if not hasattr(observable, "correction"):
            if not callable(observable):
                raise ValueError(
                    f"observable {name!r} must be a function of theta or lv.Moments(), got {observable!r}."
                )
            observable = Function(observable, name)
        pairs.append((name, observable))
    return tuple(pairs)
