"""The keys that a broker.conf may have, by release, taken from RocketMQ's own setters.

``broker_keys.json`` has, for each key since 4.0.0, the types of its setters, the first release with
the key, and the first release without it. ``tools/broker_keys.py`` generates that file. This module
has what a setter does not show: replacements, allowed values, and keys that are read but not used.

Source: field notes e, 12, 26; spec 9.12, 19.3.9.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from cqstore.store.errors import StoreConfigError
from cqstore.store.settings.config import StoreConfig

Version = tuple[int, int, int]
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:-.*)?", re.ASCII)


class BrokerKey(NamedTuple):
    """One key of a ``broker.conf``."""

    kinds: str
    """Types of its setters, joined by ``|``: int, long, double, float, boolean, text."""
    since: Version | None
    """The first release with the key; ``None``: no release has it."""
    until: Version | None
    """The first release without the key; ``None``: the newest release has it."""
    names: tuple[str, ...] = ()
    """The enum constants that its text must be one of; empty: any text is allowed."""
    is_own: bool = False
    """Whether it is a setting of cqstore, which RocketMQ does not read."""


def parse_version(text: str) -> Version:
    """Return a release as numbers; ``5.5`` is 5.5.0.

    Raises:
        StoreConfigError: the text is not a valid release.
    """
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        raise StoreConfigError(
            f"invalid release of RocketMQ {text!r}: expected a version such as 5.5.1"
        )
    return int(match[1]), int(match[2]), int(match[3] or 0)


def release(version: Version) -> str:
    """Return a release as text, for example ``5.5.1``."""
    return ".".join(map(str, version))


@cache
def broker_keys() -> Mapping[str, BrokerKey]:
    """Return name → key for every key of every release and for every setting of cqstore."""
    table = json.loads(files(__package__).joinpath("broker_keys.json").read_text(encoding="utf-8"))
    keys = {
        name: BrokerKey(
            kinds, parse_version(since), parse_version(until[0]) if until else None,
            tuple(table["names"].get(name, ())),
        )
        for name, (kinds, since, *until) in table["keys"].items()
    }  # fmt: skip
    own = {name: BrokerKey("text", OLDEST, None, is_own=True) for name in StoreConfig.known_keys()}
    gone = {name: BrokerKey("text", None, OLDEST) for name in NEVER}
    return own | gone | keys


OLDEST: Version = (0, 0, 0)
"""A version that is lower than every release."""
INSTEAD = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog, if the log files have that size",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue, if the queue files have that size",
    "haSlaveFallbehindMax": "haMaxGapNotInSync",
    "memTableFlushInterval": "memTableFlushIntervalMs",
    "rocksdbCQWriteEnable": "rocksdbCQDoubleWriteEnable",
    "timerUseRocksDB": "timerRocksDBEnable",
    "useRocksDBStore": "storeType=defaultRocksDB",
}
"""Key that was removed or never had an effect → what to write instead."""

NO_NEED = {
    "transferMetadataJsonToRocksdb": "JSON metadata is merged in at every start",
    "transferOffsetJsonToRocksdb": "JSON consumer offsets are merged in at every start",
    "filterServerNums": "filter servers no longer exist",
    "batchWriteKvCqSize": "RocksDB queues are written in groups of their own",
}
"""Removed key → why no replacement is needed."""

NEVER = frozenset({"rocksdbCQWriteEnable", "timerUseRocksDB", "useRocksDBStore"})
"""Keys that are found in real files and that no release reads."""

UNUSED = frozenset({
    "putMsgIndexHightWater", "enableAsyncReput", "mappedFileSwapEnable", "maxTopicLength",
    "cleanSwapedMapInterval", "commitLogForceSwapMapInterval", "commitLogSwapMapInterval",
    "commitLogSwapMapReserveFileNum", "logicQueueForceSwapMapInterval",
    "logicQueueSwapMapInterval", "logicQueueSwapMapReserveFileNum",
})  # fmt: skip
"""Keys that are read into a setting that has no effect."""

COMPRESSIONS = ("snappy", "z", "bzip2", "lz4", "lz4hc", "xpress", "zstd")
"""Names of RocksDB's compressions in Java. RocketMQ compares them with their case."""
STORE_TYPES = ("default", "defaultRocksDB")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "storeType": STORE_TYPES,
    "combineCQPreferCQType": STORE_TYPES,
    "combineAssignOffsetCQType": STORE_TYPES,
    "rocksdbCompressionType": COMPRESSIONS,
    "bottomMostCompressionTypeForConsumeQueueStore": COMPRESSIONS,
    "configManagerVersion": ("v1", "v2"),
}
"""Key → the texts that RocketMQ recognizes; it ignores the case of all but compressions."""
