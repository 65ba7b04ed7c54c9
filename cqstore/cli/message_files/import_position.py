"""Position of an import: after an interruption or crash, no message is appended twice.

The file records how many rows were appended and where the log ended then; both are on disk when it
is written. Messages appended after that offset are read from the log and compared with the rows.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
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
    """Progress of an import: the content of its position file."""

    source: str
    """The file that is imported."""
    next_row: int
    """The first row (line, for line formats) that was not appended."""
    phy_offset: int
    """End of the log after the appended rows."""
    rows_digest: str = ""
    """``RowsDigest`` of the appended rows; empty for an archive, whose batches do not change."""

    def write(self, path: Path) -> None:
        """Replace the file at ``path`` by this position, durably.

        Raises:
            StoreIOError: the position cannot be written.
        """
        fields = {name: getattr(self, name) for name in self.__slots__}
        with os_errors("write the import position", path):
            replace_file(path, json.dumps(fields).encode() + b"\n")

    @classmethod
    def read(cls, path: Path, source: Path) -> "ImportPosition":
        """Return the position of an import of ``source`` from the file ``path``.

        Raises:
            CorruptionError: the file is not an import position.
            RefusedStoreError: the position belongs to another file.
            StoreIOError: the file cannot be read.
        """
        with os_errors("read the import position", path):
            data = read_file(path, _MAX_BYTES)
        try:
            found = cls(**json.loads(data))
            if not (
                type(found.next_row) is type(found.phy_offset) is int and found.next_row > 0
            ) or (type(found.rows_digest) is not str):
                raise TypeError  # noqa: TRY301 - handled like a missing field
        except (ValueError, TypeError) as exc:
            raise CorruptionError(
                "invalid import position", path=path,
                expected="JSON written by cqstore import", got=f"{data[:60]!r}",
            ) from exc  # fmt: skip
        if found.source != str(source.absolute()):
            raise RefusedStoreError(
                f"the position belongs to another file: {found.source}", path=path
            )
        return found


class RowsDigest:
    """Digest of all imported rows, in order: detects that the file was edited since."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, row: MessageLine) -> None:
        """Add one row, with its number."""
        put = row.message
        facts = (
            row.number, put.topic, put.queue_id, bytes(put.body), [*put.properties.items()],
            put.flag, put.sys_flag, put.born_timestamp, put.born_host, put.store_host,
            put.reconsume_times, put.prepared_transaction_offset,
        )  # fmt: skip
        self._digest.update(repr(facts).encode("utf-8", "surrogatepass"))

    def hexdigest(self) -> str:
        """Return the digest so far."""
        return self._digest.hexdigest()


def rows_behind(
    begun: ImportPosition, rows: Iterator[MessageLine], digest: RowsDigest, source: Path
) -> Iterator[MessageLine]:
    """Return the rows after the position ``begun``; add the rows before it to ``digest``.

    ``rows`` must be all rows of the file.

    Raises:
        RefusedStoreError: the rows before the position differ from the appended rows: the file was
            edited.
    """
    following = list[MessageLine]()
    for row in rows:
        if row.number >= begun.next_row:
            following.append(row)
            break
        digest.add(row)
    if digest.hexdigest() != begun.rows_digest:
        raise RefusedStoreError(
            f"cannot continue the import: the rows before row {begun.next_row} have changed since"
            " they were imported. Import without --position, or with --continue-from N",
            path=source,
        )
    return chain(following, rows)


def pass_rows_put(
    store: MessageStore,
    begun: ImportPosition,
    rows: Iterator[MessageLine],
    digest: RowsDigest | None,
) -> int:
    """Skip the rows after ``begun`` that the log already has; return the number of the next row.

    ``store`` is open read-write, so no other process appends. The rows are added to ``digest``.

    Raises:
        RefusedStoreError: the log ends before the position, or continues with other messages than
            the next rows: another writer has appended them.
    """
    log = components_of(store).log
    if not log.min_phy_offset() <= begun.phy_offset <= log.max_phy_offset():
        raise RefusedStoreError(
            f"cannot continue the import: it ended at phy offset {begun.phy_offset}, but the log"
            f" ranges from {log.min_phy_offset()} to {log.max_phy_offset()}. Give --continue-from",
            path=store.root, phy_offset=begun.phy_offset,
        )  # fmt: skip
    next_row = begun.next_row
    for record in log.scan(begun.phy_offset):
        row = next(rows, None)
        if row is None or not _is_of(log.message(record.phy_offset), row.message):
            which = "the input has no such row" if row is None else f"row {row.number} differs"
            raise RefusedStoreError(
                f"cannot continue the import at row {begun.next_row}: another writer has appended"
                f" a message since ({which}). Give --continue-from",
                path=store.root, phy_offset=record.phy_offset,
            )  # fmt: skip
        if digest is not None:
            digest.add(row)
        next_row = row.number + 1
    return next_row


def _is_of(stored: StoredMessage, put: Message) -> bool:
    """Return whether a record stores this message as the import appended it."""
    return (
        stored.topic == put.topic
        and stored.queue_id == put.queue_id
        and stored.head.flag == put.flag
        and put.born_timestamp in {0, stored.head.born_timestamp}
        and bytes(stored.stored_body) == bytes(put.body)
        and stored.born_host == put.born_host
        and all(stored.properties.get(name) == text for name, text in put.properties.items())
    )
