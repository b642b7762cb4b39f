"""What makes calls start quickly: an option of XLA, and compiled programs kept on disk between processes.

On jax >= 0.4.32 a compiled loop of small operations pays 50 to 100 ns for every operation; below a size
threshold XLA's CPU compiler can fuse the whole loop into one kernel instead (two to four times faster for
one chain of a small model). The option is read once, when the backend starts, and cannot be set for a
single compilation, so `import langevin` sets it. A user's own setting of the same option always wins, and
``LANGEVIN_KEEP_XLA_FLAGS=1`` leaves the environment alone.

Programs compiled inside `own_programs` are kept in ``$XDG_CACHE_HOME/langevin`` or ``~/.cache/langevin``.
``LANGEVIN_NO_CACHE=1`` switches this off, and a user's own ``jax_compilation_cache_dir`` always wins.

In memory, programs of the models that were used last are kept (`compiled`).
"""

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, update_wrapper
from pathlib import Path
from time import time
from typing import Any
from zlib import crc32

import jax
from jax._src import compilation_cache as jax_cache  # JAX has no public way to keep some programs and not others
from jax._src.compilation_cache_interface import CacheInterface

from langevin.factorisations import one_by_one

OPTION = "xla_cpu_small_while_loop_byte_threshold"
# 64 kB: larger thresholds pull whole data sets into the kernel and slow down big gathers.
THRESHOLD = 65536
# A call of lv.sample leaves about half a megabyte.
_MOST_BYTES = 2**28
# Models whose programs stay in memory: a call of lv.sample compiles eight, which take 30 MB and 300 of the 65,530
# maps that Linux gives a process.
MOST_MODELS = 16
# Names of JAX's options.
_USERS_FOLDER, _MINIMUM = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"

# CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED: by default XLA hands operations that do not depend on each other to its own
# threads, and small loops take a fifth longer. The bits are the same.
COMPILED = {"xla_cpu_scheduler_type": 1}
# For programs that run for less time than they take to compile: a quarter of the compile time, about five times the
# running time.
COMPILED_QUICKLY = {**COMPILED, "xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
# For those in between: half the compile time, up to one and a half times the running time.
COMPILED_SOON = {**COMPILED, "xla_cpu_use_fusion_emitters": False}

_lock = threading.Lock()
_users = 0
_before: tuple = ()


def request_small_loops() -> None:
    """Adds the option to XLA_FLAGS unless the user chose a value or asked to be left alone."""
    flags = os.environ.get("XLA_FLAGS", "")
    if os.environ.get("LANGEVIN_KEEP_XLA_FLAGS") == "1" or OPTION in flags:
        return
    if "xla_backend_extra_options" in flags:
        # The flag is one comma-separated list: a second occurrence would replace the user's first.
        return
    os.environ["XLA_FLAGS"] = f"{flags} --xla_backend_extra_options={OPTION}={THRESHOLD}".strip()


def compiled(
    *,
    static_argnums: int | tuple[int, ...] = 0,
    donate_argnums: int | None = None,
    compiler_options: dict[str, Any] | None = COMPILED,
) -> Callable[[Callable[..., Any]], "_Compiled"]:
    """`jax.jit` for functions whose first argument is a model: a target, a program, or a function of theta.

    JAX keeps what it has compiled for ever. In a loop that makes its target anew each time that is 30 MB a turn, and a
    crash after 220 of them; here the models that were used last keep their programs. What is called by other compiled
    functions takes no options of its own.
    """
    static = (static_argnums,) if isinstance(static_argnums, int) else static_argnums
    options: dict[str, Any] = {
        "static_argnums": tuple(number - 1 for number in static[1:]),
        "compiler_options": compiler_options,
    }
    if donate_argnums is not None:
        options["donate_argnums"] = donate_argnums - 1
    return lambda function: _Compiled(function, options)


class _Compiled:
    """A compiled function for each model, the one that was used last at the end."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self._function, self._options = function, options
        self._of: dict[Any, Callable[..., Any]] = {}

    def __call__(self, model: Any, *rest: Any) -> Any:
        try:
            hash(model)
        except TypeError as error:
            raise ValueError(
                f"functions of theta must be hashable, since compiled code is found again by them, got {model!r} "
                f"({error}). Give the class a __hash__, or pass a plain function that calls it."
            ) from None
        with _lock:
            one = self._of.pop(model, None)
            if one is None:
                one = self._made(model)
                while len(self._of) >= MOST_MODELS:
                    del self._of[next(iter(self._of))]
            self._of[model] = one
        with one_by_one():
            return one(*rest)

    def _made(self, model: Any) -> Callable[..., Any]:
        # JAX's own memory of a function ends with the function: each model has one of its own.
        def of_model(*rest: Any) -> Any:
            return self._function(model, *rest)

        of_model.__name__ = self._function.__name__
        return jax.jit(of_model, **self._options)


def load_scipy() -> None:
    """What books and analysis need of SciPy: a third of a second, best spent while the device compiles."""
    import scipy.linalg
    import scipy.special  # noqa: F401


@contextmanager
def own_programs() -> Iterator[None]:
    """What is compiled inside is looked up in langevin's folder and kept there; the user's own programs are not.

    Wrap calls of compiled functions in it, or whole pieces of work; it may be nested. Programs that another thread
    compiles meanwhile are kept too.
    """
    global _users, _before
    folder = _folder()
    if folder is None or getattr(jax.config, _USERS_FOLDER) is not None:
        yield
        return
    with _lock:
        if _users == 0:
            _before = jax_cache._cache, getattr(jax.config, _MINIMUM)
            jax_cache._cache = folder
            jax.config.update(_MINIMUM, 0.0)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                jax_cache._cache, minimum = _before
                jax.config.update(_MINIMUM, minimum)


@cache
def _folder() -> "_Folder | None":
    if os.environ.get("LANGEVIN_NO_CACHE") == "1":
        return None
    try:
        root = os.environ.get("XDG_CACHE_HOME")
        path = (Path(root) if root else Path.home() / ".cache") / "langevin" / "programs"
        # Whoever may write here may run code as this user.
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return _Folder(path)


class _Folder(CacheInterface):
    """Files written at once or not at all, so that processes can share them; a failing disk only costs time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pruned = False

    def get(self, key: str) -> bytes | None:
        """The program under this key; a damaged file is removed."""
        file = self._path / key
        with suppress(OSError):
            content = file.read_bytes()
            if crc32(content[4:]).to_bytes(4, "big") == content[:4]:
                os.utime(file)  # the oldest go first
                return content[4:]
            file.unlink()
        return None

    def put(self, key: str, value: bytes) -> None:
        """Keeps a program."""
        with suppress(OSError):
            if not self._pruned:
                self._pruned = True
                self._prune()
            number, draft = tempfile.mkstemp(dir=self._path)
            try:
                with os.fdopen(number, "wb") as file:
                    file.write(crc32(value).to_bytes(4, "big") + value)
                os.replace(draft, self._path / key)
            except BaseException:
                os.unlink(draft)
                raise

    def _prune(self) -> None:
        """Removes the oldest files beyond the limit, so that what stays is three quarters of it."""
        files = sorted((entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in os.scandir(self._path))
        kept = sum(size for _, size, _ in files)
        if kept <= _MOST_BYTES:
            return
        for used, size, path in files:
            if kept <= 0.75 * _MOST_BYTES or used > time() - 60.0:
                return
            with suppress(OSError):  # another process may have been quicker
                os.unlink(path)
            kept -= size
