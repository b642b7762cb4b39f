"""One line that says how far long work has come: live in a terminal or notebook, plain log lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Short work stays silent; log files get a line now and then, not a thousand.
_QUIET_SECONDS = 2.0
_LIVE_SECONDS, _LOG_SECONDS = 0.2, 15.0
# What the user asked of the call under way: True, False, or None for long work only.
_wanted: ContextVar[bool | None] = ContextVar("wanted", default=None)


@contextmanager
def showing(progress: bool | None) -> Iterator[None]:
    """Makes set-up inside show its progress always, never (False), or where it is long (None)."""
    before = _wanted.set(progress)
    try:
        yield
    finally:
        _wanted.reset(before)


class Line:
    """The line; `enabled=None` shows it for work longer than two seconds."""

    def __init__(self, enabled: bool | None) -> None:
        self._enabled = enabled
        self.start = self._last = time.monotonic()
        self._live = _in_notebook() or sys.stderr.isatty()
        self._write: Callable[[str], None] | None = None
        self._shown = False

    def update(self, text: Callable[[float], str]) -> None:
        """Shows `text(seconds since the start)` if a new line is due."""
        now = time.monotonic()
        waited = now - self._last >= (_LIVE_SECONDS if self._live else _LOG_SECONDS)
        if self._enabled is False or not waited or (self._enabled is None and now - self.start < _QUIET_SECONDS):
            return
        self._show(text, now)

    def close(self, text: Callable[[float], str]) -> None:
        """Writes the last line, if any was written."""
        if self._shown:
            self._show(text, time.monotonic())
            if self._write is _terminal_line:
                sys.stderr.write("\n")

    def _show(self, text: Callable[[float], str], now: float) -> None:
        if self._live and self._write is None:
            self._write = _notebook_line() if _in_notebook() else _terminal_line
        self._last, self._shown = now, True
        if self._write:
            self._write(text(now - self.start))
        else:
            print(text(now - self.start), file=sys.stderr, flush=True)


class Meter:
    """Counts bytes of a pass over the data against their total."""

    def __init__(self, doing: str, total: int) -> None:
        self._doing, self._total, self._done = doing, max(total, 1), 0
        self._line = Line(_wanted.get())

    def add(self, size: int) -> None:
        """Tells that so many more bytes are done."""
        self.reach(self._done + size)

    def reach(self, done: int) -> None:
        """Tells how many bytes are done in all."""
        self._done = done
        self._line.update(self._text)

    def close(self) -> None:
        """The pass is over."""
        self._line.close(self._text)

    def _text(self, seconds: float) -> str:
        rate = self._done / max(seconds, 1e-9)
        left = f"  {clock((self._total - self._done) / rate)} left" if 0 < self._done < self._total else ""
        return f"langevin {self._done / self._total:4.0%}  {self._doing}  {rate / 1e6:,.0f} MB/s{left}"


def clock(seconds: float) -> str:
    """Seconds in words."""
    minutes, rest = divmod(int(seconds + 0.5), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _terminal_line(text: str) -> None:
    sys.stderr.write("\r" + text.ljust(100))
    sys.stderr.flush()


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"


def _notebook_line() -> Callable[[str], None]:
    """A function that rewrites one output line of the running notebook cell."""
    from IPython.display import display

    handle = display({"text/plain": "langevin"}, raw=True, display_id=True)
    return lambda text: handle.update({"text/plain": text}, raw=True)
