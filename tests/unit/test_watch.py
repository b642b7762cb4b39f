"""The page of a running job: for this machine alone, nothing but the page, and names as text."""

import http.client
import socket
import struct
import threading

import jax.numpy as jnp
import pytest

import langevin as lv
from langevin.report import watch
from langevin.saving.folder import Folder

pytest.importorskip("matplotlib")
NAME = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("watched") / "run"
    target = lv.Target(lambda theta: -0.5 * jnp.sum(theta[NAME] ** 2))
    lv.sample(target, None, {NAME: jnp.zeros(2)}, passes=2000, checkpoint=path)
    return path


@pytest.fixture
def address(run, monkeypatch):
    monkeypatch.setattr(watch, "_REFRESH", 0)
    with watch.serving(run) as address:
        yield address.removeprefix("http://").rstrip("/")


def asked(address, path="/", host=None, method="GET"):
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.headers


def test_the_page_shows_the_run_and_says_whether_it_goes_on(address, run):
    status, text, headers = asked(address)
    assert status == 200 and "Not running" in text and 'http-equiv="refresh"' not in text
    assert "&lt;script&gt;alert(1)" in text and NAME not in text and "<script" not in text
    assert "default-src 'none'" in headers["Content-Security-Policy"] and "script-src" not in str(headers)
    with Folder(run).locked():
        assert Folder(run).busy
        text = asked(address)[1]
        assert "<h2>Running</h2>" in text and 'http-equiv="refresh"' in text
    assert not Folder(run).busy


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1", "", "127.0.0.1:1", "localhost.evil.example:{port}"]
)
def test_foreign_hosts_are_refused(address, host):
    status, text, _ = asked(address, host=host.format(port=address.split(":")[1]))
    assert status == 403 and "Estimates" not in text


@pytest.mark.parametrize(
    "path", ["/run.json", "/../run.json", "/%2e%2e/run.json", "//etc/passwd", "/?x", "/lock", "file:///etc/passwd"]
)
def test_nothing_else_is_served(address, path):
    assert asked(address, path)[0] == 404
    assert asked(address, "/", method="POST")[0] == 501


def test_it_listens_on_the_own_interface_alone(run):
    with watch.serving(run) as address:
        port = int(address.split(":")[2].rstrip("/"))
        assert asked(f"localhost:{port}")[0] == 200
        other = socket.gethostbyname_ex(socket.gethostname())[2]
        for interface in set(other) - {"127.0.0.1", "127.0.1.1"}:
            with pytest.raises(OSError, match="refused"):
                socket.create_connection((interface, port), timeout=2)


def test_a_folder_without_results_says_so(tmp_path):
    assert "No results yet" in watch._page(tmp_path)
    with pytest.raises(ValueError, match="RUN must be the folder of a run"), watch.serving(tmp_path / "nothing"):
        pass


def test_a_tab_that_is_closed_too_early_is_no_error(run, monkeypatch, capfd):
    closed, over = threading.Event(), threading.Event()
    monkeypatch.setattr(watch.Watched, "page", lambda self: str(closed.wait(30)))
    end = watch._Server.shutdown_request
    monkeypatch.setattr(watch._Server, "shutdown_request", lambda *given: (end(*given), over.set()))
    with watch.serving(run) as address:
        host = address.removeprefix("http://").rstrip("/")
        tab = socket.create_connection(("127.0.0.1", int(host.split(":")[1])), timeout=30)
        tab.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        # Closed with a reset, as when the browser is gone: the next write to it fails.
        tab.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        tab.close()
        closed.set()
        assert over.wait(30)
    assert "Traceback" not in capfd.readouterr().err


def test_a_run_for_many_parameters_says_how_far_it_is(tmp_path):
    target = lv.Target(lambda theta: -0.5 * jnp.sum(theta**2), lambda theta, x: -0.5 * jnp.sum((x - theta) ** 2))
    how = {"method": "sghmc", "chains": 2, "passes": 40, "progress": False}
    time = lv.sample(target, jnp.ones((20, 3)), jnp.zeros(3), checkpoint=tmp_path / "run", **how).walk.time
    with watch.serving(tmp_path / "run") as address:
        status, page, _ = asked(address.removeprefix("http://").rstrip("/"))
    assert status == 200 and f"{time:,} units of time of 2 chains" in page and "asked for 40 passes" in page
    assert "Not running" in page and "Setting up" not in page
