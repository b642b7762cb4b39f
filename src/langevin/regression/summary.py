"""What a regression has to know of all rows before it is a model: moments of the columns, added up piece by piece."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from langevin.regression.reading import Numbers

Floats = np.ndarray


@dataclass(frozen=True, eq=False)
class Moments:
    """Number of rows, means and variances of columns; pieces add up (Chan, Golub and LeVeque, 1979)."""

    count: int
    mean: Floats
    variance: Floats

    @classmethod
    def of(cls, values: Floats) -> "Moments":
        """Of rows along the first axis."""
        return cls(len(values), values.mean(axis=0), values.var(axis=0))

    def __add__(self, other: "Moments") -> "Moments":
        count = self.count + other.count
        share, step = other.count / count, other.mean - self.mean
        spread = (1.0 - share) * self.variance + share * other.variance + share * (1.0 - share) * step**2
        return Moments(count, self.mean + share * step, spread)

    @property
    def sd(self) -> Floats:
        """Standard deviations, 1 for a constant column."""
        return np.where(self.variance > 0, np.sqrt(self.variance), 1.0)


@dataclass(frozen=True, eq=False)
class GroupSums:
    """Of the groups of one grouping: rows, sums of the response, and z'z of the effects (groups, q, q), weighted.

    A row of several trials counts as often in z'z.
    """

    count: Floats
    total: Floats
    gram: Floats

    @classmethod
    def of(cls, rows: "Numbers", z: Floats, codes: Floats, num_groups: int) -> "GroupSums":
        """Of some rows with these effects; `codes` are the numbers of their groups."""
        weight = rows.weight if rows.answer.ndim == 1 else rows.weight * rows.answer[:, 1]
        products = (weight[:, None, None] * z[:, :, None] * z[:, None, :]).reshape(len(z), -1).T
        count, total, *gram = (np.bincount(codes, one, num_groups) for one in (np.ones(len(z)), rows.y, *products))
        return cls(count, total, np.stack(gram, axis=1).reshape(num_groups, z.shape[1], z.shape[1]))

    def __add__(self, other: "GroupSums") -> "GroupSums":
        return GroupSums(self.count + other.count, self.total + other.total, self.gram + other.gram)


@dataclass(frozen=True, eq=False)
class Summary:
    """Of the rows of coefficients and of varying effects, of the response and of the offset.

    `gram` is x'x. `groups` has the sums of each grouping whose effects are parameters.
    """

    x: Moments
    z: Moments
    y: Moments
    offset: Moments
    gram: Floats
    groups: tuple[GroupSums, ...]

    @classmethod
    def of(cls, x: Floats, z: Floats, y: Floats, offset: Floats, groups: tuple[GroupSums, ...] = ()) -> "Summary":
        """Of some rows."""
        return cls(Moments.of(x), Moments.of(z), Moments.of(y), Moments.of(offset), x.T @ x, groups)

    def __add__(self, other: "Summary") -> "Summary":
        return Summary(
            self.x + other.x,
            self.z + other.z,
            self.y + other.y,
            self.offset + other.offset,
            self.gram + other.gram,
            tuple(one + two for one, two in zip(self.groups, other.groups, strict=True)),
        )

    @property
    def new(self) -> Floats:
        """What each column adds to those before it, as a share of itself: the diagonal of R, x = QR, scaled.

        From x'x a share below 1e-7 cannot be told from none.
        """
        size = np.sqrt(np.diag(self.gram))
        scale = 1.0 / np.where(size > 0, size, 1.0)
        values, vectors = np.linalg.eigh(self.gram * scale * scale[:, None])
        root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        return np.abs(np.diag(np.linalg.qr(root).R))
