"""The survey of modes: do ascents from dispersed starts all end at the anchor's mode?"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from langevin.anchor import Anchor
from langevin.data.source import DataSource
from langevin.frame import Frame
from langevin.precision import COMPILED_QUICKLY, isolated
from langevin.target import Layout, Target

PyTree = Any

# A stream of its own: default_rng(seed) may be what the data were simulated from.
_STREAM = 0x53555256
# Standard deviations of the starts, in those of the subsample's posterior; two antithetic pairs of each.
_SPREADS = (20.0, 40.0, 80.0)
_PAIRS = 2
_MAX_EVALUATIONS = 30
_MAX_INNER_STEPS = 12
# A start is too deep if log pi falls short of the mode's by ten times what it would in a Gaussian, |y|^2/2.
_DEEPEST = 5.0
# A mode counts if its Laplace mass is above exp(-15) = 3e-7 of the anchor's.
_LOG_MASS = 15.0
# Scales on which mass far from the mode is looked for, draws of each, and the bulk's border, a normal tail of 1e-6.
_FAR_SPREADS, _FAR_DRAWS, _BORDER = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0), 4, 4.753


@dataclass(frozen=True)
class Survey:
    """Where ascents from `num_starts` dispersed points ended.

    Starts are anchor + L z with z normal, sds `spread` (in posterior sds, in turn). `elsewhere`: ended at another mode
    whose Laplace mass on the rows used matters; `modes`: those modes, (k, d), flat; `lost`: ended nowhere within the
    allowed steps, or where there is no mass to speak of. The others came back. No starts: not surveyed. `far`: part of
    the second moment, in units of the approximation's, that one wide draw beyond the bulk stands for; heavy tails and
    wide components that are no modes show there (0 when only some rows were used). `cost`: datum visits.
    """

    num_starts: int
    spread: tuple[float, ...]
    elsewhere: int
    lost: int
    modes: np.ndarray
    far: float
    cost: int


def survey(target: Target, source: DataSource | None, anchor: Anchor, seed: int) -> Survey:
    """Climbs from 12 dispersed starts, by Newton's method with trust regions, on at most 250 rows (d <= 50).

    With fewer than all N rows the likelihood is scaled by N/rows and starts spread by sqrt(N/rows) more, the resolution
    of such a sample; the reference is the mode that it has uphill from the anchor. Without a dense anchor nothing is
    known about the scales on which to look: no starts. Cost: rows a Newton step, about ten steps a start.
    """
    d = anchor.layout.size
    if not anchor.dense:
        return Survey(0, (), 0, 0, np.zeros((0, d)), 0.0, 0)
    rng = np.random.default_rng([seed, _STREAM])
    half = np.repeat(_SPREADS, _PAIRS)[:, None] * rng.standard_normal((len(_SPREADS) * _PAIRS, d))
    starts = np.concatenate([np.zeros((1, d)), half, -half])
    num_data = 1 if source is None else source.num_data
    rows = min(num_data, 100 + 5 * d)
    batch = None
    if source is not None:
        picked = rng.choice(num_data, rows, replace=False, shuffle=False)
        batch = jax.tree.map(lambda leaf: leaf[picked], source.arrays)
    power = num_data / rows
    likelihood = None if source is None else isolated(target.log_likelihood)
    apart = Target(isolated(target.log_prior), likelihood)
    frame = Frame(anchor.theta, (np.sqrt(power) * np.asarray(anchor.root[0], np.float64),))
    with jax.enable_x64(True):
        ends, settled, steps = jax.tree.map(np.asarray, _climb(apart, anchor.layout, frame, batch, power, starts))
        back = np.linalg.norm(ends - ends[0], axis=1) < 1.0
        other = settled & ~back
        modes, which = _distinct(ends[other])
        if len(modes):
            masses = [_log_mass(apart, anchor.layout, frame, batch, power, y) for y in (ends[0], *modes)]
            matters = np.asarray(masses[1:]) > masses[0] - _LOG_MASS
            modes, elsewhere = modes[matters], int(np.sum(matters[which]))
        else:
            elsewhere = 0
        # A sample of the rows has a curvature of its own, which rules what it says about the tail.
        far = _far_moment(apart, anchor.layout, frame, batch, rng) if rows == num_data else 0.0
    num_starts = len(starts) - 1
    return Survey(
        num_starts=num_starts,
        spread=tuple(float(s * np.sqrt(power)) for s in _SPREADS),
        elsewhere=elsewhere,
        lost=num_starts - int(np.sum(back[1:])) - elsewhere,
        modes=anchor.theta + modes @ frame.blocks[0].T,
        far=far,
        cost=(int(steps.sum()) + _FAR_DRAWS * len(_FAR_SPREADS)) * rows,
    )


def _log_density(target: Target, layout: Layout, frame: Frame, batch: PyTree, power: Any, y: Any) -> Any:
    """Log prior / power + log likelihood of the rows: the posterior's shape at the resolution of the rows."""
    theta = layout.unravel(frame.theta(y))
    value = target.log_prior(theta) / power
    if batch is None:
        return value
    return value + jnp.sum(jax.vmap(target.log_likelihood, (None, 0))(theta, batch))


def _far_moment(target: Target, layout: Layout, frame: Frame, batch: PyTree, rng: np.random.Generator) -> float:
    """Largest importance weight times |y|^2/d of draws y ~ N(0, s^2 I) beyond the bulk, at several scales s.

    weight = pi(y)/pi(0) exp(|y|^2/(2 s^2)) s^d
    """
    d = layout.size
    s = np.repeat(_FAR_SPREADS, _FAR_DRAWS)
    y = s[:, None] * rng.standard_normal((len(s), d))
    values = np.asarray(_values(target, layout, frame, batch, np.concatenate([np.zeros((1, d)), y])))
    square = np.sum(y**2, axis=1)
    # The cube root of a chi-square variable is nearly normal (Wilson and Hilferty).
    border = d * (1.0 - 2.0 / (9.0 * d) + _BORDER * np.sqrt(2.0 / (9.0 * d))) ** 3
    log_moment = values[1:] - values[0] + 0.5 * square / s**2 + d * np.log(s) + np.log(square / d)
    counts = (square > border) & np.isfinite(log_moment)
    return float(np.exp(min(log_moment[counts].max(initial=-np.inf), 100.0)))


@partial(jax.jit, static_argnums=(0, 1), compiler_options=COMPILED_QUICKLY)
def _values(target: Target, layout: Layout, frame: Frame, batch: PyTree, points: Any) -> Any:
    return lax.map(partial(_log_density, target, layout, frame, batch, 1.0), points)


@partial(jax.jit, static_argnums=(0, 1), compiler_options=COMPILED_QUICKLY)
def _climb(
    target: Target, layout: Layout, frame: Frame, batch: PyTree, power: Any, starts: Any
) -> tuple[Any, Any, Any]:
    """End points, whether a stationary point was reached, evaluations. The first start finds the reference."""
    log_density = partial(_log_density, target, layout, frame, batch, power)

    def climbing(state: dict[str, Any]) -> Any:
        home = jnp.linalg.norm(state["y"] - state["reference"]) < 1.0
        return ~home & ~state["settled"] & (state["radius"] > 1e-9) & (state["evaluations"] < _MAX_EVALUATIONS)

    def climb(state: dict[str, Any]) -> dict[str, Any]:
        """Judges the proposed point, moves there if it is higher, and proposes the next one."""
        value, grad = jax.value_and_grad(log_density)(state["trial"])
        usable = jnp.isfinite(value) & jnp.all(jnp.isfinite(grad))
        usable &= ~(value < state["floor"] - _DEEPEST * (starts.shape[1] + jnp.sum(state["trial"] ** 2)))
        ratio = jnp.where(usable, value - state["value"], -jnp.inf) / state["gain"]
        better = ratio > 1e-4
        length = jnp.linalg.norm(state["trial"] - state["y"])
        wider = jnp.where((ratio > 0.75) & state["bounded"], 3.0 * state["radius"], state["radius"])
        radius = jnp.where(ratio < 0.25, 0.25 * length, wider)
        y, value, grad = (
            jnp.where(better, new, old)
            for new, old in ((state["trial"], state["y"]), (value, state["value"]), (grad, state["grad"]))
        )
        started = jnp.isfinite(value)
        radius = jnp.where(started, radius, state["radius"])
        _, hessian_times = jax.linearize(jax.grad(log_density), y)
        step, gain, bounded = _newton_step(hessian_times, grad, radius)
        return {
            "y": y,
            "value": value,
            "grad": grad,
            "radius": radius,
            # A start without a density to climb from is pulled in by halves.
            "trial": jnp.where(started, y + step, 0.5 * state["trial"]),
            "gain": jnp.where(started, gain, 1.0),
            "bounded": started & bounded,
            "settled": started & ~bounded & (gain >= 0) & (gain < 1e-8),
            "evaluations": state["evaluations"] + 1,
            "reference": state["reference"],
            "floor": state["floor"],
        }

    def ascend(reference: tuple[Any, Any], start: Any) -> tuple[tuple[Any, Any], tuple[Any, Any, Any]]:
        no = jnp.bool_(False)
        state = {"y": start, "value": -jnp.inf, "grad": jnp.zeros_like(start), "trial": start, "gain": jnp.ones(())}
        state |= {"radius": jnp.maximum(jnp.linalg.norm(start), 1.0), "bounded": no, "settled": no}
        state |= {"evaluations": jnp.zeros((), int), "reference": reference[0], "floor": reference[1]}
        end = lax.while_loop(climbing, climb, state)
        first = jnp.isnan(reference[1])
        reference = jax.tree.map(lambda new, old: jnp.where(first, new, old), (end["y"], end["value"]), reference)
        return reference, (end["y"], end["settled"], end["evaluations"])

    unknown = (jnp.full(starts.shape[1], jnp.nan), jnp.asarray(jnp.nan))
    return lax.scan(ascend, unknown, starts)[1]


def _newton_step(hessian_times: Any, grad: Any, radius: Any) -> tuple[Any, Any, Any]:
    """Conjugate gradients up the quadratic model, to its top or to the trust region's border (Steihaug, 1983).

    Returns the step, the rise of the model and whether the border stopped it.
    """

    def unfinished(state: tuple) -> Any:
        _, _, residual, _, bounded, k = state
        return ~bounded & (k < _MAX_INNER_STEPS) & (residual @ residual > 1e-4 * grad @ grad)

    def improve(state: tuple) -> tuple:
        step, image, residual, direction, _, k = state
        curved = -hessian_times(direction)
        curvature = direction @ curved
        alpha = residual @ residual / jnp.where(curvature > 0, curvature, 1.0)
        bounded = (curvature <= 0) | (jnp.linalg.norm(step + alpha * direction) >= radius)
        alpha = jnp.where(bounded, _to_border(step, direction, radius), alpha)
        remaining = residual - alpha * curved
        conjugate = remaining + remaining @ remaining / (residual @ residual) * direction
        return step + alpha * direction, image + alpha * curved, remaining, conjugate, bounded, k + 1

    nothing = jnp.zeros_like(grad)
    step, image, _, _, bounded, _ = lax.while_loop(
        unfinished, improve, (nothing, nothing, grad, grad, jnp.bool_(False), 0)
    )
    return step, grad @ step - 0.5 * step @ image, bounded


def _to_border(step: Any, direction: Any, radius: Any) -> Any:
    """The t >= 0 with |step + t direction| = radius."""
    a, b, c = direction @ direction, step @ direction, step @ step - radius**2
    return (-b + jnp.sqrt(jnp.maximum(b**2 - a * c, 0.0))) / a


@partial(jax.jit, static_argnums=(0, 1), compiler_options=COMPILED_QUICKLY)
def _log_mass(target: Target, layout: Layout, frame: Frame, batch: PyTree, power: Any, y: Any) -> Any:
    """Laplace approximation to the log mass of a mode, up to a constant; -inf where the curvature is not positive."""
    log_density = partial(_log_density, target, layout, frame, batch, power)
    curvatures = jnp.linalg.eigvalsh(-jax.hessian(log_density)(y))
    mass = power * log_density(y) - 0.5 * jnp.sum(jnp.log(jnp.maximum(curvatures, 1e-300)))
    return jnp.where(curvatures[0] > 0, mass, -jnp.inf)


def _distinct(ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct points among these, and which of them each one is."""
    modes: list[np.ndarray] = []
    which = np.zeros(len(ends), int)
    for k, end in enumerate(ends):
        near = [i for i, mode in enumerate(modes) if np.linalg.norm(end - mode) < 1.0]
        if not near:
            modes.append(end)
        which[k] = near[0] if near else len(modes) - 1
    return np.reshape(modes, (-1, ends.shape[1])), which
