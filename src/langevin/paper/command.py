"""The command `langevin paper`: checks what it is asked, shows how far it is, prints the verdicts."""

from collections.abc import Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, time

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from langevin.paper.catalogue import NAMES, title
from langevin.paper.page import write_page
from langevin.paper.record import Record, read_records
from langevin.paper.study import Verdict
from langevin.paper.workshop import Event, work_through

_ABANDONED = 3600  # seconds after which a half-written file belongs to a call that was killed
_COLOURS = {
    Verdict.REPRODUCED: "green",
    Verdict.CORRECTED: "cyan",
    Verdict.TOO_SMALL: "yellow",
    Verdict.REFUSED: "bold red",
}


def check_extras() -> None:
    """Figures need matplotlib and figure 6 needs blackjax; say so before anything is computed."""
    missing = [package for package in ("matplotlib", "blackjax") if find_spec(package) is None]
    if missing:
        raise ValueError(f"{' and '.join(missing)} must be installed for this: pip install 'langevin[cli,paper]'.")


def print_list(console: Console) -> None:
    """Names and titles of all studies."""
    for name in NAMES:
        console.print(f"[bold]{name:16s}[/] {escape(title(name))}", highlight=False, soft_wrap=True)


def run(names: Sequence[str], size: str, seed: int, out: Path, console: Console) -> int:
    """Works out the studies, writes the page, prints the verdicts; 0 if every study ended and no claim was refused."""
    progress = _Progress(names, console)
    try:
        for left in (out / "parts").glob("*.tmp"):
            if time() - left.stat().st_mtime > _ABANDONED:
                left.unlink()
        with progress, closing(work_through(names, size, seed, out)) as events:
            for event in events:
                progress.tell(event)
                if event.kind == "done":
                    write_page(out, read_records(out, NAMES))
    except OSError as error:
        console.print(f"[bold red]Could not write to {out}:[/] {escape(str(error))}. Finished parts are kept.")
        return 1
    except KeyboardInterrupt:
        console.print(f"\nInterrupted. Finished parts are kept in {out}; the same command goes on from there.")
        return 130
    records = [record for record in read_records(out, names) if record.name not in progress.failed]
    _print_findings(records, console)
    for name, reason in progress.failed.items():
        console.print(f"[bold red]{name} failed:[/] {escape(reason)}", soft_wrap=True)
    if records:
        console.print(f"\nFigures, numbers and verdicts: {out / 'index.html'}", soft_wrap=True)
    return int(bool(progress.failed) or any(record.refused for record in records))


class _Progress:
    """One line a study in a terminal, one line an event in a log."""

    def __init__(self, names: Sequence[str], console: Console) -> None:
        self.failed: dict[str, str] = {}
        self._console, self._began = console, monotonic()
        self._state = dict.fromkeys(names, "waiting")
        self._live = Live(console=console, get_renderable=self._table, refresh_per_second=2, transient=True)

    def __enter__(self) -> "_Progress":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._live.stop()

    def tell(self, event: Event) -> None:
        """Takes in an event."""
        if event.kind == "failed":
            self.failed[event.name] = event.detail
            text = "failed"
        elif event.kind == "done":
            text = f"done in {event.detail.seconds:.0f} s: {_tally(event.detail)}"
        else:
            text = f"at work: {event.detail}"
        self._state[event.name] = text
        if not self._console.is_terminal:
            elapsed = monotonic() - self._began
            self._console.print(f"{elapsed:6.0f} s  {event.name:16s} {text}", highlight=False, soft_wrap=True)

    def _table(self) -> Table:
        done = sum(state.startswith("done") for state in self._state.values())
        elapsed = monotonic() - self._began
        table = Table(title=f"{done} of {len(self._state)} studies, {elapsed:.0f} s", box=None, title_justify="left")
        table.add_column(style="bold", no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis")
        table.show_header = False
        for name, state in self._state.items():
            colour = {"done": "green", "failed": "red", "waiting": "dim"}.get(state.split()[0], "cyan")
            table.add_row(name, f"[{colour}]{escape(state)}[/]")
        return table


def _tally(record: Record) -> str:
    """How often each verdict was given."""
    verdicts = [finding.verdict for finding in record.findings]
    return ", ".join(f"{verdicts.count(v)} {v}" for v in Verdict if v in verdicts)


def _print_findings(records: Sequence[Record], console: Console) -> None:
    for record in records:
        console.print(f"\n[bold]{record.name}[/]  {escape(record.title)}", highlight=False)
        for finding in record.findings:
            verdict = f"[{_COLOURS[finding.verdict]}]{finding.verdict}[/]"
            console.print(f"  {verdict}: {escape(finding.claim)}", highlight=False)
            console.print(f"    printed:  {escape(finding.printed)}", highlight=False, style="dim")
            console.print(f"    measured: {escape(finding.measured)}", highlight=False)
            if finding.because:
                console.print(f"    because:  {escape(finding.because)}", highlight=False)
