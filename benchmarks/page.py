"""A report that is printed line by line as it comes, and written to a file when it is complete."""

import argparse
from collections.abc import Sequence
from pathlib import Path


class Page:
    """Collects what it prints. `output` is the file, None for none."""

    def __init__(self, output: Path | None = None) -> None:
        self.output = output
        self.lines: list[str] = []

    def say(self, line: str = "") -> None:
        print(line, flush=True)
        self.lines.append(line)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Columns as wide as they need to be; first and last to the left, where words are, the others to the right."""
        whole, last = [head, *rows], len(head) - 1
        widths = [max(len(row[k]) for row in whole) for k in range(len(head))]
        for row in whole:
            cells = [row[k].ljust(widths[k]) if k in (0, last) else row[k].rjust(widths[k]) for k in range(len(head))]
            self.say(" | ".join(cells).rstrip())

    def write(self) -> None:
        """Writes the file, if one was asked for."""
        if self.output is not None:
            self.output.write_text("\n".join(self.lines) + "\n")


def output_option(parser: argparse.ArgumentParser) -> None:
    """Adds --output to a command line."""
    parser.add_argument("--output", type=Path, help="also write the tables to this file")
