"""Files in ``config/``, in which a broker keeps its tables and timer checkpoint.

Source: RocketMQ ``ConfigManager``, ``BrokerPathConfigHelper``, ``TimerCheckpoint``.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cqstore.broker.metadata.table_kinds import FILE_KINDS
from cqstore.store.broker_files.fastjson import broker_object, object_in
from cqstore.store.broker_files.fastjson_kinds import Record
from cqstore.store.broker_files.file_names import (
    MAX_TABLE_BYTES,
    TIMER_CHECK_BYTES,
    TIMER_CHECK_FILE,
    backup_of,
    replace_keeping,
)
from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.files import make_folder, read_file
from cqstore.store.paths import StorePaths
from cqstore.store.record.layout import Annotated, Layout, Wire

Json = dict[str, Any]


class TimerCheck(NamedTuple):
    """The file ``timercheck`` (4096 bytes), and the answer of a broker about it."""

    last_read_time: Annotated[int, Wire("q", "timer messages delivered up to this time, ms")]
    log_flush_pos: Annotated[int, Wire("q", "flushed position of the broker's timer log")]
    queue_offset: Annotated[int, Wire("q", "next timer queue offset to load")]
    master_queue_offset: Annotated[int, Wire("q", "the master's `queue_offset`")]
    state_version: Annotated[int, Wire("q", "state of the data version")]
    version_time: Annotated[int, Wire("q", "time of the data version, ms since the epoch")]
    counter: Annotated[int, Wire("q", "counter of the data version")]


TIMER_CHECK_POINT = Layout(TimerCheck)


class ConfigFiles:
    """The files in ``config/`` of one store. Used by one thread at a time."""

    def __init__(self, paths: StorePaths) -> None:
        """Use the config folder of ``paths``; no file is read yet."""
        self._folder = paths.config

    def path(self, name: str) -> Path:
        """Return the path of a file."""
        return self._folder / name

    def read(self, name: str) -> Json | None:
        """Return the object in a file; ``None`` if the file does not exist.

        Raises:
            CorruptionError: the file is not valid for a broker.
            RefusedStoreError: it is unknown how a broker interprets the file.
            StoreIOError: the file cannot be read.
        """
        path, data = self._folder / name, self._bytes(name)
        if data is None:
            return None
        try:
            content = object_in(path, data, _kind(name))
        except CorruptionError as exc:
            raise CorruptionError(
                f"{exc.reason}. Its previous content may be in {backup_of(path).name}; if the file"
                " does not exist, the master's content is used", path=path,
            ) from exc  # fmt: skip
        named: Json = _with_names(content)
        return named

    def write(self, name: str, content: Mapping[str, object], *, backup: bool = True) -> bool:
        """Write ``content`` as the whole file, durably; return whether the file changed.

        ``backup``: save the old content as ``.bak`` if it is valid for a broker.

        Raises:
            StoreIOError: the file cannot be written; its old content is unchanged.
        """
        return self._replace(name, json.dumps(content).encode(), backup=backup)

    def merge_timer_check(self, answer: bytes) -> bool:
        """Merge the fields of a master's timer checkpoint that a slave takes over.

        Raises:
            CorruptionError, StoreIOError: see ``read`` and ``write``.

        Source: RocketMQ ``SlaveSynchronize.syncTimerCheckPoint``.
        """
        data = self._bytes(TIMER_CHECK_FILE) or bytes(TIMER_CHECK_BYTES)
        if len(data) != TIMER_CHECK_BYTES:
            raise CorruptionError(
                "the timer checkpoint has an invalid size", path=self._folder / TIMER_CHECK_FILE,
                expected=f"{TIMER_CHECK_BYTES} bytes", got=f"{len(data)} bytes",
            )  # fmt: skip
        own, master = TIMER_CHECK_POINT.unpack_from(data), TIMER_CHECK_POINT.unpack_from(answer)
        merged = master._replace(log_flush_pos=own.log_flush_pos, queue_offset=own.queue_offset)
        packed = TIMER_CHECK_POINT.pack(merged)
        return self._replace(TIMER_CHECK_FILE, packed + data[len(packed) :], backup=False)

    def _bytes(self, name: str) -> bytes | None:
        path = self._folder / name
        with os_errors("read the broker's metadata file", path):
            try:
                return read_file(path, MAX_TABLE_BYTES)
            except FileNotFoundError:
                return None

    def _replace(self, name: str, data: bytes, *, backup: bool) -> bool:
        """Write a file if its content changes, and back up the old content. Return whether."""
        former = self._bytes(name)
        if former == data:
            return False
        path = self._folder / name
        with os_errors("write the broker's metadata file", path):
            make_folder(self._folder)
            keeps = former is not None and backup and _is_readable(name, former)
            replace_keeping(path, data, former if keeps else None)
        return True


def _kind(name: str) -> Record:
    return FILE_KINDS.get(name, Record({}))


def _with_names(found: object) -> Any:
    """Return a parsed value with all keys as strings, as in JSON."""
    if isinstance(found, dict):
        return {str(key): _with_names(value) for key, value in found.items()}
    return found


def _is_readable(name: str, data: bytes) -> bool:
    """Return whether a broker can read ``data``: a torn file must not replace its backup."""
    try:
        broker_object(data, _kind(name))
    except ValueError:
        return False
    return True
