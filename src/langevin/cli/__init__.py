"""The subcommands of `langevin`."""

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from langevin.cli import fits
from langevin.cli.checks import check_folder, check_names
from langevin.cli.refusing import refuse

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"langevin {version('langevin')}")
        raise typer.Exit


@app.callback()
def langevin(
    show: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Expectations under Bayesian posteriors from minibatches, with error bars that can be believed."""


for command in (fits.fit, fits.report, fits.predict, fits.resume, fits.watch):
    app.command()(command)


@app.command()
def cite() -> None:
    """Print how to cite this library and the paper that it stands on, as BibTeX."""
    from langevin.citation import bibtex

    print(bibtex())


@app.command("import")
def import_(
    source: Annotated[list[Path], typer.Argument(metavar="SRC...", help="Parquet, CSV or .npy files, or a folder.")],
    folder: Annotated[Path, typer.Argument(metavar="DST", help="The folder of columns to make.")],
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="A column to take, 'x=C(x)' as levels, 'x=x1,x2' or 'x=x*' side by side. Repeat. None means all."
        ),
    ] = None,
    drop_missing: Annotated[bool, typer.Option("--drop-missing", help="Leave out rows without a number.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the shuffle.")] = 0,
) -> None:
    """Turn tables into a folder of shuffled columns that lv.sample and lv.run read from the disk.

    An interrupted or killed call can be repeated: it goes on from where it was. Repeating a finished one does nothing.
    """
    from langevin.data.importer import import_data

    asked = dict(_named(one) for one in column) if column else None
    try:
        found = import_data(source, folder, columns=asked, drop_missing=drop_missing, seed=seed)
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        refuse(error)
    print(found)


def _named(column: str) -> tuple[str, str | list[str]]:
    """`y` is a column; `x=x1,x2` puts some side by side."""
    name, separator, wanted = column.partition("=")
    return (name, wanted.split(",")) if separator else (column, column)


@app.command()
def paper(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Studies; none means all.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, a few minutes. The default.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The paper's sizes, twenty minutes on two cores.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder; langevin-paper/quick or /full if not given.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the runs; the data sets stay the same.")] = 0,
    list_: Annotated[bool, typer.Option("--list", help="Say what can be named, and stop.")] = False,
) -> None:
    """Check the figures and theorems of the paper that this library stands on.

    Works out each study, compares it with what the paper prints, and writes figures, numbers and a page with all
    verdicts. An interrupted call can be repeated: it goes on from what was finished.
    """
    try:
        from langevin.paper import command
        from langevin.paper.catalogue import NAMES

        if quick and full:
            raise ValueError("--quick and --full exclude each other, got both. Give one; --quick is the default.")
        chosen = check_names([] if names is None else names, NAMES, "NAME", "paper")
        if list_:
            command.print_list(Console())
            return
        command.check_extras()
        size = "full" if full else "quick"
        folder = Path("langevin-paper", size) if out is None else out
        check_folder(folder, "parts")
    except ValueError as error:
        refuse(error)
    raise typer.Exit(command.run(chosen, size, seed, folder, Console()))


@app.command()
def compare(
    targets: Annotated[list[str] | None, typer.Argument(metavar="TARGET", help="Posteriors; none means all.")] = None,
    samplers: Annotated[str | None, typer.Option(help="Names with commas between them; all if not given.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0.05, help="Of one core, for a replicate; default 1.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Some targets and samplers, five minutes.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder; langevin-compare/quick or /full if not given.")] = None,
    page: Annotated[Path | None, typer.Option(help="A page with marks to put the tables between.")] = None,
    at_once: Annotated[int, typer.Option(min=1, help="Cells worked on at a time, each on a core.")] = 2,
    list_: Annotated[bool, typer.Option("--list", help="Say what can be named, and stop.")] = False,
) -> None:
    """Rank every sampler of the library, and peers', by error after a fixed time and by whether intervals hold.

    Each sampler gets the same seconds of one core on each posterior, tuning included and compiling not, and is judged
    by what is known to be true there. The whole table takes an hour on two cores. An interrupted call can be repeated:
    it goes on from what was finished.
    """
    try:
        from langevin.compare import command

        names = [] if samplers is None else [name.strip() for name in samplers.split(",")]
        asked = check_names([] if targets is None else targets, command.ALL_TARGETS, "TARGET", "compare")
        chosen = check_names(names, command.ALL_SAMPLERS, "--samplers", "compare")
        if list_:
            command.print_list(Console())
            return
        if quick:
            asked = asked if targets else [name for name in asked if name in command.QUICK_TARGETS]
            chosen = chosen if names else [name for name in chosen if name in command.QUICK_SAMPLERS]
        folder = Path("langevin-compare", "quick" if quick else "full") if out is None else out
        check_folder(folder)
    except ValueError as error:
        refuse(error)
    raise typer.Exit(command.run(asked, chosen, command.size_of(quick, seconds), folder, at_once, Console(), page))
