"""``cqstore rocksdb audit``."""

from collections.abc import Iterator
from pathlib import Path

import typer

from cqstore.cli.options import ConfigFile, Dir, Format, note, open_store
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import progress
from cqstore.cli.table import Row
from cqstore.cq_rocksdb.commands.opened_queues import rocksdb_queues
from cqstore.cq_rocksdb.engine.database_stats import PROPERTIES
from cqstore.cq_rocksdb.engine.rocks_engine import Family
from cqstore.cq_rocksdb.keys import readable_key
from cqstore.cq_rocksdb.queues.check import Audit
from cqstore.cq_rocksdb.queues.orphans import Orphans
from cqstore.store.broker_files.known_topics import TopicTable, topic_table
from cqstore.store.errors import StoreError
from cqstore.store.service.opening.components import components_of


def audit(root: Dir, config: ConfigFile = None, kind: Format = OutputFormat.TABLE) -> None:
    """Check keys, entries and units in RocksDB and list the errors. Changes nothing.

    Compares keys, offset entries and units with each other; cqstore check compares units with the
    log. A finding has the folder, the key, and the expected and found values.

    Topics missing in the broker's metadata are listed as orphans, with their queues and units. A
    broker with RocksDB queues deletes orphans. Exit code 1 if anything is damaged or the metadata
    cannot be read.

    Examples:
        cqstore rocksdb audit DIR
        cqstore rocksdb audit DIR --output json
    """
    found = 0
    with progress("auditing", unit="units") as tick, open_store(root, config, None, None) as store:
        queues = rocksdb_queues(store)
        known, fault = _known_topics(components_of(store).paths.config)
        orphans = Orphans(known.topics) if known is not None else None
        about = queues.engine.property_value(Family.DEFAULT, PROPERTIES["keys_estimate"])
        tick.measure(int(about) if about else None, "units")
        check = queues.audit(orphans, tick)

        def rows() -> Iterator[Row]:
            nonlocal found
            for row in _findings(check):
                found += 1
                yield row
            if known is not None and orphans is not None:
                yield from _orphans(orphans, known, queues.folder)

        output(kind).rows(rows())
        note(
            f"{check.queues} queues, {check.units} units; {check.expired_units} units below the"
            f" log's min offset are still on disk; {found} errors"
        )
        if fault is None:
            note(_orphans_in_all(orphans, known))
    if fault is not None:
        raise fault
    if found:
        raise typer.Exit(1)


def _findings(check: Audit) -> Iterator[Row]:
    """Yield a row for each finding of an audit."""
    for finding in check.findings():
        queue = finding.queue
        yield {
            "severity": "damage",
            "problem": finding.problem,
            "path": finding.path,
            "keyText": readable_key(finding.key),
            "expected": finding.expected,
            "found": finding.found,
            "topic": queue.topic if queue else None,
            "queueId": queue.queue_id if queue else None,
            "queueOffset": finding.queue_offset,
            "queues": None,
            "units": None,
        }


def _orphans(orphans: Orphans, known: TopicTable, folder: Path) -> Iterator[Row]:
    """Yield a row for each topic that is missing in the broker's metadata."""
    for topic, orphan in sorted(orphans.found.items()):
        yield {
            "severity": "note",
            "problem": f"orphan: the topic is missing in the broker's metadata ({known.form})",
            "path": str(folder),
            "keyText": None,
            "expected": None,
            "found": None,
            "topic": topic,
            "queueId": None,
            "queueOffset": None,
            "queues": len(orphan.queue_ids),
            "units": orphan.units,
        }


def _orphans_in_all(orphans: Orphans | None, known: TopicTable | None) -> str:
    """Return a summary of the orphaned topics."""
    if orphans is None or known is None:
        return "no broker metadata found in config/: topics were not checked for orphans"
    if not orphans.found:
        return f"the broker's metadata ({known.form}) contains all topics: no orphans"
    each = orphans.found.values()
    return (
        f"{len(each)} orphaned topics with {sum(len(one.queue_ids) for one in each)} queues and"
        f" {sum(one.units for one in each)} units,"
        f" {sum(one.expired_units for one in each)} of them below the log's min offset: a broker"
        " with RocksDB"
        " queues deletes them (cleanRocksDBDirtyCQIntervalMin)"
    )


def _known_topics(config: Path) -> tuple[TopicTable | None, StoreError | None]:
    """Return the topics of the broker's metadata, or why they cannot be read."""
    try:
        return topic_table(config), None
    except StoreError as exc:
        return None, exc
