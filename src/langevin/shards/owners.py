"""The set-up of a run on shards by their owners: each opens its own shards, and sends sums over them alone."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import jax
import numpy as np

from langevin.anchor.passes import Parts, Passes, helped
from langevin.data.sharded import Sharded
from langevin.data.source import ArraySource, DataSource, as_source
from langevin.data.travel import Parcel, Reopened
from langevin.engine.checks import require
from langevin.engine.going import Engine, check_where
from langevin.engine.remote import Crew, Worker, about
from langevin.engine.worker import Failed, Job, versions
from langevin.limits import checkpoint
from langevin.precision import apart, wide_setting
from langevin.shards.pieces import split
from langevin.shards.pulls import pull_of_shard, pulled_by
from langevin.startup import own_programs
from langevin.target import Layout, Target

PyTree = Any
# Something to work out of the target and one shard.
Task = Callable[..., Any]


@contextmanager
def owned(
    subsample: Sharded, target: Target, data: PyTree | DataSource, *, engine: Engine | None = None
) -> Iterator[DataSource]:
    """The data as a source whose passes, in the calls inside, are made shard by shard, and their sums added in order.

    With an engine by workers, each of which opens its own shards and nothing else; without one here, to the same bits.
    `lv.laplace` (up to 5000 parameters) and `with_drifts` send them points, and get a gradient, a Hessian or a pull for
    each shard. Where the call is made rows are read only for the subsample on which a search in large data begins.

    Example:
        >>> import langevin as lv
        >>> model = lv.models.LinearGaussian.simulate(num_data=100, seed=1)
        >>> halves, gradient = lv.Sharded(5, sizes=(50, 50), stay=10), lv.Minibatch()
        >>> with lv.shards.owned(halves, model.target, model.data) as data:
        ...     anchor = lv.laplace(model.target, data, model.theta_0)
        ...     halves = lv.shards.with_drifts(halves, model.target, data, gradient, anchor)
        >>> anchor.converged
        True
    """
    check_where(engine)
    sharded = isinstance(subsample, Sharded) and subsample.home is None
    require(sharded, "subsample", subsample, "an lv.Sharded", "lv.Sharded(20, sizes=..., stay=100)")
    source = as_source(data)
    subsample.check(source.num_data)
    if engine is None:
        shards = split(source, subsample.sizes)
        owners = Owners(target, source, subsample.sizes, lambda task, given: (task(target, s, *given) for s in shards))
        with helped(owners), pulled_by(owners.pulls):
            yield source
        return
    with closing(_Workers(engine, target, source, subsample.sizes)) as workers:
        owners = Owners(target, source, subsample.sizes, workers.each)
        with helped(owners), pulled_by(owners.pulls):
            yield source


class Owners:
    """Those who go through the shards; `each` gives what a task makes of every shard, in order."""

    def __init__(
        self, target: Target, source: DataSource, sizes: tuple[int, ...], each: Callable[[Task, tuple], Iterator[Any]]
    ) -> None:
        self._target, self._source, self._sizes, self._each = target, source, sizes, each

    def serve(self, passes: Passes) -> bool:
        """See `Helpers.serve`."""
        return passes.source is self._source and passes.target == apart(self._target)

    def answers(self, passes: Passes) -> int:
        """See `Helpers.answers`."""
        return len(self._sizes)

    def go_through(
        self, passes: Passes, flat: np.ndarray, directions: np.ndarray | None
    ) -> Iterator[tuple[Parts, Parts]]:
        """See `Helpers.go_through`: the parts are those of whole shards."""
        return self._each(sums_of_shard, (passes.layout, flat, directions))

    def pulls(self, source: DataSource, gradient: Any, anchor: Any) -> Iterator[Any] | None:
        """What `pull_of_shard` finds in every shard; None for other data."""
        return self._each(pull_of_shard, (gradient, anchor)) if source is self._source else None


def sums_of_shard(
    target: Target, shard: DataSource, layout: Layout, flat: np.ndarray, directions: np.ndarray | None
) -> tuple[Parts, Parts]:
    """`Passes.along` over a shard alone."""
    with own_programs(), jax.enable_x64(True):
        return Passes(apart(target), shard, layout).along(flat, directions)


class _Workers:
    """A worker for some of the shards each; they start with the first task."""

    def __init__(self, engine: Engine, target: Target, source: DataSource, sizes: tuple[int, ...]) -> None:
        self._engine, self._target, self._source, self._sizes = engine, target, source, sizes
        self._borders = [0, *np.cumsum(sizes).tolist()]
        self._crew: Crew | None = engine.crew()
        self._workers: list[tuple[Worker, np.ndarray]] = []

    def each(self, task: Task, given: tuple) -> Iterator[Any]:
        """See `Owners`: all workers at once, shard by shard; their answers in the order of the shards."""
        try:
            if not self._workers:
                self._start()
            for worker, own in self._workers:
                for place in range(len(own)):
                    worker.ask((task, given, place))
            return iter([self._answer(worker, int(shard)) for worker, own in self._workers for shard in own])
        except BaseException:
            # What is still on its way must not be taken for answers to another task.
            self.close()
            raise

    def close(self) -> None:
        """Ends the workers."""
        crew, self._crew, self._workers = self._crew, None, []
        if crew is not None:
            crew.close()

    def _answer(self, worker: Worker, shard: int) -> Any:
        checkpoint(f"waiting for the owner of shard {shard}")
        with about([shard], self._borders):
            answer = worker.answer()
            if isinstance(answer, Failed):
                answer.throw()
        return answer

    def _start(self) -> None:
        if self._crew is None:
            self._crew = self._engine.crew()
        count = min(self._crew.size, len(self._sizes))
        for number, own in enumerate(np.array_split(np.arange(len(self._sizes)), count)):
            first, stop = self._borders[own[0]], self._borders[own[-1] + 1]
            # A file is opened by each owner, which looks at its own rows alone; arrays are cut.
            in_files = isinstance(self._source, Reopened)
            part = self._source if in_files else ArraySource(self._source.slice(first, stop), stop - first)
            start = 0 if in_files else first
            rows = [(self._borders[s] - start, self._borders[s + 1] - start) for s in own]
            data = Parcel.of(part, self._crew.store)
            job = Job(number, ShardWork, self._target, data, {"rows": rows}, wide_setting(), versions())
            self._workers.append((self._crew.start(job), own))


class ShardWork:
    """What a worker does with its shards."""

    def __init__(self, target: Target, source: Any, arguments: dict[str, Any]) -> None:
        self._target = target
        self._shards = [ArraySource(source.slice(a, b), b - a) for a, b in arguments["rows"]]

    def answer(self, request: tuple, kept: Callable[[], Any]) -> Any:
        """What a task makes of one of them."""
        task, given, place = request
        return task(self._target, self._shards[place], *given)
