"""Asks XLA for small loops compiled into one kernel, before the CPU backend starts.

On jax >= 0.4.32 a compiled loop of small operations pays 50 to 100 ns for every operation; below a size
threshold XLA's CPU compiler can fuse the whole loop into one kernel instead (two to four times faster for
one chain of a small model). The option is read once, when the backend starts, and cannot be set for a
single compilation, so `import langevin` sets it. A user's own setting of the same option always wins, and
``LANGEVIN_KEEP_XLA_FLAGS=1`` leaves the environment alone.
"""

import os

OPTION = "xla_cpu_small_while_loop_byte_threshold"
# 64 kB: larger thresholds pull whole data sets into the kernel and slow down big gathers.
THRESHOLD = 65536


def request_small_loops() -> None:
    """Adds the option to XLA_FLAGS unless the user chose a value or asked to be left alone."""
    flags = os.environ.get("XLA_FLAGS", "")
    if os.environ.get("LANGEVIN_KEEP_XLA_FLAGS") == "1" or OPTION in flags:
        return
    if "xla_backend_extra_options" in flags:
        # The flag is one comma-separated list: a second occurrence would replace the user's first.
        return
    os.environ["XLA_FLAGS"] = f"{flags} --xla_backend_extra_options={OPTION}={THRESHOLD}".strip()
