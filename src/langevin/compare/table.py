"""The record of a comparison as verdicts by target and sampler, and the order in which samplers are listed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from langevin.compare.judge import MOST_BEYOND, NOT_FINITE, Measure, Verdict, judge, lost, root
from langevin.compare.record import Record
from langevin.compare.reference import Reference, reference
from langevin.compare.samplers import SAMPLERS
from langevin.compare.targets import TARGETS, problem
from langevin.compare.workshop import Size, cell_name


@dataclass(frozen=True)
class Cell:
    """A sampler on a target: verdicts at the seconds and at the visits, or words on why there are none."""

    seconds: Verdict | None = None
    visits: Verdict | None = None
    compiling: float = float("nan")
    words: str = ""

    def error(self, budget: float, part: str = "moments") -> Measure | None:
        """Relative root mean squared error after the seconds; that of means and sds is what samplers are ranked by.

        Of one that took half as many seconds again as it should, or more, what the root law makes of it after as many
        as were given: sqrt(spent/budget) times as much.
        """
        if self.seconds is None:
            return None
        one, late = root(self.seconds.mse[part]), self.seconds.seconds / budget
        factor = late**0.5 if late > MOST_BEYOND else 1.0
        return Measure(factor * one.value, factor * one.error, one.count)

    def score(self, budget: float) -> float:
        """The value of that error; NaN without any."""
        one = self.error(budget)
        return float("nan") if one is None else one.value


@dataclass(frozen=True)
class Results:
    """Cells by (target, sampler), references by target, and what they were made with."""

    size: Size
    targets: Sequence[str]
    samplers: Sequence[str]
    cells: Mapping[tuple[str, str], Cell]
    references: Mapping[str, Reference]

    def ranked(self) -> list[str]:
        """Samplers by the geometric mean of their errors, each relative to the median sampler of its target.

        One that failed on a target has the largest error there; where it does not apply, nothing is held against it.
        """
        scores = np.array([[self.cells[t, s].score(self.size.seconds) for t in self.targets] for s in self.samplers])
        with np.errstate(divide="ignore"):
            logs = np.log(scores)
        middle = np.array([np.median(c[np.isfinite(c)]) if np.isfinite(c).any() else 0.0 for c in logs.T])
        for column, target in zip(logs.T, self.targets, strict=True):
            lost = [self.cells[target, sampler].words.startswith("failed") for sampler in self.samplers]
            if np.isfinite(column).any():
                column[~np.isfinite(column) & np.array(lost)] = np.max(column[np.isfinite(column)])
        relative = logs - middle
        mean = [float(np.mean(row[np.isfinite(row)])) if np.isfinite(row).any() else np.inf for row in relative]
        return [self.samplers[k] for k in np.argsort(mean, kind="stable")]


def why_not(target: str, sampler: str) -> str:
    """Why a sampler does not run on a target here; nothing where it does."""
    one, contestant = TARGETS[target], SAMPLERS[sampler]
    if one.missing:
        return f"data need {' and '.join(one.missing)}"
    if contestant.missing:
        return f"needs {' and '.join(contestant.missing)}"
    reason = contestant.refuses(problem(target))
    return f"not here: {reason}" if reason else ""


def read(record: Record, targets: Sequence[str], samplers: Sequence[str], size: Size) -> Results:
    """What the record has of these cells."""
    have = [name for name in targets if not TARGETS[name].missing]
    references = {name: reference(name) for name in have}
    cells = {}
    for target in targets:
        for sampler in samplers:
            name, reason = cell_name(target, sampler, size), why_not(target, sampler)
            if name in record:
                cells[target, sampler] = _cell(record[name], references[target], target, size)
            else:
                cells[target, sampler] = Cell(words=reason if reason else "not run")
    return Results(size, targets, samplers, cells, references)


def _cell(found: Any, truth: Reference, target: str, size: Size) -> Cell:
    if "failed" in found:
        return Cell(words=f"failed: {found['failed']}")
    known = {"mean": truth.mean, "sd": truth.sd, "points": truth.points}
    limits = {"seconds": size.seconds, "visits": size.passes * problem(target).num_data}
    made = found["replicates"]
    verdicts = {kind: judge(made, known, kind, limit) for kind, limit in limits.items()}
    broken = {kind: [why for one in made if (why := lost(one, kind))] for kind in limits}
    words = []
    if broken["seconds"]:
        words.append(f"failed {len(broken['seconds'])} of {len(made)}: {broken['seconds'][0]}")
    if len(made) - len(broken["seconds"]) == 1:
        words.append("one alone has no Monte Carlo error")
    if NOT_FINITE in broken["visits"]:
        words.append(f"after {size.passes:g} passes {len(broken['visits'])} of {len(made)}: {NOT_FINITE}")
    return Cell(verdicts["seconds"], verdicts["visits"], found["compiling"], "; ".join(words))
