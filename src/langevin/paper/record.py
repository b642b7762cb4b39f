"""One study from its numbers to its files: figures, table, findings."""

import csv
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic

from langevin.paper.catalogue import study, title
from langevin.paper.lab import Lab, source_digest
from langevin.paper.study import Finding, Row, Verdict


@dataclass(frozen=True)
class Record:
    """What the page and the summary need to know of a finished study."""

    name: str
    title: str
    size: str
    seed: int
    seconds: float
    source: str
    figures: Sequence[str]
    findings: Sequence[Finding]

    @property
    def refused(self) -> bool:
        """Whether a claim was contradicted."""
        return any(finding.verdict is Verdict.REFUSED for finding in self.findings)


def work_out(name: str, lab: Lab, out: Path) -> Record:
    """Computes, checks and draws one study, and writes `name`.json, `name`.csv and every figure as PNG and SVG."""
    from langevin.figures import house_style

    # Gone until it is made anew: what a failed or interrupted call leaves is not shown as a result.
    (out / f"{name}.json").unlink(missing_ok=True)
    began, module = monotonic(), study(name)
    numbers = module.compute(lab)
    findings, rows = module.check(numbers), module.table(numbers)
    with house_style():
        figures = module.draw(numbers)
        for stem, figure in figures.items():
            figure.savefig(out / f"{stem}.png")
            # No date in the file: the same numbers give the same bytes.
            figure.savefig(out / f"{stem}.svg", metadata={"Date": None})
    record = Record(
        name, title(name), lab.size, lab.seed, monotonic() - began, source_digest(), list(figures), findings
    )
    _write_table(out / f"{name}.csv", rows)
    _write_whole(
        out / f"{name}.json", json.dumps({**asdict(record), "numbers": rows}, indent=1, allow_nan=False) + "\n"
    )
    return record


def read_records(out: Path, names: Sequence[str]) -> list[Record]:
    """The records in a folder, in the order of `names`; left out is what is missing or another version's work."""
    records = []
    for name in names:
        try:
            fields = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            continue
        if fields.get("source") == source_digest():
            fields["findings"] = [Finding(**{**f, "verdict": Verdict(f["verdict"])}) for f in fields["findings"]]
            del fields["numbers"]
            records.append(Record(**fields))
    return records


def _write_table(path: Path, rows: Sequence[Row]) -> None:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def _write_whole(path: Path, text: str) -> None:
    """Whole or not at all: the page reads this file back."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
