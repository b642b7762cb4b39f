"""The table in a terminal and as a Markdown page, every number with its Monte Carlo error."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from langevin.compare.judge import MOST_BEYOND, Measure, Verdict, holds, root
from langevin.compare.marks import write_whole
from langevin.compare.reference import Reference
from langevin.compare.samplers import SAMPLERS
from langevin.compare.table import Cell, Results
from langevin.compare.targets import TARGETS, problem
from langevin.compare.topics import METHODS
from langevin.compare.topics_table import Topics, caption, lines_of, reasons, rows

PACKAGES = (
    "langevin", "jax", "blackjax", "numpyro", "optax", "torch", "posteriors", "tensorflow", "tensorflow-probability",
    "arviz-stats", "scikit-learn", "gensim",
)  # fmt: skip
# What `beaten` compares, by the names of the judge.
_BY_PART = {"moments": "means and sds", "mean": "means alone", "sd": "sds alone", "points": "points"}
# A truth that is off by this part of a half-width, 1.96/5 standard errors, takes two percent off the coverage.
_SHARP = 5.0
# Columns of a terminal: the name of a sampler, and a cell, with their borders.
_NAMES, _CELL = 20, 30


def number(measure: Measure) -> str:
    """A root mean squared error with as many digits as its own error leaves: 0.0123 ± 0.0004."""
    one = root(measure)
    if one.error == 0.0:
        return f"{one.value:.2g} (same every time)"
    digits = max(int(np.ceil(-np.log10(one.error))), 0)
    return f"{one.value:.{digits}f} ± {one.error:.{digits}f}"


def share(one: Verdict, part: str, truth: Reference) -> str:
    """A coverage in percent with its error, marked where the intervals do not hold."""
    if part not in one.coverage:
        return "none"
    measure = one.coverage[part]
    return f"{100 * measure.value:.0f} ± {100 * measure.error:.0f}{mark(one, part, truth)}"


def mark(one: Verdict, part: str, truth: Reference) -> str:
    """Where a coverage is too low: (!), or (?) where the truth may be off by a fifth of an interval's half-width."""
    if holds(one.coverage[part]):
        return ""
    off = {"mean": truth.mean_error, "sd": truth.sd_error, "points": truth.points_error}[part]
    return " (?)" if off > one.halves[part] / _SHARP else " (!)"


def short(cell: Cell, seconds: float, truth: Reference | None) -> str:
    """A cell of the overview; one that took half as many seconds again as it should says so."""
    if cell.seconds is None or truth is None:
        return "failed" if cell.words.startswith("failed") else "-"
    one = root(cell.seconds.mse["moments"])
    covered = cell.seconds.coverage.get("mean")
    bars = "no bars" if covered is None else f"{100 * covered.value:.0f}%{mark(cell.seconds, 'mean', truth)}"
    late = f", {cell.seconds.seconds:.1f} s" if cell.seconds.seconds > MOST_BEYOND * seconds else ""
    lost = ", some failed" if cell.seconds.failures else ""
    error = "0" if one.error == 0.0 else f"{one.error:.0e}"
    return f"{one.value:.1e} ± {error}, {bars}{late}{lost}"


def print_table(results: Results, console: Console) -> None:
    """Samplers by targets, best first; for a terminal: as many tables as its width asks for."""
    console.print(_caption(results), highlight=False)
    size = max((console.width - _NAMES) // _CELL, 1)
    for first in range(0, len(results.targets), size):
        targets = results.targets[first : first + size]
        table = Table("", *targets, show_lines=False)
        table.columns[0].style, table.columns[0].no_wrap = "bold", True
        for sampler in results.ranked():
            row = [(_colour(results.cells[target, sampler]), _short(results, target, sampler)) for target in targets]
            table.add_row(sampler, *(f"[{colour}]{escape(text)}[/]" for colour, text in row))
        console.print(table)
    for text in _reasons(results):
        console.print(escape(text), highlight=False, soft_wrap=True)


def print_topics(topics: Topics, console: Console) -> None:
    """The small table of topics; for a terminal."""
    table = Table(title=caption(topics), title_justify="left")
    head, *body = rows(topics)
    for name in head:
        table.add_column(name)
    for row in body:
        table.add_row(*map(escape, row))
    console.print(table)
    for text in reasons(topics):
        console.print(escape(text), highlight=False, soft_wrap=True)


def _short(results: Results, target: str, sampler: str) -> str:
    return short(results.cells[target, sampler], results.size.seconds, results.references.get(target))


def _colour(cell: Cell) -> str:
    if cell.seconds is None:
        return "dim"
    covered = cell.seconds.coverage.get("mean")
    return "default" if covered is None else "green" if holds(covered) else "red"


def _caption(results: Results) -> str:
    size = results.size
    return (
        f"Root mean squared error of means and sds, in posterior sds, after {size.seconds:g} s of one core "
        f"({size.replicates} replicates, ± one Monte Carlo error); coverage of the 95% intervals for means, (!) where "
        f"it is too low, (?) where the truth is not known well enough to tell"
    )


def _reasons(results: Results) -> list[str]:
    """Why cells are empty or incomplete, once each."""
    found: dict[tuple[str, str], list[str]] = {}
    for (target, sampler), cell in results.cells.items():
        if cell.words:
            found.setdefault((sampler, cell.words), []).append(target)
    install = {f"needs {' and '.join(one.missing)}": one.install for one in SAMPLERS.values() if one.missing}
    return [
        f"{sampler} ({', '.join(targets)}): {words}{'. ' + install[words] if words in install else ''}"
        for (sampler, words), targets in found.items()
    ]


def beaten(results: Results) -> list[str]:
    """By target, who had less error than `sample` by more than two Monte Carlo errors, and in what."""
    said = []
    for target in results.targets:
        if results.cells[target, "sample"].seconds is None:
            continue
        better = {part: _better(results, target, part) for part in _BY_PART}
        for part in ("mean", "sd"):
            better[part] = {name: words for name, words in better[part].items() if name not in better["moments"]}
        parts = [f"{_BY_PART[part]}: {', '.join(found.values())}" for part, found in better.items() if found]
        said.append(f"{target}: {'; '.join(parts) if parts else 'none'}")
    return said


def _better(results: Results, target: str, part: str) -> dict[str, str]:
    """Samplers with less error than `sample` in a part, best on average first, each with how much less."""
    found = {}
    errors = {name: results.cells[target, name].error(results.size.seconds, part) for name in results.ranked()}
    own = errors["sample"]
    for sampler, one in errors.items():
        if own is None or one is None or own.value - one.value <= 2.0 * np.hypot(own.error, one.error):
            continue
        less = f"{own.value / one.value:.2g} times less" if one.value > 0.0 else "exact"
        found[sampler] = f"`{sampler}` ({less})"
    return found


def markdown(results: Results, topics: Topics | None = None) -> str:
    """The tables as Markdown: the overview, then everything by target, and topics last."""
    last = [] if topics is None else lines_of(topics)
    if not results.targets:
        return "\n".join([f"Versions: {_versions()}.", "", *last])
    ranked = results.ranked()
    text = [
        f"{_caption(results)}. The best on average comes first. Processor time, one core for each run, compiling left "
        f"out. Versions: {_versions()}.",
        "",
        _row(["sampler", *results.targets]),
        _row(["---"] * (1 + len(results.targets))),
    ]
    text += [_row([f"`{s}`", *(_short(results, t, s) for t in results.targets)]) for s in ranked]
    text += ["", *(f"- {reason}" for reason in _reasons(results)), ""]
    if "sample" in results.samplers:
        text += [
            "Less error than `sample`, by more than two Monte Carlo errors; points are the 95% points:",
            "",
            *(f"- {s}" for s in beaten(results)),
            "",
        ]
    for target in results.targets:
        text += _of_target(target, results, ranked)
    return "\n".join(text + last)


def _of_target(target: str, results: Results, ranked: list[str]) -> list[str]:
    entry = TARGETS[target]
    if target not in results.references:
        return [f"## {target}", "", f"{entry.title}. Not run: install {' and '.join(entry.missing)}.", ""]
    truth, scored = results.references[target], []
    for sampler in sorted(
        ranked, key=lambda s: np.nan_to_num(results.cells[target, s].score(results.size.seconds), nan=np.inf)
    ):
        cell = results.cells[target, sampler]
        if cell.seconds is not None:
            scored.append(_details(sampler, cell, target, truth))
    head = ["sampler", "means", "sds", "95% points", "covered: means", "sds", "points", "ok", "s", "passes"]
    head += [f"means after {results.size.passes:g} passes", "sds", "compiling, s"]
    exact = truth.mean_error == truth.sd_error == truth.points_error == 0.0
    errors = "exact" if exact else (
        f"errors of means, sds and points at most {truth.mean_error:.0e}, {truth.sd_error:.0e} and "
        f"{truth.points_error:.0e} sds"
    )  # fmt: skip
    return [
        f"## {target}", "", f"{entry.title[0].upper()}{entry.title[1:]}. Truth: {truth.how}; {errors}.", "",
        _row(head), _row(["---"] * len(head)), *scored, "",
    ]  # fmt: skip


def _details(sampler: str, cell: Cell, target: str, truth: Reference) -> str:
    one = cell.seconds
    assert one is not None
    passes = one.visits / problem(target).num_data
    at_visits = [number(cell.visits.mse[part]) for part in ("mean", "sd")] if cell.visits is not None else ["-", "-"]
    return _row(
        [f"`{sampler}`", *(number(one.mse[part]) for part in ("mean", "sd", "points")),
         *(share(one, part, truth) for part in ("mean", "sd", "points")), _claimed(one),
         f"{one.seconds:.2f}", f"{passes:.3g}", *at_visits, f"{cell.compiling:.1f}"]
    )  # fmt: skip


def _claimed(one: Verdict) -> str:
    return "no claim" if one.ok is None else f"{round(one.ok * one.replicates)} of {one.replicates}"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _versions() -> str:
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} not installed")
    return ", ".join(found)


def write_page(path: Path, results: Results, topics: Topics | None = None) -> None:
    """Writes the command's own page: how samplers are set, and the tables."""
    ones = [SAMPLERS[name] for name in results.samplers] + [METHODS[name] for name in (topics.lines if topics else ())]
    settings = "".join(f"- `{one.name}` ({one.library}): {one.how}\n" for one in ones)
    write_whole(path, f"# Samplers compared\n\n{settings}\n{markdown(results, topics)}\n")
