"""The No-U-Turn sampler of blackjax, the baseline that a reader would reach for first."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langevin.paper.study import Floats
from langevin.target import Target

Array = Any


@dataclass(frozen=True)
class NutsRun:
    """Draws of the first coordinate minus its start, and the gradients spent up to each: both (chains, draws).

    `warmup` is what the one adaptation cost, in gradients; it is not part of `gradients`.
    """

    u: Floats
    gradients: Floats
    warmup: int
    step_size: float


def blackjax_or_advice() -> ModuleType:
    """The module, or an error that says how to get it."""
    try:
        import blackjax
    except ImportError as error:
        raise ImportError(
            "the NUTS baseline of Figure 6 needs blackjax, which is not installed: pip install 'langevin[paper]'"
        ) from error
    return blackjax


def nuts(
    target: Target, data: Any, theta_0: Array, *, gradients: int, chains: int, seed: int, warmup: int = 400
) -> NutsRun:
    """Adapts step and diagonal mass once from theta_0, then runs chains from theta_0 until each has spent `gradients`.

    Cost: one full gradient a leapfrog step. Chains advance together: a round lasts as long as its longest trajectory.
    """
    adapt, advance = _compiled(target, warmup)
    key_adapt, key_run = jax.random.split(jax.random.key(seed))
    parameters, spent = adapt(key_adapt, theta_0, data)
    states = jnp.broadcast_to(theta_0, (chains, *np.shape(theta_0)))
    draws: list[Floats] = []
    costs: list[Floats] = []
    total = np.zeros(chains)
    while total.min() < gradients:
        keys = jax.random.split(jax.random.fold_in(key_run, len(draws)), chains)
        states, cost = advance(keys, states, data, parameters)
        total = total + np.asarray(cost, np.float64)
        draws.append(np.asarray(states[:, 0] - theta_0[0], np.float64))
        costs.append(total)
    return NutsRun(np.stack(draws, axis=1), np.stack(costs, axis=1), int(np.sum(spent)), float(parameters["step_size"]))


# Never emptied: compiled code is found by the identity of these functions.
@cache
def _compiled(target: Target, warmup: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(adaptation, one transition of all chains), compiled once for a target."""
    blackjax = blackjax_or_advice()

    @jax.jit
    def adapt(key: Array, theta_0: Array, data: Any) -> Any:
        adaptation = blackjax.window_adaptation(blackjax.nuts, lambda theta: target.log_density(theta, data))
        result, info = adaptation.run(key, theta_0, num_steps=warmup)
        return result.parameters, info.info.num_integration_steps

    @jax.jit
    def advance(keys: Array, thetas: Array, data: Any, parameters: Any) -> tuple[Array, Array]:
        sampler = blackjax.nuts(lambda theta: target.log_density(theta, data), **parameters)

        def one(key: Array, theta: Array) -> tuple[Array, Array]:
            state, info = sampler.step(key, sampler.init(theta))
            return state.position, info.num_integration_steps

        return jax.vmap(one)(keys, thetas)

    return adapt, advance
