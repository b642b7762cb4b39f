"""Joining a cluster ends within its time limit, with the address and what to do; Ray itself would wait for minutes."""

import socket
import subprocess
import sys
import threading
import time
from importlib.util import find_spec

import pytest

import langevin as lv
from langevin.engine.ray import _join
from langevin.engine.remote import Lost


@pytest.fixture
def silent():
    """A port at which something accepts and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def never():
    raise AssertionError("nothing is there to be joined")


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_an_address_where_nothing_listens_is_refused_at_once(form):
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(
        Lost, match=rf"address='{form.format(free)}' leads to no Ray cluster: .*refused.*ray start --head"
    ):
        _join(form.format(free), 30.0, never)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("form", ["auto", "127.0.0.1:{}"])
def test_ray_is_not_waited_for_beyond_the_time_limit(form, silent):
    over = threading.Event()
    with pytest.raises(Lost, match=r"no Ray cluster that answers within 0\.2 s"):
        _join(form.format(silent), 0.2, over.wait)
    over.set()


def test_what_ray_says_is_told_with_the_address():
    def refused():
        raise ConnectionError("Could not find any running Ray instance.")

    with pytest.raises(Lost, match="address='auto' leads to no Ray cluster: Could not find any"):
        _join("auto", 30.0, refused)


def test_an_address_is_a_string():
    for bad in (5, ""):
        with pytest.raises(ValueError, match="address must be None, 'auto'"):
            lv.Ray(address=bad)


SCRIPT = """
import sys, langevin as lv
target = lv.Target(lambda t: -0.5 * t**2)
lv.run(target, None, 0.0, schedule=lv.Constant(0.1), num_steps=9, engine=lv.Ray(address=sys.argv[1], timeout=8))
"""


@pytest.mark.ray
@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_ray_at_an_address_that_never_answers_is_given_up(form, silent):
    # Not imported here: the tests of lv.Ray in this process must say where Ray listens before that.
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    command = [sys.executable, "-c", SCRIPT, form.format(silent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert f"Lost: address='{form.format(silent)}' leads to no Ray cluster that answers within 8 s" in done.stderr
