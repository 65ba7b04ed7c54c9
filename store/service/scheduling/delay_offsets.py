"""DelayOffsets: the delivered offset of each delay level, stored as a broker stores it.

Source: RocketMQ ``ScheduleMessageService``, ``DelayOffsetSerializeWrapper``, ``ConfigManager``.
"""

import time
from collections.abc import Mapping
from pathlib import Path

from cqstore.store.broker_files.fastjson import encoded, object_in
from cqstore.store.broker_files.fastjson_kinds import DELAYS
from cqstore.store.broker_files.file_names import read_either, replace_keeping
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.files import make_folder, read_file

_LOG = StoreLogger(__name__)
_MAX_BYTES = 1 << 20
Json = dict[str, object]


class DelayOffsets:
    """One file, ``config/delayOffset.json``. One thread at a time."""

    def __init__(self, path: Path) -> None:
        """Set the file's path; nothing is read yet."""
        self._path = path
        self._content: Json = {}  # unknown fields are kept
        self._former: bytes | None = None

    def read(self) -> dict[int, int]:
        """Return level → next queue offset; empty if the file does not exist.

        If the file is torn, its ``.bak`` is read, as in RocketMQ: messages delivered between the
        two are delivered again.

        Raises:
            CorruptionError: neither can be read.
            RefusedStoreError: it is unknown how a broker reads the file.
            StoreIOError: a read from disk failed.
        """
        found = read_either(self._path, _read)
        if found is None:
            return {}
        if found.fault is not None:
            _LOG.warning("%s; using %s", found.fault, found.path.name)
        offsets, self._content, self._former = found.content
        return offsets

    def write(self, offsets: Mapping[int, int]) -> None:
        """Set the content of the table to ``offsets``, durably; the ``.bak`` gets the old content.

        After an interruption, each of the files has its old or its new content.

        Raises:
            StoreIOError: a file cannot be written.
        """
        content = self._content | {
            "dataVersion": _next_version(self._content.get("dataVersion")),
            "offsetTable": {str(level): offset for level, offset in sorted(offsets.items())},
        }
        data = encoded(content)
        with os_errors("write the offsets of delay levels", self._path):
            make_folder(self._path.parent)
            replace_keeping(self._path, data, self._former)
        self._content, self._former = content, data


def _read(path: Path) -> tuple[dict[int, int], Json, bytes] | None:
    """Return the offsets in a file, its content and its bytes; ``None``: it does not exist."""
    with os_errors("read the offsets of delay levels", path):
        try:
            data = read_file(path, _MAX_BYTES)
        except FileNotFoundError:
            return None
    if not data:
        return None  # as in RocketMQ
    try:
        content = object_in(path, data, DELAYS)
        return offsets_of_levels(content), content, data
    except (CorruptionError, ValueError) as exc:
        raise CorruptionError(
            f"cannot read the offsets of delay levels: {exc}. If you remove the file and its .bak,"
            " all delayed messages in the log are delivered again", path=path,
        ) from exc  # fmt: skip


def offsets_of_levels(content: Json) -> dict[int, int]:
    """Return level → queue offset from a file's content, which is of the type ``DELAYS``.

    Raises:
        ValueError: the table is null.
    """
    table = content.get("offsetTable", {})
    if not isinstance(table, dict):
        raise ValueError("offsetTable is null")  # noqa: TRY004 - it is the text's fault
    return table


def _next_version(former: object) -> Json:
    """Return the version after ``former``, see RocketMQ ``DataVersion.nextVersion``."""
    known = former if isinstance(former, dict) else {}
    counter, state = known.get("counter"), known.get("stateVersion")
    return {
        "counter": (counter if type(counter) is int else 0) + 1,
        "stateVersion": state if type(state) is int else 0,
        "timestamp": time.time_ns() // 1_000_000,
    }
