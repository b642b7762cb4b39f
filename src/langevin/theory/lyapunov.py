"""The Lyapunov conditions under which SGLD is stable, looked at numerically for any target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from langevin.data.source import as_source
from langevin.engine.checks import require, whole_number
from langevin.precision import isolated
from langevin.target import Layout, Target
from langevin.theory._rays import Floats, Surroundings
from langevin.theory._survey import Survey, smallest_beta

PyTree = Any

WORDS = {
    "wrong way": "the drift points outwards there, as V measures it; the density grows without end, has another mode "
    "far away, or one parameter is the scale of another",
    "flat": "no pull is left there beyond rounding; the density falls off slower than a Gaussian, or not at all",
    "heavy tails": "the pull, measured by V, fades with the distance, so this V shows no return at an exponential "
    "rate; with a quadratic V, r^-1 is that of tails like exp(-|theta|), which do return so, r^-2 of polynomial ones, "
    "which do not",
    "overshoot": "the gradient grows faster than linearly there; a step of any fixed size jumps over the mode and away",
    "steep V": "the Lyapunov function grows faster than a square there; take one that does not",
    "slow V": "the gradient grows at most linearly there, but the Lyapunov function slower than a square; take one",
    "no density": "the log density or its gradient is not a number there; move the boundary of the support to infinity",
    "overflow": "the numbers overflow there, which tells nothing about the density; write it, or V, in a form that "
    "does not, such as jnp.logaddexp(0, z) for log(1 + exp(z)), or lv.log_sigmoid",
}


@dataclass(frozen=True, eq=False)
class Failure:
    """A condition ("noise", "size" or "drift") that fails, how (a key of `WORDS`), and on which line.

    The line is theta_0 + shift + r * direction, |direction| = 1.

    Example:
        >>> import langevin as lv
        >>> failure = lv.theory.stability(lv.Target(lambda t: -(t**4)), None, 0.0).failures[0]
        >>> failure.condition, failure.kind
        ('size', 'overshoot')
    """

    condition: str
    kind: str
    direction: Floats
    shift: Floats
    names: tuple[str, ...]
    seen: str

    def __str__(self) -> str:
        where = _spelled(self.direction, self.names)
        where += f" from theta_0 + ({_spelled(self.shift, self.names)})" if self.shift.any() else ""
        return f"{self.kind} along {where}: {self.seen}. In words: {WORDS[self.kind]}."


@dataclass(frozen=True, eq=False)
class Stability:
    """What was found on lines theta_0 + shift + radius * direction; print it for a report. Evidence, not proof.

    The constants serve every point looked at, nan where the condition fails: E|H|^(2 p_H) <= C_noise V^p_H,
    |grad V|^2 + |grad log pi|^2 <= C_size V and 1/2 <grad V, grad log pi> <= -alpha V + beta. `directions` and
    `shifts`, 0 for most, have shape (lines, d); `radii`, `V`, `drift` = 1/2 <grad V, grad log pi>, `size` = |grad V|^2
    + |grad log pi|^2 and `noise` = (E|H|^(2 p_H))^(1/p_H) shape (lines, radii), nan from where a line is not finite.

    Example:
        >>> import langevin as lv
        >>> found = lv.theory.stability(lv.Target(lambda t: -0.5 * t**2), None, 0.0)
        >>> found.holds, found.alpha > 0
        (True, True)
    """

    failures: tuple[Failure, ...]
    alpha: float
    beta: float
    C_size: float
    C_noise: float
    p_H: float
    names: tuple[str, ...]
    directions: Floats
    shifts: Floats
    radii: Floats
    V: Floats
    drift: Floats
    size: Floats
    noise: Floats

    @property
    def holds(self) -> bool:
        """Whether no condition was seen to fail."""
        return not self.failures

    @property
    def pull(self) -> Floats:
        """-1/2 <grad V, grad log pi> / V: bounded away from 0 far out if the drift condition holds."""
        return -self.drift / self.V

    def beta_for(self, alpha: float) -> float:
        """The smallest beta that serves this alpha at every point looked at."""
        return smallest_beta(self.drift, self.V, self.size, alpha)

    def __str__(self) -> str:
        points, reach = np.count_nonzero(np.isfinite(self.V)), np.nanmax(np.where(np.isfinite(self.V), self.radii, 0.0))
        p = f"{self.p_H:g}"
        rows = {
            "noise": (f"E|H|^{2 * self.p_H:g} <= C V^{p}", f"C = {self.C_noise:.4g}, for minibatches of any size"),
            "size": ("|grad V|^2 + |grad log pi|^2 <= C V", f"C = {self.C_size:.4g}"),
            "drift": (
                "1/2 <grad V, grad log pi> <= -alpha V + beta",
                f"alpha = {self.alpha:.4g}, beta = {self.beta:.4g}",
            ),
        }
        failed = {failure.condition: str(failure) for failure in self.failures}
        unseen = all(failure.kind == "overflow" for failure in self.failures)
        verdict = "no failure seen" if self.holds else "NOT judged" if unseen else "NOT met"
        lines = [
            f"Lyapunov conditions: {verdict}. Looked at {points} points on {len(self.directions)} lines from and "
            f"beside theta_0, up to a distance of {reach:.0e}."
        ]
        for name, (rule, constants) in rows.items():
            fails = "CANNOT BE JUDGED for" if failed.get(name, "").startswith("overflow") else "FAILS by"
            verdict = f"{fails} {failed[name]}" if name in failed else f"holds with {constants}"
            lines.append(f"  {name:5}  {rule:44}  {verdict}")
        return "\n".join([*lines, "This is numerical evidence along lines, not a proof."])


def stability(
    target: Target,
    data: PyTree,
    theta_0: PyTree,
    *,
    lyapunov: Callable[[PyTree], jax.Array] | None = None,
    p_H: float = 2.0,
    num_random: int = 16,
    seed: int = 0,
) -> Stability:
    """Looks whether a target meets the Lyapunov conditions that keep SGLD stable, and with which constants.

    For V: theta -> [1, inf) that tends to infinity (`lyapunov`, by default 1 + |theta - theta_0|^2) and the error H of
    the minibatch gradient:

        noise:  E|H(theta)|^(2 p_H) <= C V(theta)^p_H
        size:   |grad V|^2 + |grad log pi|^2 <= C V
        drift:  1/2 <grad V, grad log pi> <= -alpha V + beta,  alpha > 0

    Lines leave theta_0 along the axes, the eigenvectors of the curvature there and far out, `num_random` random
    directions, points beside it along the axes, and neighbours of the worst. A condition fails if its ratio still grows
    (or the pull still fades) by the far end, 1e30 scales away: as a power of the distance, for a logarithm cannot be
    seen, so that exp(-theta^2 / log|theta|) passes. The drift pulls V back to the level beta/alpha: alpha is the
    largest for which that is at most twice its least. Second derivatives of V are assumed bounded. H is that of a
    minibatch of one, the noisiest. Cost: 124 N datum visits a line, about 10 d + 2 num_random + 54 lines (fewer above
    d = 64), one d x d eigenproblem. Of very large data pass a part: it has the same tails, with other constants.

    Example:
        >>> import langevin as lv
        >>> found = lv.theory.stability(lv.Target(lambda t: -(t**4)), None, 0.0)
        >>> found.holds, found.failures[0].condition, found.failures[0].kind
        (False, 'size', 'overshoot')
    """
    require(isinstance(target, Target), "target", target, "an lv.Target", "lv.Target(log_prior, log_likelihood)")
    require(lyapunov is None or callable(lyapunov), "lyapunov", lyapunov, "a function of theta, or None", "None")
    number = isinstance(p_H, (int, float)) and 2 <= p_H < np.inf
    require(number, "p_H", p_H, "a number of at least 2, as in the theorems", "2.0")
    num_random, seed = whole_number("num_random", num_random, 0, try_this=16), whole_number("seed", seed, 0)
    layout = Layout.of(theta_0)
    source = None if data is None else as_source(data)
    centre = layout.flat(theta_0)
    likelihood = None if target.log_likelihood is None else isolated(target.log_likelihood)
    apart = Target(isolated(target.log_prior), likelihood)
    with jax.enable_x64(True):
        apart.check(theta_0, None if source is None else source.arrays)
        V = None if lyapunov is None else isolated(lyapunov)
        around = Surroundings(apart, source, layout, centre, V, float(p_H))
        _check_centre(around)
        return _judged(Survey.of(around, num_random, np.random.default_rng(seed)), around)


def _judged(survey: Survey, around: Surroundings) -> Stability:
    """Judges the three conditions by the far ends of the lines, with constants that serve all points."""
    names, p_H, shifts = around.layout.names, around.p_H, survey.origins - around.centre
    lowest = np.unravel_index(np.nanargmin(survey.V), survey.V.shape)
    if survey.V[lowest] < 1:
        raise ValueError(
            f"lyapunov must be at least 1 everywhere, got {survey.V[lowest]:.4g} at a distance of "
            f"{survey.radii[lowest]:.3g} from theta_0 along {_spelled(survey.directions[lowest[0]], names)}. "
            f"Add a constant to it."
        )
    faults = {
        "noise": survey.growth(survey.noise, "overshoot", "(E|H|^(2 p_H))^(1/p_H)"),
        "size": survey.growth(survey.grad_V2, "steep V", "|grad V|^2")
        or survey.growth(survey.grad2, "overshoot", "|grad log pi|^2"),
        "drift": survey.drift_fault(around),
    }
    failures = tuple(
        Failure(condition, fault.kind, survey.directions[fault.line], shifts[fault.line], names, fault.seen)
        for condition, fault in faults.items()
        if fault is not None
    )
    alpha, beta = survey.drift_constants() if faults["drift"] is None else (np.nan, np.nan)
    C_noise = float(np.nanmax(survey.noise / survey.V)) ** p_H if faults["noise"] is None else np.nan
    C_size = float(np.nanmax(survey.size / survey.V)) if faults["size"] is None else np.nan
    return Stability(
        failures, alpha, beta, C_size, C_noise, p_H, names,
        survey.directions, shifts, survey.radii, survey.V, survey.drift, survey.size, survey.noise,
    )  # fmt: skip


def _check_centre(around: Surroundings) -> None:
    """Refuses a start from which nothing can be seen, and a V that is no Lyapunov function."""
    if around.lyapunov is not None:
        shape = getattr(jax.eval_shape(around.lyapunov, around.layout.unravel(around.centre)), "shape", None)
        require(
            shape == (), "lyapunov", f"shape {shape}", "a function with scalar values", "lambda t: 1 + jnp.sum(t**2)"
        )
    here = around(around.centre[None])
    if not (np.isfinite(here.grad).all() and np.isfinite(here.log_density).all()):
        raise ValueError(
            f"theta_0 must have a finite log density and gradient, got {here.log_density[0]} and {here.grad[0]}. "
            f"Start inside the support, and check the model for log(0) and 0/0."
        )
    axes = np.concatenate([np.eye(around.layout.size), -np.eye(around.layout.size)])
    level = np.isnan(around.doubling(axes))
    if level.any():
        where = _spelled(axes[int(np.argmax(level))], around.layout.names)
        raise ValueError(
            f"lyapunov must tend to infinity in every direction, got less than twice its value at theta_0 along "
            f"{where}. Try lyapunov=None for 1 + |theta - theta_0|^2."
        )


def _spelled(direction: Floats, names: tuple[str, ...]) -> str:
    """The largest parts of a unit vector by parameter name, e.g. "0.8 beta[0] - 0.6 beta[1]"."""
    order = np.argsort(-np.abs(direction), kind="stable")[:4]
    parts = [(direction[k], names[k]) for k in order if abs(direction[k]) > 0.1 * np.abs(direction).max()]
    text = " ".join(f"{'-' if u < 0 else '+'} {abs(u):.2g} {name}" for u, name in parts)
    return text.removeprefix("+ ").replace("- ", "-", 1) if text.startswith("- ") else text.removeprefix("+ ")
