"""What a regression has to know of all rows before it is a model: moments of the columns, added up piece by piece."""

from dataclasses import dataclass

import numpy as np

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
class Summary:
    """Of the rows of coefficients and of varying effects, of the response and of the offset.

    `gram` is x'x. `group_count` and `group_sum` are rows and sums of the response by group,
    where the groups' effects are parameters.
    """

    x: Moments
    z: Moments
    y: Moments
    offset: Moments
    gram: Floats
    group_count: Floats
    group_sum: Floats

    @classmethod
    def of(
        cls, x: Floats, z: Floats, y: Floats, offset: Floats, codes: Floats | None = None, num_groups: int = 0
    ) -> "Summary":
        """Of some rows; `codes` are the numbers of their groups."""
        own = np.zeros(0, int) if codes is None else codes
        counts, sums = (np.bincount(own, weights, num_groups) for weights in (np.ones(len(own)), y[: len(own)]))
        return cls(Moments.of(x), Moments.of(z), Moments.of(y), Moments.of(offset), x.T @ x, counts, sums)

    def __add__(self, other: "Summary") -> "Summary":
        return Summary(
            self.x + other.x,
            self.z + other.z,
            self.y + other.y,
            self.offset + other.offset,
            self.gram + other.gram,
            self.group_count + other.group_count,
            self.group_sum + other.group_sum,
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
