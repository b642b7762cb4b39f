"""What is told its budget beforehand: `lv.sample`, `lv.svi`, and the Laplace approximation, which needs none."""

from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from time import monotonic, process_time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import langevin as lv
from langevin.compare.contestant import Build, Replicate, by_pace
from langevin.compare.found import LEVELS, Found, Snapshots, gaussian, snapshot
from langevin.compare.ours import told, worst
from langevin.compare.problem import Problem
from langevin.data.source import as_source
from langevin.precision import for_float32
from langevin.target import Layout

# Each call of `lv.svi` compiles anew, which is not to be timed: its parts are put together here.
from langevin.variational import _fit, _lower, last_tenth, trouble_of

# The defaults of `lv.svi`; steps of a first fit, before the pace is known, and of any; longest limit of `lv.sample`
# in budgets of seconds.
_RATE, _SCALE = 0.05, 0.1
_FIRST_STEPS, _FEWEST_STEPS = 4096, 32
_LONGEST = 16.0


def sample(method: str) -> Build:
    """`lv.sample`: one call for the visits, and one for the seconds, each from nothing and each timed by itself."""

    def build(problem: Problem, seconds: float) -> Replicate:
        known = {"set-up": 0.0, "wall": 1.0, "longer": 1.0}
        # What docs/networks.md says of models whose parameters are not identified.
        chosen = "sghmc" if method == "auto" and problem.predict is not None else method
        squared = _squared(problem)

        def called(kind: str, seed: int, limits: dict[str, Any]) -> Snapshots:
            began, wall = process_time(), monotonic()
            result: Any = lv.sample(
                problem.target, problem.data, problem.theta_0, method=chosen, seed=seed, progress=False, **limits
            )
            # Numbers and bars are made when they are asked for: that is part of the call.
            if problem.predict is None:
                found = told(result.mean, result.sd, result.quantiles((0.025, 0.975)))
            else:
                found = predicted(problem, result, squared)
            spent = process_time() - began
            known["set-up"], known["wall"] = result.setup_passes, (monotonic() - wall) / spent
            return {kind: snapshot(found, spent, (result.passes + result.setup_passes) * problem.num_data)}

        def replicate(seed: int, seconds: float, visits: float) -> Snapshots:
            passes = visits / problem.num_data - known["set-up"]
            first = called("visits", seed, {"passes": passes}) if passes > 0.0 else {}
            # Its limit is one of wall time: on a busy machine as much longer as the call before has waited.
            limit = seconds * float(np.clip(known["wall"], 1.0, 4.0))
            while known["longer"] < _LONGEST:
                # A limit that ends the set-up gives nothing: the first that gives an answer counts, and shows its time.
                # Later replicates begin with it, as a user would who has seen the first one fail.
                with suppress(lv.OutOfTime):
                    return first | called("seconds", seed, {"time_limit": known["longer"] * limit})
                known["longer"] *= 2.0
            return first | called("seconds", seed, {"time_limit": known["longer"] * limit})

        return replicate

    return build


def _squared(problem: Problem) -> Any:
    """(theta, (row, centre)) -> (prediction - centre)^2; one function for all replicates, so that it compiles once."""
    predict: Any = problem.predict
    return lambda theta, at: (predict(theta, at[0]) - at[1]) ** 2


def predicted(problem: Problem, result: Any, squared: Any) -> Found:
    """Means, sds and points of predictions as a user asks for them; the library has no bars for such points.

    To first order the expected square does not depend on where it is centred: its bar is the variance's.
    """
    mean = result.expectation(problem.predict, data=problem.rows)
    square = result.expectation(squared, data=(problem.rows, mean.value.astype(np.float32)))
    lower, upper = replace(square, log_scale=True).interval()
    draws = problem.compared(np.asarray(result.draws, np.float64))
    points = np.quantile(draws.reshape(-1, draws.shape[-1]), LEVELS, axis=0)
    status = worst({mean.status, square.status})
    root = np.sqrt(square.value)
    return Found(mean.value, root, points, mean.interval(), (np.sqrt(lower), np.sqrt(upper)), None, status)


def laplace(problem: Problem, seconds: float) -> Replicate:
    """The mode and the curvature there, whatever the budget."""

    def replicate(seed: int, seconds: float, visits: float) -> Snapshots:
        began = process_time()
        anchor = lv.laplace(problem.target, problem.data, problem.theta_0)
        spent = process_time() - began
        one = snapshot(gaussian(problem, np.asarray(anchor.theta, np.float64), anchor.root[0]), spent, anchor.cost)
        return {"visits": one, "seconds": one} if anchor.cost <= visits else {"seconds": one}

    return replicate


def svi(family: Any) -> Build:
    """The fit of `lv.svi`, compiled once for each number of steps: powers of two, the largest that fits."""

    def build(problem: Problem, seconds: float) -> Replicate:
        import optax

        source, layout = as_source(problem.data), Layout.of(problem.theta_0)
        data = jax.tree.map(jnp.asarray, source.aligned())
        root = np.full(problem.dimension, np.log(_SCALE), np.float32)
        start = (problem.theta_0, root if family == "mean_field" else np.diag(root))
        pace = {"seconds a step": seconds / _FIRST_STEPS}

        @cache
        def compiled(steps: int) -> Any:
            optimiser = optax.adam(optax.cosine_decay_schedule(_RATE, steps))
            target = for_float32(problem.target)
            fit = partial(_fit, target, layout, optimiser, problem.batch_size, source.num_data, steps)
            return jax.jit(fit).lower(start, data, jax.random.key(0)).compile()

        def fitted(seed: int, most: float) -> dict[str, Any]:
            steps = 2 ** int(np.log2(max(most, 2.0 * _FEWEST_STEPS)))
            fit = compiled(steps)
            began = process_time()
            (mean, root), traces = fit(start, data, jax.random.key(seed))
            lower = np.asarray(_lower(root), np.float64)
            spent = process_time() - began
            pace["seconds a step"] = spent / steps
            if trouble_of(mean, lower, *last_tenth(*traces)) is not None:
                # What lv.svi raises for gives no numbers here.
                lower = np.full_like(lower, np.nan)
            law = gaussian(problem, np.asarray(mean, np.float64), lower)
            return snapshot(law, spent, steps * problem.batch_size)

        return by_pace(fitted, problem, pace)

    return build
