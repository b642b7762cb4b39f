"""`import langevin` stays quick: nothing heavy comes along, and the compiler option respects the user."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "langevin"

REPORT = """
import json, os, sys, time
start = time.process_time(); import jax, jax.numpy; jax_seconds = time.process_time() - start
before = set(sys.modules)
start = time.process_time(); import langevin; seconds = time.process_time() - start
new = {name.split(".")[0] for name in set(sys.modules) - before}
print(json.dumps({"new": sorted(new), "seconds": seconds, "flags": os.environ.get("XLA_FLAGS", "")}))
"""


def report(**environment):
    clean = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "LANGEVIN_KEEP_XLA_FLAGS")}
    found = subprocess.run(
        [sys.executable, "-c", REPORT], env={**clean, **environment}, capture_output=True, text=True, check=True
    )
    return json.loads(found.stdout)


def test_importing_langevin_loads_nothing_heavy_and_takes_less_than_a_second():
    heavy = {"scipy", "matplotlib", "pandas", "arviz", "arviz_base", "numpyro", "ray", "pyarrow", "altair", "optax"}
    heavy |= {"rich", "IPython", "typer"}
    found = report()
    assert not heavy & set(found["new"])
    # Measured at about 0.1 s; a second is the promise. Processor time: what it loads decides it, not what else runs.
    assert found["seconds"] < 1.0


SMALL = "xla_cpu_small_while_loop_byte_threshold=65536"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, f"--xla_backend_extra_options={SMALL}"),
        ({"XLA_FLAGS": "--xla_foo=1"}, f"--xla_foo=1 --xla_backend_extra_options={SMALL}"),
        ({"LANGEVIN_KEEP_XLA_FLAGS": "1"}, ""),
        ({"XLA_FLAGS": "--xla_backend_extra_options=mine=2"}, "--xla_backend_extra_options=mine=2"),
    ],
    ids=["nothing set", "other flags", "left alone", "the user's own options"],
)
def test_the_small_loop_option_respects_the_user(environment, expected, monkeypatch):
    from langevin.startup import request_small_loops

    for name in ("XLA_FLAGS", "LANGEVIN_KEEP_XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    request_small_loops()
    assert os.environ.get("XLA_FLAGS", "") == expected


def imported(path):
    """Full names that a file of the package imports, wherever the statement stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("room", ["paper", "compare"])
def test_only_the_command_line_looks_into_rooms_that_look_at_everything(room):
    outside = [path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in (room, "cli")]
    assert len(outside) > 100
    looking = {
        path.name for path in outside if any(f"{name}.".startswith(f"langevin.{room}.") for name in imported(path))
    }
    assert not looking


def test_the_comparison_stands_on_neither_the_paper_nor_the_command_line():
    names = {name for path in (PACKAGE / "compare").rglob("*.py") for name in imported(path)}
    assert any(name.startswith("langevin.compare.") for name in names)
    assert not [name for name in names if name.startswith(("langevin.paper", "langevin.cli", "langevin.report"))]
