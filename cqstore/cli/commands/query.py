"""``cqstore query``: prints messages by key and time."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.known_queues import require_topic
from cqstore.cli.limited import BoundedAnswer
from cqstore.cli.message_files.message_fields import read_messages
from cqstore.cli.message_files.message_output import MessageOutput
from cqstore.cli.options import (
    Backend,
    CommitLogFolder,
    ConfigFile,
    Dir,
    Rows,
    Topic,
    note,
    open_store,
)
from cqstore.cli.output import RowFormat
from cqstore.cli.selection import Begin, End, Pattern, time_span
from cqstore.store.errors import CorruptionError, StoreError
from cqstore.store.index.index_check import REBUILD_INDEX
from cqstore.store.index.key_index import KeyIndex, index_openers, open_indexes
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.key_queries import newest_of
from cqstore.store.service.reading.other_indexes import SearchedIndex

OneKey = Annotated[
    str, typer.Option("--key", metavar="KEY", help="Message key: one of KEYS, or the UNIQ_KEY.")
]
Count = Annotated[
    int, typer.Option("--max", metavar="M", min=1, help="Maximum number of messages.")
]


def query(
    root: Dir, topic: Topic, key: OneKey, count: Count = 32, begin: Begin = None,
    end: End = None, config: ConfigFile = None, backend: Backend = None,
    commit_log: CommitLogFolder = None, pattern: Pattern = None, kind: Rows = RowFormat.JSONL,
) -> None:  # fmt: skip
    """Print the newest messages of a topic with a given key, in log order. Changes nothing.

    The command reads the index files and, if a broker with indexRocksDBEnable created it, the index
    in rocksdbstore. The exit code is 1 if the store has no index, or if an index cannot be read.

    Examples:
        cqstore query DIR --topic orders --key order-1001
        cqstore query DIR --topic orders --key order-1001 --max 1
    """
    printed, span = MessageOutput(kind, pattern), time_span(begin, end)
    with (
        open_store(root, config, backend, commit_log, max_msgs_num_batch=count + 1) as store,
        ExitStack() as stack,
    ):
        others, unread = _others(store.root)
        for other in others:
            stack.callback(other.close)
        if components_of(store).index is None and not others:
            note(f"this store has no readable key index: {_why_none(store)}")
            raise typer.Exit(1)
        unread = _report_index_files(store) or unread
        found = [*store.query_index_files(topic, key, count + 1, *span)]
        for other in others:
            searched = SearchedIndex(other, store.messages_with_key)
            unread = _report_end(searched, store) or unread
            found = searched.newest(found, topic, key, count + 1, span)
            unread = _report_index(searched) or unread
        answer, bounded = newest_of(found, count), BoundedAnswer()
        bounded.note_older(answer, "--max")
        reads = (
            read for message in answer for read in read_messages(message.queue_offset, message)
        )
        printed.messages(reads, bounded.has_more)
        if not answer:
            require_topic(store, topic)
        note(f"{len(answer)} messages")
    if unread:
        raise typer.Exit(1)


def _why_none(store: MessageStore) -> str:
    """Return why the index files cannot be searched, and how to repair them."""
    fault = store.report.index_left_out
    return "cannot search by key" if fault is None else f"{fault}; {REBUILD_INDEX}"


def _report_index_files(store: MessageStore) -> bool:
    """Report the index files that cannot be read; return whether there are any."""
    if (fault := store.report.index_left_out) is not None:
        note(f"the file index cannot be read: {fault}; {REBUILD_INDEX}")
    index = components_of(store).index
    lost = index.faults.unread if index is not None else []
    for each in lost:
        note(f"the file index can be read only in part: {each.problem} ({each.path})")
    return bool(lost) or fault is not None


def _others(root: Path) -> tuple[list[KeyIndex], bool]:
    """Return the indexes other than the file index, and whether one cannot be read (reported)."""
    try:
        return open_indexes(index_openers(root)), False
    except StoreError as exc:
        note(f"a key index cannot be read and was skipped: {exc}")
        return [], True


def _report_end(searched: SearchedIndex, store: MessageStore) -> bool:
    """Report how far an index is built; return whether this cannot be read."""
    try:
        built_to = searched.index.built_to
    except CorruptionError as exc:
        note(f"the index in {searched.index.folder} can be read only in part: {exc}")
        return True
    note(
        f"the index in {searched.index.folder} was searched too; it covers records up to phy offset"
        f" {built_to}, the log ends at {store.max_phy_offset()}"
    )
    return False


def _report_index(searched: SearchedIndex) -> bool:
    """Report problems of an index; return whether a part could not be read."""
    if searched.fault is not None:
        note(f"the index in {searched.index.folder} can be read only in part: {searched.fault}")
    if searched.index.fault is not None:
        note(f"the newest entries of the index may be missing: {searched.index.fault}")
    if searched.lost:
        note(
            f"{len(searched.lost)} index entries point to no record, the first: {searched.lost[0]}"
        )
    return searched.fault is not None
