"""The facts that ``cqstore info`` reports about a store: name, type and meaning of each."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

from cqstore.cli.options import opened_by
from cqstore.store.index.index_check import REBUILD_INDEX
from cqstore.store.log.checkpoint import CheckpointFields
from cqstore.store.log.mapped_file import MappedFile
from cqstore.store.service.layout.left_behind import sentence
from cqstore.store.service.maintenance.disk_levels import DiskPercents
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.metrics.metrics import disk_used_ratio
from cqstore.store.service.opening.components import components_of

COUNTED_QUEUES = 1_000_000
_MAX_DAMAGED = 10
_PERCENT = 100


class Fact(NamedTuple):
    """One fact: JSON type, description, and label in a table if it differs from the name."""

    kind: str
    what: str
    label: str = ""


_TIMES = {"physic_msg": "the log is", "logics_msg": "file queues are", "index_msg": "the index is"}
FACTS: dict[str, Fact] = {
    "root": Fact("string", "Root folder of the store (storePathRootDir)."),
    "backends": Fact("array", "Backends that have queues in the store.", "queues in"),
    "state": Fact("string|null", "State set by cqstore mode; null if never set."),
    "kept_backends": Fact(
        "array", "Backends that the store writes to; reads use the first.", "kept (first is read)"
    ),
    "last_exit": Fact("string", "clean, not clean (recovery is needed), or open."),
    "opened_by": Fact("integer|null", "Process ID of the program that has the store open."),
    "commit_log_folders": Fact("array", "Folders with files of the commit log."),
    "commit_log_files": Fact("integer", "Number of commit log files."),
    "commit_log_file_bytes": Fact("integer", "Size of a commit log file.", "commit log file size"),
    "min_phy_offset": Fact("integer", "Phy offset where the log starts; -1 without files."),
    "max_phy_offset": Fact("integer", "Phy offset where the log ends."),
    "topics": Fact("integer", "Number of topics that have queues."),
    "queues": Fact("integer", "Number of queues."),
    "counted_all": Fact("boolean", f"False if there are more than {COUNTED_QUEUES:,} queues."),
    "queues_disk_bytes": Fact("integer", "Disk space of the queues.", "queues on disk"),
    "queue_facts": Fact("object", "Facts that the backends report."),
    "index_files": Fact("integer|null", "Number of index files; null: no index, or index_fault."),
    "index_fault": Fact(
        "string|null", "Why the index cannot be read; null if it can or is absent."
    ),
    **{
        f"checkpoint_{name}": Fact("integer", f"Checkpoint field {name} (RocketMQ's name).")
        for name in CheckpointFields._fields
    },
    **{
        f"checkpoint_{name}_time": Fact(
            "string|null", f"Store time up to which {what} on disk, ISO 8601 in UTC."
        )
        for name, what in _TIMES.items()
    },
    "file_reserved_hours": Fact(
        "integer", "fileReservedTime: age at which log files expire, hours."
    ),
    "delete_when": Fact(
        "string", "deleteWhen: hours of the day at which expired files are deleted."
    ),
    "oldest_file_time": Fact("string|null", "Last write to the oldest log file, ISO 8601 in UTC."),
    "commit_log_disk_used_percent": Fact(
        "number", "Used space of the commit log's file system; of several, the lowest."
    ),
    "queues_disk_used_percent": Fact("number", "Used space of the queues' file system."),
    "disk_max_used_percent": Fact(
        "integer", "diskMaxUsedSpaceRatio: above it, expired files are deleted at any hour."
    ),
    "warnings": Fact("array", "Problems of the store, one sentence each."),
}
_JSON_TYPES = {"array": {"type": "array", "items": {"type": "string"}}}


def schema() -> dict[str, object]:
    """Return the JSON schema of the facts that ``facts`` yields."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "cqstore info",
        "type": "object",
        "properties": {
            name: {**_JSON_TYPES.get(fact.kind, _type(fact.kind)), "description": fact.what}
            for name, fact in FACTS.items()
        },
        "required": list(FACTS),
        "additionalProperties": False,
    }


def _type(kind: str) -> dict[str, object]:
    kinds = kind.split("|")
    return {"type": kinds if len(kinds) > 1 else kind}


def facts(store: MessageStore) -> Iterator[tuple[str, object]]:
    """Yield each of ``FACTS`` with its value."""
    log, layout, config = components_of(store).log, components_of(store).layout, store.config
    opener = opened_by(store.root)
    yield "root", str(store.root)
    yield "backends", list(layout.backends)
    yield "state", layout.backend_state.mode or None
    yield "kept_backends", [backend.name for backend in components_of(store).queues.backends()]
    yield "last_exit", "open" if opener else "clean" if store.last_exit_ok else "not clean"
    yield "opened_by", opener or None
    yield "commit_log_folders", list(map(str, layout.log_folders))
    yield "commit_log_files", len(log.files.files())
    yield "commit_log_file_bytes", config.mapped_file_size_commit_log
    yield "min_phy_offset", log.min_phy_offset()
    yield "max_phy_offset", log.max_phy_offset()
    yield from _counted(store)
    yield "queues_disk_bytes", components_of(store).queues.total_size_bytes()
    yield (
        "queue_facts",
        {snake(name): value for name, value in components_of(store).queues.describe().items()},
    )
    index = components_of(store).index
    yield "index_files", None if index is None else len(index.files)
    fault = store.report.index_left_out
    yield "index_fault", None if fault is None else str(fault)
    yield from _checkpoint(components_of(store).checkpoint.fields)
    yield from _retention(store)
    yield "warnings", list(_warnings(store))


def snake(label: str) -> str:
    """Return a label as a key: lower case, with underscores."""
    return re.sub(r"[^0-9a-z]+", "_", label.lower()).strip("_")


def utc(seconds: float) -> str | None:
    """Return a time as ISO 8601 in UTC; ``None`` for 0, which means no time."""
    if seconds <= 0:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _counted(store: MessageStore) -> Iterator[tuple[str, object]]:
    """Yield how many topics and queues there are, counted up to a limit."""
    topics = queues = 0
    last = None
    for topic, _ in islice(store.queue_keys(), COUNTED_QUEUES):  # sorted by topic
        queues += 1
        topics += topic != last
        last = topic
    yield "topics", topics
    yield "queues", queues
    yield "counted_all", queues < COUNTED_QUEUES


def _checkpoint(fields: CheckpointFields) -> Iterator[tuple[str, object]]:
    for name, value in fields._asdict().items():
        yield f"checkpoint_{name}", value
    for name in _TIMES:
        yield f"checkpoint_{name}_time", utc(getattr(fields, f"{name}_timestamp") / 1000)


def _retention(store: MessageStore) -> Iterator[tuple[str, object]]:
    """Yield when log files expire, and the usage of the disks."""
    config, files = store.config, components_of(store).log.files.files()
    yield "file_reserved_hours", config.file_reserved_time
    yield "delete_when", config.delete_when
    yield "oldest_file_time", _oldest_time(files)
    layout = components_of(store).layout
    queues = [layout.paths.consume_queue]
    for name, folders in (("commit_log", layout.log_paths.measured), ("queues", queues)):
        yield f"{name}_disk_used_percent", round(_PERCENT * disk_used_ratio(*folders), 1)
    yield "disk_max_used_percent", DiskPercents.of(config).max_used


def _oldest_time(files: Sequence[MappedFile]) -> str | None:
    """Return the time of the last write to the oldest file that still exists."""
    for file in files:
        with suppress(FileNotFoundError):  # a writer has just deleted it
            return utc(file.path.stat().st_mtime)
    return None


def _warnings(store: MessageStore) -> Iterator[str]:
    """Yield the warnings about the store, one sentence each."""
    layout = components_of(store).layout
    yield from (f"can be opened only read-only: {reason}" for reason in layout.refusals)
    yield from map(str, store.report.notes)
    kept = [backend.name for backend in components_of(store).queues.backends()]
    if layout.is_combined:
        both = "double write" if len(kept) > 1 else f"only the {kept[0]} queues are kept"
        yield f"two backends have queues ({both})"
    for name, at in layout.backend_state.lagging.items():
        how = "lag" if name in kept else "are left behind"
        yield f"the {name} queues {how}: complete up to phy offset {at}"
        if name in store.report.written_since:
            yield sentence(name, at, store.report.written_since[name], kept[0])
    for name, exc in store.detached_backends().items():
        yield f"the {name} queues are detached: {exc}"
    for damage in islice(store.report.queues_damaged, _MAX_DAMAGED):
        topic, queue_id = damage.queue
        yield f"queue {queue_id} of {topic!r} is damaged: {damage.problem} ({damage.path})"
    if len(store.report.queues_damaged) > _MAX_DAMAGED:
        yield f"{len(store.report.queues_damaged)} queues are damaged: cqstore check lists them"
    yield from _of_index(store)
    if store.report.dropped_bytes:
        yield f"found {store.report.dropped_bytes} bytes after the end of the log"
    if store.report.first_bad is not None:
        yield str(store.report.first_bad)


def _of_index(store: MessageStore) -> Iterator[str]:
    if (fault := store.report.index_left_out) is not None:
        yield f"the index cannot be read: {fault}; {REBUILD_INDEX}"
    index = components_of(store).index
    unread = [*index.faults.unread] if index is not None else []
    for lost in unread[:_MAX_DAMAGED]:
        yield f"the index can be read only in part: {lost.problem} ({lost.path})"
    if len(unread) > _MAX_DAMAGED:
        yield f"{len(unread)} parts of the index cannot be read: cqstore check lists them"
