"""Passes over the data of the set-up, shared with workers on other machines."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any

import numpy as np

from langevin.anchor.passes import Parts, Passes, helped
from langevin.data.source import DataSource
from langevin.data.travel import Parcel
from langevin.engine.going import Engine, check_where
from langevin.engine.remote import Crew, Worker
from langevin.engine.worker import Failed, Job, Rows, versions
from langevin.precision import apart, wide_setting
from langevin.target import Target

# Smaller data are gone through here before workers elsewhere have started.
_WORTHWHILE = 2**30
# Chunks of one request, and requests that a worker may have before it.
_CHUNKS, _IN_FLIGHT = 8, 2


@contextmanager
def shared_set_up(engine: Engine | None, target: Target, source: DataSource | None) -> Iterator[None]:
    """Passes over large data inside are shared with the engine's workers, if these are on other machines.

    Every chunk is a function of the point and its rows, and the driver adds them in their order: no bit depends on who
    went through which.
    """
    check_where(engine)
    if engine is None or source is None or not engine.elsewhere or source.bytes < _WORTHWHILE:
        yield
        return
    with closing(engine.crew()) as crew, helped(Readers(crew, target, source)):
        yield


class Readers:
    """Workers that go through chunks of the data; they start with the first pass."""

    def __init__(self, crew: Crew, target: Target, source: DataSource) -> None:
        self._crew, self._target, self._source = crew, target, source
        self._workers: list[Worker] = []

    def serve(self, passes: Passes) -> bool:
        """See `Helpers.serve`."""
        return passes.source is self._source and passes.target == apart(self._target)

    def answers(self, passes: Passes) -> int:
        """See `Helpers.answers`."""
        return passes.num_chunks

    def go_through(
        self, passes: Passes, flat: np.ndarray, directions: np.ndarray | None
    ) -> Iterator[tuple[Parts, Parts]]:
        """See `Helpers.go_through`: requests are dealt out in turn, and answered in turn."""
        if not self._workers:
            self._start(passes.layout)
        total = passes.num_chunks
        requests = [(flat, directions, range(k, min(k + _CHUNKS, total))) for k in range(0, total, _CHUNKS)]
        waiting = iter(enumerate(requests))

        def ask(count: int) -> None:
            for turn, request in islice(waiting, count):
                self._workers[turn % len(self._workers)].ask(request)

        ask(_IN_FLIGHT * len(self._workers))
        for turn in range(len(requests)):
            answer: Any = self._workers[turn % len(self._workers)].answer()
            if isinstance(answer, Failed):
                answer.throw()
            ask(1)
            yield from answer

    def _start(self, layout: Any) -> None:
        data, double, here = Parcel.of(self._source, self._crew.store), wide_setting(), versions()
        self._workers = [
            self._crew.start(Job(k, Rows, self._target, data, layout, double, here)) for k in range(self._crew.size)
        ]
