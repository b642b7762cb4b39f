"""Turns the first Ctrl-C into a request to stop at the next block border, so that the books stay whole."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# What the outermost context asks: a run inside a longer piece of work shares its request.
_outer: list[Callable[[], bool]] = []


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Yields a function that tells whether Ctrl-C was pressed; a second Ctrl-C interrupts at once."""
    requested = False
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

    signal.signal(signal.SIGINT, handler)
    _outer.append(lambda: requested)
    try:
        yield _outer[-1]
    finally:
        _outer.pop()
        signal.signal(signal.SIGINT, previous)
