"""What is shipped: the lists of files that the build backend would put into wheel and source archive."""

import ast
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


def roots(path):
    """Top-level names that a file imports, wherever the statement stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]
