"""An import that is killed at any moment leaves nothing half-written, and the next call ends as if nothing had been."""

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import langevin as lv

arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

ROWS, KILLS = 200_000, 8

SCRIPT = """
import sys
from langevin.data import importer
import langevin as lv
importer._BUCKET_BYTES = 2**20
importer._JOURNAL_SECONDS = 0.0
print("ready", flush=True)
lv.import_data(sys.argv[1], sys.argv[2], columns={"x": "x*", "town": "town", "id": "id"})
"""


def imported(path, folder, kill_after=None):
    """The exit code of an import in a process of its own, and its seconds; killed after so many, if any."""
    command = [sys.executable, "-c", SCRIPT, str(path), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        began = time.monotonic()
        if kill_after is not None:
            time.sleep(kill_after)
            process.send_signal(signal.SIGKILL)
        return process.wait(300), time.monotonic() - began


@pytest.mark.slow
def test_kill_9_at_many_moments_changes_nothing(tmp_path):
    rng = np.random.default_rng(0)
    columns = {f"x{k}": rng.normal(size=ROWS) for k in range(10)}
    table = arrow.table({**columns, "town": rng.choice(["a", "b", "c"], ROWS), "id": np.arange(ROWS)})
    parquet.write_table(table, tmp_path / "t.parquet", row_group_size=20_000)
    code, seconds = imported(tmp_path / "t.parquet", tmp_path / "whole")
    assert code == 0
    expected = lv.DataSource.of(tmp_path / "whole")
    killed = 0
    for share in rng.uniform(0.05, 1.0, KILLS):
        killed += imported(tmp_path / "t.parquet", tmp_path / "out", share * seconds)[0] == -signal.SIGKILL
        # Either nothing is there, or all of it.
        if (tmp_path / "out").exists():
            assert lv.DataSource.of(tmp_path / "out").fingerprint == expected.fingerprint
            shutil.rmtree(tmp_path / "out")
    assert imported(tmp_path / "t.parquet", tmp_path / "out")[0] == 0
    assert killed >= KILLS // 2
    assert lv.DataSource.of(tmp_path / "out").fingerprint == expected.fingerprint
    assert sorted(np.asarray(expected.arrays["id"]).tolist()) == list(range(ROWS))
    assert sorted(os.listdir(tmp_path)) == ["out", "t.parquet", "whole"]
