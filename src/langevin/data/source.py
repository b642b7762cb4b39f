"""Data in memory: a checked pytree of arrays with a common leading axis."""

from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import jax
import numpy as np

from langevin.data.prefetch import aligned

PyTree = Any


# The order of a shuffled copy is a property of the data, not of a run: runs draw where their blocks start.
_SHUFFLE_SEED = 0


@dataclass(frozen=True, eq=False)
class DataSource:
    """N observations as a pytree of NumPy or JAX arrays with a common leading axis, checked once.

    Floating-point leaves are rounded to float32 (no copy if they are already); integers and booleans stay. Wrap large
    data once and pass the source to several runs: the check for NaN reads every number.
    """

    arrays: PyTree
    num_data: int
    _shuffled: dict[int, PyTree] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, data: PyTree) -> "DataSource":
        """Checks and wraps; raises ValueError on ragged, empty, non-numeric or non-finite data."""
        paths = jax.tree_util.tree_leaves_with_path(data)
        treedef: Any = jax.tree.structure(data)
        if not paths:
            raise ValueError(f"data must hold at least one array, got {data!r}. For a target without data pass None.")
        leaves = [_checked(leaf, "data" + jax.tree_util.keystr(path)) for path, leaf in paths]
        sizes = {"data" + jax.tree_util.keystr(p): leaf.shape[0] for (p, _), leaf in zip(paths, leaves, strict=True)}
        if len(set(sizes.values())) > 1:
            listed = ", ".join(f"{name} has {size}" for name, size in sizes.items())
            raise ValueError(
                f"data must share one leading axis (one entry per observation), got {listed}. "
                f"Check for a missing transpose or a dropped row."
            )
        num_data = leaves[0].shape[0]
        if num_data == 0:
            raise ValueError("data must hold at least one observation, got 0 rows.")
        if num_data >= 2**30:
            raise ValueError(f"data must hold fewer than 2^30 observations in memory, got {num_data}.")
        return cls(treedef.unflatten([aligned(leaf) for leaf in leaves]), num_data)

    @property
    def bytes(self) -> int:
        """Memory that the arrays take."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self.arrays))

    @property
    def fingerprint(self) -> tuple:
        """What tells these data from others at little cost: shapes and a checksum of some rows spread over them."""
        some = np.linspace(0, self.num_data - 1, min(self.num_data, 64)).astype(int)
        leaves = jax.tree.leaves(self.arrays)
        return tuple(
            (leaf.shape, str(leaf.dtype), crc32(np.ascontiguousarray(leaf[some]).tobytes())) for leaf in leaves
        )

    def shuffled(self, repeated: int) -> PyTree:
        """A shuffled copy with its first `repeated` rows again at the end; made once and kept."""
        if repeated not in self._shuffled:
            order = np.random.default_rng(_SHUFFLE_SEED).permutation(self.num_data)
            wrapped = np.concatenate([order, order[:repeated]])
            self._shuffled.clear()
            self._shuffled[repeated] = jax.tree.map(lambda leaf: aligned(leaf.take(wrapped, axis=0)), self.arrays)
        return self._shuffled[repeated]

    def slice(self, start: int, stop: int) -> PyTree:
        """Rows start ... stop-1."""
        return jax.tree.map(lambda leaf: leaf[start:stop], self.arrays)


def as_source(data: PyTree) -> DataSource:
    """The data as a DataSource; one that is already a source passes through unchecked."""
    return data if isinstance(data, DataSource) else DataSource.of(data)


def _checked(leaf: Any, name: str) -> np.ndarray:
    array = np.asarray(leaf)
    if array.ndim == 0:
        raise ValueError(
            f"{name} must have a leading axis over observations, got a scalar {leaf!r}. "
            f"A list is a pytree of its entries: pass np.asarray(list) for an array."
        )
    if array.dtype.kind not in "fiub":
        raise ValueError(
            f"{name} must be numeric, got dtype {array.dtype}. Encode categories as integers or indicator columns."
        )
    if array.dtype.kind == "f":
        # max and min carry NaN and infinity through in one pass each, without a temporary of the data's size.
        if array.size and not (np.isfinite(array.max()) and np.isfinite(array.min())):
            bad = np.flatnonzero(~np.isfinite(array.reshape(array.shape[0], -1)).all(axis=1))
            raise ValueError(
                f"{name} must be finite, got NaN or infinity in {bad.size} of {array.shape[0]} rows, "
                f"first in row {bad[0]}. Drop or impute these rows."
            )
        # Rounding can overflow: 1e300 is finite in float64 only.
        with np.errstate(over="ignore"):
            narrow = array.astype(np.float32, copy=False)
        if narrow is not array and not np.isfinite(narrow).all():
            raise ValueError(f"{name} must fit in float32 (below 3.4e38), got {np.abs(array).max()}. Rescale it.")
        return narrow
    if array.dtype.itemsize > 4:
        if array.size and (array.max() >= 2**31 or array.min() < -(2**31)):
            raise ValueError(f"{name} must fit in int32, got {np.abs(array).max()}. Recode identifiers as 0, 1, 2, ...")
        return array.astype(np.int32)
    return array
