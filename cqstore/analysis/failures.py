"""Converts Spark's exceptions to store errors; a store error of a task keeps its message."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cqstore.store import errors
from cqstore.store.errors import DiskFullError, StoreConfigError, StoreError

_OURS = re.compile(r"^(?:\w+\.)*errors\.(\w+Error): (.+)$", re.MULTILINE)
_FULL = re.compile("No space left on device|Disk quota exceeded")
_TEMPORARY = re.compile(r"(?P<folder>/[^\n:,]*?)/(?:blockmgr|spark)-[0-9a-f-]{36}")
"""A temporary file of Spark, in a folder that it creates for each session."""
_OF_JAVA = "/tmp"  # Java's temporary folder, regardless of TMPDIR
_QUESTION = ("ParseException", "AnalysisException", "ArithmeticException", "DateTimeException",
             "NumberFormatException", "SparkRuntimeException")  # fmt: skip


@contextmanager
def spark_failures() -> Iterator[None]:
    """Convert exceptions of Spark in the block to a ``StoreError`` of one sentence.

    A ``StoreError`` of a task keeps its class; an invalid query becomes a ``StoreConfigError``.
    Other exceptions are unchanged.

    Raises:
        StoreError: Spark or a task failed.
    """
    try:
        yield
    except Exception as exc:
        found = store_error(exc)
        if found is None:
            raise
        raise found from exc


def store_error(exc: Exception) -> StoreError | None:
    """Return ``exc`` as a store error; ``None`` if it is not an exception of Spark."""
    module = type(exc).__module__
    if not module.startswith(("pyspark.", "py4j.")):
        return None
    text = str(exc)
    if ours := _OURS.findall(text):
        name, sentence = ours[-1]
        kind = getattr(errors, name, StoreError)
        return kind(sentence) if issubclass(kind, StoreError) else StoreError(sentence)
    if _FULL.search(text):
        place = _TEMPORARY.search(text)
        folder = place["folder"] if place else os.environ.get("SPARK_LOCAL_DIRS") or _OF_JAVA
        return DiskFullError(
            "no space left in Spark's temporary folder: free some space, or set SPARK_LOCAL_DIRS to"
            " another folder", path=Path(folder),
        )  # fmt: skip
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(exc).__name__)
    if type(exc).__name__ in _QUESTION:
        return StoreConfigError(f"cannot run the query: {first}")
    return StoreError(f"Spark failed: {first}")
