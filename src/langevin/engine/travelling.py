"""A run on shards that never move: every worker holds some of them, and chains go from owner to owner."""

from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import Any, NamedTuple

import jax
import numpy as np

from langevin.data.sharded import Sharded
from langevin.data.source import ArraySource, DataSource
from langevin.data.travel import Parcel, Reopened
from langevin.engine.books import Checkpoint
from langevin.engine.prepared import Prepared
from langevin.engine.remote import Crew, RemoteRun, about
from langevin.engine.run import Run
from langevin.engine.setup import prepare
from langevin.engine.worker import Failed, Job, Kept, versions
from langevin.precision import wide_setting
from langevin.target import Target

# What a worker is told beside the arguments of `prepare`: the number of the row with which its data begin.
_FIRST = "first row"


class Visitor(NamedTuple):
    """A chain, by position, on its way to a shard; without a state where it has not begun."""

    shard: int
    chain: int
    state: Checkpoint | None


class Stayed(NamedTuple):
    """Where the visitors of a worker stand after a segment, and what each has spent; seconds of all of them."""

    states: list[Checkpoint]
    visits: list[float]
    seconds: float


def spread(prepared: Prepared, crew: Callable[[], Crew]) -> RemoteRun:
    """A run on workers: with all the data on each, or with shards if that is how minibatches are drawn."""
    sharded = isinstance(prepared.program.subsample, Sharded) and prepared.program.subsample.home is None
    return TravellingRun(prepared, crew) if sharded else RemoteRun(prepared, crew)


class TravellingRun(RemoteRun):
    """A run whose chains travel: each has the bits of the run in one place.

    A segment is a stay or a part of one, a function of what is sent along, so that a worker that takes the place of a
    lost one needs to know nothing. Cost beside the steps: a message to and from each owner that has visitors, with the
    books of these chains, for each stay.
    """

    def __init__(self, prepared: Prepared, crew: Callable[[], Crew]) -> None:
        super().__init__(prepared, crew)
        self._subsample: Any = prepared.program.subsample
        self._states: list[Checkpoint | None] = [None] * len(prepared.chains)

    def restore(self, left: Checkpoint, m: int) -> None:
        """See `RemoteRun.restore`."""
        super().restore(left, m)
        count = len(self._states)
        # What all have spent is known, and what counts.
        self._states = [left.select(np.array([chain]), left.spent / count) for chain in range(count)]

    def _start(self, crew: Crew) -> None:
        call, sizes = self.call, self._subsample.sizes
        source: Any = call.manifest.data
        borders = np.concatenate([[0], np.cumsum(sizes)])
        every = np.arange(len(call.chains))
        self._owned = np.array_split(np.arange(len(sizes)), min(crew.size, len(sizes)))
        self._workers = []
        for number, shards in enumerate(self._owned):
            first, stop = int(borders[shards[0]]), int(borders[shards[-1] + 1])
            # A file is opened by each owner, which looks at its own rows alone; arrays are cut.
            in_files = isinstance(source, Reopened)
            rows = slice(0 if in_files else first, stop)
            part = source if in_files else _rows_of(source, rows)
            arguments = {
                **call.of_chains(every),
                "subsample": replace(self._subsample, drifts=None),
                _FIRST: rows.start,
            }
            data = Parcel.of(part, crew.store)
            job = Job(number, Owner, call.manifest.target, data, arguments, wide_setting(), versions())
            self._workers.append(crew.start(job))

    def _fitting(self, count: int, left: int) -> int:
        return min(count, left, self._subsample.stay - self.m % self._subsample.stay)

    def _launch(self, count: int, last: int) -> Any:
        """Sends every chain to the owner of its shard, and waits: where it goes next, it has to come from there."""
        since, goal = self.m, self.m + count
        key, origin = self.call.keys["subsample"], self._subsample.origin(since, 0)
        where = np.asarray(self._subsample.shard((key[:, 0], key[:, 1]), origin, np.arange(1)))[0]
        waiting = []
        for worker, shards in zip(self._workers, self._owned, strict=True):
            chains = np.flatnonzero(np.isin(where, shards))
            if len(chains):
                worker.ask(([Visitor(int(where[c]), int(c), self._states[c]) for c in chains], since, goal))
                waiting.append((worker, shards, chains))
        visits, seconds = 0.0, 0.0
        borders = [0, *np.cumsum(self._subsample.sizes).tolist()]
        answers = []
        for worker, shards, chains in waiting:
            with about(shards, borders):
                answers.append((worker.answer(), shards, chains))
        for answer, shards, chains in answers:
            if isinstance(answer, Failed):
                with about(shards, borders):
                    self._fail(answer)
            for chain, state in zip(chains, answer.states, strict=True):
                self._states[chain] = state
            visits, seconds = visits + sum(answer.visits), max(seconds, answer.seconds)
        self.m, self.visits = goal, visits
        states = [state for state in self._states if state is not None]
        self._kept = Kept(goal, Checkpoint.stacked(states))
        return since, goal, seconds

    def _collect(self, launched: Any) -> None:
        since, goal, seconds = launched
        if since > 0:
            self._rate = (goal - since) / max(seconds, 1e-9)


class Owner:
    """Some shards, and the chains that visit them."""

    def __init__(self, target: Target, source: Any, arguments: dict[str, Any]) -> None:
        self._target, self._source = target, source
        self._first = arguments[_FIRST]
        self._arguments = {name: value for name, value in arguments.items() if name != _FIRST}
        self._runs: dict[tuple[int, int], Run] = {}

    def answer(self, request: tuple, kept: Callable[[], Any]) -> Stayed:
        """Every visitor goes on from transition `since` to `goal`."""
        visitors, since, goal = request
        began, states, visits = monotonic(), [], []
        for visitor in visitors:
            run = self._run(visitor.shard, visitor.chain, fresh=visitor.state is None)
            if visitor.state is not None:
                run.restore(visitor.state, since)
            while run.m < goal:
                run.advance(goal)
            states.append(run.checkpoint())
            visits.append(run.visits)
        return Stayed(states, visits, monotonic() - began)

    def _run(self, shard: int, chain: int, fresh: bool) -> Run:
        if fresh or (shard, chain) not in self._runs:
            given = self._arguments
            subsample, starts = given["subsample"], given["starts"]
            stop = sum(subsample.sizes[: shard + 1]) - self._first
            data = _rows_of(self._source, slice(stop - subsample.sizes[shard], stop))
            own = {
                "subsample": replace(subsample, home=shard),
                "chains": [given["chains"][chain]],
                "starts": None if starts is None else starts[chain : chain + 1],
            }
            self._runs[shard, chain] = Run(prepare(self._target, data, **{**given, **own}), cores=1)
        return self._runs[shard, chain]


def _rows_of(source: DataSource, rows: slice) -> ArraySource:
    return ArraySource(jax.tree.map(lambda leaf: leaf[rows], source.arrays), rows.stop - rows.start)
