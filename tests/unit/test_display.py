"""One display for a whole call: a terminal with and without rich, a notebook, a log, and silence."""

import io
import re
import sys
import threading
import time
from contextlib import redirect_stderr
from types import ModuleType, SimpleNamespace

import jax
import numpy as np
import pytest

import langevin as lv
from langevin import display
from langevin.display import hush, showing, tell
from langevin.limits import interrupt

# What a call leaves behind.
END = re.compile(r"langevin: \d+ s in all( \(.*\))?")


@pytest.fixture
def quick(monkeypatch):
    """A display that begins at once and looks often."""
    monkeypatch.setattr(display, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(display, "_LOOK_SECONDS", 0.005)


class Terminal(io.StringIO):
    """Keeps what was written, and knows what is left on its screen."""

    def isatty(self):
        return True

    @property
    def screen(self):
        lines, row, column = [""], 0, 0
        for number, command, letter in re.findall(r"\x1b\[([0-9;?]*)([A-Za-z])|([^\x1b])", self.getvalue()):
            if command == "A":
                row -= int(number)
            elif command == "K":
                lines[row] = ""
            elif letter == "\r":
                column = 0
            elif letter == "\n":
                row, column = row + 1, 0
                lines += [""] * (row + 1 - len(lines))
            elif letter:
                lines[row] = lines[row][:column].ljust(column) + letter + lines[row][column + 1 :]
                column += 1
        return [line.rstrip() for line in lines if line.strip()]


def work(*stages):
    for stage in stages:
        tell(stage)
        time.sleep(0.1)


@pytest.fixture(params=["rich", "plain"])
def terminal(request, monkeypatch, quick):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    if request.param == "plain":
        monkeypatch.setitem(sys.modules, "rich.console", None)
    return Terminal()


def test_a_terminal_shows_one_line_and_keeps_one(terminal):
    before = threading.active_count()
    with redirect_stderr(terminal), showing(None):
        work("looking for the posterior mode", "x" * 200)
        tell("sampling", 0.25)
        time.sleep(0.1)
        tell("sampling", 0.5, "precision 0.034 -> 0.02 sds")
        time.sleep(0.1)
    written = terminal.getvalue()
    assert " s, looking for the posterior mode" in written
    assert re.search(r"sampling 50%, about \d s left, precision 0.034 -> 0.02 sds", written)
    (line,) = terminal.screen
    assert END.fullmatch(line)
    # Threads of earlier tests may have ended meanwhile.
    assert threading.active_count() <= before


def test_an_error_leaves_nothing_behind(terminal):
    with pytest.raises(ZeroDivisionError), redirect_stderr(terminal), showing(None):
        work("sampling")
        _ = 1 / 0
    assert "sampling" in terminal.getvalue() and terminal.screen == []


def test_what_ctrl_c_has_to_say_stands_alone(terminal):
    with pytest.raises(KeyboardInterrupt), redirect_stderr(terminal), showing(None):
        work("sampling")
        interrupt("Interrupted.")
    assert terminal.screen == ["Interrupted."]


def test_a_notebook_rewrites_one_output(monkeypatch, quick):
    outputs = []

    def shown(data, raw, display_id):
        outputs.append([data["text/plain"]])
        return SimpleNamespace(update=lambda data, raw: outputs[-1].append(data["text/plain"]))

    python, displayed = ModuleType("IPython"), ModuleType("IPython.display")
    python.get_ipython = lambda: SimpleNamespace(kernel=object())
    displayed.display = shown
    monkeypatch.setitem(sys.modules, "IPython", python)
    monkeypatch.setitem(sys.modules, "IPython.display", displayed)
    with showing(None):
        work("reading the data", "sampling")
    (texts,) = outputs
    assert any(text.endswith(" s, reading the data") for text in texts) and END.fullmatch(texts[-1])


def test_a_log_has_a_line_for_each_stage_and_one_for_the_end(capsys, quick):
    with showing(None):
        work("reading the data", "sampling", "reading the data")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(", ")[-1] for line in lines[:-1]] == ["reading the data", "sampling"]
    assert END.fullmatch(lines[-1])


def test_lines_of_a_log_come_at_growing_distances(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(display, "monotonic", lambda: now[0])
    log, seconds = display._Log(), []
    for now[0] in np.arange(0.0, 500.0, 0.5):
        log.show("sampling", "x")
        if capsys.readouterr().err:
            seconds.append(now[0])
    assert seconds == [0.0, 15.0, 45.0, 105.0, 225.0, 465.0]


@pytest.mark.parametrize("progress", [None, False])
def test_short_calls_and_those_that_want_no_display_are_silent(progress, capsys, monkeypatch):
    if progress is False:
        monkeypatch.setattr(display, "_QUIET_SECONDS", 0.0)
    with showing(progress), showing(None):
        work("sampling")
        hush()
    assert capsys.readouterr() == ("", "")


def test_inside_another_display_silence_holds_for_what_is_inside(capsys, quick):
    with showing(True):
        work("first")
        with showing(False):
            work("second")
        work("third")
    found = capsys.readouterr().err
    assert "first" in found and "second" not in found and "third" in found


def test_a_screen_that_goes_away_does_not_disturb_the_work(monkeypatch, quick):
    gone = io.StringIO()
    gone.close()
    monkeypatch.setattr(threading, "excepthook", lambda error: pytest.fail(str(error)))
    with redirect_stderr(gone), showing(True):
        work("sampling")


def test_programs_are_heard_of_while_they_compile():
    heard = []

    def traced(x):
        heard.append(len(display._programs))
        return x + 1

    with showing(None):
        jax.jit(traced)(1.0)
    assert heard[0] > 0 and not display._programs


def test_stages_of_a_call_come_in_order(monkeypatch, capsys, quick):
    told = []
    monkeypatch.setattr(display._Display, "tell", lambda self, doing, share, note: told.append((doing, share, note)))
    model = lv.models.Logistic.simulate(seed=1)
    result = lv.sample(model.target, model.data, model.theta_0, precision=0.01)
    stages = list(dict.fromkeys(doing for doing, _, _ in told))
    assert stages == [
        "looking for the posterior mode",
        "looking for other modes",
        "looking for mass far out",
        "measuring the posterior at a few draws",
        "sampling",
    ]
    looked, *rest = [(share, note) for doing, share, note in told if doing == "sampling"][1:]
    assert looked == (None, "a first look at the precision")
    assert any(note.endswith("-> 0.01 sds") and 0.0 < share for share, note in rest if share is not None)
    told.clear()
    result.extend(passes=1)
    assert {doing for doing, _, _ in told} == {"sampling"}
    assert capsys.readouterr().err.count("in all") == 2
