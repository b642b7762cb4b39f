"""Errors of the command: one line that names the fix, and the whole traceback where it is asked for."""

from collections.abc import Iterator
from contextlib import contextmanager
from traceback import print_exc
from typing import NoReturn

import typer
from rich.console import Console

# The library speaks of its arguments; on the command line they have other names.
_OPTIONS = {
    "missing='drop'": "--drop-missing",
    "checkpoint must": "--out must",
    "time_limit": "--time",
}


def refuse(error: Exception) -> NoReturn:
    """One line about what is wrong, and the exit code of bad input."""
    said = str(error)
    if isinstance(error, OSError) and error.strerror:
        said = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    for argument, option in _OPTIONS.items():
        said = said.replace(argument, option)
    Console(stderr=True).print(f"Error: {said}", style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(2) from None


@contextmanager
def one_line(debug: bool) -> Iterator[None]:
    """Turns errors that a user can mend into one line, unless everything is to be seen."""
    from langevin.errors import AnchorError, Diverged, OutOfTime

    try:
        yield
    except (ValueError, ArithmeticError, OSError, ImportError, AnchorError, Diverged, OutOfTime) as error:
        if debug:
            print_exc()
            raise typer.Exit(2) from None
        refuse(error)
