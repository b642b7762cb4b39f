"""`langevin fit`, and what can be done with the folder that it leaves."""

from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from langevin.cli.refusing import one_line

if TYPE_CHECKING:
    from langevin.regression import Fit
    from langevin.sampling import Result

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a fit: langevin fit ... --out RUN.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]
_TABLE = "A table: a .csv or .parquet file, a folder of them, or one that langevin import has made."
# Rows of a table that a terminal shows.
_SHOWN = 20


def fit(
    data: Annotated[Path, typer.Argument(metavar="DATA", help=_TABLE)],
    formula: Annotated[str, typer.Argument(metavar="FORMULA", help='Such as "y ~ x1 + C(x2) + (1 | town)".')],
    family: Annotated[
        str,
        typer.Option(
            help="gaussian, student, bernoulli, binomial, poisson, negative-binomial, categorical or ordinal."
        ),
    ] = "gaussian",
    precision: Annotated[float | None, typer.Option(help="Posterior sds; 0.02 where no limit is given.")] = None,
    passes: Annotated[float | None, typer.Option(help="Sampling budget, passes over the data.")] = None,
    time: Annotated[float | None, typer.Option(help="Seconds for everything.")] = None,
    prior: Annotated[list[str] | None, typer.Option(help="Such as 'x1=normal(0, 1)'; repeat for more.")] = None,
    weights: Annotated[str | None, typer.Option(help="A column.")] = None,
    offset: Annotated[str | None, typer.Option(help="A column.")] = None,
    trials: Annotated[str | None, typer.Option(help="A column, for the binomial family.")] = None,
    levels: Annotated[str | None, typer.Option(help="Of the response, in order: low,medium,high.")] = None,
    drop_missing: Annotated[bool, typer.Option("--drop-missing", help="Leave incomplete rows out.")] = False,
    groups: Annotated[
        str | None,
        typer.Option(
            help="integrate their effects out, or sample those of a few large ones; several groupings always are."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for summary.csv and the run, which goes on there after a crash.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Fit a regression to a table and print its posterior, with Monte Carlo errors and a verdict.

    Exit code 0 where the status is ok, 1 where the numbers should not be trusted, 2 for bad input.
    """
    from langevin.regression import fit as fitted

    with one_line(debug):
        given = dict(_prior(text) for text in ([] if prior is None else prior))
        found = fitted(
            data,
            formula,
            family=family,
            priors=given,
            weights=weights,
            offset=offset,
            trials=trials,
            levels=None if levels is None else levels.split(","),
            seed=seed,
            missing="drop" if drop_missing else "refuse",
            groups=groups,
            precision=precision,
            passes=passes,
            time_limit=time,
            checkpoint=out,
        )
        _shown(found, out)


def resume(
    run: Run,
    data: Annotated[Path | None, typer.Option(help="The table, where it is not in its place any more.")] = None,
    debug: Debug = False,
) -> None:
    """Go on with a fit that was interrupted or killed, from where it was, to the same bits.

    Exit code 0 where the status is ok, 1 where the numbers should not be trusted, 2 for bad input.
    """
    from langevin.regression.fitting import resume_fit

    with one_line(debug):
        _shown(resume_fit(run, data), run)


def predict(
    run: Run,
    data: Annotated[Path, typer.Argument(metavar="NEWDATA", help=_TABLE)],
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    draws: Annotated[
        int | None, typer.Option(help="Of the posterior, behind each number; 4000, or 400 for very many rows.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[Path | None, typer.Option(help="A .csv or .parquet file for all rows.")] = None,
    debug: Debug = False,
) -> None:
    """Predict the response for every row of a table, with intervals for its mean and for a new observation.

    Exit code 0 where the fit is ok, 1 where its numbers should not be trusted, 2 for bad input.
    """
    with one_line(debug):
        if out is not None and out.suffix not in (".csv", ".parquet"):
            raise ValueError(f"--out must end in .csv or .parquet, got {out}.")
        found = _loaded(run)
        if out is not None:
            found.predict_to(out, data, level=level, draws=draws, seed=seed)
        else:
            predicted = found.predictions(data, None, None, level, draws, seed)
            print(predicted.head(_SHOWN).to_string())
            if predicted.new.count > _SHOWN:
                print(f"... and {predicted.new.count - _SHOWN:,} more rows: give --out FILE.csv")
    if found.forgets_groups:
        said = "Rows are predicted as of groups that were not seen: langevin fit --groups sample knows those that were."
        Console(stderr=True).print(said, soft_wrap=True)
    if found.status != "ok":
        Console(stderr=True).print(f"Read with care: the fit is {found.status}.", style="yellow")
    raise typer.Exit(0 if found.status == "ok" else 1)


def report(
    run: Run,
    out: Annotated[Path | None, typer.Option(help="The file to write; RUN/report.html if not given.")] = None,
    data: Annotated[Path | None, typer.Option(help="The table, where it is not in its place any more.")] = None,
    debug: Debug = False,
) -> None:
    """Write one HTML file about a saved run: verdict, estimates, pictures, error budget, cost. It opens offline.

    Exit code 0 where the status is ok, 1 where the numbers should not be trusted, 2 for bad input.
    """
    with one_line(debug):
        found = _with_data(run, data)
        file = run / "report.html" if out is None else out
        try:
            found.report(file)
        except OSError as error:
            reason = error.strerror if error.strerror else error
            raise ValueError(f"--out must be a file that can be written, got {file}: {reason}. Try another.") from error
        print(f"Wrote {file}.")
    raise typer.Exit(0 if found.status == "ok" else 1)


def watch(
    run: Run,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 means any that is free.")] = 0,
    debug: Debug = False,
) -> None:
    """Show a page about a run while it goes on, to this machine alone. Ctrl-C ends the page, not the run."""
    from langevin.report.watch import serving

    with one_line(debug), serving(run, port) as address:
        print(f"{run} at {address} (Ctrl-C to stop)", flush=True)
        with suppress(KeyboardInterrupt):
            Event().wait()


def _with_data(run: Path, data: Path | None) -> "Result":
    """A saved run, a fit with the data that it was made of where they are still there: they make a predictive check."""
    import langevin
    from langevin.regression import Fit

    found = langevin.load(run)
    if not isinstance(found, Fit):
        return found
    if data is not None:
        return langevin.load(run, data=data)
    source = found.asked.source
    try:
        return found if source is None or not Path(source).exists() else langevin.load(run, data=source)
    except ValueError:
        print(f"{source} has changed since: the report goes without a predictive check.")
        return found


def _prior(text: str) -> tuple[str, str]:
    name, equals, law = text.rpartition("=")
    if not equals:
        raise ValueError(f"--prior must be NAME=LAW, got {text!r}. Try --prior 'x1=normal(0, 1)'.")
    return name, law


def _shown(found: "Fit", out: Path | None) -> None:
    """Prints a fit, leaves its table in the folder, and ends with the code of its status."""
    print(found)
    if out is not None:
        found.to_dataframe().to_csv(out / "summary.csv")
        print(f"Saved in {out}: langevin report {out}, langevin predict {out} NEWDATA, or lv.load({str(out)!r}).")
    raise typer.Exit(0 if found.status == "ok" else 1)


def _loaded(run: Path) -> "Fit":
    import langevin
    from langevin.regression import Fit

    found = langevin.load(run)
    if not isinstance(found, Fit):
        raise ValueError(f"RUN must be the folder of a fit, got {run}, a run of lv.sample.")
    return found
