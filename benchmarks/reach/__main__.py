"""How many posteriors `lv.sample` answers, and how often it is right, beside NUTS.

    python -m benchmarks.reach --posteriordb PATH                       # all, seeds 0 to 4: about an hour on two cores
    python -m benchmarks.reach --posteriors garch-garch11 --seeds 0     # one of them, once
    python -m benchmarks.reach --page docs/benchmarks/reach.md          # writes the table into the page
    python -m benchmarks.reach --record reach.jsonl                     # can be interrupted: goes on when called again

Every posterior gets `lv.sample(target, data, theta_0, precision=0.05, seed=seed)` and nothing else. An answer is right
when its status is ok, every mean and sd is within 4 combined standard errors of the reference, and every 95% bar is at
most 0.05 posterior sd; wrong when one is off by more than 5 combined errors and 0.02 sd; between otherwise. A status
other than ok, an exception or a silence of five minutes is declined.

NUTS is that of blackjax: four chains, window adaptation over 1000 steps, then 500 draws at a time until the same
precision is reached or a minute is over; the first seed only. Both methods have a process of their own for each
posterior and no compiled programs on disk. Seconds are those of the processor, since other work stretches the wall
clock, and include compilation: `cold` is the first seed, `warm` the median of the others. What NUTS found is kept in
the record across versions of langevin.
"""

import argparse
import os
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.page import Page
from benchmarks.reach.database import VARIABLE, checkout
from benchmarks.reach.posteriors import catalogue, posterior
from benchmarks.reach.references import reference
from benchmarks.reach.verdicts import VERDICTS, Verdict, judge
from benchmarks.reach.workers import answers
from benchmarks.record import Record, record_option

FIRST_MARK, LAST_MARK = "<!-- reach table", "<!-- end of the table"
HEAD = ("posterior", "N", "d", *VERDICTS, "max z", "max sd", "cold s", "warm s", "NUTS s", "NUTS", "declined with")


@dataclass(frozen=True)
class Row:
    """One posterior of the table; `found` and `nuts` are what the workers said, each with its verdict."""

    name: str
    num_data: int
    dimension: int
    found: list[tuple[dict[str, Any], Verdict]]
    nuts: tuple[dict[str, Any], Verdict] | None

    def count(self, word: str) -> int:
        """Seeds with this verdict."""
        return sum(verdict.word == word for _, verdict in self.found)

    @property
    def ratio(self) -> float | None:
        """Processor seconds of NUTS over those of `lv.sample`, both cold; None unless both were right."""
        first, verdict = self.found[0]
        if self.nuts is None or verdict.word != "right" or self.nuts[1].word != "right":
            return None
        return self.nuts[0]["cpu_seconds"] / first["cpu_seconds"]

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        answered = [verdict for _, verdict in self.found if verdict.word != "declined"]
        warm = [found["cpu_seconds"] for found, _ in self.found[1:]]
        statuses = sorted({found["status"] for found, verdict in self.found if verdict.word == "declined"})
        return (
            self.name,
            f"{self.num_data:,}" if self.num_data else "-",
            str(self.dimension),
            *(str(self.count(word)) for word in VERDICTS),
            f"{max(one.z for one in answered):.1f}" if answered else "-",
            f"{max(one.sds for one in answered):.3f}" if answered else "-",
            f"{self.found[0][0]['cpu_seconds']:.1f}",
            f"{median(warm):.1f}" if warm else "-",
            f"{self.nuts[0]['cpu_seconds']:.1f}" if self.nuts else "-",
            _words(*self.nuts) if self.nuts else "-",
            ", ".join(statuses) if statuses else "-",
        )


def _words(found: dict[str, Any], verdict: Verdict) -> str:
    return found["status"] if verdict.word == "declined" else verdict.word


def measure(name: str, truth: dict[str, Any], seeds: list[int], ours: Record, theirs: Record | None) -> Row:
    """Runs one posterior, and says how it goes; without a record of `theirs` NUTS is left out."""
    one = posterior(name)

    def heard(method: str, chosen: list[int]) -> list[dict[str, Any]]:
        said = []
        for found in answers(name, method, chosen):
            message = f": {found['message'].splitlines()[0]}" if found.get("message") else ""
            word = _words(found, judge(found, truth))
            seconds = f"{found['cpu_seconds']:.1f} CPU s, {found['seconds']:.1f} s"
            print(f"  {name} {method} seed {found['seed']}: {word}, {seconds}{message}", flush=True)
            said.append(found)
        return said

    def judged(method: str, chosen: list[int], record: Record) -> list[tuple[dict[str, Any], Verdict]]:
        said = record.piece(f"{name} {method} {chosen}", lambda: heard(method, chosen))
        return [(found, judge(found, truth)) for found in said]

    found = judged("langevin", seeds, ours)
    nuts = None if theirs is None else judged("nuts", seeds[:1], theirs)[0]
    return Row(name, one.num_data, len(one.names), found, nuts)


def totals(rows: list[Row]) -> list[str]:
    """Pairs of posterior and seed by verdict; seconds."""
    pairs = sum(len(row.found) for row in rows)
    lines = [
        f"{pairs} pairs of posterior and seed: " + ", ".join(f"{sum(r.count(w) for r in rows)} {w}" for w in VERDICTS)
    ]
    ratios = [row.ratio for row in rows if row.ratio is not None]
    if ratios:
        spread = f"median {median(ratios):.2f} of {len(ratios)} posteriors, {min(ratios):.2f} to {max(ratios):.2f}"
        lines.append(f"processor seconds of NUTS over those of lv.sample, cold, where both are right: {spread}")
    heard = [row.nuts for row in rows if row.nuts is not None]
    if heard:
        counts = ", ".join(f"{sum(verdict.word == word for _, verdict in heard)} {word}" for word in VERDICTS)
        lines.append(f"NUTS, first seed: {counts}")
    return lines


def write_page(page: Path, rows: list[Row]) -> None:
    """Puts totals and table between the page's marks."""
    head, rest = page.read_text().split(FIRST_MARK, 1)
    mark, rest = rest.split("\n", 1)
    tail = rest.split(LAST_MARK, 1)[1]
    table = [f"| {' | '.join(HEAD)} |", "|" + "---|" * len(HEAD), *(f"| {' | '.join(row.cells)} |" for row in rows)]
    lines = [*(f"- {line}" for line in totals(rows)), "", *table]
    page.write_text(f"{head}{FIRST_MARK}{mark}\n\n" + "\n".join(lines) + f"\n\n{LAST_MARK}{tail}")


def main(arguments: list[str]) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--posteriordb", help=f"a checkout of posteriordb; else the variable {VARIABLE}")
    parser.add_argument("--posteriors", nargs="+", metavar="NAME", help="names of posteriordb; all if not given")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--no-nuts", action="store_true", help="leave NUTS out")
    parser.add_argument("--page", type=Path, help="write the table between the marks of this page")
    record_option(parser)
    given = parser.parse_args(arguments)
    if given.page is not None and given.posteriors is not None:
        parser.error("--page takes the whole table: leave --posteriors out.")
    if given.posteriordb is not None:
        os.environ[VARIABLE] = given.posteriordb
    checkout()
    names = catalogue() if given.posteriors is None else given.posteriors
    # All of them first: a reference that is stale should not end a table half way.
    truths = {name: reference(name) for name in names}
    ours = Record(given.record)
    theirs = None if given.no_nuts else Record(given.record, f"blackjax {version('blackjax')}")
    rows = [measure(name, truth, given.seeds, ours, theirs) for name, truth in truths.items()]
    page = Page()
    page.table(HEAD, [row.cells for row in rows])
    for line in totals(rows):
        page.say(line)
    if given.page is not None:
        write_page(given.page, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
