"""Check combinations of keys of a broker.conf, for a release and for the store on disk.

Source: spec 9.5, 10, 19.1, 19.4; field notes 12, 16, 26, c ("Trap").
"""

from collections.abc import Iterator, Mapping

from cqstore.migration.preflight.folder_verdict import FolderKind
from cqstore.migration.preflight.preflight_report import (
    PreflightFinding,
    Severity,
    finding,
)
from cqstore.store.queue.backends import backend
from cqstore.store.settings.broker_keys import STORE_TYPES, Version, release

_LOADED = "combineCQLoadingCQTypes"
_CHOSEN = ("combineCQPreferCQType", "combineAssignOffsetCQType")
_ROCKSDB_TYPE = "defaultRocksDB"
_ROCKSDB_QUEUES: Version = (5, 2, 0)
"""First release with queues in RocksDB."""
_ROCKSDB_LMQ: Version = (5, 3, 2)
"""First release that dispatches light queues to RocksDB."""
_DOUBLE_WRITE = "rocksdbCQDoubleWriteEnable"
_LMQ_IN_ROCKSDB = "combineCQUseRocksdbForLmq"
_LITE_TOPICS: Version = (5, 5, 0)
"""First release whose lite topic manager requires light queues in RocksDB."""
_SEPARATE = "useSeparateStorePathForRocksdbCQ"
_INSIDE = {FolderKind.ROCKSDB_INSIDE, FolderKind.BOTH_INSIDE}
_BESIDE = {FolderKind.ROCKSDB_BESIDE, FolderKind.BOTH_BESIDE}
_ROCKSDB_ALONE = {FolderKind.ROCKSDB_INSIDE, FolderKind.ROCKSDB_BESIDE}


def meaning(
    values: Mapping[str, str], version: Version, to: str, verdict: FolderKind | None
) -> Iterator[PreflightFinding]:
    """Yield findings about ``values``, known keys with valid values, of a broker of ``version``."""
    on_rocksdb = values.get("storeType", "").lower() == _ROCKSDB_TYPE.lower()
    yield from _release(values, version, to, on_rocksdb=on_rocksdb)
    yield from _ignored(values, on_rocksdb=on_rocksdb)
    if not on_rocksdb and _is_on(values, _DOUBLE_WRITE):
        for name in not_loaded(values):
            sentence = (
                f"{name} names a store type that combineCQLoadingCQTypes does not load: the broker"
                " does not start."
            )
            yield finding("value-bad", Severity.WARN, sentence, [name])
        yield from _double_write(values, version)
    if _is_on(values, "writeWithoutMmap") and _is_on(values, "transientStorePoolEnable"):
        names = ["writeWithoutMmap", "transientStorePoolEnable"]
        sentence = f"{' and '.join(names)} cannot both be enabled."
        yield finding("keys-exclude", Severity.WARN, sentence, names)
    if verdict is not None:
        yield from _against_layout(values, verdict, on_rocksdb=on_rocksdb)


def _release(
    values: Mapping[str, str], version: Version, to: str, *, on_rocksdb: bool
) -> Iterator[PreflightFinding]:
    """Yield findings about queues that the release does not support."""
    there = backend(to).store_type() == _ROCKSDB_TYPE
    severity = Severity.REFUSE if there else Severity.WARN
    if (there or on_rocksdb) and version < _ROCKSDB_QUEUES:
        sentence = (
            f"RocketMQ {release(version)} does not support queues in RocksDB; 5.2.0 is the first"
            " release that does."
        )
        yield finding("release-without-rocksdb", severity, sentence)
    elif (there or on_rocksdb) and version < _ROCKSDB_LMQ and _is_on(values, "enableLmq"):
        sentence = (
            f"RocketMQ {release(version)} does not write light queues (enableLmq) to RocksDB, so"
            " nothing can be consumed from them; 5.3.2 is the first release that does."
        )
        yield finding("lmq-without-rocksdb", severity, sentence, ["enableLmq"])


def _double_write(values: Mapping[str, str], version: Version) -> Iterator[PreflightFinding]:
    """Yield findings about settings with which a broker with double write does not start.

    Source: RocketMQ ``CombineConsumeQueueStore``, ``RocksDBLiteLifecycleManager.init``.
    """
    light, selective = _is_on(values, _LMQ_IN_ROCKSDB), "rocksdbCQSelectiveDoubleWriteEnable"
    if not light and version >= _LITE_TOPICS:
        sentence = (
            f"RocketMQ {release(version)} does not start with {_DOUBLE_WRITE}=true unless"
            f" {_LMQ_IN_ROCKSDB}=true is set too: its lite topics require it. The error in the"
            " broker log is 'rocksdbCQ is not ready for LMQ'."
        )
        yield finding("double-write-no-start", Severity.WARN, sentence, [_LMQ_IN_ROCKSDB])
    for key, name, is_on in (
        ("combineAssignOffsetCQType", _LMQ_IN_ROCKSDB, light),
        ("combineAssignOffsetCQType", selective, _is_on(values, selective)),
        ("combineCQPreferCQType", selective, _is_on(values, selective)),
    ):
        if is_on and values.get(key, "").strip().lower() == _ROCKSDB_TYPE.lower():
            sentence = (
                f"A broker with {name}=true does not start with {key}={_ROCKSDB_TYPE}: remove"
                f" {key}. The error is 'CombineConsumeQueueStore maybe incorrect config'."
            )
            yield finding("double-write-no-start", Severity.WARN, sentence, [key, name])


def _ignored(values: Mapping[str, str], *, on_rocksdb: bool) -> Iterator[PreflightFinding]:
    """Yield findings about keys without effect under this ``storeType``."""
    double = _is_on(values, _DOUBLE_WRITE)
    if on_rocksdb and double:
        sentence = (
            f"{_DOUBLE_WRITE} is ignored with storeType=defaultRocksDB: queue files are not"
            " written."
        )
        yield finding("key-ignored", Severity.WARN, sentence, [_DOUBLE_WRITE])
    combine = sorted(name for name in values if name.startswith("combine"))
    if combine and (on_rocksdb or not double):
        sentence = f"These keys only take effect with storeType=default and {_DOUBLE_WRITE}=true."
        yield finding("key-ignored", Severity.WARN, sentence, combine)


def _against_layout(
    values: Mapping[str, str], verdict: FolderKind, *, on_rocksdb: bool
) -> Iterator[PreflightFinding]:
    """Yield findings about settings that contradict the layout of the store."""
    double = not on_rocksdb and _is_on(values, _DOUBLE_WRITE)
    separate = _is_on(values, _SEPARATE)
    if (on_rocksdb or double) and (verdict in _INSIDE if separate else verdict in _BESIDE):
        where = "consumequeue" if separate else "consumequeue_rocksdb"
        sentence = (
            f"The queue database is in {where}, which contradicts {_SEPARATE}: the broker does not"
            " start."
        )
        yield _contradiction(_SEPARATE, sentence, verdict)
    if on_rocksdb and verdict is FolderKind.FILE:
        sentence = (
            "The queues are in files: a broker with storeType=defaultRocksDB does not read them."
        )
        yield _contradiction("storeType", sentence, verdict)
    elif not on_rocksdb and verdict in _ROCKSDB_ALONE:
        sentence = (
            "The queues are in RocksDB: a broker with storeType=default dispatches the log again "
            "into files, restores deleted topics, and begins expired queues at 0."
        )
        yield _contradiction("storeType", sentence, verdict)
    elif double and verdict is FolderKind.FILE:
        sentence = (
            "At its first start with double write, a broker dispatches only the last log file to"
            " RocksDB."
        )
        yield _contradiction(_DOUBLE_WRITE, sentence, verdict)


def _is_on(values: Mapping[str, str], name: str) -> bool:
    return values.get(name, "").lower() == "true"


def _contradiction(name: str, sentence: str, verdict: FolderKind) -> PreflightFinding:
    return finding("conf-against-layout", Severity.WARN, sentence, [name], layout=verdict.value)


def not_loaded(values: Mapping[str, str]) -> list[str]:
    """Return the keys that choose a store type which ``combineCQLoadingCQTypes`` does not load."""
    loaded = values.get(_LOADED, ";".join(STORE_TYPES)).lower().split(";")
    types = {part.strip() for part in loaded}
    known = {each.lower() for each in STORE_TYPES}
    return [
        name
        for name in _CHOSEN
        if (chosen := values.get(name, STORE_TYPES[0]).strip().lower()) in known
        and chosen not in types
    ]
