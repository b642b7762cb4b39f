"""Locks that die with their process, whatever ends it."""

import os


def claimed(lock: int) -> bool:
    """Whether the lock of an open file is ours from now on; also True where the system has no such locks."""
    # Only POSIX systems have locks that a dead process cannot leave behind.
    if os.name != "posix":
        return True
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
