"""What a long benchmark has found so far, a line of JSON a piece: an interrupted one goes on where it stopped."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langevin.compare import record
from langevin.paper.lab import source_digest


class Record(record.Record):
    """Pieces by name; `version` is that of what makes them: this package's source, unless told otherwise."""

    def __init__(self, path: Path | None, version: str | None = None) -> None:
        super().__init__(path, source_digest() if version is None else version)

    def piece(self, name: str, compute: Callable[[], Any]) -> Any:
        """The piece, computed unless it is there."""
        return self[name] if name in self else self.add(name, compute())


def record_option(parser: argparse.ArgumentParser) -> None:
    """Adds --record to a command line."""
    parser.add_argument("--record", type=Path, help="append what is found to this file, and leave out what is there")
