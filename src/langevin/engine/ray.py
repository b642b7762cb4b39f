"""`lv.Ray`: the chains of a run on the machines of a Ray cluster, or on processes that Ray starts here."""

import logging
import os
import re
import socket
import sys
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Thread
from typing import Any

import numpy as np

from langevin.engine.checks import require
from langevin.engine.lanes import num_cores
from langevin.engine.prepared import Prepared
from langevin.engine.processes import MOST_LOSSES
from langevin.engine.remote import Crew, Lost, RemoteRun, check_engine, load_extra, sending
from langevin.engine.travelling import spread
from langevin.engine.worker import INHERITED, ONE_THREAD, Host, Job, Kept

_LOOPBACK = "127.0.0.1"
# Read when Ray is imported; without it Ray listens on all interfaces, whatever address it is given.
_STAY_HERE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
_ADDRESS = re.compile(r"(ray://)?\[?(?P<host>[^/\[\]]+)\]?:(?P<port>[0-9]{1,5})")
# Of a CPU each: workers that book whole ones would make other tasks of the same cluster wait for ever.
_CPUS = 0.5


@dataclass(frozen=True)
class Ray:
    """Chains on Ray actors, one core each; every number is that of the run without them.

    `address`: None starts Ray on this machine, on the loopback interface only, and ends it with the run; "auto",
    "host:port" or "ray://host:port" joins a cluster. `workers`: how many, None for one a core of the cluster, at most
    one a chain. `timeout`: seconds that joining may take, and a worker to start or to answer. Files are opened by each
    worker under the same path; arrays in memory are sent once to each machine. A worker that is lost is started again
    by Ray, and its last segment made again, to the same bits where the processors are of one kind. Cost: some ten
    seconds to start.

    Example:
        >>> import langevin as lv
        >>> lv.Ray(workers=2)
        Ray(address=None, workers=2, timeout=300.0)
    """

    address: str | None = None
    workers: int | None = None
    timeout: float = 300.0

    def __post_init__(self) -> None:
        check_engine(self.workers, self.timeout)
        good = self.address is None or (isinstance(self.address, str) and self.address)
        require(good, "address", self.address, "None, 'auto', 'host:port' or 'ray://host:port'", "'auto'")

    @property
    def elsewhere(self) -> bool:
        """Whether there are other machines than this one."""
        return self.address is not None

    def begin(self, prepared: Prepared) -> RemoteRun:
        """A run on such workers; they start with its first step."""
        return spread(prepared, self.crew)

    def crew(self) -> "RayCrew":
        """Workers that can be started."""
        return RayCrew(self)


class RayCrew(Crew):
    """The actors of one run, and Ray itself where nobody else has started it."""

    def __init__(self, engine: Ray) -> None:
        self._timeout, self._here = engine.timeout, engine.address is None
        if self._here and "ray" not in sys.modules:
            os.environ.update({_STAY_HERE: "0", **_QUIET})
        self._ray: Any = load_extra("ray", "lv.Ray", "ray")
        self._own = not self._ray.is_initialized()
        if self._own:
            self._init(engine)
        cpus = int(self._ray.cluster_resources().get("CPU", 1))
        self.size = max(cpus, 1) if engine.workers is None else engine.workers
        self._actors: list[Any] = []

    def _init(self, engine: Ray) -> None:
        quiet = {"logging_level": "ERROR", "log_to_driver": False, "configure_logging": False}
        if engine.address is not None:
            _join(engine.address, engine.timeout, lambda: self._ray.init(address=engine.address, **quiet))
            return
        if self._ray.util.get_node_ip_address() != _LOOPBACK:
            raise RuntimeError(
                f"Ray would listen on all interfaces of this machine, because it was imported before lv.Ray could tell "
                f"it not to. Set the environment variable {_STAY_HERE}=0 before Python imports Ray; or call ray.init "
                f"yourself, and lv.Ray() will use what it has started."
            )
        workers = num_cores() if engine.workers is None else engine.workers
        here = {"address": "local", "_node_ip_address": _LOOPBACK, "include_dashboard": False}
        with warnings.catch_warnings():
            # Ray forks to start its own processes, each of which becomes another program at once.
            warnings.filterwarnings("ignore", message="os.fork", category=RuntimeWarning)
            self._ray.init(num_cpus=workers, **here, **quiet)

    def store(self, array: np.ndarray) -> "RayLeaf":
        """See `Crew.store`."""
        return RayLeaf(self._ray.put(array))

    def start(self, job: Job) -> "Actor":
        """See `Crew.start`."""
        variables = {name: os.environ[name] for name in INHERITED if name in os.environ} | ONE_THREAD
        if self._here:
            variables["PYTHONPATH"] = os.pathsep.join(entry if entry else os.getcwd() for entry in sys.path)
        actor = self._ray.remote(RayHost).options(
            num_cpus=_CPUS,
            max_restarts=-1,
            max_task_retries=MOST_LOSSES,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": variables},
        )
        self._actors.append(actor.remote())
        with sending(job, self._ray.cloudpickle.dumps):
            return Actor(self._ray, self._actors[-1], job, self._timeout)

    def close(self) -> None:
        """See `Crew.close`."""
        for actor in self._actors:
            self._ray.kill(actor)
        if self._own:
            self._ray.shutdown()


def _join(address: str, timeout: float, init: Callable[[], Any]) -> None:
    """Joins a cluster within the time limit, which Ray has not; raises `Lost` where there is none to be joined."""
    remedy = (
        "Check that the cluster is up (ray status) and can be reached from here, or start a head: ray start --head. "
        "Where it asks for a token, set RAY_AUTH_MODE=token. Without an address lv.Ray() starts a Ray of its own."
    )
    place = _ADDRESS.fullmatch(address)
    if place is not None:
        try:
            socket.create_connection((place["host"], int(place["port"])), timeout).close()
        except (OSError, OverflowError) as error:
            raise Lost(f"address={address!r} leads to no Ray cluster: {error}. {remedy}") from error
    failed: list[Exception] = []

    def joining() -> None:
        try:
            init()
        except Exception as error:
            failed.append(error)

    # Something else may listen there, and "auto" may find what is left of a head that has died: Ray waits for minutes.
    thread = Thread(target=joining, daemon=True)
    # It tells that only the main thread could make it end on SIGTERM, which is our business.
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.ERROR)
    thread.start()
    thread.join(timeout)
    logger.setLevel(level)
    if thread.is_alive():
        raise Lost(f"address={address!r} leads to no Ray cluster that answers within {timeout:g} s. {remedy}")
    if failed:
        raise Lost(f"address={address!r} leads to no Ray cluster: {failed[0]}. {remedy}") from failed[0]


@dataclass(frozen=True)
class RayLeaf:
    """An array in the store of Ray, which the workers of one machine share."""

    reference: Any

    def open(self) -> np.ndarray:
        """The array, mapped into the worker's memory."""
        import ray

        return ray.get(self.reference)


class RayHost:
    """A host in an actor. Job and state come as references in lists, which Ray fetches only for who asks."""

    def __init__(self) -> None:
        self._host: Host | None = None

    def answer(self, job: list[Any], request: tuple, kept: list[Any]) -> Any:
        """See `Host.answer`; a new host is built from the same job."""
        import ray

        if self._host is None:
            self._host = Host(ray.get(job[0]))
        return self._host.answer(request, lambda: ray.get(kept[0]) if kept else None)


class Actor:
    """One worker. Ray makes lost segments again by itself."""

    def __init__(self, ray: Any, actor: Any, job: Job, timeout: float) -> None:
        self._ray, self._actor, self._number, self._timeout = ray, actor, job.number, timeout
        self._job = [ray.put(job)]
        self._kept: list[Any] = []
        self._pending: deque[Any] = deque()

    def keep(self, kept: Kept) -> None:
        """See `Worker.keep`."""
        self._kept = [self._ray.put(kept)]

    def ask(self, request: tuple) -> None:
        """See `Worker.ask`."""
        self._pending.append(self._actor.answer.remote(self._job, request, self._kept))

    def answer(self) -> Any:
        """See `Worker.answer`."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(self._pending.popleft(), timeout=self._timeout)
        except errors.GetTimeoutError:
            cpus = self._ray.cluster_resources().get("CPU", 0)
            raise Lost(
                f"worker {self._number} has not answered for {self._timeout:g} s; the cluster has {cpus:g} CPUs. Ask "
                f"for fewer workers if they do not start, or raise timeout= if a single step, or a shard in "
                f"lv.shards.owned, may take that long."
            ) from None
        except errors.RayError as error:
            raise Lost(
                f"worker {self._number} was lost {MOST_LOSSES + 1} times during the same segment, or could not start. "
                f"A lack of memory is the most common reason: take fewer workers. What Ray says: {error}"
            ) from error
