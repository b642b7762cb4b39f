"""The posterior: a log prior and the log likelihood of one datum, over any pytree of parameters."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from langevin import mistakes

Array = jax.Array
PyTree = Any


@dataclass(frozen=True)
class Layout:
    """How a pytree of float arrays lies in one flat vector; a static, hashable value.

    Leaves come in the order in which the user wrote them, where JAX would sort the keys of a dict: `order` holds their
    places among JAX's leaves, `shapes` and `names` are in the user's order.
    """

    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]
    order: tuple[int, ...]

    @classmethod
    def of(cls, tree: PyTree, argument: str = "theta_0") -> "Layout":
        """The layout of a parameter pytree; raises if a leaf is not a floating-point array."""
        paths = jax.tree_util.tree_leaves_with_path(tree)
        treedef: Any = jax.tree.structure(tree)
        if not paths:
            raise ValueError(f"{argument} must hold at least one array, got {tree!r}. Try {argument}=jnp.zeros(3).")
        for path, leaf in paths:
            # A key of JAX's random numbers is an array that NumPy does not know.
            dtype = leaf.dtype if isinstance(leaf, jax.Array) else np.asarray(leaf).dtype
            if jnp.issubdtype(dtype, jax.dtypes.extended) or not np.issubdtype(dtype, np.floating):
                received = f"{leaf!r:.60}" if dtype == np.dtype(object) else f"dtype {dtype}"
                raise ValueError(
                    f"{argument}{jax.tree_util.keystr(path)} must be a floating-point array, got {received}: gradients "
                    f"need real numbers. Write 0.0 for 0, or use .astype(float); leave what is no parameter out, as "
                    f"eqx.partition(model, eqx.is_inexact_array) or nnx.split(model, nnx.Param, ...) do."
                )
            if np.all(np.isfinite(leaf)) and np.max(np.abs(leaf), initial=0.0) > np.finfo(np.float32).max:
                raise ValueError(
                    f"{argument}{jax.tree_util.keystr(path)} must fit in float32 (below 3.4e38), got "
                    f"{np.max(np.abs(leaf))}. Rescale the parameter."
                )
            if not np.all(np.isfinite(leaf)):
                raise ValueError(
                    f"{argument}{jax.tree_util.keystr(path)} must be finite, got {np.asarray(leaf)!r}. "
                    f"Start from a point where the log posterior is finite."
                )
        order = tuple(_as_written(tree, treedef.unflatten(range(len(paths)))))
        shapes = tuple(np.shape(paths[k][1]) for k in order)
        names = tuple(
            _name(paths[k][0]) + (f"[{','.join(map(str, index))}]" if shape else "")
            for k, shape in zip(order, shapes, strict=True)
            for index in np.ndindex(*shape)
        )
        return cls(treedef, shapes, names, order)

    @property
    def size(self) -> int:
        """Dimension d of the flat vector."""
        return sum(prod(shape) for shape in self.shapes)

    def leaves(self, tree: PyTree) -> list[Any]:
        """The arrays of a pytree of this structure, in the order of the flat vector."""
        found = self.treedef.flatten_up_to(tree)
        return [found[k] for k in self.order]

    def flat(self, tree: PyTree) -> np.ndarray:
        """The pytree as one flat float64 vector, on the host."""
        return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in self.leaves(tree)])

    def ravel(self, tree: PyTree) -> Array:
        """The pytree as one flat vector."""
        leaves = self.leaves(tree)
        if len(leaves) == 1:
            return jnp.reshape(leaves[0], -1)
        return jnp.concatenate([jnp.reshape(leaf, -1) for leaf in leaves])

    def unravel(self, flat: Any) -> PyTree:
        """The flat vector as a pytree."""
        leaves, start = [None] * len(self.shapes), 0
        for place, shape in zip(self.order, self.shapes, strict=True):
            leaves[place] = flat[start : start + prod(shape)].reshape(shape)
            start += prod(shape)
        ranks = np.argsort(self.order).tolist()
        return _rewritten(self.treedef.unflatten(leaves), self.treedef.unflatten(ranks))


def _as_written(tree: PyTree, places: PyTree) -> Iterator[int]:
    """The places of the leaves, dicts in their own order; `places` is a pytree of the same structure."""
    if type(tree) is dict:
        for key, child in tree.items():
            yield from _as_written(child, places[key])
    elif type(tree) in (list, tuple):
        for child, place in zip(tree, places, strict=True):
            yield from _as_written(child, place)
    else:
        yield from jax.tree.leaves(places)


def _rewritten(tree: PyTree, ranks: PyTree) -> PyTree:
    """The pytree with its dicts in the order of their leaves' ranks: what comes out can go in again."""
    if type(tree) is dict:
        keys = sorted(tree, key=lambda key: min(jax.tree.leaves(ranks[key]), default=-1))
        return {key: _rewritten(tree[key], ranks[key]) for key in keys}
    if type(tree) in (list, tuple):
        return type(tree)(_rewritten(child, rank) for child, rank in zip(tree, ranks, strict=True))
    return tree


def _name(path: tuple) -> str:
    """A parameter's name from its pytree path: {"beta": ...} -> beta; a bare array is called theta."""
    keys = [str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path]
    return ".".join(keys) if keys else "theta"


@runtime_checkable
class Repeated(Protocol):
    """A log likelihood that works through its datum many times, as quadrature does, and says how often."""

    @property
    def repeats(self) -> int:
        """Evaluations of the datum for one log likelihood."""


def arithmetic(log_likelihood: Any, arrays: PyTree) -> int:
    """Numbers that one log likelihood of a `Repeated` kind goes through; 1 for any other."""
    return log_likelihood.repeats * numbers(log_likelihood, arrays) if isinstance(log_likelihood, Repeated) else 1


def numbers(log_likelihood: Any, arrays: PyTree) -> int:
    """Numbers in a datum of a `Repeated` kind, which may be a group of many rows; 1 for any other."""
    if not isinstance(log_likelihood, Repeated):
        return 1
    return sum(max(prod(leaf.shape[1:]), 1) for leaf in jax.tree.leaves(arrays))


@dataclass(frozen=True)
class Target:
    """A posterior pi(theta) proportional to exp(log_prior(theta) + sum_i log_likelihood(theta, datum_i)).

    log_prior: theta -> scalar. log_likelihood: (theta, ONE datum) -> scalar, datum the pytree of the data without its
    leading axis; None for a target without data, whose whole log density is `log_prior`. Gradients are those of JAX;
    a per-datum, minibatch or full gradient costs 1, n or N datum visits.

    Example:
        >>> import jax.numpy as jnp, langevin as lv
        >>> target = lv.Target(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
        >>> float(target.grad(jnp.float32(0.0), jnp.array([1.0, 2.0])))
        3.0
    """

    log_prior: Callable[[PyTree], Array]
    # A function of (theta, datum), or None: typed loosely, since tracing code calls it only where it is there.
    log_likelihood: Any = None

    def __post_init__(self) -> None:
        if not callable(self.log_prior):
            raise ValueError(f"log_prior must be a function of theta, got {self.log_prior!r}.")
        if self.log_likelihood is not None and not callable(self.log_likelihood):
            raise ValueError(f"log_likelihood must be a function of (theta, datum), got {self.log_likelihood!r}.")

    def log_density(self, theta: PyTree, data: PyTree, typical: Any = 0.0) -> Array:
        """Unnormalised log posterior on all the data, less `typical` for each datum. Cost: N datum visits."""
        value = self.log_prior(theta)
        if self.log_likelihood is None:
            return value
        return value + jnp.sum(jax.vmap(self.log_likelihood, (None, 0))(theta, data) - typical)

    def grad(self, theta: PyTree, data: PyTree) -> PyTree:
        """Gradient of the log posterior on all the data. Cost: N datum visits."""
        return jax.grad(self.log_density)(theta, data)

    def minibatch_grad(self, theta: PyTree, batch: PyTree, num_data: int) -> PyTree:
        """grad log prior + (N/n) sum over the minibatch: unbiased for `grad`. Cost: n datum visits."""
        size = jax.tree.leaves(batch)[0].shape[0]
        prior = jax.grad(self.log_prior)(theta)
        total = jax.tree.map(lambda g: jnp.sum(g, axis=0), self.datum_grads(theta, batch))
        return jax.tree.map(lambda p, g: p + num_data / size * g, prior, total)

    def datum_grads(self, theta: PyTree, batch: PyTree) -> PyTree:
        """Gradients of the log likelihood of each datum, stacked on a leading axis. Cost: n datum visits."""
        return jax.vmap(jax.grad(self.log_likelihood), (None, 0))(theta, batch)

    def check(self, theta: PyTree, data: PyTree) -> None:
        """Raises, before anything is compiled, if the functions do not return scalars for these arguments."""
        prior = _scalar("log_prior", self.log_prior, theta)
        mistakes.check_indices("log_prior", prior, lambda k: None)
        if self.log_likelihood is None:
            if data is not None:
                raise ValueError(
                    "data must be None for a target without log_likelihood, got data. "
                    "Give Target a log_likelihood(theta, datum), or pass data=None."
                )
            return
        if data is None:
            raise ValueError("data must not be None: the target has a log_likelihood. Pass the observations.")
        datum = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), data)
        likelihood = _scalar("log_likelihood", self.log_likelihood, theta, datum)
        own, columns = len(jax.tree.leaves(theta)), jax.tree.leaves(data)
        for k, (path, _) in enumerate(jax.tree_util.tree_leaves_with_path(theta)):
            if mistakes.ignored(prior, range(k, k + 1)) and mistakes.ignored(likelihood, range(k, k + 1)):
                raise ValueError(
                    f"theta_0{jax.tree_util.keystr(path)} must be used by the model, but neither log_prior nor "
                    f"log_likelihood depends on it: it would have no posterior. Use it, or leave it out."
                )
        if mistakes.ignored(likelihood, range(own, own + len(columns))):
            raise ValueError(
                "log_likelihood must depend on its datum, but its value is the same whatever the datum is. Use its "
                "second argument in place of data from outside the function."
            )
        mistakes.check_indices("log_likelihood", likelihood, lambda k: None if k < own else _extent(columns[k - own]))


def _extent(column: Any) -> tuple[int, int]:
    return int(column.min()), int(column.max())


def _scalar(name: str, function: Callable, *arguments: PyTree) -> Any:
    """The traced function; raises unless it returns one real number."""
    jaxpr, value = mistakes.traced(name, function, arguments)
    shape = getattr(value, "shape", None)
    if shape != ():
        raise ValueError(
            f"{name} must return a scalar, got {'shape ' + str(shape) if shape is not None else type(value).__name__}. "
            f"It describes {'ONE datum' if len(arguments) > 1 else 'the whole of theta'}: "
            f"sum over its components, e.g. with jnp.sum, and remove any batch axis."
        )
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(f"{name} must return a floating-point number, got dtype {value.dtype}.")
    return jaxpr


@jax.custom_jvp
def log_sigmoid(x: Array) -> Array:
    """log(1 / (1 + exp(-x))) whose derivative costs one exponential: d/dx = 1 / (1 + exp(x)).

    `jax.nn.log_sigmoid` under `grad` evaluates three transcendental functions; inside a sampler's step that is a
    third of the whole cost.

    Example:
        >>> float(log_sigmoid(0.0)) == float(-jnp.log(2.0))
        True
    """
    # Primitives, since every model traces them: jnp.logaddexp has a derivative of its own to trace through.
    return lax.sub(lax.min(x, lax.full_like(x, 0.0)), lax.log1p(lax.exp(lax.neg(lax.abs(x)))))


@log_sigmoid.defjvp
def _log_sigmoid_jvp(primals: tuple, tangents: tuple) -> tuple:
    (x,), (tangent,) = primals, tangents
    return log_sigmoid(x), lax.mul(tangent, sigmoid(lax.neg(x)))


@jax.custom_jvp
def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), with the derivative written through its own value: s (1 - s), no further exponential.

    Example:
        >>> float(sigmoid(0.0))
        0.5
    """
    one = lax.full_like(x, 1.0)
    return lax.div(one, lax.add(one, lax.exp(lax.neg(x))))


@sigmoid.defjvp
def _sigmoid_jvp(primals: tuple, tangents: tuple) -> tuple:
    (x,), (tangent,) = primals, tangents
    value = sigmoid(x)
    return value, lax.mul(lax.mul(tangent, value), lax.sub(lax.full_like(value, 1.0), value))
