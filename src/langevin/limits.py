"""Ends work early and cleanly: Ctrl-C and the clock are heard between device calls, never in the middle of one.

An exception that Python throws into JAX's own code can end in a crash of the interpreter. So the first Ctrl-C only
leaves a request; a run looks for it at every block border, the set-up at every `checkpoint`. A second Ctrl-C
interrupts at once.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, NoReturn

from langevin.display import hush, showing, tell
from langevin.errors import Interrupted, OutOfTime

# What the outermost context asks: work inside a longer piece of work shares its request.
_outer: list[Callable[[], bool]] = []
# Limits of the set-up under way in this thread.
_set_up = threading.local()


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Yields a function that tells whether Ctrl-C was pressed; a second Ctrl-C interrupts at once.

    A request that nobody asked for before the work ended is passed on to whoever had the signal before.
    """
    requested = heard = False
    # Python delivers signals to the main thread only; elsewhere there is nothing to catch.
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    if _outer:
        yield _outer[-1]
        return
    previous = signal.getsignal(signal.SIGINT)

    def handler(number: int, frame: Any) -> None:
        nonlocal requested
        requested = True
        signal.signal(signal.SIGINT, previous)

    def asked() -> bool:
        nonlocal heard
        heard = requested
        return requested

    signal.signal(signal.SIGINT, handler)
    _outer.append(asked)
    try:
        yield asked
    finally:
        _outer.pop()
        signal.signal(signal.SIGINT, previous)
    if requested and not heard:
        if previous is signal.default_int_handler:
            interrupt("Interrupted as the work was ending.")
        signal.raise_signal(signal.SIGINT)


@contextmanager
def set_up(deadline: float | None = None, left: str = "nothing was sampled") -> Iterator[None]:
    """Makes checkpoints inside end the work after Ctrl-C, or past the deadline on the monotonic clock.

    `left` says how things stand then. Set-up inside set-up shares the limits of the outermost, which is also where an
    interrupt surfaces: the user sees no frames of what happened to be under way.
    """
    if getattr(_set_up, "limits", None) is not None:
        yield
        return
    try:
        with stop_requests() as stop_requested, showing(None):
            _set_up.limits = (stop_requested, deadline)
            try:
                yield
                _heed("at its end")
            finally:
                _set_up.limits = None
    except _Stop as stop:
        interrupt(f"Interrupted during the set-up, {stop}; {left}.")


def attempted(deadline: float | None, work: Callable[[], Any]) -> Any:
    """What the work returns; None where Ctrl-C or the deadline ended its set-up and the caller has something else."""
    try:
        with stop_requests() as stop_requested:
            _set_up.limits = (stop_requested, deadline)
            try:
                return work()
            finally:
                _set_up.limits = None
    except (_Stop, OutOfTime):
        return None


def checkpoint(doing: str, share: float | None = None, note: str = "") -> None:
    """Ends the set-up here if a limit was reached; else the display tells what is under way, see `tell`."""
    tell(doing, share, note)
    _heed(doing)


def _heed(doing: str) -> None:
    limits = getattr(_set_up, "limits", None)
    if limits is None:
        return
    stop_requested, deadline = limits
    if stop_requested():
        raise _Stop(doing)
    if deadline is not None and monotonic() > deadline:
        raise OutOfTime(
            f"time_limit ended during the set-up, {doing}: nothing was sampled. Give a longer time_limit (lv.plan says "
            f"how long the set-up takes), or fewer rows."
        )


class _Stop(BaseException):
    """Ctrl-C on its way from a checkpoint to the outermost set-up."""


class _EndOfScript(Interrupted, SystemExit):
    """In a script, where nobody catches it: ends the process with the shell's code for Ctrl-C, without a traceback."""

    code = 130


def interrupt(message: str) -> NoReturn:
    """Ends the work after Ctrl-C where there is nothing to return: one line in a script, an exception elsewhere."""
    # In an interactive session SystemExit would end the session; there a KeyboardInterrupt is shown and forgotten.
    if hasattr(sys, "ps1") or sys.flags.interactive:
        raise Interrupted(message) from None
    hush()
    print(message, file=sys.stderr)
    raise _EndOfScript(message) from None
