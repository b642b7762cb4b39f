"""The heaviest row: how much of the posterior's curvature a single datum holds, whatever a sample of the rows says."""

from threading import Lock
from typing import Any

import jax
import numpy as np

from langevin.anchor import Anchor
from langevin.anchor.passes import Passes
from langevin.limits import checkpoint

PyTree = Any

# Up to this many parameters the whole Hessian of a chunk, by the program that the search for the mode has compiled;
# beyond, its products with some random directions. They leave the weight of a row an error of sqrt(2/32), a quarter;
# along a single one an ordinary row among thousands weighs ten to twenty times as much as it does.
_WHOLE_UP_TO, _DIRECTIONS = 64, 32
# Chunks that are looked into, and pieces of one at most: the fewer rows beside it, the more a heavy one stands out.
# A device call works on 256 rows or fewer in the same time.
_CHUNKS, _PIECES, _FEWEST_ROWS, _MOST_ROWS = 8, 128, 16, 256


def heaviest_row(passes: Passes, anchor: Anchor, rng: np.random.Generator) -> float:
    """The largest a_i = -tr(L' Hess_i L) that a search finds, Hess_i the Hessian of one log likelihood at the anchor.

    All of them add up to d, less what the prior adds, so d/N is ordinary. The chunks with the largest means are looked
    into by pieces, and the heaviest piece by halves. What stands out of a piece is found; three such rows rule the
    noise of a minibatch from a = sqrt(d/3N) on, five times the scatter of pieces or so. Beyond 64 parameters a is the
    mean of z'L' Hess_i L z over random z: some choose the row, others weigh it, since it was chosen for being heavy
    along the first. Cost: a pass, and up to eight chunks more.
    """
    if passes.source is None:
        return 0.0
    d = anchor.layout.size
    whole = d <= _WHOLE_UP_TO

    def drawn() -> np.ndarray:
        return np.eye(d) if whole else (anchor.root[0] @ rng.standard_normal((d, _DIRECTIONS))).T

    def weight(batch: PyTree, first: int, stop: int, directions: np.ndarray) -> float:
        """Of rows first ... stop-1 of a chunk."""
        products = np.asarray(passes.differentiate(anchor.theta, directions, batch, first, stop)[1][2])
        return -float(np.sum(products * (anchor.covariance if whole else directions / _DIRECTIONS)))

    choosing = drawn()
    chunks: list[tuple[float, int, PyTree]] = []
    lock = Lock()

    def chunk(batch: PyTree, seen: int) -> np.ndarray:
        mean = weight(batch, seen, passes.chunk, choosing) / (passes.chunk - seen)
        with lock:
            chunks.append((mean, seen, batch))
            # Ties are between chunks that are as heavy: whichever is kept, the answer is the same.
            chunks.sort(key=lambda one: -one[0])
            del chunks[_CHUNKS:]
        return np.zeros(())

    passes.over(chunk, curvature=True)
    passes.cost += len(chunks) * passes.chunk
    best, at = -np.inf, (chunks[0][2], 0, 1)
    # Where there are several chunks, a piece is what a device call works on anyway.
    piece = _MOST_ROWS if passes.num_chunks > 1 else max(passes.chunk // _PIECES, _FEWEST_ROWS)
    for _, seen, rows in chunks:
        batch = jax.tree.map(jax.device_put, rows)
        checkpoint(passes.doing)
        for first in range(seen, passes.chunk, piece):
            stop = min(first + piece, passes.chunk)
            found = weight(batch, first, stop, choosing)
            if found > best:
                best, at = found, (batch, first, stop)
    batch, first, stop = at
    while stop - first > 1:
        middle = (first + stop) // 2
        lower = weight(batch, first, middle, choosing)
        first, stop, best = (first, middle, lower) if lower > best - lower else (middle, stop, best - lower)
    best = best if whole else weight(batch, first, stop, drawn())
    return best if np.isfinite(best) else np.inf
