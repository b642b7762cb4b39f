"""`lv.fit` beside NUTS in Bambi or PyMC, and beside statsmodels, on five real tables: same models, same priors.

    make peers                                                       # installs them, and runs the command below
    python -m benchmarks.peers --record build/peers/record.jsonl     # all five; goes on where it was interrupted
    python -m benchmarks.peers --tables cbpp insurance               # two of them
    python -m benchmarks.peers --page docs/benchmarks/peers.md       # writes what was found into the page

Each snippet has a process of its own and a cache of its own, empty at the start. Ours runs three times more: with
precision=0.1, that again with the compiled programs of its first time on disk, and with another prior, the negative
control. That one must be told to differ, by NUTS and by the likelihood; the command ends with an error where it is not,
or where an answer differs.
"""

import argparse
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.page import Page
from benchmarks.peers.catalogue import CASES, QUICK, Case
from benchmarks.peers.report import Row, markdown, sections
from benchmarks.peers.runs import ROOT, interpreter, make_tables, run
from benchmarks.record import Record, record_option

FIRST_MARK, LAST_MARK = "<!-- peers tables", "<!-- end of the tables"


def measure(case: Case, peers: Path, tables: Path, ours: Record, theirs: Record) -> Row:
    """All runs of one table, one after the other."""

    def heard(kind: str, record: Record, python: Path, snippet: str, maximum: Any = None, times: int = 1) -> list[Any]:
        """What a snippet finds, once or several times over with the compiled programs of the first."""

        def found() -> list[Any]:
            said = []
            with tempfile.TemporaryDirectory() as cache:
                for _ in range(times):
                    said.append(run(snippet, python, tables, Path(cache), maximum))
                    seconds = f"{said[-1]['seconds']:.1f} s, {said[-1]['cpu']:.1f} CPU s"
                    print(f"  {case.name} {kind}: {seconds}", flush=True)
            return said

        return record.piece(f"{case.name} {kind} {sha256(snippet.encode()).hexdigest()[:8]}", found)

    own, changed = Path(sys.executable), case.snippet("langevin", QUICK, case.control)
    (maximum,) = heard("statsmodels", theirs, peers, case.snippet("statsmodels"))
    (sampled,) = heard(case.nuts, theirs, peers, case.snippet(case.nuts))
    (first,) = heard("langevin", ours, own, case.snippet("langevin"), maximum)
    quick, again = heard("langevin quick", ours, own, case.snippet("langevin", QUICK), times=2)
    (control,) = heard("control", ours, own, changed)
    return Row(case, first, quick, again, control, sampled, maximum)


def write_page(page: Path, rows: list[Row]) -> None:
    """Puts the tables and the snippets between the page's marks."""
    head, rest = page.read_text().split(FIRST_MARK, 1)
    mark, rest = rest.split("\n", 1)
    tail = rest.split(LAST_MARK, 1)[1]
    page.write_text(f"{head}{FIRST_MARK}{mark}\n\n{markdown(rows)}\n{LAST_MARK}{tail}")


def main(arguments: list[str]) -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=[case.name for case in CASES], help="all if not given")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv-peers", help="where the peers are installed")
    parser.add_argument("--page", type=Path, help="write the tables between the marks of this page")
    record_option(parser)
    given = parser.parse_args(arguments)
    if given.page is not None and given.tables is not None:
        parser.error("--page takes all tables: leave --tables out.")
    peers, folder = interpreter(given.venv), ROOT / "build" / "peers"
    make_tables(peers, folder)
    pins = sha256((ROOT / "constraints-peers.txt").read_bytes()).hexdigest()[:8]
    ours, theirs = Record(given.record), Record(given.record, f"peers {pins}")
    cases = [case for case in CASES if given.tables is None or case.name in given.tables]
    rows = [measure(case, peers, folder, ours, theirs) for case in cases]
    page = Page()
    for title, head, cells in sections(rows):
        page.say(f"\n{title}")
        page.table(head, cells)
    if given.page is not None:
        write_page(given.page, rows)
    wrong = [row.case.name for row in rows if not row.as_it_should_be]
    if wrong:
        sys.exit(f"An answer differs from its peers, or the control does not: {', '.join(wrong)}.")


if __name__ == "__main__":
    main(sys.argv[1:])
