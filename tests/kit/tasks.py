"""Tasks for worker processes: they import little, and leave in files what they did."""

import json
import os
import time
from pathlib import Path

from cqstore.store.errors import CorruptionError


def double(item: str) -> str:
    """Return the text twice; what is printed is no answer."""
    print("not an answer", flush=True)  # noqa: T201
    return item + item


def damaged(item: str) -> str:
    """End with an error that has a place, if the item says so."""
    if item == "bad":
        raise CorruptionError("a unit is odd", path=Path("some/file"), phy_offset=7, expected=1)
    return item


def crash(item: str) -> str:
    """End the process as often as asked, then return how often that was."""
    given = json.loads(item)
    path = Path(given["file"])
    with path.open("a") as file:
        file.write("x")
    if path.stat().st_size <= given["crashes"]:
        os._exit(3)
    return str(path.stat().st_size)


def wait(item: str) -> str:
    """Leave the process's id in a folder, and go on for ever."""
    (Path(item) / str(os.getpid())).touch()
    time.sleep(600)  # it is ended before
    return ""
