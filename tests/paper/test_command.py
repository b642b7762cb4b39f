"""`langevin paper`: what it refuses, what it leaves behind, and that nothing finished is lost."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from langevin.cli import app
from langevin.cli.checks import check_names
from langevin.paper import command
from langevin.paper.catalogue import GROUPS, NAMES, title
from langevin.paper.lab import Lab, source_digest
from langevin.paper.record import Record, read_records
from langevin.paper.study import Finding, Verdict
from langevin.paper.workshop import Event

STUDY = "diffusion_limit"


def call(*arguments: str):
    return CliRunner().invoke(app, ["paper", *arguments], env={"COLUMNS": "200"})


def test_every_study_is_listed_once_and_has_a_title():
    assert sorted(name for group in GROUPS for name in group) == sorted(NAMES)
    listed = call("--list")
    assert listed.exit_code == 0
    assert all(f"{name} " in listed.output and title(name) in listed.output for name in NAMES)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fig7"], ["NAME", "'fig7'", "fig1, fig2", "Did you mean fig"]),
        (["theorem"], ["NAME", "'theorem'", "--list"]),
        (["--quick", "--full"], ["--quick and --full", "default"]),
    ],
)
def test_wrong_arguments_are_explained(arguments, words, tmp_path):
    result = call(*arguments, "--out", str(tmp_path / "x"))
    assert result.exit_code == 2
    assert all(word in result.output for word in words)
    assert not (tmp_path / "x").exists()


def test_a_folder_that_cannot_be_written_is_refused_before_work_begins(tmp_path):
    (tmp_path / "taken").write_text("a file")
    result = call("fig1", "--out", str(tmp_path / "taken"))
    assert result.exit_code == 2
    assert "--out" in result.output and "taken" in result.output and "Choose another" in result.output


def test_the_version_is_said_and_the_list_needs_no_plotting_library():
    assert CliRunner().invoke(app, ["--version"]).output.startswith("langevin 0.")
    code = "import sys; from langevin.paper import command; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_names_come_in_the_papers_order():
    assert check_names(["clt", "fig2"], NAMES, "NAME", "paper") == ["fig2", "clt"]
    assert check_names([], NAMES, "NAME", "paper") == list(NAMES)


def test_a_part_is_computed_once_and_anew_when_asked_differently_or_damaged(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"x": np.arange(3.0)}

    lab = Lab("tiny", folder=tmp_path)
    for _ in range(2):
        assert np.array_equal(lab.part("p/q", compute, runs=3)["x"], np.arange(3.0))
    assert len(calls) == 1
    lab.part("p/q", compute, runs=4)
    Lab("quick", folder=tmp_path).part("p/q", compute, runs=3)
    Lab("tiny", seed=1, folder=tmp_path).part("p/q", compute, runs=3)
    assert len(calls) == 4
    for path in tmp_path.glob("*.npz"):
        path.write_bytes(path.read_bytes()[:50])
    lab.part("p/q", compute, runs=3)
    assert len(calls) == 5
    assert not list(tmp_path.glob("*.tmp"))


def test_a_verdict_other_than_reproduced_needs_a_reason():
    with pytest.raises(ValueError, match="reason"):
        Finding("claim", "printed", "measured", Verdict.REFUSED)


def test_what_another_version_or_a_crash_left_is_not_shown(tmp_path):
    record = Record("fig1", "One", "tiny", 0, 1.0, source_digest(), [], [])
    fields = {**record.__dict__, "numbers": []}
    (tmp_path / "fig1.json").write_text(json.dumps(fields))
    (tmp_path / "fig2.json").write_text(json.dumps({**fields, "name": "fig2", "source": "older"}))
    (tmp_path / "fig3.json").write_text(json.dumps(fields)[:40])
    assert read_records(tmp_path, NAMES) == [record]


def test_a_refused_claim_and_a_failed_study_fail_the_command(tmp_path, monkeypatch):
    def record(verdict: Verdict) -> Record:
        return Record("fig1", "One", "tiny", 0, 1.0, source_digest(), [], [Finding("c", "p", "m", verdict, "because")])

    def outcome(*events: Event, written: Record) -> int:
        monkeypatch.setattr(command, "work_through", lambda *a: (event for event in events))
        fields = {**written.__dict__, "findings": [f.__dict__ for f in written.findings], "numbers": []}
        (tmp_path / "fig1.json").write_text(json.dumps(fields))
        return command.run(["fig1"], "tiny", 0, tmp_path, Console(quiet=True))

    good, bad = record(Verdict.CORRECTED), record(Verdict.REFUSED)
    assert outcome(Event("done", "fig1", good), written=good) == 0
    assert outcome(Event("done", "fig1", bad), written=bad) == 1
    assert outcome(Event("failed", "fig1", "it broke"), written=good) == 1


SCRIPT = f"""
import sys
from pathlib import Path
from rich.console import Console
from langevin.cli.checks import check_folder
from langevin.paper import command

if __name__ == "__main__":
    out = Path(sys.argv[1])
    check_folder(out, "parts")
    sys.exit(command.run(["{STUDY}"], "tiny", 0, out, Console(width=200)))
"""


def start(folder: Path) -> subprocess.Popen:
    (folder / "script.py").write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, str(folder / "script.py"), str(folder / "out")], stdout=subprocess.PIPE, text=True
    )


def wait_for_a_part(folder: Path, process: subprocess.Popen) -> list[Path]:
    limit = time.monotonic() + 120
    while time.monotonic() < limit and process.poll() is None:
        if parts := list((folder / "out" / "parts").glob("*.npz")):
            return parts
        time.sleep(0.02)
    raise AssertionError("no part was finished in time")


@pytest.mark.parametrize("how", [pytest.param(signal.SIGKILL, marks=pytest.mark.slow), signal.SIGINT])
def test_an_interrupted_call_goes_on_from_what_was_done(how, tmp_path):
    process = start(tmp_path)
    done = wait_for_a_part(tmp_path, process)
    written = {path: path.stat().st_mtime_ns for path in done}
    os.kill(process.pid, how)
    output, _ = process.communicate(timeout=60)
    if how is signal.SIGINT:
        assert process.returncode == 130
        assert "goes on from there" in output

    again = start(tmp_path)
    output, _ = again.communicate(timeout=300)
    assert again.returncode == 0, output
    assert all(path.stat().st_mtime_ns == at for path, at in written.items())
    out = tmp_path / "out"
    (record,) = read_records(out, NAMES)
    assert record.name == STUDY and record.findings
    for stem in record.figures:
        assert (out / f"{stem}.png").stat().st_size > 10_000
        assert "<svg" in (out / f"{stem}.svg").read_text()[:1000]
    assert len((out / f"{STUDY}.csv").read_text().splitlines()) > 1
    page = (out / "index.html").read_text()
    assert page.count("data:image/png;base64") == len(record.figures)
    assert "http" not in page
    assert all(finding.verdict in page for finding in record.findings)
