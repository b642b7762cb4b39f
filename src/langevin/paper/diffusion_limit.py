"""Diffusion limit: chains on one Brownian path approach the Langevin diffusion

Section 5. Chains of finer and finer mesh are driven by the increments of one Brownian path W, and their distance to the
diffusion on the same path is measured in the sup norm: at the chain's own times and over all t, with the full gradient
and with minibatches, with equal and with decreasing steps. The chains go through the sampler under test; the reference
is plain SGLD on a much finer grid.
"""

from itertools import product

import numpy as np
from scipy import stats

from langevin.paper import study
from langevin.paper.diffusion_exact import bridge_median, chi_square_score, error_law, ito_gaps
from langevin.paper.diffusion_figures import draw
from langevin.paper.diffusion_runs import (
    ALPHA,
    BATCH,
    CASES,
    COARSE,
    DIMENSION,
    GRADIENTS,
    PROBLEMS,
    STEPS,
    TIME,
    compute,
    gaussian_start,
)
from langevin.paper.replicates import standard_error
from langevin.paper.study import Finding, Judgement, Numbers, Row, agrees, judged
from langevin.theory.coupling import DiffusionLimit, Order

__all__ = ["check", "compute", "draw", "table"]

# A fit over finitely many meshes feels logarithms: the supremum over M points grows like sqrt(log M), and for steps
# k^-1/3 so does sqrt(sum delta^3) against 1/M. Such a factor is worth 1/(2 log M) in the order, 0.1 at M = 150.
ASYMPTOTIC = 0.1
_WORDS = {"equal": "equal steps", "decreasing": "steps k^-1/3"}


def check(numbers: Numbers) -> list[Finding]:
    """Orders of convergence, the exact law at the last time, and the identity of the proof."""
    return [
        _orders(numbers, "full", "equal", 1.0),
        _orders(numbers, "minibatch", "equal", 0.5),
        _orders(numbers, "full", "decreasing", 1.0),
        _orders(numbers, "minibatch", "decreasing", 0.5),
        _over_all_t(numbers, "equal"),
        _over_all_t(numbers, "decreasing"),
        _exact_law(numbers),
        _identity(numbers),
    ]


def _order(numbers: Numbers, case: str, errors: str) -> Order:
    """A power of the root mean square step, as in `lv.theory.diffusion_limit`, at the chain's times and over all t."""
    fitted = numbers[f"{case}/num_steps"] > COARSE
    return DiffusionLimit.order(numbers[f"{case}/{errors}"][fitted], numbers[f"{case}/rms_step"][fitted])


def judge(orders: dict[str, Order], paths: list[int], low: float, high: float, size: str) -> Judgement:
    """Reproduced if all orders lie in the interval. A small run may be too uncertain to tell; a full one may not.

    Clearly outside is by Student's law over the paths.
    """
    inside = all(low <= order.value <= high for order in orders.values())
    reach = [float(stats.t.isf(study.FALSE_ALARM / (2 * len(orders)), count - 1)) for count in paths]
    bars = [(order.value, r * order.stderr) for order, r in zip(orders.values(), reach, strict=True)]
    near = size != "full" and all(low < value + bar and value - bar < high for value, bar in bars)
    outside = f"an order outside {low:.2f} to {high:.2f}"
    return judged(
        inside or near,
        f"{outside}: the chains do not approach the diffusion at the rate of SGLD",
        inside,
        f"{outside}, by no more than its error: more paths and meshes will tell",
    )


def _paths(numbers: Numbers, cases: list[str]) -> list[int]:
    return [numbers[f"{case}/error_at_mesh"].shape[1] for case in cases]


def _list(orders: dict[str, Order]) -> str:
    return ", ".join(f"{name} {order}" for name, order in orders.items())


def _orders(numbers: Numbers, gradient: str, steps: str, expected: float) -> Finding:
    cases = [f"{problem}/{gradient}/{steps}" for problem in PROBLEMS]
    orders = {problem: _order(numbers, case, "error_at_mesh") for problem, case in zip(PROBLEMS, cases, strict=True)}
    low, high = expected - ASYMPTOTIC, expected + ASYMPTOTIC
    words = {"full": "the full gradient", "minibatch": "minibatches"}[gradient]
    return Finding(
        claim=f"With {words} and {_WORDS[steps]} the sup-norm error at the chain's times vanishes with order "
        f"{expected:g} in the root mean square step",
        printed="convergence as the mesh vanishes; the proof bounds the error by mesh^1/2",
        measured=_list(orders),
        **judge(orders, _paths(numbers, cases), low, high, str(numbers["size"])),
    )


def _over_all_t(numbers: Numbers, steps: str) -> Finding:
    """Two things add to the error: bridges, whose order follows from their law, and gradient noise with order 1/2."""
    cases = [f"{problem}/{gradient}/{steps}" for problem in PROBLEMS for gradient in GRADIENTS]
    orders = {case.rsplit("/", 1)[0]: _order(numbers, case, "error_everywhere") for case in cases}
    bridges = {problem: _bridge_order(numbers, problem, steps) for problem in PROBLEMS}
    # The fine grid misses some of a bridge's height, most on the finest mesh: 0.58 sqrt(1/16) of some 2 sqrt(delta),
    # which changes a slope over a factor of 8 by 0.03.
    low, high = min(bridges.values()) - 0.03, 0.53
    return Finding(
        claim=f"Over all t the interpolated chains with {_WORDS[steps]} converge with an order between that of "
        "Brownian bridges alone and 1/2, in the root mean square step: all chains miss the bridges between their "
        "times, and minibatches add gradient noise",
        printed="convergence in sup norm over [0, T], no rate",
        measured=f"{_list(orders)}; bridges alone "
        + ", ".join(f"{problem} {order:.3f}" for problem, order in bridges.items()),
        **judge(orders, _paths(numbers, cases), low, high, str(numbers["size"])),
    )


def _bridge_order(numbers: Numbers, problem: str, steps: str) -> float:
    case = f"{problem}/full/{steps}"
    counts, delta = numbers[f"{case}/num_steps"], numbers[f"{case}/rms_step"]
    fitted = counts > COARSE
    heights = [bridge_median(TIME[problem], count, ALPHA[steps], DIMENSION[problem]) for count in counts[fitted]]
    return DiffusionLimit.order(np.array(heights)[:, None], delta[fitted]).value


def _exact_law(numbers: Numbers) -> Finding:
    """The error at time T is a sum of independent terms with known variance: its mean square has a chi-square law."""
    scores = []
    for gradient, steps in product(GRADIENTS, STEPS):
        case = f"gaussian/{gradient}/{steps}"
        width = numbers[f"{case}/times"][1]
        batch = BATCH["gaussian"] if gradient == "minibatch" else None
        for count, row in zip(numbers[f"{case}/num_steps"], numbers[f"{case}/error_at_end"], strict=True):
            cells = np.rint(np.diff(numbers[f"{case}/mesh_times_{count}"]) / width).astype(np.int64)
            mean, variance = error_law(cells, width, gaussian_start(), batch)
            scores.append(chi_square_score(float(np.sum((row - mean) ** 2) / variance), row.size))
    good, largest = agrees(scores, 0.0, 1.0)
    return Finding(
        claim="On the Gaussian problem the mean squared error at time T is that of the exact linear recursion",
        printed="no constant given",
        measured=f"largest of {len(scores)} scores {largest:.1f}",
        **judged(good, "the mean squared distance to the diffusion is not that of SGLD"),
    )


def _identity(numbers: Numbers) -> Finding:
    """S = I(W~ + e1 + e2) against I(W~) + e1 + e2 for each mesh; without gradient noise e2 = 0 is not fitted to S."""
    right, wrong = {}, {}
    for gradient in GRADIENTS:
        case = f"gaussian/{gradient}/equal"
        gaps = []
        for count in numbers[f"{case}/num_steps"]:
            times = numbers[f"{case}/mesh_times_{count}"]
            brownian = numbers[f"{case}/brownian"][np.rint(times / numbers[f"{case}/times"][1]).astype(int)]
            gaps.append(ito_gaps(brownian, times, numbers[f"{case}/chain_{count}"], gradient == "minibatch"))
        right[gradient], wrong[gradient] = np.transpose(gaps)
    worst = max(gap.max() for gap in right.values())
    # Rounding, some thousand times, of numbers of order one; the printed form is off by some delta.
    good = worst < 1e-11 and min(gap.min() for gap in wrong.values()) > 1e-6
    right_form = "the error terms belong inside the Ito map; the conclusion stays"
    return Finding(
        claim="The interpolated chain S is the Ito map of the perturbed path W~ + e1 + e2, exactly",
        printed="S = I(W~) + e1 + e2",
        measured=f"I(W~ + e1 + e2) - S is at most {worst:.0e}; I(W~) + e1 + e2 - S falls from {wrong['full'][0]:.2g} "
        f"({COARSE} steps) to {wrong['full'][-1]:.2g} with the full gradient, from {wrong['minibatch'][0]:.2g} to "
        f"{wrong['minibatch'][-1]:.2g} with minibatches",
        **judged(good, "S does not solve the integral equation of its own path", corrected=right_form),
        erratum=14,
    )


def table(numbers: Numbers) -> list[Row]:
    """One row per case and mesh: the mean of each error over the paths, with its standard error."""
    rows: list[Row] = []
    for problem, gradient, steps in CASES:
        case = f"{problem}/{gradient}/{steps}"
        for i, count in enumerate(numbers[f"{case}/num_steps"]):
            row: Row = {"problem": problem, "gradient": gradient, "steps": steps, "num_steps": int(count)}
            row |= {name: float(numbers[f"{case}/{name}"][i]) for name in ("mesh", "rms_step")}
            for name in ("error_at_mesh", "error_everywhere"):
                errors = numbers[f"{case}/{name}"][i]
                row |= {name: float(errors.mean()), f"{name}_stderr": float(standard_error(errors))}
            rows.append(row)
    return rows
