"""Threads of this project that are alive in this process."""

import threading

_OF_SPARK = "cqstore-java"
"""Reads what Java says: alive as long as the session that all tests of a process share."""


def own_threads() -> list[str]:
    """Return their names, save those of the session of Spark."""
    names = [thread.name for thread in threading.enumerate()]
    return sorted(name for name in names if name.startswith("cqstore") and name != _OF_SPARK)
