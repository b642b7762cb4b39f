"""How our kernels are set: the step by the kernel's own theory, or by its rate of acceptance."""

from collections.abc import Callable
from typing import Any

import numpy as np

import langevin as lv
from langevin.compare.ours import Setting, Settle
from langevin.compare.problem import Floats, Problem
from langevin.compare.steps import MOST_ROWS, balanced, gradient_noise, scores

_ADAPTING = 300
# (problem, anchor) -> the gradient, its rows, and the variance of its noise in Laplace units
Gradient = Callable[[Problem, lv.Anchor], tuple[Any, Any, float]]


def tuned(problem: Problem, anchor: lv.Anchor, seed: int, steps: float) -> Setting:
    """The paper's SGLD: decreasing steps (a m + b)^-1/3 by `lv.tune`, on minibatches without replacement."""
    n = problem.batch_size
    passes = max(steps * n / problem.num_data, 10.0)
    found = lv.tune(problem.target, problem.data, anchor.mode, passes=passes, batch_size=n, chains=4, seed=seed)
    return Setting(lv.SGLD(), found.schedule, anchor.cost + found.cost, subsample=found.subsample)


def whitened(kernel: Any, gradient: Gradient | None = None, most: float = np.inf) -> Settle:
    """Units of the Laplace approximation; noise measured for plain minibatches, or as `gradient` states it.

    `most` is the longest step: a kernel without bias on Gaussians would take any, and diverge on other posteriors.
    """

    def settle(problem: Problem, anchor: lv.Anchor, seed: int, steps: float) -> Setting:
        d, n = problem.dimension, problem.batch_size
        if gradient is None:
            part, rows = lv.Minibatch(), lv.WithReplacement(n)
            noise = gradient_noise(problem, anchor.theta, anchor.root[0], n)
        else:
            part, rows, level = gradient(problem, anchor)
            noise = level * np.eye(d)
        delta = min(balanced(kernel, np.eye(d), noise, steps), most)
        visits = set_up(problem, anchor)
        return Setting(kernel, lv.Constant(delta), visits, part, rows, lv.Whitened.by(anchor))

    return settle


def set_up(problem: Problem, anchor: lv.Anchor) -> float:
    """Datum visits of the anchor and of the measurement of the noise."""
    return anchor.cost + min(problem.num_data, MOST_ROWS)


def control_variate(problem: Problem, anchor: lv.Anchor) -> tuple[Any, Any, float]:
    """First order: noise of one datum about d in posterior units (docs/choose.md)."""
    n = problem.batch_size
    return lv.ControlVariate(anchor, order=1), lv.WithReplacement(n), problem.dimension / n


def second_order(problem: Problem, anchor: lv.Anchor) -> tuple[Any, Any, float]:
    """Second order: noise about 1/N; eight rows are enough."""
    return lv.ControlVariate(anchor, order=2), lv.WithReplacement(min(8, problem.batch_size)), 1.0 / problem.num_data


def svrg(problem: Problem, anchor: lv.Anchor) -> tuple[Any, Any, float]:
    """A full pass every N/n steps, which is half of all visits."""
    n = problem.batch_size
    period = max(problem.num_data // n, 1)
    return lv.SVRG(period=period), lv.WithReplacement(n), 2.0 * problem.dimension / n


def saga(problem: Problem, anchor: lv.Anchor) -> tuple[Any, Any, float]:
    """A table of the gradients of all data."""
    n = problem.batch_size
    return lv.SAGA(), lv.WithReplacement(n), 2.0 * problem.dimension / n


def fisher(problem: Problem, anchor: lv.Anchor, seed: int, steps: float) -> Setting:
    """SGFS at twice SGLD's step: its damping takes off the bias that limits SGLD there."""
    n = problem.batch_size
    noise = gradient_noise(problem, anchor.theta, anchor.root[0], n)
    delta = 2.0 * balanced(lv.SGLD(), np.eye(problem.dimension), noise, steps)
    # A thousand small steps gather its matrix before larger ones are taken.
    schedule = lv.Custom(lambda m: np.where(np.asarray(m) > 1000, delta, 0.5 * delta))
    visits = set_up(problem, anchor)
    return Setting(lv.SGFS(), schedule, visits, lv.Minibatch(), lv.WithReplacement(n), lv.Whitened.by(anchor))


def preconditioned(problem: Problem, anchor: lv.Anchor, seed: int, steps: float, gamma: bool = True) -> Setting:
    """RMSprop's diagonal with its whole past, Gamma included or not; SGLD's step in the units that it will find."""
    delta, squares = mean_squares(problem, anchor, steps)
    kernel = lv.PreconditionedSGLD(decay=1.0, floor=float(0.1 * np.sqrt(squares.min())), gamma=gamma)
    rows = lv.WithReplacement(problem.batch_size)
    return Setting(kernel, lv.Constant(delta), set_up(problem, anchor), subsample=rows)


def mean_squares(problem: Problem, anchor: lv.Anchor, steps: float) -> tuple[float, Floats]:
    """SGLD's balanced step in the units of RMSprop, and the mean squares of gradients (d,) that these are made of."""
    noise = gradient_noise(problem, anchor.theta, np.eye(problem.dimension), problem.batch_size)
    squares = np.diagonal(noise) + np.diagonal(anchor.precision)
    root = np.diag(squares**-0.25)
    return balanced(lv.SGLD(), root @ anchor.precision @ root, root @ noise @ root, steps), squares


def weighted(stratify: bool) -> Settle:
    """SGLD in Laplace units with rows drawn by the size of their gradients at the mode, or from strata of it."""

    def settle(problem: Problem, anchor: lv.Anchor, seed: int, steps: float) -> Setting:
        n = problem.batch_size
        found = scores(problem, anchor.theta, anchor.root[0])
        sizes = np.linalg.norm(found, axis=1)
        if stratify:
            # Fifths along the direction in which gradients differ most.
            leading = found @ np.linalg.eigh(np.atleast_2d(np.cov(found.T)))[1][:, -1]
            strata = np.argsort(np.argsort(leading)) * min(5, n) // len(leading)
            gradient: Any = lv.Stratified.by(problem.target, strata, n)
            within = np.stack([found[strata == k].var(axis=0) for k in np.unique(strata)]).mean(axis=0)
            level = problem.num_data**2 / n * within
        else:
            likely = sizes + 0.1 * sizes.mean()
            gradient = lv.ImportanceSampled.by(problem.target, likely, n)
            level = likely.sum() / n * (found**2 / likely[:, None]).sum(axis=0)
        delta = balanced(lv.SGLD(), np.eye(problem.dimension), np.diag(level), steps)
        visits = anchor.cost + problem.num_data
        return Setting(lv.SGLD(), lv.Constant(delta), visits, gradient, None, lv.Whitened.by(anchor))

    return settle


def accepted(kernel: Any) -> Settle:
    """An exact kernel in Laplace units; its step is adapted to its acceptance in 300 steps that are thrown away."""

    def settle(problem: Problem, anchor: lv.Anchor, seed: int, steps: float) -> Setting:
        coordinates = lv.Preconditioned.by(anchor.covariance)
        schedule = _adapted(problem, anchor, kernel, coordinates, seed)
        return Setting(kernel, schedule, anchor.cost, coordinates=coordinates, adapting_steps=_ADAPTING)

    return settle


def _adapted(problem: Problem, anchor: lv.Anchor, kernel: Any, coordinates: lv.Coordinates, seed: int) -> lv.Constant:
    return lv.adapt_step(
        problem.target, problem.data, anchor.mode, kernel=kernel, coordinates=coordinates, num_steps=_ADAPTING,
        seed=seed,
    )  # fmt: skip


def metric(problem: Problem, anchor: lv.Anchor, seed: int, steps: float, full: bool = False) -> Setting:
    """MALA with the Hessian of each place for its metric; unit steps, as its authors have them."""
    return Setting(lv.ManifoldMALA(full=full), lv.Constant(1.0), anchor.cost)


def prior_units(kernel: Any) -> Settle:
    """Proposals that keep the Gaussian prior, in its units; the step adapted as `accepted` does, in those units."""

    def settle(problem: Problem, anchor: lv.Anchor, seed: int, steps: float) -> Setting:
        assert problem.prior_sd is not None
        coordinates = lv.Preconditioned.by(problem.prior_sd**2)
        schedule = _adapted(problem, anchor, kernel, coordinates, seed)
        return Setting(kernel, schedule, anchor.cost, coordinates=coordinates, adapting_steps=_ADAPTING)

    return settle


def sequential(confident: bool) -> Settle:
    """Random walks of 2.4/sqrt(d) in Laplace units that look at some of the data: by a t test, or by a bound."""

    def settle(problem: Problem, anchor: lv.Anchor, seed: int, steps: float) -> Setting:
        kernel: Any = lv.AusterityMH(epsilon=0.01, batch=max(problem.batch_size, 2))
        if confident:
            reach = np.linalg.norm(problem.data[0] @ anchor.root[0], axis=1).max()
            kernel = lv.ConfidenceMH(lipschitz=float(reach), batch=max(problem.batch_size, 2))
        coordinates = lv.Preconditioned.by(anchor.covariance)
        schedule = lv.Constant(2.4**2 / problem.dimension)
        return Setting(kernel, schedule, anchor.cost, coordinates=coordinates, anchored=False)

    return settle
