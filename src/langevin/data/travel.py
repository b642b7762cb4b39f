"""How data reach the workers of a run: each opens files by itself; arrays in memory are put where all can map them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from zlib import crc32

import jax
import numpy as np

from langevin.data.source import ArraySource, DataSource

# Rows, evenly spread, by which a worker recognises its data: other data under the same path are not the same run.
_RECOGNISED = 256


@runtime_checkable
class Reopened(Protocol):
    """A source in files, which can be opened again from a description, on any machine where the files are."""

    @property
    def description(self) -> dict[str, Any]:
        """Where the data are, as JSON; the entry "path" is what messages name."""

    @classmethod
    def reopened(cls, description: dict[str, Any]) -> DataSource:
        """The source of a description."""


class Leaf(Protocol):
    """An array on its way to a worker."""

    def open(self) -> np.ndarray:
        """The array, mapped into the worker's memory."""


@dataclass(frozen=True)
class NpyLeaf:
    """An array in a file that all workers of one machine map."""

    path: str

    @classmethod
    def of(cls, array: np.ndarray, path: Path) -> "NpyLeaf":
        """Writes the array."""
        np.save(path, array, allow_pickle=False)
        return cls(str(path))

    def open(self) -> np.ndarray:
        """See `Leaf.open`; nothing is read before it is looked at."""
        return np.load(self.path, mmap_mode="r", allow_pickle=False)


@dataclass(frozen=True)
class Parcel:
    """What a worker needs to open the data of its run."""

    # The kind of source and its description, or the leaves of a pytree of arrays.
    kind: Any
    description: dict[str, Any]
    leaves: tuple[Leaf, ...]
    treedef: Any
    sketch: int

    @classmethod
    def of(cls, source: DataSource, store: Callable[[np.ndarray], Leaf]) -> "Parcel":
        """The data as a parcel; `store` puts an array in memory where workers find it."""
        if isinstance(source, Reopened):
            return cls(type(source), source.description, (), None, _sketch(source))
        leaves, treedef = jax.tree.flatten(source.arrays)
        return cls(None, {}, tuple(map(store, leaves)), treedef, _sketch(source))

    def open(self) -> DataSource:
        """The data; an error names the file that could not be opened, or that holds other data."""
        named = self.description.get("path", ", ".join(str(getattr(leaf, "path", "memory")) for leaf in self.leaves))
        try:
            source = self._opened()
            found = _sketch(source)
        except (OSError, ValueError) as error:
            raise OSError(f"the data at {named} could not be opened: {error}") from error
        if found != self.sketch:
            raise ValueError(
                f"the data at {named} are not those of the run. Put the same files under this path on every machine."
            )
        return source

    def _opened(self) -> DataSource:
        if self.kind is not None:
            return self.kind.reopened(self.description)
        arrays = [leaf.open() for leaf in self.leaves]
        return ArraySource(self.treedef.unflatten(arrays), len(arrays[0]))


def _sketch(source: DataSource) -> int:
    """A checksum of some rows."""
    rows = np.unique(np.linspace(0, source.num_data - 1, _RECOGNISED).astype(np.int64))
    crc = 0
    for leaf in jax.tree.leaves(source.take(rows)):
        crc = crc32(f"{leaf.dtype}{leaf.shape}{source.num_data}".encode(), crc)
        crc = crc32(leaf.tobytes(), crc)
    return crc
