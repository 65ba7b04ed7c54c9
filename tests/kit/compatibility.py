"""The table of deliberate differences, as the golden comparison reads it."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


def differences() -> set[str]:
    """Return the names of the ways in which ours on RocksDB differs from RocketMQ's on RocksDB."""
    text = PAGE.read_text(encoding="utf-8")
    table = text.split("<!-- rocksdb-differences -->")[1]
    return set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE))
