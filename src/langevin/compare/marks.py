"""Tables put into a page of somebody's own: between two marks, and nowhere else."""

import os
import re
from pathlib import Path
from tempfile import TemporaryFile

FIRST_MARK, LAST_MARK = "<!-- compare tables", "<!-- end of the tables"
# Marks begin a line: a page may speak of them elsewhere.
_MARKED = re.compile(f"(.*?^{FIRST_MARK}[^\n]*)\n.*?^({LAST_MARK}.*)", re.DOTALL | re.MULTILINE)


def check_page(path: Path) -> None:
    """Makes sure that tables can be put into this page, before an hour is spent."""
    try:
        _around(path)
        with TemporaryFile(dir=path.parent) as file:
            file.write(b"x")
    except OSError as error:
        raise ValueError(
            f"--page must be a file that can be written, got {str(path)!r} ({error.strerror}). Choose another one."
        ) from None


def put_between(path: Path, tables: str) -> None:
    """Puts tables between the marks of a page; one that is not there yet is made, with marks for the next time."""
    before, after = _around(path)
    write_whole(path, f"{before}\n\n{tables}\n{after}")


def _around(path: Path) -> tuple[str, str]:
    """What stands before and after the tables of a page, marks included."""
    if not path.exists():
        return f"# Samplers compared\n\n{FIRST_MARK}: written by langevin compare -->", f"{LAST_MARK} -->\n"
    found = _MARKED.fullmatch(path.read_text(encoding="utf-8", errors="surrogateescape"))
    if found is None:
        raise ValueError(
            f"--page must be a new file, or have a line '{FIRST_MARK} -->' and after it a line '{LAST_MARK} -->' for "
            f"the tables to go between, got {str(path)!r}. Add the two lines, or name a new file."
        )
    return found[1], found[2]


def write_whole(path: Path, text: str) -> None:
    """Whole or not at all; what could not be decoded when it was read is written as it was."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8", errors="surrogateescape")
    os.replace(temporary, path)
