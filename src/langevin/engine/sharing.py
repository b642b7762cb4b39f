"""A temporary folder that processes of this machine share; what killed ones have left is removed by the next."""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from langevin.saving.locks import claimed

_PREFIX, _OWNER = "langevin-processes-", "owner.lock"


class SharedFolder:
    """A new folder for arrays, locked by its owner: a folder whose lock is free belongs to nobody any more."""

    def __init__(self) -> None:
        _sweep(Path(tempfile.gettempdir()))
        self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX)
        self._lock = os.open(self._path / _OWNER, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o600)
        claimed(self._lock)
        self._count = 0

    @property
    def _path(self) -> Path:
        return Path(self._folder.name)

    def next(self) -> Path:
        """Where the next array goes."""
        self._count += 1
        return self._path / f"{self._count - 1}.npy"

    def close(self) -> None:
        """Removes the folder."""
        os.close(self._lock)
        self._folder.cleanup()


def _sweep(place: Path) -> None:
    """Removes folders whose owner was killed before it could: each holds a copy of somebody's data."""
    # Without such locks nobody can tell who is alive.
    if os.name != "posix":
        return
    for left in place.glob(f"{_PREFIX}*"):
        with suppress(OSError), _taken(left):
            # Nothing but what is ours, in case that somebody else has put something there.
            for file in [*left.glob("*.npy"), left / _OWNER]:
                file.unlink()
            left.rmdir()


@contextmanager
def _taken(folder: Path) -> Iterator[None]:
    """The lock of a folder of this user; raises OSError where it is another's, or still in use."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"{folder} is not ours")
    lock = os.open(folder / _OWNER, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        if not claimed(lock):
            raise BlockingIOError(f"{folder} is in use")
        yield
    finally:
        os.close(lock)
