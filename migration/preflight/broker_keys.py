"""Which keys a broker.conf may have, by release: taken from RocketMQ's own setters.

``broker_keys.json`` says of each key its type, the first release with it, and the first one
without. What a setter does not tell is written down here: replacements, values, keys that are read
and then not used.

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
    """One key: ``kind`` is int, long, double, boolean or text."""

    kind: str
    since: Version | None
    """``None``: no release that was looked at has it."""
    until: Version | None
    """The first release without it, ``None`` while it is there."""


def parse_version(text: str) -> Version:
    """Return a release as numbers; ``5.5`` is 5.5.0.

    Raises:
        StoreConfigError: it is none.
    """
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        raise StoreConfigError(f"{text!r} is no release of RocketMQ such as 5.5.1")
    return int(match[1]), int(match[2]), int(match[3] or 0)


def release(version: Version) -> str:
    """Return a release as it is written."""
    return ".".join(map(str, version))


@cache
def broker_keys() -> Mapping[str, BrokerKey]:
    """Return every key of every release that was looked at, and the settings of cqstore."""
    text = files(__package__).joinpath("broker_keys.json").read_text(encoding="utf-8")
    keys = {
        name: BrokerKey(kind, parse_version(since), parse_version(until[0]) if until else None)
        for name, (kind, since, *until) in json.loads(text)["keys"].items()
    }
    own = {name: BrokerKey("text", (0, 0, 0), None) for name in StoreConfig.known_keys()}
    gone = {name: BrokerKey("text", None, (0, 0, 0)) for name in NEVER}
    return own | gone | keys


INSTEAD = {
    "memTableFlushInterval": "memTableFlushIntervalMs",
    "rocksdbCQWriteEnable": "rocksdbCQDoubleWriteEnable",
    "timerUseRocksDB": "timerRocksDBEnable",
    "useRocksDBStore": "storeType=defaultRocksDB",
}
"""Removed or never effective key → what is to be written instead."""

NO_NEED = {
    "transferMetadataJsonToRocksdb": "JSON metadata is merged in at every start",
    "transferOffsetJsonToRocksdb": "JSON consumer offsets are merged in at every start",
    "filterServerNums": "there are no filter servers any more",
    "batchWriteKvCqSize": "RocksDB queues are written in groups of their own",
}
"""Removed key → why nothing is to be written instead."""

NEVER = frozenset({"rocksdbCQWriteEnable", "timerUseRocksDB", "useRocksDBStore"})
"""Keys that are met in the field and that no release reads."""

UNUSED = frozenset({
    "putMsgIndexHightWater", "enableAsyncReput", "mappedFileSwapEnable", "maxTopicLength",
    "cleanSwapedMapInterval", "commitLogForceSwapMapInterval", "commitLogSwapMapInterval",
    "commitLogSwapMapReserveFileNum", "logicQueueForceSwapMapInterval",
    "logicQueueSwapMapInterval", "logicQueueSwapMapReserveFileNum",
})  # fmt: skip
"""Keys that are read into a setting on which nothing acts."""

_COMPRESSIONS = ("snappy", "z", "bzip2", "lz4", "lz4hc", "xpress", "zstd")
STORE_TYPES = ("default", "defaultRocksDB")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "storeType": STORE_TYPES,
    "combineCQPreferCQType": STORE_TYPES,
    "combineAssignOffsetCQType": STORE_TYPES,
    "rocksdbCompressionType": _COMPRESSIONS,
    "bottomMostCompressionTypeForConsumeQueueStore": _COMPRESSIONS,
    "configManagerVersion": ("v1", "v2"),
    "flushDiskType": ("SYNC_FLUSH", "ASYNC_FLUSH"),
    "brokerRole": ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
}
"""Key → the values it takes; compared ignoring case, those in capitals as they are."""
