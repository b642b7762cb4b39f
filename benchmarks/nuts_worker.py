"""NUTS of blackjax in a process of its own: posterior means of a logistic regression to a wanted number of draws.

    python -m benchmarks.nuts_worker 10000 --chains 1       # one line of JSON

In the fastest form we found: float32, data as an argument with labels multiplied in and, for one chain, transposed (the
products are then vector operations); a log sigmoid whose derivative costs one exponential; one compiled adaptation of
step and diagonal mass, one compiled scan of draws, `vmap` over chains. No part of langevin is imported.
"""

from time import monotonic

BEGAN = monotonic()

import argparse  # noqa: E402
import json  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

import blackjax  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from benchmarks.scaling_problem import DIMENSION, simulate  # noqa: E402

IMPORTED = monotonic()
Array = Any
ADAPTATION = 500
# Draws of a chain in one dispatch.
ROUND = 100


@jax.custom_jvp
def log_sigmoid(u: Array) -> Array:
    return jnp.minimum(u, 0.0) - jnp.log1p(jnp.exp(-jnp.abs(u)))


log_sigmoid.defjvps(lambda tangent, value, u: tangent / (1.0 + jnp.exp(u)))


def log_density(theta: Array, signed: Array) -> Array:
    """`signed` holds y_i x_i as rows, or transposed as columns."""
    u = signed @ theta if signed.shape[1] == DIMENSION else theta @ signed
    return jnp.sum(log_sigmoid(u)) - 0.5 * (theta @ theta)


def adapt(key: Array, theta_0: Array, signed: Array) -> tuple[Array, Any, Array]:
    """Last position, parameters of the sampler, gradients spent."""
    adaptation = blackjax.window_adaptation(blackjax.nuts, lambda theta: log_density(theta, signed))
    result, info = adaptation.run(key, theta_0, num_steps=ADAPTATION)
    return result.state.position, result.parameters, jnp.sum(info.info.num_integration_steps)


def draw(key: Array, thetas: Array, signed: Array, parameters: Any) -> tuple[Array, Array, Array]:
    """The next ROUND draws of every chain: last positions, draws (chains, ROUND, d), gradients spent."""
    sampler = blackjax.nuts(lambda theta: log_density(theta, signed), **parameters)

    def chain(key: Array, theta: Array) -> tuple[Array, Array, Array]:
        def one(state: Any, key: Array) -> tuple[Any, tuple[Array, Array]]:
            state, info = sampler.step(key, state)
            return state, (state.position, info.num_integration_steps)

        state, (positions, spent) = jax.lax.scan(one, sampler.init(theta), jax.random.split(key, ROUND))
        return state.position, positions, jnp.sum(spent)

    if len(thetas) == 1:
        # Without `vmap`, which would turn the tree's branches into selections.
        last, positions, spent = chain(key, thetas[0])
        return last[None], positions[None], spent
    last, positions, spent = jax.vmap(chain)(jax.random.split(key, len(thetas)), thetas)
    return last, positions, jnp.sum(spent)


def effective_draws(draws: np.ndarray) -> np.ndarray:
    """Effective sample sizes for the means, (d,), of draws (chains, M, d): C M var / (g_0 + 2 sum of g_k).

    g_k are autocovariances averaged over chains about the common mean, summed in pairs (g_2k + g_2k+1) as long as those
    are positive (Geyer's initial positive sequence).
    """
    chains, length, _ = draws.shape
    centred = draws - draws.mean(axis=(0, 1))
    spectrum = np.abs(np.fft.rfft(centred, 2 * length, axis=1)) ** 2
    g = np.fft.irfft(spectrum, axis=1)[:, :length].mean(axis=0) / length
    pairs = g[: length // 2 * 2].reshape(length // 2, 2, -1).sum(axis=1)
    kept = np.cumprod(pairs > 0, axis=0)
    return chains * length * g[0] / (2.0 * (pairs * kept).sum(axis=0) - g[0])


def compiled(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    return jax.jit(function).lower(*arguments).compile()


def solve(num_data: int, seed: int, chains: int, effective: float, most_seconds: float) -> dict[str, Any]:
    """Draws until every mean has this many effective draws, or sampling has taken `most_seconds`."""
    x, y = simulate(num_data, seed)
    began = monotonic()
    signed = jnp.asarray(x * y[:, None] if chains > 1 else np.ascontiguousarray((x * y[:, None]).T))
    theta_0, keys = jnp.zeros(DIMENSION), jax.random.split(jax.random.key(seed), 2)
    adaptation = compiled(adapt, keys[0], theta_0, signed)
    compile_seconds = monotonic() - began

    began = monotonic()
    position, parameters, spent = jax.block_until_ready(adaptation(keys[0], theta_0, signed))
    adapt_seconds = monotonic() - began

    began, thetas = monotonic(), jnp.broadcast_to(position, (chains, DIMENSION))
    advance = compiled(draw, keys[1], thetas, signed, parameters)
    compile_seconds += monotonic() - began

    seconds, gradients, found = 0.0, 0, np.zeros(DIMENSION)
    rounds: list[np.ndarray] = []
    while found.min() < effective and seconds < most_seconds:
        began = monotonic()
        key = jax.random.fold_in(keys[1], len(rounds))
        thetas, positions, cost = jax.block_until_ready(advance(key, thetas, signed, parameters))
        seconds += monotonic() - began
        rounds.append(np.asarray(positions, np.float64))
        gradients += int(cost)
        found = effective_draws(np.concatenate(rounds, axis=1))
    draws = np.concatenate(rounds, axis=1)
    return {
        "import": IMPORTED - BEGAN,
        "compile": compile_seconds,
        "setup": adapt_seconds,
        "sampling": seconds,
        "setup_gradients": int(spent),
        "gradients": gradients,
        "draws": draws.shape[0] * draws.shape[1],
        "least_effective": float(found.min()),
        "median_effective": float(np.median(found)),
        "mean": draws.mean(axis=(0, 1)).tolist(),
        "sd": draws.std(axis=(0, 1)).tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("num_data", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chains", type=int, default=1)
    parser.add_argument("--effective", type=float, default=1e4)
    parser.add_argument("--most-seconds", type=float, default=60.0)
    options = parser.parse_args()
    print(json.dumps(solve(options.num_data, options.seed, options.chains, options.effective, options.most_seconds)))


if __name__ == "__main__":
    main()
