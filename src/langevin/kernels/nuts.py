"""The No-U-Turn sampler: Hamiltonian Monte Carlo that ends its paths where they begin to turn back."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from langevin import random
from langevin.kernels.protocol import ExactKernel, LogDensity

Array = Any

# An energy that is this much too high will not come down again: the leapfrog steps have left the path.
_DIVERGED = 1000.0


class NUTSState(NamedTuple):
    """What an `ExactState` holds, and of the last step the number of gradients and whether it diverged (0 or 1).

    `level` is the log density at the chain's start, `moved` what the last step changed of it.
    """

    theta: Array
    log_density: Array
    grad: Array
    acceptance: Array
    gradients: Array
    diverged: Array
    level: Array
    moved: Array


class _Phase(NamedTuple):
    """A point of a path."""

    theta: Array
    momentum: Array
    log_density: Array
    grad: Array


class _Path(NamedTuple):
    """Both ends of the path, the point chosen from it, and sums over all its points."""

    left: _Phase
    right: _Phase
    chosen: _Phase
    log_weight: Array
    momentum: Array
    depth: Array
    ended: Array
    diverged: Array
    acceptance: Array
    leaves: Array


class _Branch(NamedTuple):
    """The half that is being added: where it stands, its first momentum, and what earlier turns are checked against.

    Row k of `marks` is of the last point of even number with k ones among the higher bits of its number: its momentum,
    the sum of momenta up to it, and the momentum of the point before it. The parts of length 2, 4, 8 ... that end at
    a point all began at marks that are still there.
    """

    at: _Phase
    first: Array
    chosen: _Phase
    log_weight: Array
    momentum: Array
    marks: tuple[Array, Array, Array]
    leaves: Array
    turned: Array
    diverged: Array
    acceptance: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NUTS(ExactKernel):
    """Leapfrog steps of sqrt(delta) in both directions from momentum eta, doubled until the path turns back.

        stop where  p_left . rho <= 0  or  p_right . rho <= 0,    rho the sum of the momenta between them,

    and at 2^max_depth points. The next state is drawn from the path with weights exp(-energy), the newer half
    favoured (Hoffman and Gelman, 2014; Betancourt, 2017). Exact: no bias at any step size. In coordinates in which the
    posterior is nearly N(0, I) a step near delta = 0.5 takes about seven gradients and gives about one independent
    draw. Cost: one full gradient a leapfrog step, counted as they come.

    The directions and choices of a step are many: they come from a generator keyed by the bits of log_uniform and eta.

    Example:
        >>> import langevin as lv
        >>> target = lv.Target(lambda t: -0.5 * t**2)
        >>> ledger = lv.run(target, None, 0.0, kernel=lv.NUTS(), schedule=lv.Constant(0.5), num_steps=2000, chains=4)
        >>> abs(float(lv.estimate(ledger)["theta.mean"].value[0])) < 0.1
        True
    """

    max_depth: int = field(default=10, metadata={"static": True})

    target_acceptance = 0.8

    def __post_init__(self) -> None:
        if not isinstance(self.max_depth, int) or not 1 <= self.max_depth <= 20:
            raise ValueError(f"max_depth must be an integer in [1, 20], got {self.max_depth!r}. Try 10.")

    def init(self, log_density: LogDensity, theta: Array) -> Any:
        """The state before the first step. Cost: N datum visits."""
        value, grad = log_density(theta)
        zero = jnp.zeros_like(value)
        return NUTSState(theta, value, grad, zero, zero, zero, value, zero)

    def counted(self, state: Any, num_data: int) -> dict[str, Array]:
        """Acceptance, datum visits, divergences, and what tells how fast the log density moves."""
        level = state.log_density - state.level
        return {
            "acceptance": state.acceptance, "visits": state.gradients * num_data, "divergences": state.diverged,
            "level": level, "level2": level**2, "moved2": state.moved**2,
        }  # fmt: skip

    def step(self, log_density: LogDensity, state: Any, eta: Array, log_uniform: Array, delta: Array) -> Any:
        """One transition."""
        size, kind = jnp.sqrt(delta), state.log_density.dtype
        start = _Phase(state.theta, eta, state.log_density, state.grad)
        energy = _energy(start)
        key = random.bits(log_uniform), random.bits(eta[0])

        def leapfrog(at: _Phase, sign: Array) -> _Phase:
            momentum = at.momentum + 0.5 * sign * size * at.grad
            theta = at.theta + sign * size * momentum
            value, grad = log_density(theta)
            return _Phase(theta, momentum + 0.5 * sign * size * grad, value, grad)

        def lengthen(branch: _Branch, depth: Array, sign: Array) -> _Branch:
            at = leapfrog(branch.at, sign)
            risen = _energy(at) - energy
            risen = jnp.where(jnp.isnan(risen), jnp.inf, risen)
            log_weight = jnp.logaddexp(branch.log_weight, -risen)
            taken = jnp.log(_uniform(key, depth, branch.leaves)[0]) < -risen - log_weight
            momentum = branch.momentum + at.momentum
            marks, turned = _checked(branch.marks, branch.leaves, branch.at.momentum, at.momentum, momentum)
            return _Branch(
                at=at,
                first=jnp.where(branch.leaves == 0, at.momentum, branch.first),
                chosen=_where(taken, at, branch.chosen),
                log_weight=log_weight,
                momentum=momentum,
                marks=marks,
                leaves=branch.leaves + 1,
                turned=turned,
                diverged=~(risen < _DIVERGED),
                acceptance=branch.acceptance + jnp.exp(jnp.minimum(-risen, 0.0)),
            )

        def double(path: _Path) -> _Path:
            choice, direction = _uniform(key, path.depth, jnp.int32(-1))
            forward = direction < 0.5
            sign, end = jnp.where(forward, 1.0, -1.0).astype(kind), _where(forward, path.right, path.left)
            blank = jnp.zeros((self.max_depth, eta.size), eta.dtype)
            branch = _Branch(
                at=end, first=end.momentum, chosen=end, log_weight=jnp.asarray(-jnp.inf, kind),
                momentum=jnp.zeros_like(eta), marks=(blank, blank, blank), leaves=jnp.int32(0), turned=jnp.bool_(False),
                diverged=jnp.bool_(False), acceptance=jnp.asarray(0.0, kind),
            )  # fmt: skip
            branch = lax.while_loop(
                lambda b: (b.leaves < (1 << path.depth)) & ~b.turned & ~b.diverged,
                lambda b: lengthen(b, path.depth, sign),
                branch,
            )
            whole = ~(branch.turned | branch.diverged)
            taken = whole & (jnp.log(choice) < branch.log_weight - path.log_weight)
            left, right = _where(forward, path.left, branch.at), _where(forward, branch.at, path.right)
            total = path.momentum + branch.momentum
            own, other = _where(forward, left, right).momentum, branch.at.momentum
            turned = _turns(own, other, total) | _turns_across(
                own, end.momentum, path.momentum, branch.first, other, branch.momentum
            )
            return _Path(
                left=left,
                right=right,
                chosen=_where(taken, branch.chosen, path.chosen),
                log_weight=jnp.logaddexp(path.log_weight, branch.log_weight),
                momentum=total,
                depth=path.depth + 1,
                ended=~whole | turned,
                diverged=branch.diverged,
                acceptance=path.acceptance + branch.acceptance,
                leaves=path.leaves + branch.leaves,
            )

        zero = jnp.asarray(0.0, kind)
        no, none = jnp.bool_(False), jnp.int32(0)
        path = _Path(start, start, start, zero, eta, none, no, no, zero, none)
        path = lax.while_loop(lambda p: (p.depth < self.max_depth) & ~p.ended, double, path)
        leaves = path.leaves.astype(kind)
        return NUTSState(
            theta=path.chosen.theta,
            log_density=path.chosen.log_density,
            grad=path.chosen.grad,
            acceptance=path.acceptance / leaves,
            gradients=leaves,
            diverged=path.diverged.astype(kind),
            level=state.level,
            moved=path.chosen.log_density - state.log_density,
        )


def _energy(at: _Phase) -> Array:
    return 0.5 * jnp.dot(at.momentum, at.momentum) - at.log_density


def _turns(one: Array, other: Array, total: Array) -> Array:
    """Whether a path turns back between two of its points; the sum counts both of them by half."""
    inner = total - 0.5 * (one + other)
    return (jnp.sum(one * inner, axis=-1) <= 0.0) | (jnp.sum(other * inner, axis=-1) <= 0.0)


def _turns_across(first: Array, last: Array, total: Array, next_first: Array, next_last: Array, next_total: Array):
    """Whether one of two neighbouring halves turns back together with the nearest point of the other one.

    A path about one period long closes on itself without a turn at its ends: this is how it is seen.
    """
    return _turns(first, next_first, total + next_first) | _turns(last, next_last, last + next_total)


def _checked(marks: tuple, leaf: Array, previous: Array, momentum: Array, total: Array) -> tuple[tuple, Array]:
    """The marks after a point, and whether a part of length 2, 4, 8 ... that ends there turns back.

    Point n of a branch begins such parts if n is even, and ends one of length 2^j for every j up to the number of ones
    at the end of n; that one began at the mark of as many ones as n has above them, and its second half at the next
    mark. The same is asked of every part as of the whole path: from each of its points the path would have come out
    the same, which is what makes the sampler exact.
    """
    ones = lax.population_count(leaf >> 1)
    ending = lax.population_count(leaf & ~(leaf + 1))
    row = jnp.arange(len(marks[0]))
    first, before, last = (
        jnp.where((leaf % 2 == 0) & (row == ones)[:, None], new, old)
        for new, old in zip((momentum, total, previous), marks, strict=True)
    )
    whole = total - before + first
    half = jnp.roll(whole, -1, axis=0)
    turns = _turns(first, momentum, whole)
    # The shortest part has halves of one point each.
    turns |= (row < ones) & _turns_across(
        first, jnp.roll(last, -1, axis=0), whole - half, jnp.roll(first, -1, axis=0), momentum, half
    )
    ends_here = (leaf % 2 == 1) & (row <= ones) & (row > ones - ending)
    return (first, before, last), jnp.any(turns & ends_here)


def _where(condition: Array, one: _Phase, other: _Phase) -> _Phase:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)


def _uniform(key: tuple[Array, Array], depth: Array, leaf: Array) -> tuple[Array, Array]:
    """Two uniforms on (0, 1) for a point of a doubling; leaf -1 stands for the doubling itself."""
    words = random.threefry(key, (depth.astype(jnp.uint32), leaf.astype(jnp.uint32)))
    first, second = (((w >> jnp.uint32(9)).astype(jnp.float32) + 0.5) * jnp.float32(2.0**-23) for w in words)
    return first, second
