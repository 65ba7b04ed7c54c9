"""DelayOffsets: how far each delay level is delivered, kept as a broker keeps it.

RocketMQ moves the file to ``.bak`` and then writes it in place. Here the former content goes to
``.bak`` and the file is replaced by rename, so there is a whole one at any time.

Source: RocketMQ ``ScheduleMessageService``, ``DelayOffsetSerializeWrapper``, ``ConfigManager``.
"""

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path

from store.broker_json import broker_object
from store.errors import CorruptionError, os_errors
from store.files import make_folder, read_file, replace_file
from store.logger import StoreLogger

_LOG = StoreLogger(__name__)
_MAX_BYTES = 1 << 20
_LEVEL = re.compile(r"-?[0-9]{1,9}")
Json = dict[str, object]


class DelayOffsets:
    """One file, ``config/delayOffset.json``. One thread at a time."""

    def __init__(self, path: Path) -> None:
        """Describe it; touches no file."""
        self._path = path
        self._backup = path.with_name(f"{path.name}.bak")
        self._content: Json = {}  # fields that are not known here stay
        self._former: bytes | None = None

    def read(self) -> dict[int, int]:
        """Return level → next queue offset; empty if there is no file.

        A torn file is read from its ``.bak``, as RocketMQ does: what was delivered between the two
        is delivered again.

        Raises:
            CorruptionError: neither can be read.
            StoreIOError: the system does not give it.
        """
        fault: CorruptionError | None = None
        for path in (self._path, self._backup):
            with os_errors("read the offsets of delay levels", path):
                try:
                    data = read_file(path, _MAX_BYTES)
                except FileNotFoundError:
                    continue
            if not data:
                continue  # as RocketMQ takes it
            try:
                content = broker_object(data)
                offsets = _offsets_of(content)
            except ValueError as exc:
                fault = fault or CorruptionError(
                    f"the offsets of delay levels cannot be read: {exc}. Without the file, and its"
                    " .bak, all delayed messages that the log has are delivered again", path=path,
                )  # fmt: skip
                continue
            if fault is not None:
                _LOG.warning("%s; %s is taken", fault, path.name)
            self._content, self._former = content, data
            return offsets
        if fault is not None:
            raise fault
        return {}

    def write(self, offsets: Mapping[int, int]) -> None:
        """Make ``offsets`` all of the table, durably, and what was there that of the ``.bak``.

        Cut short, each of the files is what it was or what it is to be.

        Raises:
            StoreIOError: a file cannot be written.
        """
        content = self._content | {
            "dataVersion": _next_version(self._content.get("dataVersion")),
            "offsetTable": {str(level): offset for level, offset in sorted(offsets.items())},
        }
        data = json.dumps(content, ensure_ascii=False, indent="\t", separators=(",", ":")).encode()
        with os_errors("write the offsets of delay levels", self._path):
            make_folder(self._path.parent)
            if self._former is not None:
                replace_file(self._backup, self._former)
            replace_file(self._path, data)
        self._content, self._former = content, data


def _offsets_of(content: Json) -> dict[int, int]:
    table = content.get("offsetTable") or {}
    if not isinstance(table, dict):
        raise ValueError("offsetTable is no object")  # noqa: TRY004 - it is the text's fault
    for level, offset in table.items():
        if not _LEVEL.fullmatch(level) or type(offset) is not int:
            raise ValueError(f"level {level!r:.60} is at {offset!r:.60}")
    return {int(level): offset for level, offset in table.items()}


def _next_version(former: object) -> Json:
    """Return the version behind ``former``, see RocketMQ ``DataVersion.nextVersion``."""
    known = former if isinstance(former, dict) else {}
    counter, state = known.get("counter"), known.get("stateVersion")
    return {
        "counter": (counter if type(counter) is int else 0) + 1,
        "stateVersion": state if type(state) is int else 0,
        "timestamp": time.time_ns() // 1_000_000,
    }
