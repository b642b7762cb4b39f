"""Data as runs see them: rows of a pytree of arrays with a common leading axis, checked once."""

from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import Any, Protocol, runtime_checkable
from zlib import crc32

import jax
import numpy as np

from langevin.data.memory import aligned, aligned_copy, aligned_empty
from langevin.data.resolution import Rounding

PyTree = Any


# The order of a shuffled copy is a property of the data, not of a run: runs draw where their blocks start.
_SHUFFLE_SEED = 0


@runtime_checkable
class DataSource(Protocol):
    """N observations, wherever they are kept. Rows that the host gathers come from `take` and `slice`."""

    @property
    def num_data(self) -> int:
        """N."""

    @property
    def arrays(self) -> PyTree:
        """All the data as host arrays, which may be maps of a file: C-contiguous, float32 or integers."""

    @property
    def bytes(self) -> int:
        """What the arrays would take in memory."""

    @property
    def fingerprint(self) -> tuple:
        """(shape, dtype, checksum) of each leaf, whatever its layout in memory; the checksum covers every row."""

    def take(self, rows: np.ndarray, out: PyTree = None) -> PyTree:
        """Host arrays of the named rows, written into the arrays of `out` if they are given."""

    def slice(self, start: int, stop: int) -> PyTree:
        """Host arrays of rows start ... stop-1."""

    def aligned(self) -> PyTree:
        """All the data as host arrays that a CPU device takes over without a copy."""

    def shuffled(self, repeated: int) -> PyTree:
        """A shuffled copy with its first `repeated` rows again at the end, aligned as well."""


@dataclass(frozen=True, eq=False)
class ArraySource:
    """N observations as a pytree of NumPy or JAX arrays with a common leading axis, checked once.

    Floating-point leaves are rounded to float32, integers and booleans stay; data that need no conversion are not
    copied, maps of a file included, so do not change them afterwards. Wrap large data once and pass the source to
    several runs: the check for NaN and the fingerprint read every number.

    Example:
        >>> import numpy as np, langevin as lv
        >>> source = lv.DataSource.of({"x": np.ones((3, 2)), "y": np.array([0, 1, 1])})
        >>> source.num_data, source.bytes
        (3, 36)
        >>> source.take(np.array([2, 0]))["y"]
        array([1, 0], dtype=int32)
    """

    arrays: PyTree
    num_data: int
    _shuffled: dict[int, PyTree] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, data: PyTree) -> "ArraySource":
        """Checks and wraps; raises ValueError on ragged, empty, non-numeric or non-finite data.

        A path, or a list of paths, gives the `FileSource` of what is there.
        """
        if _is_path(data) or (isinstance(data, (list, tuple)) and data and all(map(_is_path, data))):
            from langevin.data.files import open_data

            return open_data(data)
        data = _columns(data)
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
        return cls(treedef.unflatten(leaves), num_data)

    @property
    def bytes(self) -> int:
        """See `DataSource.bytes`."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self.arrays))

    @cached_property
    def fingerprint(self) -> tuple:
        """See `DataSource.fingerprint`. Cost: one pass over the data, the first time."""
        return self._checksums()

    @property
    def unchanged(self) -> bool:
        """Whether the arrays are still what the fingerprint was taken of. Cost: one pass over the data."""
        return self._checksums() == self.fingerprint

    def _checksums(self) -> tuple:
        leaves = jax.tree.leaves(self.arrays)
        return tuple((leaf.shape, str(leaf.dtype), crc32(leaf.reshape(-1).view(np.uint8))) for leaf in leaves)

    def take(self, rows: np.ndarray, out: PyTree = None) -> PyTree:
        """See `DataSource.take`."""
        if out is None:
            return jax.tree.map(lambda leaf: leaf.take(rows, axis=0), self.arrays)
        # mode="clip" skips the bounds check that would make `take` work through a temporary copy.
        return jax.tree.map(lambda leaf, to: leaf.take(rows, axis=0, out=to, mode="clip"), self.arrays, out)

    def slice(self, start: int, stop: int) -> PyTree:
        """See `DataSource.slice`."""
        return jax.tree.map(lambda leaf: leaf[start:stop], self.arrays)

    def aligned(self) -> PyTree:
        """See `DataSource.aligned`; what must be copied is copied once and kept."""
        return self._aligned

    @cached_property
    def _aligned(self) -> PyTree:
        return jax.tree.map(aligned, self.arrays)

    def shuffled(self, repeated: int) -> PyTree:
        """See `DataSource.shuffled`; made once and kept."""
        if repeated not in self._shuffled:
            order = self._order()
            wrapped = np.concatenate([order, order[:repeated]])
            room = jax.tree.map(lambda leaf: aligned_empty((len(wrapped), *leaf.shape[1:]), leaf.dtype), self.arrays)
            self._shuffled.clear()
            self._shuffled[repeated] = self.take(wrapped, out=room)
        return self._shuffled[repeated]

    def _order(self) -> np.ndarray:
        """Row numbers of a shuffled copy."""
        return np.random.default_rng(_SHUFFLE_SEED).permutation(self.num_data)


def as_source(data: PyTree) -> DataSource:
    """The data, or what is at their path, as a DataSource; one that is already a source passes through unchecked."""
    # Arrays first: Python 3.11 evaluates the properties of what it compares with a protocol, and a fingerprint costs.
    return data if isinstance(data, (ArraySource, DataSource)) else ArraySource.of(data)


def _is_path(data: Any) -> bool:
    return isinstance(data, (str, PathLike))


def _columns(data: PyTree) -> PyTree:
    """A data frame of pandas or polars, or an arrow table, as a dict of its columns; anything else as it is."""
    if type(data).__module__.split(".")[0] not in ("pandas", "polars", "pyarrow"):
        return data
    names = getattr(data, "column_names", None) or list(data.columns)
    twins = [str(name) for k, name in enumerate(names) if str(name) in map(str, names[:k])]
    if twins:
        raise ValueError(f"data: columns must have different names, got {twins[0]!r} twice. Rename one.")
    return {str(name): data[name].to_numpy() for name in names}


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
    dtype = array.dtype.newbyteorder("=")
    if dtype.kind == "f":
        dtype = np.dtype(np.float32)
        _check_floats(array, name)
    elif dtype.itemsize > 4:
        dtype = np.dtype(np.int32)
        least, most = int(array.min(initial=0)), int(array.max(initial=0))
        if most >= 2**31 or least < -(2**31):
            raise ValueError(f"{name} must fit in int32, got {max(most, -least)}. Recode identifiers as 0, 1, 2, ...")
    # NumPy's `take` copies all of an array that is not contiguous, every time.
    ready = array.dtype == dtype and array.flags.c_contiguous and array.flags.aligned
    return array if ready else aligned_copy(array, dtype)


def _check_floats(array: np.ndarray, name: str) -> None:
    # max and min carry NaN and infinity through in one pass each, without a temporary of the data's size.
    least, most = array.min(initial=0), array.max(initial=0)
    if not (np.isfinite(least) and np.isfinite(most)):
        bad = np.flatnonzero(~np.isfinite(array.reshape(array.shape[0], -1)).all(axis=1))
        raise ValueError(
            f"{name} must be finite, got NaN or infinity in {bad.size} of {array.shape[0]} rows, "
            f"first in row {bad[0]}. Drop or impute these rows."
        )
    # Rounding can overflow: 1e300 is finite in float64 only.
    largest = max(-least, most)
    with np.errstate(over="ignore"):
        if not np.isfinite(np.float32(largest)):
            raise ValueError(f"{name} must fit in float32 (below 3.4e38), got {largest}. Rescale it.")
    rounding = Rounding()
    rounding.add(array)
    refusal = rounding.refusal(name, len(array))
    if refusal is not None:
        raise ValueError(refusal)
