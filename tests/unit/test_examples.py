"""Scripts that people start from: they run, and what they show is right."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

FOLDER = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.slow


def test_the_logistic_regression_runs(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("sys.argv", ["logistic.py", "--out", str(tmp_path)])
    monkeypatch.setenv("MPLBACKEND", "agg")
    runpy.run_path(str(FOLDER / "logistic.py"), run_name="__main__")
    assert "Status ok" in capsys.readouterr().out and (tmp_path / "logistic.png").exists()


@pytest.fixture(scope="module")
def networks():
    """Predictions of one network, once written in Equinox and once in Flax."""
    example = runpy.run_path(str(FOLDER / "modules.py"))
    return {name: example["predicted"](*example[f"in_{name}"]()) for name in ("equinox", "flax")}


@pytest.mark.parametrize("name", ["equinox", "flax"])
def test_modules_are_a_theta_like_any_other(networks, name):
    result, found = networks[name]
    assert result.layout.size == 6209 and result.status == "ok"
    assert found.value.shape == (100,) and np.mean(found.statuses == "ok") > 0.9


def test_two_libraries_predict_the_same_within_their_bars(networks):
    one, other = networks["equinox"][1], networks["flax"][1]
    # The least of 100 tail probabilities: a false alarm for one run in 1e7.
    assert 100 * tails(one, other.value, other).min() > 1e-7
    # Rows that changed places are noticed.
    assert 100 * tails(one, np.roll(other.value, 1), other).min() < 1e-7


def tails(one, value, other):
    """Probabilities of values as far apart or farther, where both bars are right."""
    score = (one.value - value) / np.hypot(one.stderr, other.stderr)
    return 2 * stats.t.sf(np.abs(score), np.minimum(one.df, other.df))
