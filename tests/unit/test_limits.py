"""Ctrl-C and the clock end a set-up with one line, at any moment and without a crash."""

import os
import signal
import subprocess
import sys
import threading
import time

import jax.numpy as jnp
import numpy as np
import pytest

import langevin as lv
from langevin.limits import checkpoint, set_up, stop_requests

# Fresh functions each time, so that every call traces, compiles and runs.
SCRIPT = """
import itertools, sys
import jax.numpy as jnp, numpy as np, langevin as lv
x = np.random.default_rng(0).normal(size=(2000, 4)).astype(np.float32)
def fresh():
    return lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, r: -0.5 * jnp.sum((t - r) ** 2) - 0.1 * jnp.sum(t**4))
zero = np.zeros(4)
print("ready", flush=True)
for _ in itertools.count():
    CALL
"""
# Results are kept: between two calls nothing must run for long, since Ctrl-C there is not the library's to answer.
PLAN = SCRIPT.replace("CALL", "lv.plan(fresh(), x, zero, passes=1)")
SAMPLE = SCRIPT.replace("zero =", "kept, zero = [],").replace(
    "CALL",
    "kept.append(lv.sample(fresh(), x, zero, passes=1000, progress=False))\n    if kept[-1].partial: break",
)


def interrupted(delay, script=PLAN):
    """Exit code and stderr of a script that gets Ctrl-C some seconds after it began to work."""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=120)
    return process.returncode, complaint


def assert_one_line(code, complaint):
    assert code == 130, complaint
    lines = "Interrupted during the set-up, ", "Interrupted as the work was ending."
    assert complaint.startswith(lines) and complaint.count("\n") == 1, complaint


def test_ctrl_c_ends_a_script_with_one_line():
    assert_one_line(*interrupted(0.3))


@pytest.mark.slow
def test_ctrl_c_at_thirty_moments_ends_a_script_with_one_line():
    # A plan takes about a second, of which tracing and compiling are most.
    for delay in np.random.default_rng(int.from_bytes(os.urandom(4))).uniform(0.0, 2.0, size=30):
        assert_one_line(*interrupted(delay))


@pytest.mark.slow
def test_ctrl_c_at_thirty_moments_of_a_call_ends_it_or_returns_what_there_is():
    for delay in np.random.default_rng(int.from_bytes(os.urandom(4))).uniform(0.0, 8.0, size=30):
        code, complaint = interrupted(delay, SAMPLE)
        if code != 0 or complaint:
            assert_one_line(code, complaint)


COLD = """
import sys, time
import jax.numpy as jnp, numpy as np, langevin as lv
rng = np.random.default_rng(0)
d = int(sys.argv[1])
x = rng.normal(size=(20_000, d)).astype(np.float32)
y = np.sign(x[:, 0] + rng.logistic(size=20_000)).astype(np.float32)
target = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, r: lv.log_sigmoid(r["y"] * jnp.dot(r["x"], t)))
began = time.monotonic()
try:
    lv.sample(target, {"x": x, "y": y}, np.zeros(d), time_limit=5.0, progress=False)
except lv.OutOfTime:
    pass
print(time.monotonic() - began)
"""


@pytest.mark.slow
def test_a_time_limit_of_five_seconds_binds_a_cold_process():
    """Compilation and set-up included; what cannot be interrupted is a single compilation, a second on a quiet core."""
    found = subprocess.run([sys.executable, "-c", COLD, "5"], capture_output=True, text=True, check=True, timeout=120)
    assert float(found.stdout) < 6.0


TARGET = lv.Target(lambda t: -0.5 * jnp.sum(t**2))


def pressed_while_tracing(monkeypatch):
    """A target that presses Ctrl-C the first time its prior is traced."""
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    left = [1]

    def log_prior(theta):
        if left:
            left.pop()
            signal.raise_signal(signal.SIGINT)
        return -0.5 * jnp.sum(theta**2)

    return lv.Target(log_prior)


def test_in_an_interactive_session_ctrl_c_is_a_keyboard_interrupt_with_a_short_traceback(monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(lv.Interrupted, match="looking for the posterior mode; nothing was sampled") as caught:
        lv.plan(pressed_while_tracing(monkeypatch), None, np.zeros(2), passes=1)
    assert isinstance(caught.value, KeyboardInterrupt) and not isinstance(caught.value, SystemExit)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert len(caught.traceback) <= 6
    assert signal.getsignal(signal.SIGINT) is before
    # Nothing is left behind: the next call works.
    lv.plan(TARGET, None, np.zeros(2), passes=1)


def test_ctrl_c_after_the_last_checkpoint_is_not_lost(monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with pytest.raises(KeyboardInterrupt, match="at its end"), set_up():
        signal.raise_signal(signal.SIGINT)


def test_a_second_ctrl_c_interrupts_at_once(monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    reached = []
    with pytest.raises(KeyboardInterrupt) as caught, set_up():
        signal.raise_signal(signal.SIGINT)
        reached.append(1)
        signal.raise_signal(signal.SIGINT)
        reached.append(2)
    assert reached == [1] and not isinstance(caught.value, lv.Interrupted)


def test_set_up_inside_a_run_shares_its_request(monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with stop_requests() as requested:
        signal.raise_signal(signal.SIGINT)
        assert requested()
        with pytest.raises(lv.Interrupted), set_up():
            checkpoint("here")


def test_other_threads_work_without_signals():
    found = []
    thread = threading.Thread(target=lambda: found.append(lv.plan(TARGET, None, np.zeros(2), passes=1)))
    thread.start()
    thread.join()
    assert len(found) == 1


@pytest.mark.parametrize("step", ["looking for the posterior mode", "at a few draws", "looking for other modes"])
def test_the_time_limit_binds_every_part_of_the_set_up(step, monkeypatch):
    """A clock that jumps at the first checkpoint of one part."""
    late = [0.0]
    import langevin.limits as limits

    original = limits.checkpoint

    def slow(doing):
        if step in doing:
            late[0] = 1e6
        original(doing)

    monkeypatch.setattr(limits, "monotonic", lambda: time.monotonic() + late[0])
    for module in ("langevin.anchor.passes", "langevin.pilot", "langevin.survey"):
        monkeypatch.setattr(f"{module}.checkpoint", slow)
    with pytest.raises(lv.OutOfTime, match=f"time_limit ended during the set-up, .*{step}.*: nothing was sampled"):
        lv.plan(TARGET, None, np.zeros(2), time_limit=1000.0)


def test_enough_time_changes_nothing():
    one, other = (lv.plan(TARGET, None, np.zeros(2), passes=1, time_limit=limit) for limit in (None, 1000.0))
    assert one.anchor == other.anchor and one.pilot.ess == other.pilot.ess


def test_a_pass_over_large_data_is_left_between_two_chunks():
    data = np.zeros((200_000, 1), np.float32)
    target = lv.Target(lambda t: -0.5 * jnp.sum(t**2), lambda t, r: -0.5 * jnp.sum((t - r) ** 2))
    with pytest.raises(TimeoutError, match="time_limit"):
        lv.plan(target, data, np.zeros(1), time_limit=1e-3)
