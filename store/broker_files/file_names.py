"""The files in which a broker keeps what is not in its log: their names, and their backups.

RocketMQ moves a file to ``.bak`` and then writes it in place. Here the former content goes to
``.bak`` first and the file is replaced by rename, so there is a whole one at any time.

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
"""Between the names in a key of a table of offsets."""
TIMER_CHECK_FILE, TIMER_METRICS_FILE = "timercheck", "timermetrics"
TIMER_CHECK_BYTES = 4096
TIMER_WHEEL, TIMER_LOG = "timerwheel", "timerlog"
"""Below the root: a file, of which there may be snapshots, and a folder."""
CURRENT = "CURRENT"
"""In the folder of each database of RocksDB's: names the file that names all others."""
MAX_TABLE_BYTES = 1 << 30
"""What is longer is no file of these."""
BACKUP_SUFFIX = ".bak"


def backup_of(path: Path) -> Path:
    """Return what a broker reads where the file at ``path`` is missing or torn."""
    return path.with_name(path.name + BACKUP_SUFFIX)


def is_either_there(path: Path) -> bool:
    """Return whether there is the file at ``path`` or its backup."""
    return exists(path) or exists(backup_of(path))


class Readable(NamedTuple, Generic[T]):
    """What was read of a broker's file, or of its backup where the file is damaged."""

    content: T
    path: Path
    """Of the one that was read."""
    fault: CorruptionError | None
    """Why the file itself was not, where it is there."""


def read_either(path: Path, read: Callable[[Path], T | None]) -> Readable[T] | None:
    """Return what ``read`` makes of the file, or else of its backup, as a broker does.

    ``read`` returns ``None`` where there is none; ``None``: there is neither.

    Raises:
        CorruptionError: neither can be read; it is about the file, if that is there.
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
    """Make ``data`` all of the file and ``former`` all of its backup, each durably.

    Cut short, each of the two is what it was or what it is to be. ``None``: the backup stays.
    """
    if former is not None:
        replace_file(backup_of(path), former)
    replace_file(path, data)


def replace_both(path: Path, data: bytes) -> None:
    """Make ``data`` all of the file, and then all of its backup, each durably."""
    replace_file(path, data)
    replace_file(backup_of(path), data)
