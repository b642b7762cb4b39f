"""NumPyro's samplers and guides as its users would run them, on a model that knows the target only as a density."""

from functools import cache, partial
from time import process_time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import langevin as lv
from langevin.compare.contestant import Build, Replicate, by_pace
from langevin.compare.found import Found, from_draws, gaussian, measured, snapshot
from langevin.compare.problem import Problem

Array = Any
CHAINS, _DRAWS = 4, 32
# Steps of a first fit, before the pace is known; the first rate, and how far rates fall.
_FIRST_STEPS, _RATE, _FALL = 4096, 5e-2, 1e-2


def model_of(problem: Problem, batch_size: int | None = None) -> Any:
    """theta with a flat base and the target as factors; likelihoods in a plate, of which `batch_size` are looked at."""
    import numpyro
    from numpyro import distributions as dist

    likelihood: Any = problem.target.log_likelihood

    def model(data: Any) -> None:
        theta = numpyro.sample("theta", dist.ImproperUniform(dist.constraints.real_vector, (), (problem.dimension,)))
        numpyro.factor("prior", problem.target.log_prior(theta))
        with numpyro.plate("data", problem.num_data, subsample_size=batch_size) as rows:
            some = jax.tree.map(lambda leaf: leaf[rows], data) if batch_size else data
            numpyro.factor("likelihood", jax.vmap(likelihood, (None, 0))(theta, some))

    return model


def nuts(subsampled: bool) -> Build:
    """NUTS with a dense mass matrix; `subsampled` is HMCECS, energy-conserving subsampling with a proxy at the mode.

    Its kernels are driven as `MCMC` drives them, but in one compiled scan for all seeds: `MCMC` compiles anew.
    """

    def build(problem: Problem, seconds: float) -> Replicate:
        from numpyro.infer import HMCECS, NUTS

        rows = 10 * problem.batch_size

        def begun(warmup: int, key: Array, theta: Array, data: Any) -> Any:
            if subsampled:
                inner = NUTS(model_of(problem, rows), dense_mass=True)
                kernel: Any = HMCECS(inner, num_blocks=10, proxy=HMCECS.taylor_proxy({"theta": theta}))
            else:
                kernel = NUTS(model_of(problem), dense_mass=True)
            return kernel, kernel.init(key, warmup, {"theta": theta}, (data,), {})

        @partial(jax.jit, static_argnums=(0, 1))
        def moved(warmup: int, steps: int, keys: Array, theta: Array, states: Any, data: Any) -> Any:
            def one(key: Array, theta: Array, state: Any) -> Any:
                kernel, fresh = begun(warmup, key, theta, data)

                def move(state: Any, _: Any) -> Any:
                    state = kernel.sample(state, (data,), {})
                    inside = state.hmc_state if subsampled else state
                    return state, (inside.z["theta"], inside.num_steps)

                return jax.lax.scan(move, fresh if state is None else state, None, steps)

            return jax.vmap(one, (0, None, None if states is None else 0))(keys, theta, states)

        pace: dict[str, Any] = {"warm-up": 100}
        shared = (moved, jax.tree.map(jnp.asarray, problem.data), rows if subsampled else problem.num_data, pace)
        return partial(measured, lambda seed: _Turning(problem, subsampled, seed, seconds, *shared))

    return build


class _Turning:
    """Four chains in one program; the warm-up is 1000, 300 or 100 steps, whichever fits into half the time."""

    def __init__(
        self, problem: Problem, subsampled: bool, seed: int, seconds: float, moved: Any, data: Any, rows: int,
        pace: dict[str, Any],
    ) -> None:  # fmt: skip
        self._problem, self._moved, self._data, self._rows = problem, moved, data, rows
        self._keys, self._theta = jax.random.split(jax.random.key(seed), CHAINS), jnp.asarray(problem.theta_0)
        self.visits = 0.0
        if subsampled:
            anchor = lv.laplace(problem.target, problem.data, problem.theta_0)
            self.visits += 2 * anchor.cost
            self._theta = jnp.asarray(anchor.theta, jnp.float32)
        self._warmup = pace["warm-up"]
        self._states: Any = None
        self._draws: list[Any] = []
        self._advanced(self._warmup)
        if "each" not in pace:
            self._advanced(_DRAWS)
            self._states, began = None, process_time()
            self._advanced(self._warmup)
            pace["each"] = (process_time() - began) / self._warmup
            fitting = [count for count in (1000, 300) if count * pace["each"] < 0.5 * seconds]
            pace["warm-up"] = self._warmup = fitting[0] if fitting else 100
            # Compiled here, in the first run, which is not timed.
            self._states = None
            self._advanced(self._warmup)
        self._draws = []

    def _advanced(self, steps: int) -> None:
        found = self._moved(self._warmup, steps, self._keys, self._theta, self._states, self._data)
        self._states, (draws, counts) = jax.block_until_ready(found)
        self.visits += float(jnp.sum(counts)) * self._rows
        self._draws.append(np.asarray(draws, np.float64))

    def advance(self, seconds: float, visits: float) -> bool:
        """See `Chain`: 32 draws a chain."""
        self._advanced(_DRAWS)
        return True

    def look(self) -> Found:
        """See `Chain`."""
        return from_draws(self._problem, np.concatenate(self._draws, axis=1))


def guide(dense: bool) -> Build:
    """Variational inference on minibatches with AutoNormal or AutoMultivariateNormal, and Adam with falling rates.

    The number of steps has to be known beforehand: powers of two, the largest that fits by the pace of the fit before.
    """

    def build(problem: Problem, seconds: float) -> Replicate:
        from numpyro import optim
        from numpyro.infer import SVI, Trace_ELBO
        from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal

        model, data = model_of(problem, problem.batch_size), jax.tree.map(jnp.asarray, problem.data)
        pace = {"seconds a step": seconds / _FIRST_STEPS}

        @cache
        def compiled(steps: int) -> Any:
            fitted = (AutoMultivariateNormal if dense else AutoNormal)(model)
            svi = SVI(model, fitted, optim.Adam(lambda m: _RATE * _FALL ** (m / steps)), Trace_ELBO())

            def fit(key: Array, data: Any) -> Any:
                def move(state: Any, _: Any) -> tuple[Any, None]:
                    return svi.update(state, data)[0], None

                return svi.get_params(jax.lax.scan(move, svi.init(key, data), None, steps)[0])

            return jax.jit(fit).lower(jax.random.key(0), data).compile()

        def fitted(seed: int, most: float) -> dict[str, Any]:
            steps = 2 ** int(np.log2(max(most, 2.0)))
            fit = compiled(steps)
            began = process_time()
            found = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), fit(jax.random.key(seed), data))
            spent = process_time() - began
            pace["seconds a step"] = spent / steps
            if dense:
                law = gaussian(problem, found["auto_loc"], np.tril(found["auto_scale_tril"]))
            else:
                law = gaussian(problem, found["theta_auto_loc"], found["theta_auto_scale"])
            return snapshot(law, spent, steps * problem.batch_size)

        return by_pace(fitted, problem, pace)

    return build
