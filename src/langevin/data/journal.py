"""Where an import works: a folder beside the final one, with a journal from which a killed import goes on."""

import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from langevin.data.columns import MANIFEST

_JOURNAL, _COLUMNS, _OLD = "journal.json", "columns", "replaced"


@dataclass
class Journal:
    """What of an import is done.

    First pass: the `position` in the table from which to go on, the number of rows before it, rows in each bucket, and
    what the encoder has seen in them.
    Second pass, once all are `thrown`: the next `bucket`, rows `written` so far and the columns' checksums up to there.
    """

    position: list[int] | None = None
    row: int = 0
    lengths: list[int] = field(default_factory=list)
    thrown: bool = False
    levels: dict[str, dict[str, int]] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    entries: dict[str, list[int]] = field(default_factory=dict)
    rounding: dict[str, dict[str, Any]] = field(default_factory=dict)
    bucket: int = 0
    written: int = 0
    checksums: list[int] = field(default_factory=list)


class Workshop:
    """The working folder of one import; `journal` is that of an earlier, killed import of the same data, or new."""

    def __init__(self, final: Path, origin: dict[str, Any]) -> None:
        self._final, self._origin = final, origin
        self._path = final.with_name(f"{final.name}.importing")
        self.columns = self._path / _COLUMNS
        self.journal = Journal()

    def __enter__(self) -> "Workshop":
        free = not self._final.exists() or (self._final.is_dir() and not any(self._final.iterdir()))
        if not free and not (self._final / MANIFEST).exists():
            raise ValueError(f"folder must be new, empty or an earlier import, got {self._final}. Name another one.")
        try:
            self.columns.mkdir(parents=True, exist_ok=True)
            self._lock = open(self._path / "lock", "wb")
        except OSError as error:
            self._explain(error)
        try:
            self._alone()
            if not self._resumed():
                self._clear()
        except BaseException:
            self._lock.close()
            raise
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._lock.close()
        # What is wrong with the data stays wrong: nothing here is worth going on from.
        if kind is None or issubclass(kind, ValueError):
            shutil.rmtree(self._path, ignore_errors=True)
        if isinstance(error, OSError):
            self._explain(error)

    def _explain(self, error: OSError) -> NoReturn:
        said = (
            f"the import into {self._final} could not be finished, and nothing is there that was not: {error.strerror}."
            f" It needs a folder that can be written to, with room for twice the columns. Once that is mended, the "
            f"same call goes on where it was; to give up, delete {self._path}. To have the columns elsewhere: "
            f"langevin import SRC ELSEWHERE, and pass that folder"
        )
        raise OSError(error.errno, said) from error

    def _alone(self) -> None:
        """Raises where another process is at work here; the system lets go of the lock when a process dies."""
        with suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RuntimeError(
                    f"another process is importing into {self._final}. Wait for it, or name another folder."
                ) from None

    def _resumed(self) -> bool:
        try:
            found = json.loads((self._path / _JOURNAL).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        # What a power cut leaves of files that were not forced to the disk is not known.
        if found["origin"] != self._origin or found["boot"] is None or found["boot"] != _boot():
            return False
        self.journal = Journal(**found["journal"])
        return True

    def _clear(self) -> None:
        self.journal = Journal()
        for entry in [*self._path.glob("bucket-*"), *self._path.glob(_JOURNAL), *self.columns.iterdir()]:
            entry.unlink()

    def save(self) -> None:
        """Writes the journal, at once or not at all."""
        draft = self._path / "draft"
        content = {"origin": self._origin, "boot": _boot(), "journal": asdict(self.journal)}
        draft.write_text(json.dumps(content), encoding="utf-8")
        os.replace(draft, self._path / _JOURNAL)

    def bucket(self, k: int) -> Path:
        """The file of a bucket."""
        return self._path / f"bucket-{k}"

    @property
    def complete(self) -> bool:
        """Whether only the last rename is missing."""
        return (self.columns / MANIFEST).exists()

    def publish(self) -> None:
        """Gives the finished folder its name, in place of an earlier import; whoever has that open keeps it."""
        force_to_disk(self.columns)
        if (self._final / MANIFEST).exists():
            shutil.rmtree(self._path / _OLD, ignore_errors=True)
            os.rename(self._final, self._path / _OLD)
        os.rename(self.columns, self._final)
        force_to_disk(self._final.parent)


def appending(file: Path, length: int) -> BinaryIO:
    """A file cut off at a length, to be written on from there; what is written survives the process at once."""
    opened = open(file, "ab", buffering=0)
    if opened.tell() < length:
        opened.close()
        raise ValueError(f"{file} is shorter than its journal says. Import again: that begins anew.")
    opened.truncate(length)
    return opened


def force_to_disk(folder: Path) -> None:
    """Makes the names in a folder outlast a power cut; only POSIX systems can."""
    if os.name == "posix":
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _boot() -> str | None:
    """What is the same until the machine starts anew; None where nobody knows."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None
