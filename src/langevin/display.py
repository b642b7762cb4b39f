"""One display for a whole call: what is under way, how far it has come, and how long it will take.

The work only leaves a note of where it is, by `tell`. A thread reads it a few times a second: no step waits for the
screen, and the clock goes on while a program compiles.
"""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import cache
from threading import Event, Thread
from time import monotonic
from typing import Any, NamedTuple

from jax import monitoring

# Shorter calls stay silent.
_QUIET_SECONDS = 3.0
# Between two looks at the note; between two lines of a log about one stage, at first: each wait is twice the last.
_LOOK_SECONDS, _LOG_SECONDS = 0.2, 15.0
_COMPILING = "/jax/core/compile/"
# One entry for each program that is traced or compiled just now, by any thread.
_programs: list[str] = []


@contextmanager
def showing(progress: bool | None) -> Iterator[None]:
    """Shows the work inside: at once (True), never (False), or where it takes more than some seconds (None).

    Work inside other work shares its display.
    """
    if _current.get() is not None and progress is not False:
        yield
        return
    display = _Display(progress)
    token = _current.set(display)
    try:
        yield
        display.close(display.summary())
    finally:
        display.close()
        _current.reset(token)


def tell(doing: str, share: float | None = None, note: str = "") -> None:
    """Says what the call does now, and which share of that is done; both may be told as often as one likes."""
    display = _current.get()
    if display is not None:
        display.tell(doing, share, note)


def hush() -> None:
    """Takes the display away before something else is written."""
    display = _current.get()
    if display is not None:
        display.close()


def clock(seconds: float) -> str:
    """Seconds in words."""
    minutes, rest = divmod(int(seconds + 0.5), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class _Stage(NamedTuple):
    """What was told last; `first` is the time and the share from which the pace is counted."""

    doing: str
    since: float
    told: float
    share: float | None = None
    note: str = ""
    first: tuple[float, float] | None = None


class _Display:
    """Keeps the note, and the thread that shows it."""

    def __init__(self, progress: bool | None) -> None:
        self._began = monotonic()
        self._stage = _Stage("starting", self._began, self._began)
        self._spent: dict[str, float] = {}
        self._over, self._last_words = Event(), ""
        self._thread: Thread | None = None
        if progress is not False:
            _hear_of_programs()
            # In this context a notebook knows which cell the output belongs to.
            wait = 0.0 if progress else _QUIET_SECONDS
            self._thread = Thread(target=copy_context().run, args=(self._show, wait), daemon=True)
            self._thread.start()

    def tell(self, doing: str, share: float | None, note: str) -> None:
        """See `tell`."""
        now, stage = monotonic(), self._stage
        if doing != stage.doing:
            self._leave(now)
            stage = _Stage(doing, now, now)
        first = (now, share) if stage.first is None and share is not None else stage.first
        share = None if share is None else min(share, 1.0)
        self._stage = stage._replace(told=now, share=share, note=note, first=first)

    def close(self, last_words: str = "") -> None:
        """Leaves these words on the screen, if there was anything."""
        if self._thread is not None and not self._over.is_set():
            self._last_words = last_words
            self._over.set()
            self._thread.join()

    def summary(self) -> str:
        """How long it took, and the stages that took long."""
        now = monotonic()
        self._leave(now)
        long = ", ".join(f"{doing} {clock(spent)}" for doing, spent in self._spent.items() if spent >= 1.0)
        return f"{clock(now - self._began)} in all" + f" ({long})" * bool(long)

    def _leave(self, now: float) -> None:
        doing = self._stage.doing
        self._spent[doing] = self._spent.get(doing, 0.0) + now - self._stage.since

    def _show(self, wait: float) -> None:
        # A screen that has gone away is no reason to disturb the work.
        if not self._over.wait(wait) and sys.stderr is not None:
            with suppress(OSError, ValueError):
                screen = _screen()
                while not self._over.wait(_LOOK_SECONDS):
                    screen.show(self._stage.doing, f"langevin: {self._text()}")
                screen.close(f"langevin: {self._last_words}" if self._last_words else "")

    def _text(self) -> str:
        stage = self._stage
        words = [clock(monotonic() - self._began), stage.doing + " (compiling)" * bool(_programs)]
        if stage.share is not None and stage.first is not None:
            words[-1] += f" {stage.share:.0%}"
            time, share = stage.first
            if stage.share > share:
                left = (1.0 - stage.share) * (stage.told - time) / (stage.share - share)
                words.append(f"about {clock(left)} left")
        return ", ".join([*words, stage.note] if stage.note else words)


_current: ContextVar[_Display | None] = ContextVar("display", default=None)


@cache
def _hear_of_programs() -> None:
    """Asks JAX to say when it begins and ends to trace or compile; it may be asked once in a process."""

    def begun(event: str, value: float, **more: Any) -> None:
        if event.startswith(_COMPILING):
            _programs.append(event)

    def ended(event: str, duration_secs: float, **more: Any) -> None:
        if event.startswith(_COMPILING) and _programs:
            _programs.pop()

    monitoring.register_scalar_listener(begun)
    monitoring.register_event_duration_secs_listener(ended)


def _screen() -> Any:
    """Where the text goes: `show(doing, text)` again and again, then `close(text)` with the line to leave, if any."""
    python = sys.modules.get("IPython")
    if python is not None and getattr(python.get_ipython(), "kernel", None) is not None:
        return _Notebook()
    if not sys.stderr.isatty():
        return _Log()
    try:
        return _Rich()
    except ImportError:
        return _Terminal()


class _Log:
    """A line for every stage, and more of them at growing distances."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._due, self._wait = 0.0, _LOG_SECONDS

    def show(self, doing: str, text: str) -> None:
        now = monotonic()
        if doing in self._seen:
            if now < self._due:
                return
            self._wait *= 2.0
        self._seen.add(doing)
        self._due = now + self._wait
        self.close(text)

    def close(self, text: str) -> None:
        if text:
            print(text, file=sys.stderr, flush=True)


class _Terminal:
    """One line that is written over."""

    def __init__(self) -> None:
        self._width = 0

    def show(self, doing: str, text: str) -> None:
        text = text[: shutil.get_terminal_size().columns - 1]
        self._write("\r" + text.ljust(self._width))
        self._width = len(text)

    def close(self, text: str) -> None:
        self._write("\r" + " " * self._width + "\r" + (text + "\n" if text else ""))

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


class _Rich:
    """The same, with room above it for what others print."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        self._console, self._text = Console(stderr=True), Text
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()
        # Whoever is killed leaves a terminal that shows where one types.
        self._console.show_cursor(True)

    def show(self, doing: str, text: str) -> None:
        self._live.update(self._text(text, style="cyan", no_wrap=True, overflow="ellipsis"), refresh=True)

    def close(self, text: str) -> None:
        self._live.stop()
        if text:
            self._console.print(self._text(text, style="dim"), soft_wrap=True)


class _Notebook:
    """One output of the running cell that is written over."""

    def __init__(self) -> None:
        from IPython.display import display

        self._handle = display({"text/plain": ""}, raw=True, display_id=True)

    def show(self, doing: str, text: str) -> None:
        self._handle.update({"text/plain": text}, raw=True)

    def close(self, text: str) -> None:
        self.show("", text)
