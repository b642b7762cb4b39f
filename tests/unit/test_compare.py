"""`langevin compare`: judged by hand, sabotage is found out, every contestant runs, an interrupted record goes on."""

import json
import math
import sys
from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from rich.console import Console

import langevin as lv
from langevin.compare import command, workshop
from langevin.compare.found import Found, measured
from langevin.compare.judge import NOT_FINITE, Measure, coverage, holds, judge, relative_mse, root
from langevin.compare.ours import built
from langevin.compare.page import beaten, mark, markdown, number
from langevin.compare.record import Record
from langevin.compare.reference import reference
from langevin.compare.samplers import SAMPLERS
from langevin.compare.settings import whitened
from langevin.compare.table import Cell, Results, read
from langevin.compare.targets import problem
from langevin.compare.worker import work
from langevin.compare.workshop import Cells, Size, cell_name

SIZE = Size(seconds=0.05, passes=20.0, replicates=2, limit=300.0)
TRUTH = {"mean": np.array([1.0, 0.0]), "sd": np.array([2.0, 1.0]), "points": np.array([[-3.0, -2.0], [5.0, 2.0]])}


def snapshot(shift, half=None, status="ok", **spent):
    """Means off by `shift` sds, all else right; an interval of half width `half` sds for the means."""
    mean = TRUTH["mean"] + shift * TRUTH["sd"]
    interval = None if half is None else (mean - half * TRUTH["sd"], mean + half * TRUTH["sd"])
    one = {"mean": mean, "sd": TRUTH["sd"], "points": TRUTH["points"], "mean_interval": interval, "sd_interval": None}
    return {**one, "points_interval": None, "status": status, "seconds": 1.0, "visits": 10.0, **spent}


def test_errors_are_those_of_hand():
    found = relative_mse(np.array([[3.0, 0.0], [1.0, 3.0]]), TRUTH["mean"], TRUTH["sd"])
    # (1 + 0)/2 and (0 + 9)/2: their mean is 2.5, and the error sd/sqrt(2) = sqrt(8)/sqrt(2).
    assert found == Measure(2.5, pytest.approx(2.0), 2)
    assert root(Measure(4.0, 0.4, 2)) == Measure(2.0, pytest.approx(0.1), 2)


def test_an_estimate_that_is_no_number_is_a_failure():
    broken = snapshot(0.0) | {"sd": np.array([np.nan, 1.0])}
    made = [{"seconds": snapshot(1.0)}, {"seconds": snapshot(0.0)}, {"seconds": broken}, {"failed": "x"}]
    found = judge(made, TRUTH, "seconds", 1.0)
    assert found.failures == 2 and found.replicates == 2 and np.isfinite(found.mse["sd"].value)
    assert judge([{"seconds": broken}] * 2, TRUTH, "seconds", 1.0) is None


@pytest.mark.parametrize("alone", [0, 1])
def test_fewer_than_two_finite_replicates_are_a_failure_with_its_reason(alone):
    truth, name = reference("gaussian"), cell_name("gaussian", "svi-full", SIZE)
    good = snapshot(0.0) | {"mean": truth.mean + 330.0, "sd": truth.sd, "points": truth.points}
    broken = {"seconds": good | {"mean": truth.mean * np.nan}, "visits": good}
    record = Record(None)
    record.add(name, {"compiling": 1.0, "replicates": [{"seconds": good}] * alone + [broken] * (8 - alone)})
    results = read(record, ["gaussian"], ["svi-full"], SIZE)
    words = results.cells["gaussian", "svi-full"].words
    assert words.startswith(f"failed {8 - alone} of 8: {NOT_FINITE}") and ("alone" in words) == bool(alone)
    text = markdown(results)
    assert "nan" not in text and "| `svi-full` | failed |" in text and words in text


def test_estimates_that_are_lost_after_the_visits_alone_are_named():
    truth, name = reference("gaussian"), cell_name("gaussian", "sgld-corrected", SIZE)
    good = snapshot(0.0) | {"mean": truth.mean, "sd": truth.sd, "points": truth.points}
    made = [{"seconds": good, "visits": good | {"sd": truth.sd * np.nan}}] * 7 + [{"seconds": good, "visits": good}]
    record = Record(None)
    record.add(name, {"compiling": 1.0, "replicates": made})
    cell = read(record, ["gaussian"], ["sgld-corrected"], SIZE).cells["gaussian", "sgld-corrected"]
    assert cell.seconds.replicates == 8 and cell.visits is None
    assert cell.words == f"after 20 passes 7 of 8: {NOT_FINITE}"


def test_coverage_is_that_of_hand_and_knows_missing_intervals():
    lower, upper = np.array([[0.0, np.nan], [0.0, 0.0], [2.0, 0.0]]), np.array([[2.0, 1.0], [2.0, 2.0], [3.0, 2.0]])
    found = coverage(lower, upper, np.array([1.0, 1.0]))
    # Shares of the three replicates are 1, 1 and 1/2; four of five intervals hold.
    spread = np.std([1.0, 1.0, 0.5], ddof=1) / np.sqrt(3)
    middle = 6.0 / 9.0
    assert found == Measure(0.8, pytest.approx(max(spread, np.sqrt(middle * (1 - middle) / 9.0))), 3)
    assert coverage(np.full((2, 1), np.nan), np.ones((2, 1)), np.zeros(1)) is None
    assert holds(Measure(0.9, 0.03, 8)) and not holds(Measure(0.8, 0.03, 8))


def test_a_verdict_counts_failures_claims_and_what_was_spent():
    made = [
        {"seconds": snapshot(0.1, 0.2)},
        {"seconds": snapshot(-0.3, 0.2, "bias_dominates", seconds=3.0)},
        {"failed": "x"},
    ]
    found = judge(made, TRUTH, "seconds", 1.0)
    assert_allclose(found.mse["mean"].value, (0.01 + 0.09) / 2)
    assert_allclose(found.mse["moments"].value, (0.01 + 0.09) / 4)
    assert found.mse["sd"].value == found.mse["points"].value == 0.0
    assert (found.coverage["mean"].value, set(found.coverage)) == (0.5, {"mean"})
    assert (found.ok, found.seconds, found.replicates, found.failures) == (0.5, 2.0, 2, 1)
    assert judge([{"seconds": snapshot(0.0, status="no bars")}] * 2, TRUTH, "seconds", 1.0).ok is None


def test_visits_far_beyond_their_limit_are_another_budget():
    made = [{"seconds": snapshot(0.0), "visits": snapshot(0.0, visits=20.0)}] * 2
    assert judge(made, TRUTH, "visits", 20.0) is not None
    assert judge(made, TRUTH, "visits", 10.0) is None
    assert judge([{"failed": "x"}] * 2, TRUTH, "seconds", 1.0) is None


class Counting:
    """A sampler that needs a fixed number of visits for each portion, and says how many it has made."""

    def __init__(self):
        self.visits = 0.0

    def advance(self, seconds, visits):
        self.visits += 10.0
        return self.visits < 100.0

    def look(self):
        return Found(*(np.full(1, self.visits) for _ in range(3)))


def test_snapshots_are_taken_where_limits_are_passed_and_where_work_ends():
    found = measured(lambda seed: Counting(), 0, seconds=60.0, visits=25.0)
    assert found["visits"]["visits"] == 30.0 and found["seconds"]["visits"] == 100.0
    # A set-up that takes all the time still gives an answer.
    assert measured(lambda seed: Counting(), 0, seconds=0.0, visits=1e9)["seconds"]["visits"] == 10.0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Hot(lv.SGLD):
    """Sabotage: noise sqrt(2 delta), which doubles the variance, with the theory of the honest kernel."""

    def step(self, state, grad, eta, delta):
        return super().step(state, grad, math.sqrt(2.0) * eta, delta)


def test_a_sabotaged_sampler_ranks_worse_and_its_intervals_do_not_hold():
    target = problem("gaussian")
    truth = reference("gaussian")
    known = {"mean": truth.mean, "sd": truth.sd, "points": truth.points}
    found = {}
    for kernel in (lv.SGLD(), Hot()):
        replicate = built(whitened(kernel))(target, 0.1)
        replicate(0, 0.1, 1e4)
        found[type(kernel)] = judge([replicate(seed, 0.1, 1e4) for seed in range(1, 5)], known, "seconds", 0.1)
    honest, hot = found[lv.SGLD], found[Hot]
    # The sd is too large by sqrt(2) - 1, far more than the spread of a run that is a tenth of a second long.
    assert honest.mse["moments"].value < 0.2 * hot.mse["moments"].value
    assert not holds(hot.coverage["sd"]) and hot.coverage["sd"].value == 0.0
    assert honest.coverage["sd"].value >= 0.5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # peers warn of their own futures
@pytest.mark.parametrize("name", SAMPLERS)
def test_every_contestant_gives_finite_estimates(name):
    contestant = SAMPLERS[name]
    if contestant.missing:
        pytest.skip(f"{contestant.missing} not installed: {contestant.install}")
    assert contestant.refuses(problem("logistic")) is None
    found = work("logistic", name, seconds=0.1, passes=20.0, replicates=1)
    assert "failed" not in found, found
    (one,) = found["replicates"]
    assert "failed" not in one, one
    seen = one["seconds"]
    assert np.all(np.isfinite(seen["mean"])) and np.all(np.isfinite(seen["points"])) and seen["visits"] > 0.0
    # A tenth of a second may be too short for a corrected variance to be positive; but it is not called good then.
    assert np.all(seen["sd"] > 0.0) or seen["status"] != "ok"


def test_an_interrupted_comparison_does_not_repeat_what_it_has(tmp_path, monkeypatch):
    target = problem("gaussian")
    truth = reference("gaussian")
    one = {
        "mean": truth.mean,
        "sd": truth.sd,
        "points": truth.points,
        "status": "no bars",
        "seconds": 0.05,
        "visits": 1.0,
    }
    one |= {f"{part}_interval": None for part in ("mean", "sd", "points")}
    found = {"compiling": 0.1, "replicates": [{"seconds": one}, {"seconds": one}]}
    Record(tmp_path / "record.jsonl").add(cell_name(target.name, "laplace", SIZE), found)
    monkeypatch.setattr(workshop.Cells, "_worked", lambda *a: pytest.fail("worked again"))
    console = Console(width=200, record=True)
    assert command.run(["gaussian"], ["laplace"], SIZE, tmp_path, 1, console) == 0
    text = (tmp_path / "compare.md").read_text()
    assert "`laplace`" in text and "no claim" in text and (tmp_path / "compare.png").exists()


def test_a_cell_that_hangs_or_crashes_is_named(tmp_path, monkeypatch):
    hangs, crashes = tmp_path / "hangs", tmp_path / "crashes"
    hangs.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(600)\n")
    crashes.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('out of luck')\n")
    for script, expected in ((hangs, "no answer within 1 s"), (crashes, "exit code 1: out of luck")):
        script.chmod(0o755)
        monkeypatch.setattr(workshop.sys, "executable", str(script))
        record = Record(tmp_path / f"{script.name}.jsonl")
        size = Size(0.05, 20.0, 2, limit=1.0 if script is hangs else 60.0)
        ((target, sampler, found),) = Cells(size, 1).work_through([("gaussian", "laplace")], record)
        assert (target, sampler) == ("gaussian", "laplace") and expected in found["failed"]
        cell = read(record, ["gaussian"], ["laplace"], size).cells["gaussian", "laplace"]
        assert cell.seconds is None and cell.words.startswith("failed")


def test_a_cell_that_takes_longer_is_ranked_as_if_it_had_not():
    cell = Cell(judge([{"seconds": snapshot(1.0, seconds=4.0, visits=1.0)}] * 2, TRUTH, "seconds", 1.0))
    on_time, late = cell.error(4.0), cell.error(1.0)
    assert on_time.value == pytest.approx(np.sqrt(0.5)) and late.value == pytest.approx(2.0 * np.sqrt(0.5))
    assert np.isnan(Cell().score(1.0))


def test_a_blunt_truth_speaks_against_nobody():
    # Intervals of half a sd about means that are one sd off.
    one = judge([{"seconds": snapshot(1.0, half=0.5)}] * 8, TRUTH, "seconds", 1.0)
    assert one.halves == {"mean": pytest.approx(0.5)}
    told = [replace(reference("gaussian"), mean_error=error) for error in (0.0, 0.09, 0.11)]
    assert [mark(one, "mean", truth) for truth in told] == [" (!)", " (!)", " (?)"]


def test_numbers_have_the_digits_that_their_errors_leave():
    assert number(Measure(1e-4, 4e-6, 8)) == "0.0100 ± 0.0002"
    assert number(Measure(1e-4, 0.0, 8)) == "0.01 (same every time)"


def errors(mean, sd, points):
    """A cell with these root mean squared errors, each known to a percent; those of 0 exactly."""
    mse = {part: Measure(e**2, 0.02 * e**2, 8) for part, e in (("mean", mean), ("sd", sd), ("points", points))}
    both = 0.5 * (mean**2 + sd**2)
    verdict = judge([{"seconds": snapshot(0.0)}] * 2, TRUTH, "seconds", 1.0)
    return Cell(replace(verdict, mse=mse | {"moments": Measure(both, 0.02 * both, 8)}))


def test_who_has_less_error_in_a_part_alone_is_named():
    cells = {
        "sample": errors(0.01, 0.01, 0.02),
        "laplace": errors(0.001, 0.0, 0.1),  # less in both, which says enough of each
        "lm-cv2": errors(0.005, 0.1, 0.04),
        "mala": errors(0.1, 0.0, 0.02),
        "hmc": errors(0.0098, 0.1, 0.01),  # means within the Monte Carlo error
        "pcn": Cell(words="failed: x"),
    }
    size = Size(1.0, 20.0, 8, 60.0)
    results = Results(size, ["gaussian"], list(cells), {("gaussian", name): cell for name, cell in cells.items()}, {})
    # Of means and sds together sqrt((0.01^2 + 0.01^2) / 0.001^2) = 14.1.
    said = "means and sds: `laplace` (14 times less); means alone: `lm-cv2` (2 times less); sds alone: `mala` (exact)"
    assert beaten(results) == [f"gaussian: {said}; points: `hmc` (2 times less)"]
    alone = replace(results, samplers=["sample", "hmc"], cells={**results.cells, ("gaussian", "hmc"): cells["sample"]})
    assert beaten(alone) == ["gaussian: none"]
    assert beaten(replace(alone, cells=alone.cells | {("gaussian", "sample"): Cell(words="failed: x")})) == []


def test_a_worker_says_why_it_could_not_begin(monkeypatch):
    from langevin.compare import samplers

    def build(one, seconds):
        raise RuntimeError("no such luck\nand more")

    broken = type(SAMPLERS["laplace"])("laplace", "ours", "", build)
    monkeypatch.setitem(samplers.SAMPLERS, "laplace", broken)
    found = work("gaussian", "laplace", 0.05, 20.0, 1)
    assert json.loads(json.dumps(found)) == {"failed": "RuntimeError: no such luck"}
