"""The files of a broker's data that is not in its log: their names, and their backups.

RocketMQ moves a file to ``.bak`` and then writes it in place. Here the old content is written to
``.bak`` first and the file is replaced by rename, so a complete file exists at any time.

Source: RocketMQ ``BrokerPathConfigHelper``, ``ConfigManager``, ``TimerMessageStore``.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from cqstore.store.errors import CorruptionError
from cqstore.store.files import replace_file
from cqstore.store.path_kind import exists

T = TypeVar("T")
CONFIG_FOLDER = "config"
TOPICS_FILE, GROUPS_FILE, DELAYS_FILE = "topics.json", "subscriptionGroup.json", "delayOffset.json"
OFFSETS_FILE, LMQ_OFFSETS_FILE = "consumerOffset.json", "lmqConsumerOffset.json"
TOPIC_QUEUE_MAPPING_FILE, REQUEST_MODE_FILE = "topicQueueMapping.json", "messageRequestMode.json"
TOPIC_GROUP_SEPARATOR = "@"
"""Separator of the two names in a key of an offset table."""
TIMER_CHECK_FILE, TIMER_METRICS_FILE = "timercheck", "timermetrics"
TIMER_CHECK_BYTES = 4096
TIMER_WHEEL, TIMER_LOG = "timerwheel", "timerlog"
"""Names in the root: a file, possibly with snapshots, and a folder."""
CURRENT = "CURRENT"
"""In the folder of each RocksDB database: the file that names all other files."""
MAX_TABLE_BYTES = 1 << 30
"""Size limit: a larger file is not one of these."""
BACKUP_SUFFIX = ".bak"


def backup_of(path: Path) -> Path:
    """Return the path that a broker reads if the file at ``path`` is missing or torn."""
    return path.with_name(path.name + BACKUP_SUFFIX)


def is_either_there(path: Path) -> bool:
    """Return whether the file at ``path`` or its backup exists."""
    return exists(path) or exists(backup_of(path))


class Readable(NamedTuple, Generic[T]):
    """The content of a broker's file, or of its backup if the file is damaged."""

    content: T
    path: Path
    """Path of the file that was read."""
    fault: CorruptionError | None
    """Why the file itself was not read, if it exists."""


def read_either(path: Path, read: Callable[[Path], T | None]) -> Readable[T] | None:
    """Return the result of ``read`` for the file, or else for its backup, as a broker does.

    ``read`` returns ``None`` for a missing file; ``None``: both are missing.

    Raises:
        CorruptionError: neither can be read; the error is that of the file, if it exists.
    """
    fault: CorruptionError | None = None
    for each in (path, backup_of(path)):
        try:
            content = read(each)
        except CorruptionError as exc:
            fault = fault or exc
            continue
        if content is not None:
            return Readable(content, each, fault)
    if fault is not None:
        raise fault
    return None


def replace_keeping(path: Path, data: bytes, former: bytes | None) -> None:
    """Set the content of the file to ``data`` and of its backup to ``former``, each durably.

    After an interruption each of the two has its old or its new content. ``None``: keep the backup.
    """
    if former is not None:
        replace_file(backup_of(path), former)
    replace_file(path, data)


def replace_both(path: Path, data: bytes) -> None:
    """Set the content of the file to ``data``, and then of its backup, each durably."""
    replace_file(path, data)
    replace_file(backup_of(path), data)
