"""A process for every snippet, in the interpreter of its peer, with caches of its own."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PATIENCE = 3600.0


def interpreter(venv: Path) -> Path:
    """The Python of the peers, or an error that says how to get it."""
    python = venv / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"{python} is not there. `make {venv.name.removeprefix('.venv-')}` installs the peers.")
    return python


def run(snippet: str, python: Path, tables: Path, cache: Path, maximum: dict[str, Any] | None = None) -> dict[str, Any]:
    """What one snippet finds. `cache` is where both keep compiled programs: an empty one makes a cold start."""
    settings = {"XDG_CACHE_HOME": str(cache), "PYTENSOR_FLAGS": f"base_compiledir={cache}", "PYTHONWARNINGS": "ignore"}
    if python == Path(sys.executable):
        settings["PYTHONPATH"] = str(ROOT / "src")
    with tempfile.TemporaryDirectory() as folder:
        source, result, top = (Path(folder) / name for name in ("snippet.py", "result.json", "maximum.json"))
        source.write_text(snippet)
        top.write_text(json.dumps(maximum))
        command = [str(python), str(HERE / "worker.py"), str(source), str(time.time()), str(result)]
        ended = subprocess.run(
            [*command, *([str(top)] if maximum is not None else [])],
            cwd=tables, env=os.environ | settings, capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        if ended.returncode:
            raise SystemExit(f"A snippet failed:\n{snippet}\n{ended.stderr[-3000:]}")
        return json.loads(result.read_text())


def make_tables(python: Path, folder: Path) -> None:
    """Writes the five tables where the snippets look for them."""
    subprocess.run([str(python), str(HERE / "tables.py"), str(folder.resolve())], check=True)
