"""What the tests of the studies share: a strict level for verdicts, and one folder of finished parts."""

import pytest

from langevin.paper import study
from langevin.paper.lab import Lab


@pytest.fixture(autouse=True)
def strict_level(monkeypatch):
    """A user's run may refuse an honest claim once in 1e5 checks; the test suite must not.

    1e-9 is what the suite's budget counts; the tenth leaves room for scores that are only nearly normal.
    """
    monkeypatch.setattr(study, "FALSE_ALARM", 1e-10)


@pytest.fixture(scope="session")
def lab(shared_folder):
    """The smallest size, with one folder for all tests and all test processes: parts are computed once."""
    folder = shared_folder / "parts"
    folder.mkdir(exist_ok=True)
    return Lab("tiny", folder=folder)
