"""``cqstore info``: what a directory holds, and what is odd about it."""

from collections.abc import Iterator
from itertools import islice

from store.cli.options import (
    Backend,
    CommitLogFolder,
    ConfigFile,
    Dir,
    Format,
    open_store,
    opened_by,
)
from store.cli.output import OutputFormat, output
from store.cli.progress import progress
from store.core import WHICH
from store.service.finding.left_behind import sentence
from store.service.message_store import MessageStore

_COUNTED_QUEUES = 1_000_000
_MOST_DAMAGED = 10


def info(
    root: Dir,
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Show layout, backend, engine, versions, sizes, offsets and oddities. Changes nothing."""
    with progress("reading"), open_store(root, config, backend, commit_log) as store:
        output(kind).record(dict(_facts(store)))


def _facts(store: MessageStore) -> Iterator[tuple[str, object]]:
    log, layout, config = store.commit_log, store.layout, store.config
    yield "root", str(store.paths.root)
    yield "queues in", ", ".join(layout.backends) or "no backend"
    yield "state", layout.standing.state or "not set (cqstore mode)"
    yield "kept, the one that is read first", ", ".join(part.name for part in store.queues.parts())
    yield "last exit", _last_exit(store)
    yield "commit log files", len(log.files.files())
    yield "commit log file size, bytes", config.mapped_file_size_commit_log
    yield "min phy offset", log.min_phy_offset()
    yield "max phy offset", log.max_phy_offset()
    topics = queues = 0
    last = None
    for topic, _ in islice(store.queue_keys(), _COUNTED_QUEUES):  # those of a topic together
        queues += 1
        topics += topic != last
        last = topic
    more = "+" if queues == _COUNTED_QUEUES else ""
    yield "topics", f"{topics}{more}"
    yield "queues", f"{queues}{more}"
    yield "queues on disk, bytes", store.queues.total_size_bytes()
    yield from store.queues.describe().items()
    if store.index is not None:
        yield "index files", len(store.index.files)
    for name, value in store.checkpoint.fields._asdict().items():
        yield f"checkpoint {name}", value
    yield "core", WHICH
    yield "odd", "; ".join(_oddities(store)) or "nothing"


def _last_exit(store: MessageStore) -> str:
    if opener := opened_by(store.paths.root):
        return f"none: process {opener} has the store open"
    return "clean" if store.last_exit_ok else "not clean: recovery is needed"


def _oddities(store: MessageStore) -> Iterator[str]:
    layout = store.layout
    yield from (f"read-only here: {reason}" for reason in layout.refusals)
    kept = [part.name for part in store.queues.parts()]
    if layout.combined:
        both = "double write" if len(kept) > 1 else f"only the {kept[0]} queues are kept"
        yield f"two backends hold queues ({both})"
    for name, at in layout.standing.behind.items():
        how = "behind" if name in kept else "left behind"
        yield f"the {name} queues are {how}, whole up to phy offset {at}"
        if name in store.report.written_since:
            yield sentence(name, at, store.report.written_since[name], kept[0])
    for name, exc in store.backends_set_aside().items():
        yield f"the {name} queues cannot be used: {exc}"
    for damage in islice(store.report.queues_damaged, _MOST_DAMAGED):
        topic, queue_id = damage.queue
        yield f"queue {queue_id} of {topic!r} is damaged: {damage.problem} ({damage.path})"
    if len(store.report.queues_damaged) > _MOST_DAMAGED:
        yield f"{len(store.report.queues_damaged)} queues are damaged: cqstore check lists them"
    if store.report.dropped_bytes:
        yield f"{store.report.dropped_bytes} bytes lie behind the end of the log"
    if store.report.first_bad is not None:
        yield str(store.report.first_bad)
