"""Rows of a single file: commit log, queue, batch queue, queue extension, index, checkpoint."""

import os
from collections.abc import Iterator
from pathlib import Path

from cqstore.cli.message_files.dump_rows import message_row
from cqstore.cli.table import Row
from cqstore.store.errors import CorruptionError, UnsupportedFormatError, os_errors
from cqstore.store.files import is_file_name, reading
from cqstore.store.index.index_service import INDEX_NAME_DIGITS, open_index_file
from cqstore.store.log.checkpoint import StoreCheckpoint
from cqstore.store.queue.backends import backend, backend_names
from cqstore.store.record.decoder import StoredMessage, record_span
from cqstore.store.record.record_layout import BLANK_SIZE
from cqstore.store.settings.config import StoreConfig


def file_rows(path: Path, config: StoreConfig) -> Iterator[Row]:
    """Yield the content of the file ``path``; its name and folders determine its kind.

    Raises:
        UnsupportedFormatError: ``path`` is not a file of a store.
        CorruptionError: the file is damaged.
    """
    if path.name == "checkpoint":
        checkpoint = StoreCheckpoint(path)
        if checkpoint.fault is not None:
            raise checkpoint.fault
        yield dict(checkpoint.fields._asdict())
        return
    if len(name := path.name) == INDEX_NAME_DIGITS and name.isascii() and name.isdecimal():
        yield from _index_rows(path, config)
        return
    if is_file_name(path.name):
        for name in backend_names():
            found = backend(name).dump_file(path)
            if found is not None:
                yield from found
                return
        yield from _log_rows(path)
        return
    raise UnsupportedFormatError(
        "not a file of a store: expected checkpoint, or a name that is an offset or a time",
        path=path,
    )


def _index_rows(path: Path, config: StoreConfig) -> Iterator[Row]:
    """Yield the entries of an index file."""
    given = config.model_fields_set
    file = open_index_file(
        path,
        config.max_hash_slot_num if "max_hash_slot_num" in given else None,
        config.max_index_num if "max_index_num" in given else None,
    )
    try:
        for row in file.rows():
            yield dict(row._asdict())
    finally:
        file.close()


def _log_rows(path: Path) -> Iterator[Row]:
    """Yield the records of a commit log file up to the zeros; a blank record is also a row.

    Raises:
        CorruptionError: the file is damaged.
    """
    with os_errors("read a commit log file", path), reading(path) as file:
        size = os.fstat(file.fileno()).st_size
        at, base = 0, int(path.name)
        while at + BLANK_SIZE <= size:
            head = file.read(BLANK_SIZE)
            if not any(head):
                return
            try:
                span = record_span(head, 0, size - at, base + at)
                if not span:
                    yield {"phy": base + at, "blank": size - at}
                    return
                yield message_row(StoredMessage(head + file.read(span - BLANK_SIZE), base + at))
            except CorruptionError as exc:
                raise type(exc)(
                    exc.reason, path=path, phy_offset=base + at, position=at,
                    expected=exc.expected, got=exc.got,
                ) from exc  # fmt: skip
            at += span
