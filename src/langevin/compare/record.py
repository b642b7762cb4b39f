"""What a comparison has found so far, a line of JSON a cell: an interrupted one goes on where it stopped."""

import json
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

# What only looks at the record: changing it does not make numbers stale.
_READERS = {"cli", "paper", "report"}
_READING_FILES = {
    "command.py",
    "judge.py",
    "marks.py",
    "page.py",
    "picture.py",
    "record.py",
    "topics_table.py",
    "workshop.py",
}


class Record:
    """Cells by name. `path` is the file they are appended to, None for none; those of other versions do not count."""

    def __init__(self, path: Path | None, version: str | None = None) -> None:
        self.path = path
        self._version = source_digest() if version is None else version
        self._found: dict[str, Any] = {}
        self._lock = Lock()
        for line in self._text().splitlines():
            # A line that was cut off in the middle is nothing; nor is what is no cell, or the work of another version.
            try:
                cell = json.loads(line)
            except ValueError:
                continue
            match cell:
                case {"name": str(name), "langevin": self._version, "found": found}:
                    self._found[name] = found

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def __getitem__(self, name: str) -> Any:
        return self._found[name]

    def answered(self, name: str) -> bool:
        """Whether a cell is there that did not fail as a whole: those that did are tried again."""
        return name in self and "failed" not in self[name]

    def add(self, name: str, found: Any) -> Any:
        """Keeps a cell, from any thread; returns it as it would be read from the file."""
        line = json.dumps({"name": name, "langevin": self._version, "found": found}, default=plain)
        with self._lock:
            if self.path is not None:
                text = self._text()
                with self.path.open("a", encoding="utf-8") as file:
                    # After a line that was cut off.
                    file.write(("\n" if text and not text.endswith("\n") else "") + line + "\n")
            self._found[name] = json.loads(line)["found"]
        return self._found[name]

    def _text(self) -> str:
        if self.path is None or not self.path.exists():
            return ""
        # A damaged line must not keep the others from being read.
        return self.path.read_text(encoding="utf-8", errors="replace")


def plain(value: Any) -> Any:
    """Arrays as lists; for `json.dumps`."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else str(value)


@cache
def source_digest() -> str:
    """Changes with any file of the package that can change a number of the table."""
    package = Path(__file__).parents[1]
    files = [
        path
        for path in sorted(package.rglob("*.py"))
        if path.relative_to(package).parts[0] not in _READERS
        and not (path.parent.name == "compare" and path.name in _READING_FILES)
    ]
    return sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
