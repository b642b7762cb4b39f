"""Ascents by Newton's method with a trust region, which may start far from any mode."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

# Value, gradient, and the map v -> Hessian v, at a point.
At = Callable[[np.ndarray], tuple[float, np.ndarray, Callable[[np.ndarray], np.ndarray]]]
_MAX_EVALUATIONS = 30
_MAX_INNER_STEPS = 12
# A start is too deep if log pi falls short of the mode's by ten times what it would in a Gaussian, |y|^2/2.
_DEEPEST = 5.0


@dataclass(frozen=True)
class Climb:
    """Where an ascent ended, with what log density, whether that is a stationary point, and what it took."""

    end: np.ndarray
    value: float
    settled: bool
    evaluations: int


def climb(at: At, start: np.ndarray, reference: Climb | None) -> Climb:
    """Newton's method with a trust region, until a stationary point, the reference's surroundings or the last step."""
    y, value, grad, times = start, -np.inf, np.zeros_like(start), None
    trial, gain, bounded, radius = start, 1.0, False, max(float(np.linalg.norm(start)), 1.0)
    evaluations, settled = 0, False
    while not settled and radius > 1e-9 and evaluations < _MAX_EVALUATIONS:
        if reference is not None and np.linalg.norm(y - reference.end) < 1.0:
            break
        evaluations += 1
        new_value, new_grad, new_times = at(trial)
        usable = np.isfinite(new_value) and bool(np.all(np.isfinite(new_grad)))
        if reference is not None:
            usable &= not new_value < reference.value - _DEEPEST * (len(start) + np.sum(trial**2))
        ratio = (new_value - value) / gain if usable else -np.inf
        if np.isfinite(value):
            length = float(np.linalg.norm(trial - y))
            radius = 0.25 * length if ratio < 0.25 else 3.0 * radius if ratio > 0.75 and bounded else radius
        if ratio > 1e-4:
            y, value, grad, times = trial, new_value, new_grad, new_times
        if times is None:
            # A start without a density to climb from is pulled in by halves.
            trial = 0.5 * trial
        else:
            step, gain, bounded = _newton_step(times, grad, radius)
            trial, settled = y + step, not bounded and 0 <= gain < 1e-8
    return Climb(y, value, settled, evaluations)


def _newton_step(
    hessian_times: Callable[[np.ndarray], np.ndarray], grad: np.ndarray, radius: float
) -> tuple[np.ndarray, float, bool]:
    """Conjugate gradients up the quadratic model, to its top or to the trust region's border (Steihaug, 1983).

    Returns the step, the rise of the model and whether the border stopped it.
    """
    step, image, residual, direction, bounded = np.zeros_like(grad), np.zeros_like(grad), grad, grad, False
    for _ in range(_MAX_INNER_STEPS):
        if not residual @ residual > 1e-4 * grad @ grad:
            break
        curved = -hessian_times(direction)
        curvature = direction @ curved
        alpha = residual @ residual / curvature if curvature > 0 else np.inf
        bounded = bool(curvature <= 0 or np.linalg.norm(step + alpha * direction) >= radius)
        if bounded:
            alpha = _to_border(step, direction, radius)
        remaining = residual - alpha * curved
        step, image = step + alpha * direction, image + alpha * curved
        if bounded:
            break
        direction = remaining + remaining @ remaining / (residual @ residual) * direction
        residual = remaining
    return step, float(grad @ step - 0.5 * step @ image), bounded


def _to_border(step: np.ndarray, direction: np.ndarray, radius: float) -> float:
    """The t >= 0 with |step + t direction| = radius."""
    a, b, c = direction @ direction, step @ direction, step @ step - radius**2
    return float((-b + np.sqrt(max(b**2 - a * c, 0.0))) / a)
