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
from langevin.errors import Diverged
from langevin.factorisations import one_by_one
from langevin.precision import for_float32
from langevin.startup import COMPILED
from langevin.target import Layout, Target

Array = Any
PyTree = Any
Family = Literal["mean_field", "full_rank"]
# A fit whose sds are off by more than this factor is refused, when a fit at an optimum is so once in 1e9.
_MOST_OFF, _FALSE_ALARM = 2.0, 1e-9


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

    theta = mean + L eta, with L = diag(sd) ("mean_field") or diag(sd) C, C lower triangular with rows of length 1
    ("full_rank"), one eta a step, rates that fall to 0 along a cosine, and the mean of the last half of the iterates. A
    baseline: of a Gaussian posterior with precision H mean field gives the sds 1/sqrt(H_ii), too small wherever
    parameters are correlated; full rank is right there, once it has arrived, and elsewhere as good as a Gaussian can
    be. No error bars, no status. `scale` is the sd to start with. Cost: num_steps * batch_size datum visits; O(d^2)
    memory for full rank.

    At an optimum no common factor of all sds betters the bound: E[(mean - theta)' grad log density] = d, and about
    d r^2 where they are too large by a factor r. A fit that is not finite, or has an r^2 clearly above 4 or below 1/4
    over its last tenth of steps, raises `lv.Diverged`. A mean that has not arrived is not seen: take more steps.

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
        number = isinstance(value, int | float | np.floating) and not isinstance(value, bool)
        require(number and 0 < value < np.inf, name, value, "a positive number", "0.05")
    source = as_source(data)
    batch_size = whole_number("batch_size", batch_size, 1, try_this=10)
    num_steps = whole_number("num_steps", num_steps, 10, try_this=10_000)
    seed = whole_number("seed", seed, 0, 2**63 - 1)
    layout = Layout.of(theta_0)
    with jax.enable_x64(False), one_by_one():
        target = for_float32(target)
        target.check(theta_0, source.arrays)
        optimiser = optax.adam(optax.cosine_decay_schedule(learning_rate, num_steps))
        root = np.full(layout.size, np.log(scale), np.float32)
        start = (np.asarray(layout.flat(theta_0), np.float32), root if family == "mean_field" else np.diag(root))
        fit = partial(_fit, target, layout, optimiser, batch_size, source.num_data, num_steps)
        columns = jax.tree.map(jnp.asarray, source.aligned())
        (mean, root), traces = jax.jit(fit, compiler_options=COMPILED)(start, columns, jax.random.key(seed))
        lower = np.asarray(_lower(root), np.float64)
    bound, ratio = last_tenth(*traces)
    trouble = trouble_of(mean, lower, bound, ratio)
    if trouble is not None:
        raise Diverged(
            f"The fit of family {family!r} {trouble}. Try a smaller scale (it was {scale:g}), a smaller learning_rate "
            f"(it was {learning_rate:g}) with more num_steps (they were {num_steps}), or columns of the data that have "
            f"mean 0 and sd 1.",
            None,
        )
    covariance = np.diag(lower**2) if family == "mean_field" else lower @ lower.T
    return Variational(
        names=tuple(layout.names),
        mean=np.asarray(mean, np.float64),
        sd=np.sqrt(np.diagonal(covariance)),
        covariance=covariance,
        elbo=float(np.mean(bound)),
        visits=num_steps * batch_size,
    )


def last_tenth(*traces: Any) -> list[NDArray[np.float64]]:
    """Of what a fit noted at every step."""
    return [np.asarray(each, np.float64)[-max(len(each) // 10, 1) :] for each in traces]


def trouble_of(mean: Any, lower: Any, bound: NDArray[np.float64], ratio: NDArray[np.float64]) -> str | None:
    """What is wrong with a fit, in words; `ratio` are noisy estimates of r^2, one a step."""
    # SciPy takes long to import.
    from scipy.special import bdtrc, stdtrit

    if not all(np.all(np.isfinite(each)) for each in (mean, lower, bound, ratio)):
        return "left the finite numbers"
    size, most = len(ratio), _MOST_OFF**2
    # By counts: a fit that has run away draws from tails without moments. Of numbers around 1 not half are above 4.
    if bdtrc(np.sum(ratio > most) - 1, size, 0.5) < _FALSE_ALARM:
        return f"has sds that are too large by a factor of {_MOST_OFF:g} or more"
    error = np.std(ratio, ddof=1) / np.sqrt(size) if size > 1 else np.inf
    if np.mean(ratio) + stdtrit(size - 1, 1.0 - _FALSE_ALARM) * error < 1.0 / most:
        return f"has sds that are too small by a factor of {_MOST_OFF:g} or more"
    return None


def _lower(root: Array) -> Array:
    """L of log sds, and below the diagonal what the rows of C have beside a 1 before they are brought to length 1.

    One learning rate is to do for all of it, so nothing but the mean has units: a step of 0.05 in L itself may be many
    sds.
    """
    if root.ndim == 1:
        return jnp.exp(root)
    rows = jnp.eye(len(root), dtype=root.dtype) + jnp.tril(root, -1)
    return jnp.exp(jnp.diagonal(root))[:, None] * rows / jnp.linalg.norm(rows, axis=1, keepdims=True)


def _fit(
    target: Target, layout: Layout, optimiser: Any, batch_size: int, num_data: int, num_steps: int, start: tuple,
    data: PyTree, key: Array,
) -> tuple[tuple, tuple[Array, Array]]:  # fmt: skip
    """The mean of the last half of the iterates; at every step the bound and (mean - theta)' grad log density / d."""

    def loss(parts: tuple, eta: Array, batch: PyTree) -> Array:
        mean, root = parts
        lower = _lower(root)
        theta = layout.unravel(mean + (lower * eta if lower.ndim == 1 else lower @ eta))
        each = jax.vmap(target.log_likelihood, (None, 0))(theta, batch)
        volume = jnp.sum(root if root.ndim == 1 else jnp.log(jnp.diagonal(lower)))
        return -(target.log_prior(theta) + num_data / batch_size * jnp.sum(each) + volume)

    def step(carried: tuple, m: Array) -> tuple[tuple, tuple[Array, Array]]:
        parts, state, mean = carried
        to_noise, to_rows = jax.random.split(jax.random.fold_in(key, m))
        rows = jax.random.randint(to_rows, (batch_size,), 0, num_data)
        batch = jax.tree.map(lambda leaf: leaf[rows], data)
        value, grad = jax.value_and_grad(loss)(parts, jax.random.normal(to_noise, (layout.size,)), batch)
        change, state = optimiser.update(grad, state)
        parts = jax.tree.map(jnp.add, parts, change)
        share = 1.0 / jnp.maximum(m - num_steps // 2 + 1.0, 1.0)
        # All log sds together are the logarithm of a common factor of L.
        ratio = 1.0 + jnp.mean(grad[1] if grad[1].ndim == 1 else jnp.diagonal(grad[1]))
        mean = jax.tree.map(lambda old, new: old + share * (new - old), mean, parts)
        return (parts, state, mean), (-value, ratio)

    begin = (start, optimiser.init(start), start)
    (_, _, mean), told = jax.lax.scan(step, begin, jnp.arange(num_steps))
    return mean, told
