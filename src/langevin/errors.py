"""The exceptions that a caller may want to catch by name."""

from typing import Any


class AnchorError(RuntimeError):
    """No usable posterior mode was found; the message says what was seen and what to change."""


class Diverged(RuntimeError):
    """A chain became non-finite or ran away. `ledger` holds every whole row before the block in which it happened."""

    def __init__(self, message: str, ledger: Any) -> None:
        super().__init__(message)
        self.ledger = ledger


class OutOfTime(TimeoutError):
    """`time_limit` ended before the first step could be taken."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during the set-up, when there is nothing yet to return."""
