"""blackjax's samplers as its users would run them: four chains, one compiled scan, data as arguments."""

from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import langevin as lv
from langevin.compare.contestant import Build, Replicate
from langevin.compare.found import Found, from_draws, measured
from langevin.compare.problem import Problem, log_density
from langevin.compare.steps import MOST_ROWS, balanced_sgld, stein_discrepancies

Array = Any
CHAINS = 4
# Draws of a portion; about this many portions make a run.
_DRAWS, _PORTIONS = 128, 32
# Steps tried over sqrt(N), which is the order of a posterior's width; the share of a run that each is tried for, all at
# once; points looked at, and full gradients that these may take.
_GRID = np.array([1.0, 0.3, 0.1, 0.03, 0.01])
_TRIAL_SHARE, _TRIAL_POINTS, _TRIAL_VISITS = 0.05, 128, 1e7
_BURN_IN = 0.1
# Draws of a portion of NUTS.
_TURNS = 32

OfDelta = Callable[[float], float]
# (key, state, minibatch, step) -> state
Step = Callable[[Array, Any, Any, Array], Any]
# grad_estimator -> (init(position, key), step, where the position is in a state)
Make = Callable[[Any], tuple[Callable[[Array, Array], Any], Step, Callable[[Any], Array]]]


def sgld(estimator: Any) -> Any:
    """It moves by eps grad + sqrt(2 eps) noise: eps is delta/2."""
    import blackjax

    kernel = blackjax.sgld(estimator)
    return lambda position, key: kernel.init(position), kernel.step, lambda state: state


def sghmc(estimator: Any) -> Any:
    """Ten steps of eps on one minibatch from a fresh momentum, its defaults: they move as delta = (10 eps)^2 does."""
    import blackjax

    kernel = blackjax.sghmc(estimator)
    return lambda position, key: kernel.init(position), kernel.step, lambda state: state


def sgnht(estimator: Any) -> Any:
    """The thermostat at its defaults."""
    import blackjax

    kernel = blackjax.sgnht(estimator)
    return kernel.init, kernel.step, lambda state: state.position


def minibatches(make: Make, of_delta: OfDelta | None, gradients: int = 1) -> Build:
    """A sampler on minibatches, from the mode: `of_delta` makes its step of SGLD's balanced delta.

    None tries a grid and takes the step with the least Stein discrepancy.
    """

    def build(problem: Problem, seconds: float) -> Replicate:
        from blackjax.sgmcmc.gradients import grad_estimator

        n, N = problem.batch_size, problem.num_data
        init, step, position = make(grad_estimator(problem.target.log_prior, problem.target.log_likelihood, N))
        data = jax.tree.map(jnp.asarray, problem.data)

        def one(key: Array, state: Any, eps: Array, stride: Array, data: Any) -> Any:
            def move(m: Array, state: Any) -> Any:
                rows, noise = jax.random.split(jax.random.fold_in(key, m))
                chosen = jax.random.randint(rows, (n,), 0, N)
                return step(noise, state, jax.tree.map(lambda leaf: leaf[chosen], data), eps)

            return jax.lax.fori_loop(0, stride, move, state)

        @jax.jit
        def portion(key: Array, states: Any, eps: Array, stride: Array, data: Any) -> Any:
            def draw(states: Any, key: Array) -> Any:
                keys = jax.random.split(key, len(eps))
                states = jax.vmap(one, (0, 0, 0, None, None))(keys, states, eps, stride, data)
                return states, jax.vmap(position)(states)

            return jax.lax.scan(draw, states, jax.random.split(key, _DRAWS))

        start = jax.jit(jax.vmap(init, (None, 0)))
        choose = stein_discrepancies(problem)
        shared = _Shared(portion, start, choose, data, of_delta, n * gradients)
        return partial(measured, lambda seed: _Stepping(problem, shared, seed, seconds))

    return build


class _Shared:
    """What replicates have in common: compiled programs, and the pace."""

    def __init__(self, portion: Any, start: Any, choose: Any, data: Any, of_delta: OfDelta | None, rows: int) -> None:
        self.portion, self.start, self.choose, self.data = portion, start, choose, data
        self.of_delta, self.rows = of_delta, rows
        self.steps = 10_000.0  # of a chain in a run


class _Stepping:
    """Four chains of equal steps, from the mode, whose search for a step comes first and is counted."""

    def __init__(self, problem: Problem, shared: _Shared, seed: int, seconds: float) -> None:
        self._problem, self._shared, self._seconds = problem, shared, seconds
        self._spent, self._steps = 0.0, 0
        anchor = lv.laplace(problem.target, problem.data, problem.theta_0)
        mode = jnp.asarray(anchor.theta, jnp.float32)
        key, self._key = jax.random.split(jax.random.key(seed))
        self.visits = float(anchor.cost)
        eps = self._tried(problem, mode, key) if shared.of_delta is None else self._stated(problem, anchor)
        self._eps = jnp.full(CHAINS, eps, jnp.float32)
        self._states = shared.start(mode, jax.random.split(jax.random.fold_in(key, 1), CHAINS))
        self._draws: list[Any] = []

    def _stated(self, problem: Problem, anchor: lv.Anchor) -> float:
        self.visits += min(problem.num_data, MOST_ROWS)
        assert self._shared.of_delta is not None
        return self._shared.of_delta(balanced_sgld(problem, anchor, CHAINS * self._shared.steps))

    def _tried(self, problem: Problem, mode: Array, key: Array) -> float:
        shared, N = self._shared, problem.num_data
        grid = jnp.asarray(_GRID / np.sqrt(N), jnp.float32)
        stride = max(int(_TRIAL_SHARE * shared.steps) // _DRAWS, 1)
        states = shared.start(mode, jax.random.split(key, len(grid)))
        _, draws = shared.portion(key, states, grid, stride, shared.data)
        count = int(np.clip(_TRIAL_VISITS / len(grid) / N, 8, _TRIAL_POINTS))
        points = jnp.swapaxes(draws, 0, 1)[:, -count:]
        self.visits += len(grid) * (stride * _DRAWS * shared.rows + count * N)
        return float(grid[int(np.argmin(shared.choose(points, shared.data)))])

    def advance(self, seconds: float, visits: float) -> bool:
        """See `Chain`: a portion of draws, further apart where steps are quick."""
        began, stride = process_time(), max(int(self._shared.steps / _DRAWS / _PORTIONS), 1)
        each = CHAINS * _DRAWS * self._shared.rows
        if np.isfinite(visits):
            # Up to the mark, where a look will be taken.
            stride = min(stride, max(int((visits - self.visits) / each) + 1, 1))
        self._key, key = jax.random.split(self._key)
        self._states, draws = self._shared.portion(key, self._states, self._eps, stride, self._shared.data)
        self._draws.append(np.asarray(draws, np.float64))
        self.visits += stride * each
        if len(self._draws) > 1:
            # Without the first portion, which may have compiled.
            self._spent += process_time() - began
            self._steps += stride * _DRAWS
            self._shared.steps = self._steps / max(self._spent, 1e-6) * self._seconds
        return True

    def look(self) -> Found:
        """See `Chain`; the first tenth is left out."""
        draws = np.concatenate(self._draws).swapaxes(0, 1)
        return from_draws(self._problem, draws[:, int(_BURN_IN * draws.shape[1]) :])


def nuts(problem: Problem, seconds: float) -> Replicate:
    """NUTS after window adaptation with a dense mass matrix."""
    import blackjax

    value = log_density(problem)
    data = jax.tree.map(jnp.asarray, problem.data)

    def adapted(warmup: int) -> Any:
        @jax.jit
        def run(keys: Array, data: Any) -> Any:
            def one(key: Array) -> Any:
                adapt = blackjax.window_adaptation(
                    blackjax.nuts, lambda theta: value(theta, data), is_mass_matrix_diagonal=False
                )
                (state, parameters), info = adapt.run(key, jnp.asarray(problem.theta_0), num_steps=warmup)
                return state, parameters, jnp.sum(info.info.num_integration_steps)

            return jax.vmap(one)(keys)

        return run

    @jax.jit
    def portion(keys: Array, states: Any, parameters: Any, data: Any) -> Any:
        def one(key: Array, state: Any, parameters: Any) -> Any:
            kernel = blackjax.nuts(lambda theta: value(theta, data), **parameters)

            def move(state: Any, key: Array) -> Any:
                state, info = kernel.step(key, state)
                return state, (state.position, info.num_integration_steps)

            return jax.lax.scan(move, state, jax.random.split(key, _TURNS))

        return jax.vmap(one)(keys, states, parameters)

    pace: dict[str, Any] = {"warm-up": 100}
    return partial(measured, lambda seed: _Turning(problem, adapted, portion, data, seed, seconds, pace))


class _Turning:
    """Four chains of NUTS in one program; the warm-up is 1000, 300 or 100 steps, whichever fits into half the time."""

    def __init__(
        self, problem: Problem, adapted: Any, portion: Any, data: Any, seed: int, seconds: float, pace: dict[str, Any]
    ) -> None:
        self._problem, self._portion, self._data = problem, portion, data
        key, self._key = jax.random.split(jax.random.key(seed))
        keys = jax.random.split(key, CHAINS)
        began, warmup = process_time(), pace["warm-up"]
        if warmup not in pace:
            pace[warmup] = adapted(warmup)
        self._states, self._parameters, steps = jax.block_until_ready(pace[warmup](keys, data))
        if "each" not in pace:
            began = process_time()
            jax.block_until_ready(pace[warmup](keys, data))
            pace["each"] = (process_time() - began) / warmup
            fitting = [count for count in (1000, 300) if count * pace["each"] < 0.5 * seconds]
            pace["warm-up"] = fitting[0] if fitting else 100
            if pace["warm-up"] not in pace:
                # Compiled here, in the first run, which is not timed.
                pace[pace["warm-up"]] = adapted(pace["warm-up"])
                pace[pace["warm-up"]](keys, data)
        self.visits = float(jnp.sum(steps)) * problem.num_data
        self._draws: list[Any] = []

    def advance(self, seconds: float, visits: float) -> bool:
        """See `Chain`: 32 draws a chain."""
        self._key, key = jax.random.split(self._key)
        self._states, (draws, steps) = self._portion(
            jax.random.split(key, CHAINS), self._states, self._parameters, self._data
        )
        self._draws.append(np.asarray(draws, np.float64))
        self.visits += float(jnp.sum(steps)) * self._problem.num_data
        return True

    def look(self) -> Found:
        """See `Chain`."""
        return from_draws(self._problem, np.concatenate(self._draws, axis=1))
