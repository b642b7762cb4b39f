"""What a run has found so far, kept on disk: a process that takes over after a crash finds it there, without the work.

A run is a deterministic program whose slow pieces are named. A piece that is over has its value in the journal; of the
one that is under way the journal has the state of a few seconds ago. Running the program again with the same journal
therefore takes the same decisions and ends with the same bits.
"""

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from langevin.limits import stop_requests
from langevin.saving.folder import Folder, Record
from langevin.saving.packing import FORMAT, Packer, Unpacker, pack_layout, unpack_layout
from langevin.target import Layout

Value = TypeVar("Value")
PyTree = Any
# Seconds of work that a crash may cost, and the share of the time that saving may take: large runs save less often.
_SECONDS, _SHARE = 2.0, 0.05
# Entries that are no pieces of work: what was asked, and the regression that a run belongs to.
CALL, FIT = "call", "fit"
# What whoever makes a call wants to find beside it: entries by name.
_noted: ContextVar[Mapping[str, Any]] = ContextVar("noted", default=MappingProxyType({}))


@contextmanager
def noted(entries: Mapping[str, Any]) -> Iterator[None]:
    """Makes journals that are begun inside hold these entries from the beginning."""
    before = _noted.set(entries)
    try:
        yield
    finally:
        _noted.reset(before)


def noted_entries() -> Mapping[str, Any]:
    """What `noted` says here."""
    return _noted.get()


class Identity(Protocol):
    """What a run is made of, as far as it must not change on the way; an `engine.manifest.Manifest`."""

    @property
    def layout(self) -> Layout:
        """Names and shapes of theta."""

    def difference(self, other: Any) -> str | None:
        """The first difference in words."""

    @property
    def remembered(self) -> Any:
        """The same as a file can hold it."""


@dataclass
class Bookmark:
    """Where a piece of work that is under way puts its state, whenever that is `due`."""

    journal: "Journal"
    name: str
    state: Callable[[], Any]

    def due(self) -> bool:
        """Whether the last save is long enough ago."""
        return self.journal.due()

    def keep(self) -> None:
        """Saves the state."""
        self.journal.keep(self.name, self.state())


class Journal:
    """Values of named pieces of work, in the order in which they were found; without a folder nothing is kept."""

    def __init__(self, folder: Folder | None = None, layout: Layout | None = None) -> None:
        self._folder, self._layout = folder, layout
        self._values: dict[str, Any] = {}
        self._under_way: str | None = None
        # How values that are on disk already are stored there: JSON, files of arrays, paths of their parts.
        self._plain: dict[str, Any] = {}
        self._files: dict[str, str] = {}
        self._paths: dict[int, str] = {}
        # Spent by earlier processes, as far as they had saved.
        self.seconds_before, self._opened = 0.0, monotonic()
        self._saved, self._took, self._changed = monotonic(), 0.0, False

    @classmethod
    def of(cls, folder: Folder, theta_0: PyTree = None) -> "Journal":
        """What a folder holds; `theta_0` stands in for containers that a file cannot hold."""
        record, arrays = folder.read()
        journal = cls(folder, unpack_layout(record["theta"], theta_0))
        assert journal._layout is not None
        unpacker = Unpacker(arrays, journal._layout)
        try:
            journal._values = {name: unpacker.made(plain, name) for name, plain in record["found"].items()}
            journal._under_way, journal.seconds_before = record["under_way"], float(record["seconds"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"{folder.path} was written by langevin {record['langevin']}, and this version "
                f"({version('langevin')}) cannot make a run of it ({type(error).__name__}: {error}). Use that version."
            ) from error
        over = [name for name in journal._values if name != journal._under_way]
        journal._plain = {name: record["found"][name] for name in over}
        journal._files = {name: file for name, file in record["arrays"].items() if name in over}
        journal._paths = {id(part): path for path, part in unpacker.seen.items() if path.split("/")[0] in over}
        return journal

    @property
    def keeps(self) -> bool:
        """Whether anything outlives the process."""
        return self._folder is not None

    @property
    def pieces(self) -> list[str]:
        """Names of the pieces of work that are over."""
        return [name for name in self._values if name not in (CALL, FIT, self._under_way)]

    def __contains__(self, name: str) -> bool:
        return name in self._values and name != self._under_way

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def last(self, names: Callable[[str], bool]) -> Any:
        """The value that was found last among those with such names, its state if that is under way; None without."""
        name = self.last_name(names)
        return None if name is None else self._values[name]

    def last_name(self, names: Callable[[str], bool]) -> str | None:
        """The name under which the last such value was found."""
        return next((name for name in reversed(self._values) if names(name)), None)

    @property
    def under_way(self) -> str | None:
        """The piece of work that was begun and is not over."""
        return self._under_way

    def forget(self, name: str) -> None:
        """Drops the state of a piece of work that nobody goes on with."""
        del self._values[name]
        self._under_way, self._changed = None, True

    def found(self, name: str, work: Callable[[], Value]) -> Value:
        """The value of a piece of work: from the journal, or by doing it."""
        if name not in self:
            self.enter(name, work())
        return self._values[name]

    def enter(self, name: str, value: Any) -> None:
        """Notes the value of a piece of work that is over."""
        self._values[name] = value
        self._under_way, self._changed = None, True
        if self.due():
            self._try_to_save()

    def left(self, name: str) -> Any:
        """The state in which a piece of work was left; None if it has to begin."""
        return self._values.get(name) if name == self._under_way else None

    def bookmark(self, name: str, state: Callable[[], Any]) -> Bookmark:
        """For a piece of work that is about to begin."""
        return Bookmark(self, name, state)

    def due(self) -> bool:
        """Whether the last save is long enough ago."""
        return self._folder is not None and monotonic() - self._saved > max(_SECONDS, self._took / _SHARE)

    def keep(self, name: str, state: Any) -> None:
        """Saves the state of a piece of work that is under way."""
        self._values[name], self._under_way, self._changed = state, name, True
        self._try_to_save()

    def close(self) -> None:
        """Saves what has changed since the last time."""
        if self._changed:
            self._try_to_save()

    def save(self, *, keep_before: bool = True) -> None:
        """Writes the journal to its folder."""
        if self._folder is None:
            return
        began = monotonic()
        assert self._layout is not None
        if not self._folder.holds(self._files.values()):
            # Someone has tidied up: all of it is in memory, and is written again.
            self._plain, self._files, self._paths = {}, {}, {}
        plain, fresh, paths = dict(self._plain), {}, dict(self._paths)
        for name, value in self._values.items():
            if name not in plain:
                packer = Packer(paths)
                plain[name] = packer.plain(value, name)
                if packer.arrays:
                    fresh[name] = packer.arrays
                if name != self._under_way:
                    paths = packer.seen
        record: Record = {
            "format": FORMAT,
            "langevin": version("langevin"),
            "theta": pack_layout(self._layout),
            "seconds": self.seconds_before + monotonic() - self._opened,
            "under_way": self._under_way,
            "found": plain,
            "arrays": dict(self._files),
        }
        files = self._folder.write(record, fresh, keep_before=keep_before)
        over = [name for name in plain if name != self._under_way]
        self._plain = {name: plain[name] for name in over}
        self._files = {name: files[name] for name in over if name in files}
        self._paths, self._changed, self._saved = paths, False, monotonic()
        self._took = self._saved - began

    def _try_to_save(self) -> None:
        """A disk that is full now may have room in a while, and the run itself needs none: it goes on."""
        try:
            self.save()
        except OSError as error:
            self._saved = monotonic()
            warnings.warn(
                f"{error}. The run goes on, and tries again.",
                RuntimeWarning,
                stacklevel=2,
            )


def _storable(arguments: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments with which a call can be made again; None where a file cannot hold them."""
    try:
        Packer().plain(arguments, CALL)
    except TypeError:
        return None
    return arguments


@contextmanager
def journal(
    path: str | Path | None,
    identity: Callable[[], Identity],
    arguments: dict[str, Any],
    theta_0: PyTree,
    remedy: str,
) -> Iterator[Journal]:
    """The journal of a call in its folder, new or of the same call; `remedy` tells how to go on after Ctrl-C."""
    if path is None:
        yield Journal()
        return
    call = identity()
    with Folder(Path(path)).locked() as folder, stop_requests() as stop_requested:
        going = Journal.of(folder, theta_0) if folder.taken else Journal(folder, call.layout)
        if not folder.taken:
            made = _storable({**arguments, "theta_0": call.layout.flat(theta_0)})
            going.enter(CALL, {"manifest": call.remembered, "arguments": made})
            for name, value in noted_entries().items():
                going.enter(name, value)
        elif CALL not in going:
            raise ValueError(
                f"checkpoint must be new or of the same call, got {path}, a saved result. Try another path."
            )
        else:
            differs = going[CALL]["manifest"].difference(call)
            if differs is not None:
                raise ValueError(
                    f"checkpoint must be new or of the same call, got {path}, but {differs}, there and now. "
                    f"Pass what the first call had, or give another folder."
                )
        # A folder that cannot be written is better known now than after hours of work.
        going.save()
        try:
            yield going
        finally:
            going.close()
            if stop_requested():
                print(f"Saved in {path}. {remedy}", file=sys.stderr, flush=True)
