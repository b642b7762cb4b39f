"""Files of predictions: whole or not there, and nothing beside them is touched."""

import errno

import numpy as np
import pytest

import langevin as lv
from langevin.regression import writing
from tests.unit.regressions import pandas

RNG = np.random.default_rng(9)
N = 200
TABLE = pandas.DataFrame({"x": RNG.standard_normal(N)})
TABLE["y"] = TABLE.x + RNG.standard_normal(N)


@pytest.fixture(scope="module")
def fit():
    return lv.fit(TABLE, "y ~ x", passes=20)


def test_data_are_not_written_over(fit, tmp_path):
    path = tmp_path / "t.csv"
    TABLE.to_csv(path, index=False)
    before = path.read_bytes()
    (tmp_path / "link.csv").symlink_to(path)
    for out, data in [
        (path, path),
        (tmp_path / "link.csv", str(path)),
        (path, [path]),
        (tmp_path / "more.csv", tmp_path),
    ]:
        with pytest.raises(ValueError, match=r"out must be a file that can be written, .*: the data are there"):
            fit.predict_to(out, data, draws=2)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 2


def test_what_stands_beside_out_stays(fit, tmp_path):
    (tmp_path / "out.csv.tmp").write_text("of somebody else")
    (tmp_path / "there.csv").write_text("earlier predictions")
    (tmp_path / "out.csv").symlink_to(tmp_path / "there.csv")
    fit.predict_to(tmp_path / "out.csv", TABLE, draws=2)
    assert (tmp_path / "out.csv.tmp").read_text() == "of somebody else"
    assert (tmp_path / "out.csv").is_symlink() and len(pandas.read_csv(tmp_path / "there.csv")) == N


def test_two_writers_of_one_file_do_not_mix(fit, tmp_path):
    out = tmp_path / "out.csv"
    with writing.written(out, TABLE) as put:
        put(TABLE.head(3))
        with pytest.raises(ValueError, match="another process is writing it"):
            fit.predict_to(out, TABLE, draws=2)
        put(TABLE.tail(3))
    assert len(pandas.read_csv(out)) == 6 and [one.name for one in tmp_path.iterdir()] == ["out.csv"]
    # What a killed process has left is no obstacle.
    (tmp_path / "out.csv.predicting").write_text("half of" * 999)
    fit.predict_to(out, TABLE, draws=2)
    assert len(pandas.read_csv(out)) == N and [one.name for one in tmp_path.iterdir()] == ["out.csv"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_disk_that_is_full_leaves_the_file_before(fit, suffix, tmp_path, monkeypatch):
    out, full = tmp_path / f"out.{suffix}", OSError(errno.ENOSPC, "No space left on device")
    out.write_text("earlier")
    for kind in (writing._Csv, writing._Parquet):
        monkeypatch.setattr(kind, "put", lambda self, frame: (_ for _ in ()).throw(full))
    with pytest.raises(OSError, match=r"out could not be written, and what was there is untouched: No space left"):
        fit.predict_to(out, TABLE, draws=2)
    assert out.read_text() == "earlier" and [one.name for one in tmp_path.iterdir()] == [out.name]
