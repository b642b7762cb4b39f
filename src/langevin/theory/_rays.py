"""Drift, gradients and minibatch noise of a target at many points along rays, in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from langevin.data.source import DataSource
from langevin.precision import isolated
from langevin.startup import compiled
from langevin.target import Layout, Target

Floats = NDArray[np.float64]
PyTree = Any

BLOCK = 256  # points of one call: every call has the same shape, so one compilation serves them all
CHUNK_FLOATS = 1_000_000  # per-datum gradients held at a time
MOST_OF_A_KIND = 64  # axes or eigenvectors looked along
# Beyond 1e4 times its scale a ray goes on to 1e30 times: a weak prior far out must not be taken for none. The last 12
# decades decide; points half a decade apart meet the crests of a ratio that goes up and down with the logarithm of r.
NEAR, FAR, DECIDING, LAST = 1e-2, 1e4, 1e18, 1e30
NEAR_POINTS, FAR_POINTS, DECIDING_POINTS = 30, 7, 24
# How far beside theta_0 the axes are followed as well, in units of V. Where the scale of one parameter is another, the
# drift may point outwards on such lines and on no ray from theta_0: e^-2x (x - 1) is largest at x = 1.5 (a logarithm
# of a standard deviation), e^-x (x - 2) at 3 (of a variance).
BESIDE = (1.5, 3.0)
# Relative error of a difference of gradients: what is smaller is rounding, and counts as zero.
ROUNDING = 1e-12


class Field(NamedTuple):
    """At each point log pi, grad log pi, V, and what the conditions compare.

    drift = 1/2 <grad V, grad log pi>, terms = its terms' absolute values added, grad_V2 = |grad V|^2,
    grad2 = |grad log pi|^2, noise = (E|H|^(2 p_H))^(1/p_H).
    """

    log_density: Floats
    grad: Floats
    V: Floats
    drift: Floats
    terms: Floats
    grad_V2: Floats
    grad2: Floats
    noise: Floats


@dataclass(frozen=True, eq=False)
class Surroundings:
    """A target seen from a point: all quantities of the Lyapunov conditions at theta_0 plus anything.

    `lyapunov` None is V = 1 + |theta - theta_0|^2. H is the error of a minibatch of one datum, the noisiest: a larger
    minibatch averages such errors, with or without replacement, and no convex function of H grows by that.
    """

    target: Target
    source: DataSource | None
    layout: Layout
    centre: Floats
    lyapunov: Callable[[PyTree], jax.Array] | None
    p_H: float
    _chunks: list[Any] = field(default_factory=list, init=False, repr=False)

    def __call__(self, points: Floats) -> Field:
        """The field at points of shape (..., d). Cost: 2 N datum visits a point."""
        shape, flat = points.shape[:-1], points.reshape(-1, points.shape[-1])
        blocks = []
        for start in range(0, len(flat), BLOCK):
            block = flat[start : start + BLOCK]
            padded = np.concatenate([block, np.repeat(block[-1:], BLOCK - len(block), axis=0)])
            found = _field(self.target, self.layout, self.lyapunov, self.p_H, padded, self.centre, self._data())
            blocks.append([np.asarray(part)[: len(block)] for part in found])
        return Field(
            *(np.concatenate(parts).reshape(*shape, *parts[0].shape[1:]) for parts in zip(*blocks, strict=True))
        )

    def precision(self) -> Floats:
        """Minus the Hessian of log pi at theta_0."""
        return -np.asarray(_hessian(self.target, self.layout, self.centre, self._data()))

    def doubling(self, directions: Floats) -> Floats:
        """The radius, within half a decade, from which V is at least twice what it is at theta_0, in each direction."""
        grid = 10.0 ** np.arange(-20, 20.5, 0.5)
        V_0 = float(_lyapunov_at(self.layout, self.lyapunov, self.centre[None], self.centre)[0])
        grown = []
        for u in directions:
            V = np.asarray(_lyapunov_at(self.layout, self.lyapunov, self.centre + grid[:, None] * u, self.centre))
            grown.append(~(V < 2 * V_0 * (1 - 1e-9)))  # up to rounding: 1 + |theta - theta_0|^2 doubles at 1
        return np.where(np.any(grown, axis=1), grid[np.argmax(grown, axis=1)], np.nan)

    def overflows(self, origin: Floats, direction: Floats, inside: float, outside: float) -> bool:
        """Whether log pi ends on this line, between two radii, by overflow and not at a boundary of its support.

        What overflows does so sooner in float32, by a third even for exp(exp(r)); a boundary stays where it is.
        """

        def finite(around: Surroundings, radii: Floats) -> NDArray[np.bool_]:
            found = around(origin + radii[:, None] * direction)
            return np.isfinite(found.log_density) & np.isfinite(found.grad).all(axis=1)

        grid = np.linspace(inside, outside, BLOCK)
        end = grid[np.argmin(finite(self, grid))]
        prior, likelihood = self.target.log_prior, self.target.log_likelihood
        twin = Target(isolated(prior), None if likelihood is None else isolated(likelihood))
        with jax.enable_x64(False):
            single = Surroundings(twin, self.source, self.layout, self.centre, None, self.p_H)
            return not finite(single, np.array([0.95 * end]))[0]

    def _data(self) -> Any:
        """The data as (chunks, rows, ...) with the weight of each row: 0 for those that only fill the last chunk."""
        if self.source is None:
            return None
        if not self._chunks:
            N = self.source.num_data
            # `_field` holds the gradients of a chunk at eight points at a time.
            rows = int(np.clip(CHUNK_FLOATS // (8 * self.layout.size), 1, N))
            index = np.arange(-(-N // rows) * rows).reshape(-1, rows)
            weight = (index < N).astype(np.float64)
            index = np.minimum(index, N - 1)
            self._chunks.append((self.source.take(index), weight))
        return self._chunks[0]


def lines(around: Surroundings, precision: Floats, num_random: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Origins and unit vectors: rays from theta_0 in all kinds of directions, and lines beside it along the axes."""
    d = around.layout.size
    axes: Floats = np.eye(d, dtype=np.float64)
    own = around.doubling(axes)
    kinds: list[Floats] = [axes, np.linalg.eigh(precision)[1].T]
    # Far out the gradient of log pi is about -A theta with A seen from its values on the axes. There the likelihood
    # may have levelled off and the prior alone be left, with eigenvectors of its own.
    reach = np.sqrt(FAR * LAST) * own[:, None]
    grad = around(around.centre + np.stack([-reach * axes, reach * axes])).grad
    if np.isfinite(grad).all():
        secant = (grad[0] - grad[1]) / (2 * reach)
        kinds.append(np.linalg.eigh(secant + secant.T)[1].T)
    half = MOST_OF_A_KIND // 2
    kinds = [kind if d <= MOST_OF_A_KIND else np.concatenate([kind[:half], kind[-half:]]) for kind in kinds]
    kinds.append(normalised(rng.standard_normal((num_random if d > 1 else 0, d))))
    found = np.concatenate(kinds)
    along = np.concatenate([found, -found])
    if d == 1:  # on the line, all these are the same two
        along = np.unique(along, axis=0)
        return np.tile(around.centre, (2, 1)), along
    signs = rng.choice([-1.0, 1.0], d)
    shifts = [sign * size * own * signs for size in BESIDE for sign in (-1, 1)]
    beside = rng.choice([-1.0, 1.0], (len(kinds[0]), 1)) * kinds[0]
    counts = [len(along), *[len(beside)] * len(shifts)]
    origins = np.repeat([around.centre, *(around.centre + shift for shift in shifts)], counts, axis=0)
    return origins, np.concatenate([along, *[beside] * len(shifts)])


def radii(around: Surroundings, precision: Floats, along: Floats) -> Floats:
    """Distances from the origin for each direction, shape (directions, radii), 0 first.

    They start well inside the smaller of two scales, the posterior's by its curvature and that of V, and are close
    together until far outside the larger.
    """
    own = around.doubling(along)
    curvature = np.abs(np.einsum("ki,ij,kj->k", along, precision, along))
    with np.errstate(divide="ignore"):
        scale = np.maximum(1 / np.sqrt(curvature), 1e-12 * own)
    # No curvature to speak of, as at the top of exp(-theta^4): the scale of V has to do.
    scale = np.where(scale < 1e12 * own, scale, own)
    first, outer = NEAR * np.minimum(scale, own), np.maximum(scale, own)
    near = np.geomspace(first, FAR * outer, NEAR_POINTS, axis=-1)
    far = np.geomspace(FAR * outer, DECIDING * outer, FAR_POINTS + 1, axis=-1)[:, 1:]
    deciding = np.geomspace(DECIDING * outer, LAST * outer, DECIDING_POINTS + 1, axis=-1)[:, 1:]
    return np.concatenate([np.zeros((len(along), 1)), near, far, deciding], axis=1)


def normalised(vectors: Floats) -> Floats:
    """The vectors at length 1."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def _log_likelihoods(target: Target, layout: Layout, flat: jax.Array, batch: PyTree) -> jax.Array:
    return jax.vmap(target.log_likelihood, (None, 0))(layout.unravel(flat), batch)


def _V(layout: Layout, lyapunov: Any, flat: jax.Array, centre: jax.Array) -> jax.Array:
    return 1.0 + jnp.sum((flat - centre) ** 2) if lyapunov is None else lyapunov(layout.unravel(flat))


@compiled(static_argnums=(0, 1))
def _lyapunov_at(layout: Layout, lyapunov: Any, points: jax.Array, centre: jax.Array) -> jax.Array:
    return jax.vmap(lambda flat: _V(layout, lyapunov, flat, centre))(points)


@compiled(static_argnums=(0, 1))
def _hessian(target: Target, layout: Layout, flat: jax.Array, data: Any) -> jax.Array:
    total = jax.hessian(lambda t: target.log_prior(layout.unravel(t)))(flat)
    if data is None:
        return total

    def add(total: jax.Array, chunk: Any) -> tuple[jax.Array, None]:
        batch, weight = chunk
        return total + jax.hessian(lambda t: weight @ _log_likelihoods(target, layout, t, batch))(flat), None

    return lax.scan(add, total, data)[0]


@compiled(static_argnums=(0, 1, 2, 3))
def _field(
    target: Target, layout: Layout, lyapunov: Any, p_H: float, points: jax.Array, centre: jax.Array, data: Any
) -> tuple[jax.Array, ...]:
    def per_datum(flat: jax.Array, batch: PyTree) -> tuple[jax.Array, jax.Array]:
        """A chunk's log likelihoods and their gradients, one a row."""
        values, grads = jax.vmap(jax.value_and_grad(target.log_likelihood), (None, 0))(layout.unravel(flat), batch)
        return values, jax.vmap(layout.ravel)(grads)

    def at(flat: jax.Array) -> tuple[jax.Array, ...]:
        V, grad_V = jax.value_and_grad(lambda t: _V(layout, lyapunov, t, centre))(flat)
        value, grad = jax.value_and_grad(lambda t: target.log_prior(layout.unravel(t)))(flat)
        noise = jnp.zeros(())
        if data is not None:
            num_data = jnp.sum(data[1])

            def add(sums: tuple[jax.Array, jax.Array], chunk: Any) -> tuple[tuple[jax.Array, jax.Array], None]:
                values, grads = per_datum(flat, chunk[0])
                return (sums[0] + chunk[1] @ values, sums[1] + chunk[1] @ grads), None

            (likelihood, total), _ = lax.scan(add, (jnp.zeros(()), jnp.zeros_like(flat)), data)

            def add_moment(log_sum: jax.Array, chunk: Any) -> tuple[jax.Array, None]:
                grads = num_data * per_datum(flat, chunk[0])[1]
                H2 = jnp.sum((grads - total) ** 2, axis=1)
                H2 = jnp.where(H2 > ROUNDING**2 * jnp.sum(grads**2, axis=1), H2, 0.0)
                # In logarithms, because |H|^(2 p_H) overflows long before |H|^2 does.
                terms = jnp.where(chunk[1] > 0, p_H * jnp.log(H2), -jnp.inf)
                return jnp.logaddexp(log_sum, jax.nn.logsumexp(terms)), None

            log_sum = lax.scan(add_moment, jnp.full((), -jnp.inf), data)[0]
            noise = jnp.exp((log_sum - jnp.log(num_data)) / p_H)
            value, grad = value + likelihood, grad + total
        products = 0.5 * grad_V * grad
        sums = jnp.sum(products), jnp.sum(jnp.abs(products)), jnp.dot(grad_V, grad_V), jnp.dot(grad, grad)
        return value, grad, V, *sums, noise

    return lax.map(at, points, batch_size=8)
