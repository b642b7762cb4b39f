"""What was found, as tables: agreement, seconds beside errors, the likelihood's maximum, and the snippets."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.peers.catalogue import Case, lines
from benchmarks.peers.verdict import Likelihood, Verdict, beside_maximum, compared

Section = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


@dataclass(frozen=True)
class Row:
    """One table: what each process found."""

    case: Case
    ours: dict[str, Any]
    quick: dict[str, Any]
    again: dict[str, Any]
    control: dict[str, Any]
    nuts: dict[str, Any]
    maximum: dict[str, Any]

    @property
    def verdicts(self) -> tuple[Verdict, Verdict, Verdict]:
        """Of the default call, of that with precision=0.1, and of the control, all against NUTS."""
        return tuple(compared(found, self.nuts) for found in (self.ours, self.quick, self.control))  # type: ignore

    @property
    def likelihoods(self) -> tuple[Likelihood, Likelihood]:
        """Of the default call and of the control; the prior's pull is that of the prior that both were to have."""
        return tuple(beside_maximum(found, self.maximum, self.ours["step"]) for found in (self.ours, self.control))  # type: ignore

    @property
    def as_it_should_be(self) -> bool:
        """Whether all agree but the control."""
        (first, quick, control), (top, other) = self.verdicts, self.likelihoods
        words = (first.word, quick.word, top.word, control.word, other.word)
        return words == ("agree", "agree", "agree", "differ", "differ")


def worst(found: dict[str, Any]) -> str:
    """The largest Monte Carlo error of a mean or an sd, in posterior sds."""
    return f"{max(np.max(np.divide(found[key], found['sd'])) for key in ('mcse_mean', 'mcse_sd')):.4f}"


def sections(rows: list[Row]) -> list[Section]:
    """Titles, heads and cells."""
    agreement, seconds, top, counts = [], [], [], []
    for row in rows:
        name, (first, quick, control), (whole, other) = row.case.name, row.verdicts, row.likelihoods
        size = (str(row.case.rows), str(len(row.ours["name"])))
        scores = (f"{first.mean:.1f}", f"{first.sd:.1f}", f"{first.limit:.1f}", first.word)
        others = (f"{max(quick.mean, quick.sd):.1f}", quick.word, f"{max(control.mean, control.sd):.1f}", control.word)
        agreement.append((name, row.case.model, *size, row.case.nuts, *scores, *others))
        own = (f"{one['seconds']:.0f} ({one['cpu']:.0f})" for one in (row.ours, row.quick, row.again))
        theirs = f"{row.nuts['seconds']:.0f} ({row.nuts['cpu']:.0f})", f"{row.nuts['sampling']:.0f}"
        errors = (worst(row.ours), worst(row.quick), worst(row.nuts))
        state = f"{row.nuts['r_hat']:.3f}, {row.nuts['divergences']}"
        seconds.append((name, *own, *theirs, f"{row.maximum['seconds']:.0f}", *errors, state))
        parts = (whole.whole, whole.prior, whole.skew, whole.left)
        top.append((name, *(f"{part:.3f}" for part in parts), whole.word, f"{other.left:.2f}", other.word))
        counts.append((name, *(str(lines(row.case.snippet(peer))) for peer in row.case.peers), row.case.nuts))
    return [
        ("Agreement with NUTS, in combined Monte Carlo errors", AGREEMENT, agreement),
        ("Seconds from process start to table (CPU seconds), largest Monte Carlo errors in sds", TIMES, seconds),
        ("From the maximum of the likelihood to the posterior mean, largest parts in posterior sds", MAXIMUM, top),
        ("Lines of code", ("table", "lv.fit", "NUTS", "statsmodels", "by"), counts),
    ]  # fmt: skip


AGREEMENT = (
    "table", "model", "rows", "parameters", "NUTS by", "means", "sds", "limit", "verdict",
    "precision=0.1", "verdict", "control", "verdict",
)  # fmt: skip
TIMES = (
    "table", "lv.fit", "precision=0.1", "again", "NUTS", "its sampling", "statsmodels", "error lv.fit",
    "error precision=0.1", "error NUTS", "R-hat, divergences",
)  # fmt: skip
MAXIMUM = ("table", "whole", "prior", "skew", "left", "verdict", "control left", "verdict")


def markdown(rows: list[Row]) -> str:
    """The tables and the snippets, as the page shows them."""
    text = []
    for title, head, cells in sections(rows):
        body = "\n".join(f"| {' | '.join(one)} |" for one in cells)
        text.append(f"**{title}**\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}\n{body}\n")
    for row in rows:
        text.append(f"### {row.case.name}\n")
        text += [f"`{peer}`:\n\n```python\n{row.case.snippet(peer)}```\n" for peer in row.case.peers]
    return "\n".join(text)
