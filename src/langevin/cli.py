"""The subcommands of `langevin`."""

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

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

        if quick and full:
            raise ValueError("--quick and --full exclude each other, got both. Give one; --quick is the default.")
        chosen = command.check_names([] if names is None else names)
        if list_:
            command.print_list(Console())
            return
        command.check_extras()
        size = "full" if full else "quick"
        folder = Path("langevin-paper", size) if out is None else out
        command.check_folder(folder)
    except ValueError as error:
        Console(stderr=True).print(f"Error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None
    raise typer.Exit(command.run(chosen, size, seed, folder, Console()))
