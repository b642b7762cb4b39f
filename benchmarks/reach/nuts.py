"""NUTS of blackjax with window adaptation, four chains side by side: the peer, and where need be the reference."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from benchmarks.nuts_worker import effective_draws

Floats = NDArray[np.float64]
WARM_UP, ROUND = 1000, 500


def rounds(log_density: Callable[[Any], Any], theta_0: Floats, chains: int, seed: int) -> Iterator[Floats]:
    """Warms up, then yields ROUND draws of every chain at a time, (chains, ROUND, d), without end."""

    @jax.jit
    def adapt(key: Any, start: Any) -> tuple[Any, Any]:
        adaptation = blackjax.window_adaptation(blackjax.nuts, log_density)
        result, _ = adaptation.run(key, start, num_steps=WARM_UP)
        return result.state, result.parameters

    @jax.jit
    def advance(key: Any, state: Any, parameters: Any) -> tuple[Any, Any]:
        def one(state: Any, key: Any) -> tuple[Any, Any]:
            state, _ = blackjax.nuts(log_density, **parameters).step(key, state)
            return state, state.position

        return jax.lax.scan(one, state, jax.random.split(key, ROUND))

    def keys(stage: int) -> Any:
        return jax.random.split(jax.random.fold_in(jax.random.key(seed), stage), chains)

    state, parameters = jax.vmap(adapt, (0, None))(keys(0), jnp.asarray(theta_0))
    for stage in count(1):
        state, positions = jax.vmap(advance)(keys(stage), state, parameters)
        yield np.asarray(positions, np.float64)


def moments(first: Floats, second: Floats) -> dict[str, Floats]:
    """Means and sds with Monte Carlo errors, from theta and (theta - centre)^2 of every draw, each (chains, M, d).

    The variance is E[second] - (mean - centre)^2; near the mean its error is that of E[second], and an sd has
    1/(2 sd) of it. The centre must be the mean to within a few of its errors.
    """
    mean = first.mean(axis=(0, 1))
    sd = np.sqrt(second.mean(axis=(0, 1)))
    return {"mean": mean, "sd": sd, "mean_stderr": stderr(first), "sd_stderr": stderr(second) / (2.0 * sd)}


def stderr(values: Floats) -> Floats:
    """Monte Carlo errors of the means over (chains, M) of each column; zero where it is constant."""
    spread = values.std(axis=(0, 1))
    varied = spread > 1e-12 * (1.0 + np.abs(values).max(axis=(0, 1)))
    found = np.zeros_like(spread)
    found[varied] = spread[varied] / np.sqrt(effective_draws(values[..., varied]))
    return found


def r_hat(values: Floats) -> float:
    """The largest split R-hat of the columns of draws (chains, M, d)."""
    half = values.shape[1] // 2
    parts = np.concatenate([values[:, :half], values[:, half : 2 * half]])
    within, between = parts.var(axis=1, ddof=1).mean(axis=0), parts.mean(axis=1).var(axis=0, ddof=1)
    varied = within > 0
    return float(np.sqrt(np.max((half - 1) / half + between[varied] / within[varied], initial=1.0)))
