"""Minibatches whose data are not equally likely: by weights, and by strata."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from langevin.target import Target

Array = Any
PyTree = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class _Weighted:
    """grad log prior(theta) + sum_j w_j grad log likelihood(theta, datum_{i_j}) for rows i_j drawn with weights w_j.

    A `CustomGradient`: rows are its own randomness, so the run has no subsampler.
    """

    target: Target = field(metadata={"static": True})
    batch_size: int = field(metadata={"static": True})

    def _rows(self, key: Array) -> tuple[Array, Array]:
        raise NotImplementedError

    def draw(self, key: Array) -> tuple[Array, Array]:
        """Rows and their weights."""
        return self._rows(key)

    def estimate(self, theta: PyTree, data: PyTree, u: tuple[Array, Array]) -> PyTree:
        """The estimate at theta."""
        rows, weights = u
        batch = jax.tree.map(lambda leaf: leaf.at[rows].get(mode="promise_in_bounds"), data)

        def log_density(t: PyTree) -> Array:
            each = jax.vmap(self.target.log_likelihood, (None, 0))(t, batch)
            return self.target.log_prior(t) + jnp.dot(weights.astype(each.dtype), each)

        return jax.grad(log_density)(theta)

    def cost(self, num_data: int) -> int:
        """The size of a minibatch."""
        return self.batch_size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)) or (self.target, self.batch_size) != (other.target, other.batch_size):
            return False
        pairs = zip(jax.tree.leaves(self), jax.tree.leaves(other), strict=True)
        return all(np.array_equal(one, another) for one, another in pairs)

    def __hash__(self) -> int:
        return hash((type(self), self.target, self.batch_size))


def _check_size(batch_size: Any) -> None:
    good = isinstance(batch_size, int | np.integer) and not isinstance(batch_size, bool) and batch_size >= 1
    if not good:
        raise ValueError(f"batch_size must be an integer of at least 1, got {batch_size!r}. Try batch_size=10.")


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class ImportanceSampled(_Weighted):
    """n data drawn with replacement with probabilities p_i, each weighted by 1 / (n p_i): unbiased for any p_i > 0.

    Least noisy for p_i proportional to the size of datum i's gradient; a row that gets too small a share brings rare
    large weights instead. Draws by Vose's alias table, one uniform and one comparison each, whose rounding to float32
    is part of the law: weights use the probabilities as they are really drawn. Cost: n datum visits; memory 3 N
    numbers.

    Zhao and Zhang, *Stochastic optimization with importance sampling for regularized loss minimization* (2015); for
    SGLD Putcha, Nemeth and Fearnhead, *Preferential subsampling for stochastic gradient Langevin dynamics* (2023); the
    table is that of Vose, *A linear algorithm for generating random numbers with a given distribution* (1991).

    Example:
        >>> import langevin as lv, numpy as np
        >>> model = lv.models.LinearGaussian.simulate(num_data=1000, seed=1)
        >>> likely = 1.0 + np.abs(model.data)
        >>> gradient = lv.ImportanceSampled.by(model.target, likely, batch_size=10)
        >>> ledger = lv.run(model.target, model.data, model.theta_0, gradient=gradient, schedule=lv.Constant(0.001),
        ...                 num_steps=300)
        >>> ledger.cost
        3000
    """

    keep: Array
    other: Array
    weight: Array

    @classmethod
    def by(cls, target: Target, weights: ArrayLike, batch_size: int) -> "ImportanceSampled":
        """With probabilities proportional to `weights`, one positive number for every datum."""
        likely = np.asarray(weights, np.float64)
        if likely.ndim != 1 or not likely.size or not np.all(np.isfinite(likely) & (likely > 0.0)):
            raise ValueError("weights must be positive finite numbers, one for every datum. Try 1 + |gradients|.")
        _check_size(batch_size)
        size = len(likely)
        level = likely / likely.mean()
        keep, other = np.ones(size), np.arange(size)
        small, large = list(np.flatnonzero(level < 1.0)), list(np.flatnonzero(level >= 1.0))
        while small and large:
            low, high = small.pop(), large[-1]
            keep[low], other[low] = level[low], high
            level[high] -= 1.0 - level[low]
            if level[high] < 1.0:
                small.append(large.pop())
        # Thresholds are compared with multiples of 2^-24: what is drawn has exactly these probabilities.
        keep = np.round(keep * 2.0**24) / 2.0**24
        really = (keep + np.bincount(other, 1.0 - keep, minlength=size)) / size
        if not np.all(really > 0.0):
            raise ValueError(
                f"weights must not differ by more than 2^23, got {likely.min():.3g} to {likely.max():.3g}: "
                f"a datum that is never drawn makes the gradient biased. Raise the smallest ones."
            )
        return cls(
            target, int(batch_size), keep.astype(np.float32), other.astype(np.int32), 1.0 / (batch_size * really)
        )

    def _rows(self, key: Array) -> tuple[Array, Array]:
        one, two = jax.random.split(key)
        cell = jax.random.randint(one, (self.batch_size,), 0, self.keep.shape[0])
        uniform = (jax.random.bits(two, (self.batch_size,)) >> 8).astype(jnp.float32) * np.float32(2.0**-24)
        rows = jnp.where(uniform < jnp.asarray(self.keep)[cell], cell, jnp.asarray(self.other)[cell])
        return rows, jnp.asarray(self.weight)[rows]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Stratified(_Weighted):
    """From each stratum s of N_s data n_s are drawn with replacement, each weighted by N_s / n_s: unbiased.

    What the strata have in common is no longer noise: C is that within them. n_s is N_s n / N rounded, at least 1, so
    that a step sees about `batch_size` data. Cost: sum of n_s datum visits; memory 2 N numbers.

    Cochran, *Sampling techniques* (1977), chapter 5, on proportional allocation; for minibatches Zhao and Zhang,
    *Accelerating minibatch stochastic gradient descent using stratified sampling* (2014).

    Example:
        >>> import langevin as lv, numpy as np
        >>> model = lv.models.LinearGaussian.simulate(num_data=1000, seed=1)
        >>> quarters = np.digitize(model.data, np.quantile(model.data, [0.25, 0.5, 0.75]))
        >>> gradient = lv.Stratified.by(model.target, quarters, batch_size=8)
        >>> ledger = lv.run(model.target, model.data, model.theta_0, gradient=gradient, schedule=lv.Constant(0.001),
        ...                 num_steps=300)
        >>> ledger.cost
        2400
    """

    order: Array
    first: Array
    size: Array
    weight: Array

    @classmethod
    def by(cls, target: Target, labels: ArrayLike, batch_size: int) -> "Stratified":
        """Strata are the data of equal labels, one label for every datum."""
        labels = np.asarray(labels)
        if labels.ndim != 1 or not labels.size:
            raise ValueError(f"labels must be one for every datum, a vector, got shape {labels.shape}.")
        _check_size(batch_size)
        _, stratum, size = np.unique(labels, return_inverse=True, return_counts=True)
        if len(size) > batch_size:
            raise ValueError(
                f"labels must name at most batch_size={batch_size} strata, each is drawn from in every step, got "
                f"{len(size)}. Merge some, or take larger minibatches."
            )
        count = np.maximum(np.rint(size * batch_size / len(labels)), 1).astype(int)
        start = np.cumsum(size) - size
        return cls(
            target,
            int(count.sum()),
            np.argsort(stratum, kind="stable").astype(np.int32),
            np.repeat(start, count).astype(np.int32),
            np.repeat(size, count).astype(np.int32),
            np.repeat(size / count, count),
        )

    def _rows(self, key: Array) -> tuple[Array, Array]:
        within = jax.random.randint(key, (self.batch_size,), 0, self.size)
        return jnp.asarray(self.order)[self.first + within], jnp.asarray(self.weight)
