"""How far an import is, so that one that was cut short, by a crash too, puts no message twice.

The file says how many rows were put and where the log ended then; both are on disk when it is
written. What was put behind that place is read from the log itself, and compared with the rows.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cqstore.cli.message_files.message_lines import MessageLine
from cqstore.store.errors import CorruptionError, RefusedStoreError, os_errors
from cqstore.store.files import read_file, replace_file
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

_MAX_BYTES = 1 << 16


@dataclass(slots=True)
class ImportPosition:
    """How far an import is: the content of its position file."""

    source: str
    """The file that is imported."""
    next_row: int
    """The first row (of a file of lines: line) that was not put."""
    phy_offset: int
    """Where the log ended behind those that were."""

    def write(self, path: Path) -> None:
        """Replace the file at ``path`` by this position, durably.

        Raises:
            StoreIOError: it cannot be written.
        """
        fields = {name: getattr(self, name) for name in self.__slots__}
        with os_errors("write the position of an import", path):
            replace_file(path, json.dumps(fields).encode() + b"\n")

    @classmethod
    def read(cls, path: Path, source: Path) -> "ImportPosition":
        """Return what ``path`` holds of an import of ``source``.

        Raises:
            CorruptionError: it is no position.
            RefusedStoreError: it is that of another file.
            StoreIOError: it cannot be read.
        """
        with os_errors("read the position of an import", path):
            data = read_file(path, _MAX_BYTES)
        try:
            found = cls(**json.loads(data))
            if not (type(found.next_row) is type(found.phy_offset) is int and found.next_row > 0):
                raise TypeError  # noqa: TRY301 - as of what is not there
        except (ValueError, TypeError) as exc:
            raise CorruptionError(
                "this is no position of an import", path=path,
                expected="JSON as an import writes it", got=f"{data[:60]!r}",
            ) from exc  # fmt: skip
        if found.source != str(source.absolute()):
            raise RefusedStoreError(
                f"this is the position of another file: {found.source}", path=path
            )
        return found


def pass_rows_put(store: MessageStore, begun: ImportPosition, rows: Iterator[MessageLine]) -> int:
    """Take those of ``rows``, which begin where ``begun`` says, that the log has; return the next.

    ``store`` is open to write, so no other process puts.

    Raises:
        RefusedStoreError: the log ends before the position, or has gone on with messages that are
            not the next rows: another writer has put them.
    """
    log = components_of(store).log
    if not log.min_phy_offset() <= begun.phy_offset <= log.max_phy_offset():
        raise RefusedStoreError(
            f"the import had come to phy offset {begun.phy_offset}, and the log goes from"
            f" {log.min_phy_offset()} to {log.max_phy_offset()}: give --continue-from",
            path=store.root, phy_offset=begun.phy_offset,
        )  # fmt: skip
    next_row = begun.next_row
    for record in log.scan(begun.phy_offset):
        row = next(rows, None)
        if row is None or not _is_of(log.message(record.phy_offset), row.message):
            which = "there is no such row" if row is None else f"row {row.number} is another one"
            raise RefusedStoreError(
                f"the import had come to row {begun.next_row}; the log has a message behind it that"
                f" another writer put ({which}): give --continue-from",
                path=store.root, phy_offset=record.phy_offset,
            )  # fmt: skip
        next_row = row.number + 1
    return next_row


def _is_of(stored: StoredMessage, put: Message) -> bool:
    """Return whether a record is that of a message as the import put it."""
    return (
        stored.topic == put.topic
        and stored.queue_id == put.queue_id
        and stored.head.flag == put.flag
        and put.born_timestamp in {0, stored.head.born_timestamp}
        and bytes(stored.stored_body) == bytes(put.body)
        and stored.born_host == put.born_host
        and all(stored.properties.get(name) == text for name, text in put.properties.items())
    )
