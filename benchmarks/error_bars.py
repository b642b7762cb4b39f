"""Coverage of the nominal 95% intervals of `lv.sample`, target by target: are the error bars to be believed?

    python -m benchmarks.error_bars                        # 1000 runs a target, a few minutes on one core
    python -m benchmarks.error_bars --runs 200 poisson     # fewer runs, some targets
    python -m benchmarks.error_bars --page docs/error-bars.md    # writes the table into the page

A run has four chains of the steps that the catalogue names. Twenty groups of runs have a set-up of their own, so that
pilots vary too. Coverage is pooled over all parameters for each kind: posterior means, sds, and seven quantiles from
2.5% to 97.5%. The verdict is an exact binomial test on runs: "below" or "above" when a true coverage of a kind inside
[0.93, 0.97] is rejected at 1e-3. Width is the median half-width over 1.96 empirical standard deviations, of the kind
where it is largest.
"""

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import langevin as lv
from benchmarks.importance import LEVELS
from benchmarks.references import reference
from benchmarks.sampled import runs
from benchmarks.targets import catalogue, problem

LOWEST, HIGHEST, LEVEL = 0.93, 0.97, 1e-3
LEAST_OF_ONE, MOST_WIDTH, MOST_REFUSED = 0.90, 1.3, 0.02
GROUPS = 20
FIRST_MARK, LAST_MARK = "<!-- coverage table", "<!-- end of the table"


@dataclass(frozen=True)
class Row:
    """One target of the table."""

    name: str
    num_data: int
    dimension: int
    steps: int
    batch_sizes: tuple[int, int]
    ess: float
    runs: int
    kinds: dict[str, float]
    worst: float
    width: float
    refused: float
    statuses: dict[str, int]
    reference: float
    hard: bool
    seconds: float

    @property
    def verdict(self) -> str:
        """What the limits say; a hard posterior should be flagged."""
        if self.hard:
            return "flagged" if self.refused > 0.9 else "not flagged"
        found = [f"{kind} {judged(share, self.runs)}" for kind, share in self.kinds.items()]
        found = [words for words in found if not words.endswith("inside")]
        found += ["one parameter"] if self.worst < LEAST_OF_ONE else []
        found += ["wide"] if self.width > MOST_WIDTH else []
        found += ["refusals"] if stats.binom.sf(self.refused * self.runs - 1, self.runs, MOST_REFUSED) < LEVEL else []
        found += ["reference"] if self.reference > 0.2 else []
        return ", ".join(found) if found else "inside"


def judged(coverage: float, count: int) -> str:
    """Whether a binomial test on runs rejects every true coverage in the range."""
    hits = round(coverage * count)
    if stats.binom.cdf(hits, count, LOWEST) < LEVEL:
        return "below"
    return "above" if stats.binom.sf(hits - 1, count, HIGHEST) < LEVEL else "inside"


def measure(name: str, count: int, seed: int) -> Row:
    """Runs one target of the catalogue."""
    began = time.monotonic()
    one, truth = problem(name), reference(name)
    groups = min(GROUPS, count)
    found = [
        _numbers(result)
        for group in range(groups)
        for result in runs(
            one.target, one.data, one.theta_0, steps=one.steps, count=count // groups, seed=1000 * seed + group
        )
    ]
    values, lower, upper = (np.array([one_run[k] for one_run in found]) for k in range(3))
    statuses, sizes, ess = ([one_run[k] for one_run in found] for k in range(3, 6))
    # Rows: mean, sd, quantiles.
    true = np.concatenate([truth.mean[None], truth.sd[None], truth.quantiles])
    errors = np.concatenate([truth.mean_stderr[None], truth.sd_stderr[None], truth.quantiles_stderr])
    # A refused interval misses: whatever is withheld must not count as covered.
    covered = ((lower <= true) & (true <= upper)).mean(axis=0)
    half = np.nanmedian(0.5 * (upper - lower), axis=0)
    widths = half / (1.96 * values.std(axis=0, ddof=1))
    kinds = {"means": slice(0, 1), "sds": slice(1, 2), "quantiles": slice(2, None)}
    return Row(
        name=name,
        num_data=one.num_data,
        dimension=len(one.names),
        steps=one.steps,
        batch_sizes=(min(sizes), max(sizes)),
        ess=float(np.median(ess)),
        runs=len(found),
        kinds={kind: float(covered[at].mean()) for kind, at in kinds.items()},
        worst=float(covered.min()),
        width=max(float(np.median(widths[at])) for at in kinds.values()),
        refused=float(np.mean([status != "ok" for status in statuses])),
        statuses={word: statuses.count(word) for word in sorted(set(statuses)) if word != "ok"},
        reference=float(np.max(errors / half)),
        hard=one.hard,
        seconds=time.monotonic() - began,
    )


def _numbers(result: lv.Result) -> tuple[Any, ...]:
    """What is kept of a run: its ledger would hold on to those of all runs beside it."""
    parts = (result.mean, result.sd, result.quantiles(LEVELS))
    ends = [part.interval() for part in parts]
    columns = ([part.value for part in parts], [lower for lower, _ in ends], [upper for _, upper in ends])
    values = (np.concatenate([np.atleast_2d(part) for part in column]) for column in columns)
    return (*values, result.status, result.session.batch_size, result.plan.pilot.ess)


HEAD = ("target", "N", "d", "steps", "n", "ESS", "means", "sds", "quantiles", "least", "width", "not ok", "verdict")


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table as text."""
    low, high = row.batch_sizes
    return (
        row.name,
        f"{row.num_data:,}",
        str(row.dimension),
        f"{row.steps:,}",
        str(low) if low == high else f"{low}-{high}",
        f"{row.ess:.2f}",
        *(f"{share:.3f}" for share in row.kinds.values()),
        f"{row.worst:.3f}",
        f"{row.width:.2f}",
        f"{row.refused:.1%}",
        row.verdict,
    )


def main(arguments: list[str]) -> None:
    """Prints the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="names of the catalogue; all if none is given")
    parser.add_argument("--real", action="store_true", help="the real data sets instead of the simulated ones")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--page", type=Path, help="write the table between the marks of this page")
    given = parser.parse_args(arguments)
    print(aligned(HEAD), flush=True)
    names = given.targets if given.targets else catalogue(given.real)
    rows = []
    # One process a core; JAX does not survive a fork.
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as workers:
        for row in workers.map(partial(measure, count=given.runs, seed=given.seed), names):
            rows.append(row)
            note = f"{row.statuses if row.statuses else ''} reference {row.reference:.2f} {row.seconds:.0f} s"
            print(f"{aligned(cells(row))}  {note}", flush=True)
    if given.page is not None:
        write_page(given.page, rows)


def aligned(words: tuple[str, ...]) -> str:
    """A line of the printed table."""
    return "  ".join([words[0].ljust(17), *(word.rjust(6) for word in words[1:-1]), words[-1]])


def write_page(page: Path, rows: list[Row]) -> None:
    """Puts the rows into the table between the page's marks, in place of those of the same targets."""
    head, rest = page.read_text().split(FIRST_MARK, 1)
    mark, rest = rest.split("\n", 1)
    old, tail = rest.split(LAST_MARK, 1)
    found = {line.split("|")[1].strip(): line for line in old.splitlines() if line.startswith("|")}
    found |= {row.name: f"| {' | '.join(cells(row))} |" for row in rows}
    order = catalogue() + catalogue(real=True)
    table = [f"| {' | '.join(HEAD)} |", "|" + "---|" * len(HEAD), *(found[name] for name in order if name in found)]
    page.write_text(f"{head}{FIRST_MARK}{mark}\n\n" + "\n".join(table) + f"\n\n{LAST_MARK}{tail}")


if __name__ == "__main__":
    main(sys.argv[1:])
