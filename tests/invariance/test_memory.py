"""Memory does not grow with the number of steps. `python -m benchmarks.memory` alone is the long version.

Each run has a process of its own: in this one, memory that earlier tests have freed would hide a leak.
"""

import subprocess
import sys


def memory_run(*options: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "benchmarks.memory", "--chains", "64", "--steps", "200000", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_memory_does_not_grow_with_the_number_of_steps():
    done = memory_run()
    assert done.returncode == 0 and "growth after the first tenth" in done.stdout, done.stdout + done.stderr


def test_control_a_leak_of_a_megabyte_a_block_is_seen():
    done = memory_run("--leak", "1")
    assert done.returncode == 1 and "growth after the first tenth" in done.stdout, done.stdout + done.stderr
