"""What a long benchmark has found so far, a line of JSON a piece: an interrupted one goes on where it stopped."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from langevin.paper.lab import source_digest


class Record:
    """Pieces by name. `path` is the file they are appended to, None for none; those of other versions do not count.

    `version` is that of what makes the pieces: this package's source, unless told otherwise.
    """

    def __init__(self, path: Path | None, version: str | None = None) -> None:
        self.path = path
        self._version = source_digest() if version is None else version
        self._found: dict[str, Any] = {}
        for line in path.read_text().splitlines() if path is not None and path.exists() else []:
            # A line that was cut off in the middle ends here; so does the work of another version.
            try:
                piece = json.loads(line)
            except json.JSONDecodeError:
                continue
            if piece["langevin"] == self._version:
                self._found[piece["name"]] = piece["found"]

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def __getitem__(self, name: str) -> Any:
        return self._found[name]

    def add(self, name: str, found: Any) -> Any:
        """Keeps a piece; returns it as it would be read from the file."""
        line = json.dumps({"name": name, "langevin": self._version, "found": found}, default=_plain)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(line + "\n")
        self._found[name] = json.loads(line)["found"]
        return self._found[name]

    def piece(self, name: str, compute: Callable[[], Any]) -> Any:
        """The piece, computed unless it is there."""
        return self[name] if name in self else self.add(name, compute())


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else str(value)


def record_option(parser: argparse.ArgumentParser) -> None:
    """Adds --record to a command line."""
    parser.add_argument("--record", type=Path, help="append what is found to this file, and leave out what is there")
