"""Merge of the master's consumer offsets into the local ones; decreases are reported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from cqstore.store.errors import CorruptionError

Offsets = dict[str, dict[str, int]]
"""``topic@group`` → queue id → offset; for delays, an empty key and levels."""


class Lower(NamedTuple):
    """An offset of the master that is lower than the local one."""

    key: str
    queue_id: str
    own: int
    master: int


def offsets_in(content: dict[str, Any] | None, path: Path) -> Offsets:
    """Return the offset table in a broker's file; empty without a file.

    Raises:
        CorruptionError: the file has no valid offset table.
    """
    if content is None:
        return {}
    table = content.get("offsetTable")
    if isinstance(table, dict) and all(type(each) is int for each in table.values()) and table:
        table = {"": table}
    if not isinstance(table, dict) or not all(map(_is_row, table.values())):
        raise CorruptionError("the broker's metadata file has no valid offsetTable", path=path)
    return table


def _is_row(found: object) -> bool:
    return isinstance(found, dict) and all(type(each) is int for each in found.values())


def merged(
    own: Offsets, master: Offsets, *, accept_lower: Callable[[Lower], bool]
) -> tuple[Offsets, list[Lower]]:
    """Return the merged offsets, the higher of both, and those that are lower at the master.

    ``accept_lower`` returns whether a lower offset of the master is used. Offsets that only one
    side has are kept.
    """
    result, lower = {key: dict(row) for key, row in own.items()}, list[Lower]()
    for key, row in master.items():
        mine = result.setdefault(key, {})
        for queue_id, offset in row.items():
            found = Lower(key, queue_id, mine.get(queue_id, offset), offset)
            if offset >= found.own or accept_lower(found):
                mine[queue_id] = offset
            if offset < found.own:
                lower.append(found)
    return result, lower
