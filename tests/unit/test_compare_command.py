"""The command `langevin compare`: names, pages with marks, budgets, its record, workers that outlive nobody."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from langevin.cli import app
from langevin.compare import command, workshop
from langevin.compare.marks import FIRST_MARK, LAST_MARK, put_between
from langevin.compare.page import markdown
from langevin.compare.record import Record
from langevin.compare.reference import reference
from langevin.compare.samplers import SAMPLERS
from langevin.compare.table import read
from langevin.compare.targets import TARGETS
from langevin.compare.workshop import Size, cell_name

SIZE = Size(seconds=0.05, passes=20.0, replicates=2, limit=300.0)
MARKED = f"before\n\n{FIRST_MARK}: by the command -->\nold\n{LAST_MARK} -->\n\nafter\n"


@pytest.fixture
def no_work(monkeypatch):
    """Whatever is worked on fails the test: checks come first."""
    monkeypatch.setattr(workshop.Cells, "_worked", lambda *a: pytest.fail("worked"))


def refusal(*arguments):
    """The one line in which the command refuses."""
    found = CliRunner().invoke(app, ["compare", "gaussian", "--samplers", "laplace", *map(str, arguments)])
    (line,) = found.stderr.strip().splitlines()
    assert found.exit_code == 2, found.output
    return line


@pytest.mark.parametrize(
    "text",
    [
        "a page of mine\n",
        "",
        f"{FIRST_MARK} -->\nonly the first\n",
        f"{LAST_MARK} -->\nthe wrong way round\n{FIRST_MARK} -->\n",
        f"{FIRST_MARK} --> on one line {LAST_MARK} -->\n",
        f"It speaks of `{FIRST_MARK} -->`\nand of `{LAST_MARK} -->`.\n",
    ],
)
def test_a_page_without_both_marks_is_refused_before_any_work_and_left_alone(text, tmp_path, no_work):
    page = tmp_path / "mine.md"
    page.write_text(text)
    line = refusal("--out", tmp_path / "out", "--page", page)
    assert f"{FIRST_MARK} -->" in line and f"{LAST_MARK} -->" in line and str(page) in line
    assert page.read_text() == text


@pytest.mark.parametrize("page", ["missing/page.md", "."])
def test_a_page_that_cannot_be_written_is_refused_before_any_work(page, tmp_path, no_work):
    assert "--page must be a file that can be written" in refusal("--out", tmp_path / "out", "--page", tmp_path / page)


def test_tables_go_between_the_marks_of_a_page_and_nowhere_else(tmp_path):
    page, new = tmp_path / "page.md", tmp_path / "new.md"
    # A page in another encoding keeps its bytes.
    page.write_bytes(MARKED.replace("after", "apr\u00e8s").encode("latin-1"))
    tables = markdown(read(Record(None), ["gaussian"], ["laplace"], SIZE))
    for _ in range(2):
        put_between(page, tables)
        put_between(new, tables)
    text = page.read_bytes()
    assert text.startswith(b"before\n") and text.endswith(b"\n\napr\xe8s\n") and b"old" not in text
    assert text.count(b"## gaussian") == 1 and b"laplace (gaussian): not run" in text
    assert new.read_text().count("## gaussian") == 1 and new.read_text().startswith("# Samplers compared\n")
    assert sorted(tmp_path.iterdir()) == [new, page]


def test_the_command_fills_a_page_that_is_asked_for(tmp_path, no_work):
    truth, page = reference("gaussian"), tmp_path / "page.md"
    page.write_text(MARKED)
    one = {"mean": truth.mean, "sd": truth.sd, "points": truth.points, "status": "no bars", "seconds": 0.05}
    one |= {"visits": 1.0, **{f"{part}_interval": None for part in ("mean", "sd", "points")}}
    found = {"compiling": 0.1, "replicates": [{"seconds": one}, {"seconds": one}]}
    Record(tmp_path / "record.jsonl").add(cell_name("gaussian", "laplace", SIZE), found)
    assert command.run(["gaussian"], ["laplace"], SIZE, tmp_path, 1, Console(width=200), page) == 0
    assert "| `laplace` | 0" in page.read_text() and page.read_text().endswith("\n\nafter\n")


@pytest.mark.parametrize("seconds", ["inf", "1e6"])
def test_seconds_that_never_end_are_refused_in_one_line(seconds, tmp_path, no_work):
    line = refusal("--out", tmp_path, "--seconds", seconds)
    assert "--seconds must lie between 0.05 and 86400" in line and f"got {float(seconds):g}" in line


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_no_seconds_are_refused(seconds, tmp_path, no_work):
    found = CliRunner().invoke(app, ["compare", "--out", str(tmp_path), "--seconds", seconds])
    assert found.exit_code == 2 and "--seconds" in found.stderr and "Traceback" not in found.stderr


ASKED = {"target": "gaussian", "sampler": "sgld", "seconds": 60.0, "passes": 20.0, "replicates": 8, "core": 0}


def test_a_worker_ends_with_its_standard_input(tmp_path):
    asked = json.dumps(ASKED | {"answer": str(tmp_path / "answer.json")})
    with subprocess.Popen([sys.executable, "-m", "langevin.compare.worker", asked], stdin=subprocess.PIPE) as worker:
        try:
            worker.stdin.close()
            assert worker.wait(timeout=30) == 1
        finally:
            worker.kill()


# A call whose workers tell that they have begun, and that their standard input has ended.
CALL = """
import sys
from pathlib import Path
from langevin.compare import workshop
from langevin.compare.record import Record

workshop.sys.executable = sys.argv[1]
cells = [("gaussian", "laplace"), ("gaussian", "sgld")]
list(workshop.Cells(workshop.Size(1.0, 20.0, 2, 60.0), 2).work_through(cells, Record(None)))
"""
WORKER = """#!{python}
import os
Path = __import__("pathlib").Path
Path("{folder}", f"{{os.getpid()}}.begun").touch()
os.read(0, 1)
Path("{folder}", f"{{os.getpid()}}.ended").touch()
"""


def test_workers_see_the_end_of_a_call_that_was_terminated(tmp_path):
    script, seen = tmp_path / "worker", tmp_path / "seen"
    seen.mkdir()
    script.write_text(WORKER.format(python=sys.executable, folder=seen))
    script.chmod(0o755)

    def wait_for(count, suffix):
        limit = time.monotonic() + 60.0
        while len(found := sorted(path.stem for path in seen.glob(f"*.{suffix}"))) < count:
            assert time.monotonic() < limit, f"{found} of {count} have {suffix}"
            time.sleep(0.02)
        return found

    with subprocess.Popen([sys.executable, "-c", CALL, str(script)]) as call:
        begun = wait_for(2, "begun")
        assert not list(seen.glob("*.ended"))
        os.kill(call.pid, signal.SIGTERM)
        assert call.wait(timeout=30) == -signal.SIGTERM
    assert wait_for(2, "ended") == begun


@pytest.mark.parametrize(
    ("arguments", "known"), [(["nothing"], "logistic"), (["--samplers", "sample,nuts2"], "Did you mean nuts?")]
)
def test_unknown_names_are_refused_in_one_line_with_the_known_ones(arguments, known):
    found = CliRunner().invoke(app, ["compare", *arguments])
    assert found.exit_code == 2
    assert known in found.stderr and "Traceback" not in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1


def test_the_list_names_all():
    found = CliRunner().invoke(app, ["compare", "--list"])
    assert found.exit_code == 0
    assert all(name in found.stdout for name in (*TARGETS, *SAMPLERS))


def test_a_record_goes_on_after_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "record.jsonl"
    record = Record(path, "v1")
    record.add("one", {"failed": "x"})
    with path.open("a") as file:
        file.write('{"name": "two", "langevin": "v1", "fou')
    again = Record(path, "v1")
    assert "one" in again and "two" not in again
    # A cell that failed is tried again by the next call.
    assert not again.answered("one")
    again.add("two", {"value": np.arange(2)})
    assert Record(path, "v1")["two"] == {"value": [0, 1]} and again.answered("two")
    assert "one" not in Record(path, "v2")


@pytest.mark.parametrize(
    "line",
    [b"5", b"null", b"[1]", b"{}", b'{"name": ["one"], "langevin": "v1", "found": {}}', b'{"langevin": "v1", "name": "',
     b'{"name": "\xff', b"\x00\x00"],
)  # fmt: skip
def test_lines_that_are_no_cells_are_nothing(line, tmp_path):
    path = tmp_path / "record.jsonl"
    Record(path, "v1").add("one", {"value": 1})
    path.write_bytes(line + b"\n" + path.read_bytes() + line)
    again = Record(path, "v1")
    assert again["one"] == {"value": 1} and "two" not in again
    again.add("two", {"value": 2})
    assert Record(path, "v1")["two"] == {"value": 2}
