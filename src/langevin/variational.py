"""Stochastic variational inference: Gaussians fitted from minibatches, as a baseline without error bars."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from langevin.data.source import as_source
from langevin.engine.checks import require, whole_number
from langevin.precision import for_float32
from langevin.target import Layout, Target

Array = Any
PyTree = Any
Family = Literal["mean_field", "full_rank"]


@dataclass(frozen=True)
class Variational:
    """A Gaussian fitted to a posterior: what it says of means and sds, and nothing about how far off they are.

    `mean`, `sd` (d,) and `covariance` (d, d) over the flattened theta, parameters by `names`; `elbo` the mean of the
    estimated lower bound over the last tenth of the steps, up to its constant; `visits` datum visits.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.LinearGaussian.simulate(seed=1)
        >>> fitted = lv.svi(model.target, model.data, model.theta_0, batch_size=10, num_steps=500)
        >>> fitted.names
        ('theta',)
    """

    names: tuple[str, ...]
    mean: NDArray[np.float64]
    sd: NDArray[np.float64]
    covariance: NDArray[np.float64]
    elbo: float
    visits: int


def svi(
    target: Target,
    data: PyTree,
    theta_0: PyTree,
    *,
    batch_size: int,
    family: Family = "mean_field",
    num_steps: int = 10_000,
    learning_rate: float = 0.05,
    scale: float = 0.1,
    seed: int = 0,
) -> Variational:
    """Fits q = N(mean, L L') by maximising a lower bound of the evidence from minibatches, with Adam.

        max  E_q[log prior(theta) + N/n sum_{i in batch} log likelihood(theta, datum_i)] + log det L,

    theta = mean + L eta, with L diagonal ("mean_field") or lower triangular ("full_rank"), one eta a step, rates that
    fall to 0 along a cosine, and the mean of the last half of the iterates. A baseline: of a Gaussian posterior with
    precision H mean field gives the sds 1/sqrt(H_ii), too small wherever parameters are correlated; full rank is right
    there, and elsewhere as good as a Gaussian can be. No error bars, no status. `scale` is the sd to start with. Cost:
    num_steps * batch_size datum visits; O(d^2) memory for full rank.

    Hoffman, Blei, Wang and Paisley, *Stochastic variational inference* (2013); with reparametrised gradients as in
    Kucukelbir et al., *Automatic differentiation variational inference* (2017). Needs the extra `svi`.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.LinearGaussian.simulate(seed=1)
        >>> fitted = lv.svi(model.target, model.data, model.theta_0, batch_size=10)
        >>> bool(abs(fitted.sd[0] / model.sigma_p - 1) < 0.1)
        True
    """
    try:
        import optax
    except ImportError as missing:
        raise ImportError("lv.svi needs optax. Install it with: pip install 'langevin[svi]'") from missing
    require(isinstance(target, Target), "target", target, "an lv.Target", "lv.Target(log_prior, log_likelihood)")
    require(family in ("mean_field", "full_rank"), "family", family, "'mean_field' or 'full_rank'", "'full_rank'")
    require(data is not None, "data", data, "given: minibatches are drawn from it", "your arrays")
    for name, value in (("learning_rate", learning_rate), ("scale", scale)):
        require(isinstance(value, int | float) and 0 < value < np.inf, name, value, "a positive number", "0.05")
    source = as_source(data)
    batch_size = whole_number("batch_size", batch_size, 1, try_this=10)
    num_steps = whole_number("num_steps", num_steps, 10, try_this=10_000)
    seed = whole_number("seed", seed, 0, 2**63 - 1)
    layout = Layout.of(theta_0)
    with jax.enable_x64(False):
        target = for_float32(target)
        target.check(theta_0, source.arrays)
        optimiser = optax.adam(optax.cosine_decay_schedule(learning_rate, num_steps))
        root = np.full(layout.size, np.log(scale), np.float32)
        start = (np.asarray(layout.flat(theta_0), np.float32), root if family == "mean_field" else np.diag(root))
        fit = partial(_fit, target, layout, optimiser, batch_size, source.num_data, num_steps)
        columns = jax.tree.map(jnp.asarray, source.aligned())
        (mean, root), bound = jax.jit(fit)(start, columns, jax.random.key(seed))
        lower = np.asarray(_lower(root), np.float64)
    covariance = np.diag(lower**2) if family == "mean_field" else lower @ lower.T
    return Variational(
        names=tuple(layout.names),
        mean=np.asarray(mean, np.float64),
        sd=np.sqrt(np.diagonal(covariance)),
        covariance=covariance,
        elbo=float(np.mean(np.asarray(bound, np.float64)[-max(num_steps // 10, 1) :])),
        visits=num_steps * batch_size,
    )


def _lower(root: Array) -> Array:
    """L: its diagonal is kept as a logarithm, so that it stays positive."""
    return jnp.exp(root) if root.ndim == 1 else jnp.tril(root, -1) + jnp.diag(jnp.exp(jnp.diagonal(root)))


def _fit(
    target: Target, layout: Layout, optimiser: Any, batch_size: int, num_data: int, num_steps: int, start: tuple,
    data: PyTree, key: Array,
) -> tuple[tuple, Array]:  # fmt: skip
    """The mean of the last half of the iterates, and the estimated bound at every step."""

    def loss(parts: tuple, eta: Array, batch: PyTree) -> Array:
        mean, root = parts
        lower = _lower(root)
        theta = layout.unravel(mean + (lower * eta if lower.ndim == 1 else lower @ eta))
        each = jax.vmap(target.log_likelihood, (None, 0))(theta, batch)
        volume = jnp.sum(root if root.ndim == 1 else jnp.diagonal(root))
        return -(target.log_prior(theta) + num_data / batch_size * jnp.sum(each) + volume)

    def step(carried: tuple, m: Array) -> tuple[tuple, Array]:
        parts, state, mean = carried
        to_noise, to_rows = jax.random.split(jax.random.fold_in(key, m))
        rows = jax.random.randint(to_rows, (batch_size,), 0, num_data)
        batch = jax.tree.map(lambda leaf: leaf[rows], data)
        value, grad = jax.value_and_grad(loss)(parts, jax.random.normal(to_noise, (layout.size,)), batch)
        change, state = optimiser.update(grad, state)
        parts = jax.tree.map(jnp.add, parts, change)
        share = 1.0 / jnp.maximum(m - num_steps // 2 + 1.0, 1.0)
        return (parts, state, jax.tree.map(lambda old, new: old + share * (new - old), mean, parts)), -value

    begin = (start, optimiser.init(start), start)
    (_, _, mean), bound = jax.lax.scan(step, begin, jnp.arange(num_steps))
    return mean, bound
