"""What is shipped: the lists of files that the build backend would put into wheel and source archive."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def shipped(archive):
    # Imported here: without the dev extra these tests fail, and the others still run.
    from hatchling.builders.sdist import SdistBuilder
    from hatchling.builders.wheel import WheelBuilder

    builder = {"wheel": WheelBuilder, "sdist": SdistBuilder}[archive]
    return {file.distribution_path for file in builder(str(ROOT)).recurse_included_files()}


@pytest.mark.parametrize(("archive", "prefix"), [("wheel", ""), ("sdist", "src/")])
def test_every_module_and_the_marker_of_types_are_shipped(archive, prefix):
    package = ROOT / "src"
    files = [path for kind in ("py", "js", "css") for path in (package / "langevin").rglob(f"*.{kind}")]
    modules = {prefix + path.relative_to(package).as_posix() for path in files}
    assert modules | {prefix + "langevin/py.typed"} <= shipped(archive)


def test_the_tests_of_the_source_archive_find_what_they_import():
    files = shipped("sdist")
    folders = {path.split("/")[0] for path in files if "/" in path}
    tests = [ROOT / path for path in files if path.startswith("tests/") and path.endswith(".py")]
    imported = {root for test in tests for root in roots(test)}
    own = {path.parent.name for path in ROOT.glob("*/*.py")}
    assert tests and imported & own <= folders


def test_every_extra_that_is_named_can_be_installed():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    files = [path for folder in ("src", "docs", "examples", "benchmarks") for path in (ROOT / folder).rglob("*.*")]
    texts = [path.read_text() for path in (*files, ROOT / "README.md") if path.suffix in (".py", ".md")]
    named = {
        extra for text in texts for found in re.findall(r"langevin\[([a-z, ]+)\]", text) for extra in found.split(",")
    }
    assert {"compare", "files", "ray"} <= named <= set(extras)


def roots(path):
    """Top-level names that a file imports, wherever the statement stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]
