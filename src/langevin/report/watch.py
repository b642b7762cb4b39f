"""`langevin watch`: a page about a run while another process is at it, for this machine alone.

The page is made anew from the folder whenever it is asked for; there is no script in it, and no file is ever served.
"""

import base64
import io
import os
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langevin.report import sections
from langevin.saving.folder import Folder
from langevin.saving.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langevin.sampling.result import Result

# Seconds between two looks at the folder; drawing takes about one, from the run's own cores.
_REFRESH = 5
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


@dataclass
class Watched:
    """The folder of a run, and the last page that was made of it."""

    path: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _made: tuple[float, str] | None = None

    def page(self) -> str:
        """The page, made anew if the last one is a few seconds old."""
        with self._lock:
            if self._made is None or time.monotonic() - self._made[0] > _REFRESH - 1:
                self._made = time.monotonic(), _page(self.path)
            return self._made[1]


def _page(path: Path) -> str:
    running = Folder(path).busy
    refresh = f'<meta http-equiv="refresh" content="{_REFRESH}">' if running else ""
    try:
        title, body = _body(path, running)
    except (ValueError, OSError, ImportError) as error:
        title, body = "No results yet", f"<p>{escape(str(error))}</p>"
        refresh = f'<meta http-equiv="refresh" content="{_REFRESH}">'
    from importlib import resources

    style = (resources.files("langevin.report") / "page.css").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">{refresh}
<title>{escape(title)}</title><style>{style}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>
"""


def _body(path: Path, running: bool) -> tuple[str, str]:
    from langevin.loading import load
    from langevin.networks.sampler import NETWORK

    journal = Journal.of(Folder(path))
    walk = journal.last(lambda name: name.startswith(NETWORK))
    if walk is not None:
        return f"Run {path.name}", _walked(walk, path, running)
    if journal.last(lambda name: name.startswith("run")) is None:
        done = ", ".join(name for name in journal.pieces) or "nothing yet"
        return "Setting up", f"<p>{escape(str(path))}: done so far: {escape(done)}.</p>"
    result = load(path)
    return sections.title(result), _state(result, running) + _estimates(result)


def _walked(walk: dict[str, Any], path: Path, running: bool) -> str:
    """How far a run for many parameters has come; what it says takes target and data, which no folder holds."""
    lines = [
        f"{walk['time']:,} units of time of {walk['store']['draws'].shape[2]} chains at two step sizes, "
        f"{walk['visits']:,.0f} datum visits, {walk['seconds']:.0f} s, asked for {walk['budget'].words()}.",
        f"What it says is said of data: lv.load({str(path)!r}, target, data).",
    ]
    said = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return f'<section class="verdict care"><h2>{"Running" if running else "Not running"}</h2>{said}</section>'


def _state(result: "Result", running: bool) -> str:
    budget, reached = result.plan.budget, result.session.reached
    words = "Running" if running else "Not running"
    lines = [
        f"{result.session.steps:,} steps of {len(result.plan.chains)} chains, {result.passes:.3g} passes, asked for "
        f"{budget.words()}.",
        f"Widest half of a 95% interval so far: {reached:.2g} posterior sds.",
    ]
    if not running:
        lines += sections.verdict(result).lines
    said = "".join(f"<p>{escape(line)}</p>" for line in lines)
    kind = "care" if running else sections.verdict(result).kind
    return f'<section class="verdict {kind}"><h2>{words}</h2>{said}</section>'


def _estimates(result: "Result") -> str:
    from langevin.report.page import html_table
    from langevin.sampling import tables

    picture = ""
    # Without matplotlib the numbers are still there.
    with suppress(ImportError):
        drawn = io.BytesIO()
        result.plot("forest").savefig(drawn, format="svg")
        data = base64.b64encode(drawn.getvalue()).decode()
        picture = f'<img class="paper" alt="Posterior intervals" src="data:image/svg+xml;base64,{data}">'
    return f"<h2>Estimates so far</h2>{html_table(tables.cells(result))}{picture}"


class _Handler(BaseHTTPRequestHandler):
    """Answers one address, and only who asks for this machine by its own name."""

    server: "_Server"

    def do_GET(self) -> None:
        """The page at "/", nothing elsewhere."""
        # A page of somebody else, whose name leads to this machine, must not read along.
        if self.headers.get("Host", "") not in self.server.names:
            self._answer(HTTPStatus.FORBIDDEN, "This page is for this machine alone.")
        elif self.path != "/":
            self._answer(HTTPStatus.NOT_FOUND, "There is one page here: /")
        else:
            self._answer(HTTPStatus.OK, self.server.watched.page())

    def _answer(self, status: HTTPStatus, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"text/{'html' if status == HTTPStatus.OK else 'plain'}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        # A tab that was closed meanwhile is no error of ours.
        with suppress(ConnectionError):
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Keeps the terminal quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, watched: Watched, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.watched = watched
        self.names = {f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost")}


@contextmanager
def serving(path: Path, port: int = 0) -> "Iterator[str]":
    """Serves the page of a run on this machine's own interface as long as it lasts; the address."""
    if not os.path.isdir(path):
        raise ValueError(f"RUN must be the folder of a run, got {path}, which is none.")
    with _Server(Watched(path), port) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
