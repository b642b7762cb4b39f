"""The small table of topics: perplexities of the record by method, each with its Monte Carlo error."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from langevin.compare.record import Record
from langevin.compare.topics import METHODS, NAME, TITLE, corpus
from langevin.compare.workshop import Size, cell_name, scaled


@dataclass(frozen=True)
class Line:
    """Mean perplexity of a method over its replicates, with its error; or words on why there is none."""

    perplexity: float = float("nan")
    error: float = float("nan")
    replicates: int = 0
    seconds: float = float("nan")
    rounds: float = float("nan")
    words: str = ""


@dataclass(frozen=True)
class Topics:
    """Lines by method, and perplexities to hold them against."""

    size: Size
    lines: Mapping[str, Line]
    bounds: Mapping[str, float]

    def ranked(self) -> list[str]:
        """Methods with the least perplexity first, those without any last."""
        return sorted(self.lines, key=lambda name: np.nan_to_num(self.lines[name].perplexity, nan=np.inf))


def read_topics(record: Record, methods: Sequence[str], size: Size) -> Topics:
    """What the record has of these methods."""
    lines = {name: _line(record, name, cell_name(NAME, name, size)) for name in methods}
    scored = any(line.replicates for line in lines.values())
    return Topics(scaled(NAME, size), lines, corpus().bounds if scored else {})


def _line(record: Record, method: str, name: str) -> Line:
    if name not in record:
        missing = METHODS[method].missing
        return Line(words=f"needs {' and '.join(missing)}. {METHODS[method].install}" if missing else "not run")
    found = record[name]
    if "failed" in found:
        return Line(words=f"failed: {found['failed']}")
    made = found["replicates"]
    good = [one["seconds"] for one in made if "failed" not in one and np.isfinite(one["seconds"]["perplexity"])]
    lost = len(made) - len(good)
    why = next((one["failed"] for one in made if "failed" in one), "its perplexity is not finite")
    words = f"failed {lost} of {len(made)}: {why}" if lost else ""
    if len(good) < 2:
        return Line(words=words if words else "failed: one replicate alone has no Monte Carlo error")

    def mean(key: str) -> float:
        return float(np.mean([one[key] for one in good]))

    spread = float(np.std([one["perplexity"] for one in good], ddof=1) / np.sqrt(len(good)))
    rounds = mean("visits") / corpus().num_data
    return Line(mean("perplexity"), spread, len(good), mean("seconds"), rounds, words)


def caption(one: Topics) -> str:
    """What the numbers are."""
    bounds = ", ".join(f"{name}: {value:.1f}" for name, value in one.bounds.items())
    return (
        f"{TITLE}. Perplexity of held-out words after {one.size.seconds:g} s of one core ({one.size.replicates} "
        f"replicates, ± one Monte Carlo error); less is better{f' ({bounds})' if bounds else ''}"
    )


def rows(one: Topics) -> list[list[str]]:
    """The head of the table, and a line for each method that has an answer, the best first."""
    head = ["method", "library", "perplexity", "s", "rounds over the documents"]
    return [head] + [
        [name, METHODS[name].library, _number(line), f"{line.seconds:.1f}", f"{line.rounds:.3g}"]
        for name in one.ranked() if (line := one.lines[name]).replicates
    ]  # fmt: skip


def _number(line: Line) -> str:
    digits = max(int(np.ceil(-np.log10(line.error))), 0) if line.error > 0.0 else 1
    return f"{line.perplexity:.{digits}f} ± {line.error:.{digits}f}"


def reasons(one: Topics) -> list[str]:
    """Why lines are missing or incomplete."""
    return [f"{name} ({NAME}): {line.words}" for name, line in one.lines.items() if line.words]


def failed(one: Topics | None) -> bool:
    """Whether a method failed as a whole or in part."""
    return one is not None and any(line.words.startswith("failed") for line in one.lines.values())


def lines_of(one: Topics) -> list[str]:
    """The section of the Markdown page."""
    head, *body = rows(one)
    table = [head, ["---"] * len(head), *([f"`{name}`", *rest] for name, *rest in body)]
    return [f"## {NAME}", "", f"{caption(one)}.", "", *(f"| {' | '.join(row)} |" for row in table), "",
            *(f"- {reason}" for reason in reasons(one)), ""]  # fmt: skip
