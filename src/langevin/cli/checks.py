"""Checks that `langevin paper` and `langevin compare` make before they begin."""

import difflib
from collections.abc import Collection, Sequence
from pathlib import Path
from tempfile import TemporaryFile


def check_names(asked: Sequence[str], known: Collection[str], what: str, command: str) -> list[str]:
    """The names meant, in the order of the catalogue; all of them when none is given."""
    for name in asked:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"`langevin {command} --list` says what each one is."
            raise ValueError(f"{what} must be among {', '.join(known)}, got {name!r}. {hint}")
    return [name for name in known if name in asked or not asked]


def check_folder(out: Path, inside: str = "") -> None:
    """Creates the output folder and makes sure that files can be written there, before hours are spent."""
    try:
        (out / inside).mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out / inside) as file:
            file.write(b"x")
    except OSError as error:
        raise ValueError(
            f"--out must be a folder that can be written to, got {str(out)!r} ({error.strerror}). Choose another one."
        ) from None
