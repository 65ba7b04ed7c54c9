"""GroupOffsets: the consumer offsets that clients commit, in memory and on request in a file.

They begin with the offsets in the store's own tables, which are never written.

Source: RocketMQ ``ConsumerOffsetManager``.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from cqstore.broker.metadata.model import Offsets, readings
from cqstore.serve.codes import ResponseCode
from cqstore.serve.request import RefusedRequestError
from cqstore.store.broker_files.fastjson import encoded, object_in
from cqstore.store.broker_files.file_names import TOPIC_GROUP_SEPARATOR
from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.files import read_file, replace_file
from cqstore.store.java_numbers import INT_MAX, LONG_MAX
from cqstore.store.path_kind import exists

MAX_COMMITS = 1_000_000
"""Maximum number of queues of groups whose offsets clients may commit."""
_MAX_FILE_BYTES = 512 << 20
_TABLE = "offsetTable"
Key = tuple[str, str]
"""Topic and group."""


class CommittedOffsets(Protocol):
    """The offsets of groups that a server uses, see ``GroupOffsets`` for its methods."""

    def use_stored(self, offsets: Offsets) -> None:
        """Use the offsets of the store's tables where clients have committed none."""

    def committed(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the offset of ``group`` in one queue; ``None``: there is none."""

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set the offset of ``group`` in one queue."""

    def has_group(self, group: str) -> bool:
        """Return whether ``group`` has an offset in any topic."""

    def topics_of(self, group: str) -> set[str]:
        """Return the topics in which ``group`` has offsets."""

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups that have offsets in ``topic``."""

    def save(self) -> None:
        """Write what was committed, where the server itself writes it."""


def check_commit(queue_id: int, offset: int) -> None:
    """Refuse a queue or an offset that no broker has.

    Raises:
        RefusedRequestError: one is out of range.
    """
    if not (0 <= queue_id <= INT_MAX and 0 <= offset <= LONG_MAX):
        raise RefusedRequestError(
            ResponseCode.INVALID_PARAMETER,
            f"invalid offset {offset} in queue {queue_id}: negative numbers are refused",
        )


class GroupOffsets:
    """Offsets of groups: committed ones, else those of the store. Any thread may read.

    One thread commits.
    """

    def __init__(self, file: Path | None = None) -> None:
        """Begin with the offsets in ``file``, if it exists.

        Raises:
            CorruptionError: the file has no offsets.
            StoreIOError: the file cannot be read.
        """
        self._stored: dict[Key, Mapping[int, int]] = {}
        self._stored_groups: set[str] = set()
        self._committed: dict[Key, dict[int, int]] = {}
        self._count = 0
        self._file = file
        self._changes = self._written = 0
        if file is not None and exists(file):
            self._committed = _offsets_in(file)
            self._count = sum(map(len, self._committed.values()))

    def use_stored(self, offsets: Offsets) -> None:
        """Use the offsets of the store's tables where clients have committed none."""
        self._stored = {key: row for name, row in offsets.items() for key in readings(name)}
        self._stored_groups = {group for _, group in self._stored}

    def committed(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the offset of ``group`` in one queue; ``None``: there is none."""
        for table in (self._committed, self._stored):
            found = table.get((topic, group), {}).get(queue_id)
            if found is not None:
                return found
        return None

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set the offset of ``group`` in one queue, also to a lower one.

        Raises:
            RefusedRequestError: clients have committed too many offsets, or it is out of range.
        """
        check_commit(queue_id, offset)
        row = self._committed.get((topic, group), {})
        if queue_id not in row:
            if self._count >= MAX_COMMITS:
                raise RefusedRequestError(
                    ResponseCode.SYSTEM_ERROR, f"more than {MAX_COMMITS} offsets were committed"
                )
            self._count += 1
        self._committed.setdefault((topic, group), row)[queue_id] = offset
        self._changes += 1

    def has_group(self, group: str) -> bool:
        """Return whether ``group`` has an offset in any topic."""
        return group in self._stored_groups or any(
            owner == group for _, owner in list(self._committed)
        )

    def topics_of(self, group: str) -> set[str]:
        """Return the topics in which ``group`` has offsets."""
        return {topic for topic, owner in self._keys() if owner == group}

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups that have offsets in ``topic``."""
        return {group for name, group in self._keys() if name == topic}

    def save(self) -> None:
        """Write the committed offsets into the file, if there is one and they have changed.

        The file has the form of a broker's ``consumerOffset.json``.

        Raises:
            StoreIOError: the file cannot be written; the offsets are in memory only.
        """
        if self._file is None or self._changes == self._written:
            return
        changes = self._changes
        table = {
            f"{topic}{TOPIC_GROUP_SEPARATOR}{group}": dict(row)
            for (topic, group), row in list(self._committed.items())
        }
        with os_errors("write the consumer offsets", self._file):
            replace_file(self._file, encoded({_TABLE: table}))
        self._written = changes

    def _keys(self) -> Iterator[Key]:
        yield from list(self._committed)
        yield from list(self._stored)


def _offsets_in(file: Path) -> dict[Key, dict[int, int]]:
    with os_errors("read the consumer offsets", file):
        data = read_file(file, _MAX_FILE_BYTES)
    table = object_in(file, data).get(_TABLE)
    found: dict[Key, dict[int, int]] = defaultdict(dict)
    for name, row in table.items() if isinstance(table, dict) else [("", None)]:
        # Names with several @ are ambiguous: the last one is the separator of a usual group.
        topic, _, group = name.rpartition(TOPIC_GROUP_SEPARATOR)
        if not (topic and group and isinstance(row, dict)):
            raise CorruptionError(f"expected offsets of topic@group, found {name!r}", path=file)
        for queue_id, offset in row.items():
            if not (str(queue_id).isdecimal() and type(offset) is int and offset >= 0):
                raise CorruptionError(f"invalid offset of {name!r} in a queue", path=file)
            found[topic, group][int(queue_id)] = offset
    return dict(found)
