"""Shows how far a run has come: one live line in a terminal or notebook, plain log lines elsewhere."""

import sys
import time
from collections.abc import Callable

# Short runs stay silent; log files get a line now and then, not a thousand.
_QUIET_SECONDS = 2.0
_LIVE_SECONDS, _LOG_SECONDS = 0.2, 15.0


class Progress:
    """Counts transitions against a total; `enabled=None` shows progress on runs longer than two seconds."""

    def __init__(self, before: int, total: int, chains: int, enabled: bool | None) -> None:
        self._before, self._total, self._chains, self._enabled = before, total, chains, enabled
        self._start = self._last = time.monotonic()
        self._live = _in_notebook() or sys.stderr.isatty()
        self._line: Callable[[str], None] | None = None
        self._shown = False

    def update(self, done: int) -> None:
        """Tells that `done` transitions are complete."""
        now = time.monotonic()
        waited = now - self._last >= (_LIVE_SECONDS if self._live else _LOG_SECONDS)
        if self._enabled is False or not waited or (self._enabled is None and now - self._start < _QUIET_SECONDS):
            return
        self._show(done, now)

    def close(self, done: int) -> None:
        """Writes the last line, if any was written."""
        if self._shown:
            self._show(done, time.monotonic())
            if self._line is _terminal_line:
                sys.stderr.write("\n")

    def _show(self, done: int, now: float) -> None:
        if self._live and self._line is None:
            self._line = _notebook_line() if _in_notebook() else _terminal_line
        self._last, self._shown = now, True
        rate = (done - self._before) / max(now - self._start, 1e-9)
        pace = "started"
        if rate:
            pace = f"{rate * self._chains:.3g} chain-steps/s  {_clock((self._total - done) / rate)} left"
        text = f"langevin {done / self._total:4.0%}  m = {done:,} of {self._total:,}  {pace}"
        if self._line:
            self._line(text)
        else:
            print(text, file=sys.stderr, flush=True)


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


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds + 0.5), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
