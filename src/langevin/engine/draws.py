"""Kept draws: a capped, thinned record of states, whose stride doubles as a function of m alone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from langevin.schedules import Schedule

Array = np.ndarray


@dataclass(frozen=True)
class Draws:
    """Kept states with the stochastic gradient used there and the weight of the stride each stands for.

    theta and grad have shape (*settings, chains, draws, d); m has (draws,) and weight (*settings, draws): draw k is
    theta_{m-1} for the transition m that left from it.
    """

    m: Array
    theta: Array
    grad: Array
    weight: Array


def equal_places(weight: Array, count: int, offset: float = 0.5) -> Array:
    """Numbers of the draws that make `count` of equal weight, in order: each as often as its weight says, within one.

    Systematic resampling, with `offset` in [0, 1).
    """
    share = np.cumsum(weight) / np.sum(weight)
    return np.minimum(np.searchsorted(share, (np.arange(count) + offset) / count), len(share) - 1)


class DrawBook:
    """Collects kept draws, axes (settings, chains, draws, d); every stride-th transition of m leaves one."""

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self._m: list[Array] = []
        self._kept: dict[str, list[Array]] = {"theta": [], "grad": []}

    def copy(self) -> "DrawBook":
        """An independent book with the same content."""
        new = DrawBook(self.cap)
        if self._m:
            new._m = [np.concatenate(self._m)]
            new._kept = {name: [np.concatenate(chunks, axis=2)] for name, chunks in self._kept.items()}
        return new

    @classmethod
    def by_chain(cls, join: Callable[..., Array], books: "list[DrawBook]") -> "DrawBook":
        """A book whose chains are made of those of others by `join(arrays, axis)`."""
        copies = [book.copy() for book in books]
        new = copies[0].copy()
        for name in new._kept:
            chunks = zip(*(book._kept[name] for book in copies), strict=True)
            new._kept[name] = [join(list(parts), 1) for parts in chunks]
        return new

    def stride(self, m: int) -> int:
        """The smallest power of two that keeps at most `cap` of m transitions."""
        stride = 1
        while m > self.cap * stride:
            stride *= 2
        return stride

    def room(self, m: int) -> int:
        """Transitions after m until the stride doubles."""
        return self.cap * self.stride(m + 1) - m

    def append(self, start: int, count: int, kept: dict[str, Any]) -> None:
        """Adds what the device kept in the transitions start + 1 ... start + count (one stride throughout)."""
        stride = self.stride(start + 1)
        first, last = start // stride, (start + count) // stride
        self._m.append(stride * np.arange(first + 1, last + 1))
        for name, chunks in self._kept.items():
            # A copy: a view would keep the whole buffer of every block alive.
            chunks.append(np.asarray(kept[name])[:, :, : last - first].copy())
        self._thin(stride)

    def _thin(self, stride: int) -> None:
        m = np.concatenate(self._m)
        even = m % stride == 0
        if not even.all():
            self._kept = {name: [np.concatenate(c, axis=2)[:, :, even]] for name, c in self._kept.items()}
            self._m = [m[even]]

    def draws(self, m: int, schedule: Schedule, weight_power: float) -> Draws | None:
        """The draws of a run of m transitions, each with the sum of omega over its stride."""
        if not self._m:
            return None
        self._thin(self.stride(m))
        kept = np.concatenate(self._m)
        if not kept.size:
            return None
        weight = np.diff(schedule.sum_power(np.concatenate([[0], kept]), weight_power), axis=-1)
        theta, grad = (np.concatenate(chunks, axis=2) for chunks in self._kept.values())
        shape = schedule.batch_shape
        return Draws(kept, theta.reshape(*shape, *theta.shape[1:]), grad.reshape(*shape, *grad.shape[1:]), weight)
