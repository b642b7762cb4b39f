"""Verdicts in the tests are given at a level that fits the suite's false-alarm budget."""

import pytest

from langevin.paper import study


@pytest.fixture(autouse=True)
def strict_level(monkeypatch):
    """A user's run may refuse an honest claim once in 1e5 checks; the test suite must not."""
    monkeypatch.setattr(study, "FALSE_ALARM", 1e-9)
