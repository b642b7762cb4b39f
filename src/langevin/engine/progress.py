"""Shows how far a run has come."""

from langevin.display import Line, clock


class Progress:
    """Counts transitions against a total; `enabled=None` shows progress on runs longer than two seconds.

    `doing` says what the transitions are for, where that is not the run itself.
    """

    def __init__(self, before: int, total: int, chains: int, enabled: bool | None, doing: str = "") -> None:
        self._total, self._chains = total, chains
        self._head = f"langevin, {doing}:" if doing else "langevin"
        self._line = Line(enabled)
        self._first: tuple[int, float] | None = None

    def update(self, done: int) -> None:
        """Tells that `done` transitions are complete."""
        self._line.update(lambda seconds: self._text(done, seconds))

    def close(self, done: int) -> None:
        """Writes the last line, if any was written."""
        self._line.close(lambda seconds: self._text(done, seconds))

    def _text(self, done: int, seconds: float) -> str:
        # The first block compiles: its pace says nothing about the rest.
        if self._first is None:
            self._first = done, seconds
        before, start = self._first
        rate = (done - before) / max(seconds - start, 1e-9)
        pace = "started"
        if rate:
            pace = f"{rate * self._chains:.3g} chain-steps/s  {clock((self._total - done) / rate)} left"
        return f"{self._head} {done / self._total:4.0%}  m = {done:,} of {self._total:,}  {pace}"
