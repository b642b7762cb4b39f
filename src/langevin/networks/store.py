"""Kept draws of many parameters: thinned as the run goes on, in memory or, where they are large, in a file."""

import tempfile
from typing import Any

import numpy as np

# Draws of a chain at most and at least; bytes up to which they stay in memory, and up to which more are kept.
_MOST_DRAWS, _FEWEST_DRAWS = 512, 64
_IN_MEMORY, _ON_DISK = 2**29, 2**33


class DrawStore:
    """Positions of all chains at equal distances in time, float32, (draws, levels, chains, d).

    When it is full every second draw is dropped, and from then on every second one is kept. Beyond half a gigabyte
    they are in a temporary file, which goes when the store does.
    """

    def __init__(self, levels: int, chains: int, dimension: int) -> None:
        draw_bytes = 4 * levels * chains * dimension
        self.capacity = 2 * int(np.clip(_ON_DISK // draw_bytes, _FEWEST_DRAWS, _MOST_DRAWS) // 2)
        shape = (self.capacity, levels, chains, dimension)
        self._all: np.ndarray
        if self.capacity * draw_bytes > _IN_MEMORY:
            # A file without a name: it is gone when nothing maps it any more, however the process ends.
            with tempfile.TemporaryFile() as file:
                self._all = np.memmap(file, np.float32, "w+", shape=shape)
        else:
            self._all = np.zeros(shape, np.float32)
        self.count, self.stride, self.seen = 0, 1, 0

    @property
    def on_disk(self) -> bool:
        """Whether the draws are in a file."""
        return isinstance(self._all, np.memmap)

    @property
    def draws(self) -> np.ndarray:
        """The kept draws, (draws, levels, chains, d)."""
        return self._all[: self.count]

    def append(self, positions: np.ndarray) -> None:
        """Takes the next positions, (levels, chains, d), if their turn has come."""
        self.seen += 1
        if self.seen % self.stride:
            return
        if self.count == self.capacity:
            self.count //= 2
            for k in range(self.count):
                self._all[k] = self._all[2 * k + 1]
            self.stride *= 2
            if self.seen % self.stride:
                return
        self._all[self.count] = positions
        self.count += 1

    def copy(self) -> "DrawStore":
        """An independent store with the same draws."""
        return DrawStore.again(self.stored())

    def stored(self) -> dict[str, Any]:
        """What a file holds of it."""
        return {"draws": self.draws, "stride": self.stride, "seen": self.seen}

    @classmethod
    def again(cls, stored: dict[str, Any]) -> "DrawStore":
        """The store of what a file holds."""
        draws = stored["draws"]
        new = cls(*draws.shape[1:])
        new.count, new.stride, new.seen = len(draws), stored["stride"], stored["seen"]
        new._all[: new.count] = draws
        return new
