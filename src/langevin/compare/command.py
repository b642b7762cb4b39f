"""The command `langevin compare`: checks what it is asked, shows how far it is, prints and writes the table."""

from collections.abc import Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.markup import escape

from langevin.compare import topics
from langevin.compare.marks import check_page, put_between
from langevin.compare.page import markdown, print_table, print_topics, write_page
from langevin.compare.record import Record
from langevin.compare.samplers import SAMPLERS
from langevin.compare.table import Results, read, why_not
from langevin.compare.targets import TARGETS
from langevin.compare.topics_table import failed, read_topics
from langevin.compare.workshop import Cells, Size, cell_name

# What --quick takes: three targets of different kinds, the best known of each kind of sampler.
QUICK_TARGETS = ("logistic", "cancer", "counts")
QUICK_SAMPLERS = (
    "sample", "laplace", "sgld", "sgld-cv", "lm-cv2", "sgnht", "mala", "nuts", "svi", "blackjax-sgld", "blackjax-nuts",
    "numpyro-nuts",
)  # fmt: skip
# Every name that can be asked for.
ALL_TARGETS = (*TARGETS, topics.NAME)
ALL_SAMPLERS = SAMPLERS | topics.METHODS
_PASSES = 100.0
_LEAST_SECONDS, _MOST_SECONDS = 0.05, 86_400.0


def size_of(quick: bool, seconds: float | None) -> Size:
    """Budgets of the quick and of the full table, a second for each replicate unless told otherwise."""
    # Six: with eight the full table takes more than an hour.
    each, replicates = 1.0 if seconds is None else seconds, 4 if quick else 6
    # Compiling takes half a minute at worst; a sampler that misses its time ten times over is given up.
    return Size(each, _PASSES, replicates, 80.0 + 10.0 * each * replicates)


def print_list(console: Console) -> None:
    """Targets and samplers, with what is missing for each."""
    console.print("[bold]Targets[/]")
    for name, entry in TARGETS.items():
        missing = f" [red](install {', '.join(entry.missing)})[/]" if entry.missing else ""
        console.print(f"  [bold]{name:18s}[/] {escape(entry.title)}{missing}", highlight=False, soft_wrap=True)
    console.print(f"  [bold]{topics.NAME:18s}[/] {escape(topics.TITLE)}", highlight=False, soft_wrap=True)
    console.print("[bold]Samplers[/]")
    for name, one in ALL_SAMPLERS.items():
        missing = f" [red]({escape(one.install)})[/]" if one.missing else ""
        console.print(
            f"  [bold]{name:18s}[/] {one.library}: {escape(one.how)}{missing}", highlight=False, soft_wrap=True
        )


def run(
    targets: Sequence[str], samplers: Sequence[str], size: Size, out: Path, at_once: int, console: Console,
    page: Path | None = None,
) -> int:  # fmt: skip
    """Works out what the record does not have, prints the table, writes page and picture.

    Returns 0 if every cell answered, 1 if one failed, 2 if it is asked for what cannot be, 130 after Ctrl-C.
    """
    try:
        _check(size, page)
    except ValueError as error:
        return _refused(error)
    record = Record(out / "record.jsonl")
    methods = [name for name in samplers if name in topics.METHODS and topics.NAME in targets]
    targets, samplers = [name for name in targets if name in TARGETS], [name for name in samplers if name in SAMPLERS]
    # Topics take longest: they go first.
    asked = [(topics.NAME, name) for name in methods if not topics.METHODS[name].missing]
    asked += [(target, sampler) for target in targets for sampler in samplers if not why_not(target, sampler)]
    cells = [cell for cell in asked if not record.answered(cell_name(*cell, size))]
    began = monotonic()
    try:
        with closing(Cells(size, at_once).work_through(cells, record)) as events:
            for count, (target, sampler, found) in enumerate(events, 1):
                word = found.get("failed", f"compiling {found.get('compiling', 0.0):.1f} s")
                console.print(
                    f"{monotonic() - began:6.0f} s  {count} of {len(cells)}  {target} {sampler}: "
                    f"{escape(word)}, {found['took']:.0f} s",
                    highlight=False, soft_wrap=True,
                )  # fmt: skip
    except KeyboardInterrupt:
        console.print(f"\nInterrupted. Finished cells are kept in {out}; the same command goes on from there.")
        return 130
    results = read(record, targets if samplers else [], samplers, size)
    learned = read_topics(record, methods, size) if methods else None
    if results.targets:
        print_table(results, console)
        _draw(out / "compare.png", results, console)
    if learned is not None:
        print_topics(learned, console)
    if page is None:
        write_page(out / "compare.md", results, learned)
    else:
        tables = markdown(results, learned)
        try:
            put_between(page, tables)
        except (ValueError, OSError) as error:
            return _refused(error)
    console.print(f"\nEverything by target: {out / 'compare.md' if page is None else page}", soft_wrap=True)
    return int(failed(learned) or any(cell.words.startswith("failed") for cell in results.cells.values()))


def _draw(path: Path, results: Results, console: Console) -> None:
    if find_spec("matplotlib") is None:
        console.print("No picture: pip install 'langevin[compare]' brings matplotlib.")
    else:
        from langevin.compare.picture import draw

        draw(path, results)


def _check(size: Size, page: Path | None) -> None:
    """What would fail only after the work is done."""
    if not _LEAST_SECONDS <= size.seconds <= _MOST_SECONDS:
        raise ValueError(
            f"--seconds must lie between {_LEAST_SECONDS:g} and {_MOST_SECONDS:g} (a day), got {size.seconds:g}. "
            f"The default is 1."
        )
    if page is not None:
        check_page(page)


def _refused(error: Exception) -> int:
    Console(stderr=True).print(f"Error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    return 2
