"""`lv.groups`: a table of rows becomes data with one entry per group, rows padded to the largest group."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from langevin.data.source import ArraySource

PyTree = Any


@dataclass(frozen=True, eq=False, kw_only=True)
class Groups(ArraySource):
    """Data with one entry per group, made by `lv.groups`; pass it to `lv.sample` as it is.

    `arrays` has the table's keys, each (groups, longest, ...), and "mask", true for rows that are there. `labels` are
    the groups' labels in order, `sizes` their numbers of rows.

    Example:
        >>> import numpy as np, langevin as lv
        >>> table = {"y": np.array([1.0, 2.0, 3.0]), "town": np.array(["b", "a", "b"])}
        >>> data = lv.groups(table, by="town")
        >>> data.labels.tolist(), data.sizes.tolist(), round(data.padding, 2)
        (['a', 'b'], [1, 2], 0.25)
    """

    labels: np.ndarray
    sizes: np.ndarray

    @property
    def padding(self) -> float:
        """Share of the rows that are padding: what they cost, for nothing."""
        return float(1.0 - self.sizes.sum() / self.arrays["mask"].size)

    def numbers(self, labels: Any) -> np.ndarray:
        """Numbers of the groups with these labels; raises for a label that is not there."""
        wanted = np.atleast_1d(np.asarray(labels))
        places = np.clip(np.searchsorted(self.labels, wanted), 0, len(self.labels) - 1)
        missing = wanted[self.labels[places] != wanted]
        if missing.size:
            raise ValueError(f"groups must be labels of the data, got {missing[0]!r}, which is none of `data.labels`.")
        return places


def groups(data: Mapping[str, PyTree], by: Any) -> Groups:
    """Rows of a table as data with one entry per group, for a likelihood of a whole group such as `lv.marginal`.

    data: a dict of arrays (or pytrees of them) with one entry per row. by: the label of each row, numbers or strings:
    an array, or the name of a key, which is then left out. Groups come in the order of their sorted labels, rows of a
    group in the order of the table. Every group is padded to the largest by repeating its first row, so that padding is
    never out of range; "mask" tells what is there:

        jnp.sum(jnp.where(group["mask"], log_likelihood_of_rows, 0.0))

    Padding costs memory and time like rows: `padding` is its share. Where a few groups are much larger than the rest
    it is most of it, e.g. 0.9 for one group ten times as large as the others; there is no remedy here but to split such
    groups off by hand.

    Example:
        >>> import numpy as np, langevin as lv
        >>> table = {"y": np.array([1.0, 2.0, 3.0]), "town": np.array([7, 5, 7])}
        >>> data = lv.groups(table, by="town")
        >>> data.arrays["y"], data.arrays["mask"]
        (array([[2., 2.],
               [1., 3.]], dtype=float32), array([[ True, False],
               [ True,  True]]))
    """
    if not isinstance(data, Mapping):
        raise ValueError(f'data must be a dict of arrays, got {type(data).__name__}. Try {{"x": x, "y": y}}.')
    if "mask" in data:
        raise ValueError('data must not have a key "mask": that is where the padding is marked. Rename it.')
    if isinstance(by, str):
        if by not in data:
            raise ValueError(f"by must be a key of data or an array of labels, got {by!r}; keys are {sorted(data)}.")
        labels = np.asarray(data[by])
        data = {key: value for key, value in data.items() if key != by}
    else:
        labels = np.asarray(by)
    rows = ArraySource.of(dict(data))
    _check_labels(labels, rows.num_data)
    names, group, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    order = np.argsort(group, kind="stable")
    first = np.cumsum(sizes) - sizes
    place = np.arange(sizes.max())
    mask = place < sizes[:, None]
    # The first row of the group where there is no other.
    taken = order[first[:, None] + np.where(mask, place, 0)]
    arrays = jax.tree.map(lambda leaf: leaf[taken], rows.arrays)
    return Groups({**arrays, "mask": mask}, len(names), labels=names, sizes=sizes)


def group_numbers(groups: np.ndarray, num_groups: int) -> np.ndarray:
    """The numbers of groups that have no labels, checked."""
    if groups.dtype.kind not in "iu" or groups.size == 0 or groups.min() < 0 or groups.max() >= num_groups:
        raise ValueError(f"groups must be numbers from 0 to {num_groups - 1}, got {groups.tolist()}.")
    return groups


def _check_labels(labels: np.ndarray, num_rows: int) -> None:
    if labels.shape != (num_rows,):
        raise ValueError(
            f"by must hold one label per row, shape ({num_rows},), got shape {labels.shape}. "
            f"Combine several columns into one label first."
        )
    if labels.dtype.kind not in "biufUS":
        raise ValueError(
            f"by must hold numbers or strings, got dtype {labels.dtype}. Convert the labels, e.g. with .astype(str)."
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        bad = np.flatnonzero(~np.isfinite(labels))
        raise ValueError(
            f"by must be finite, got NaN or infinity in {bad.size} of {num_rows} rows, first in row {bad[0]}. "
            f"Drop these rows or give them a label."
        )
