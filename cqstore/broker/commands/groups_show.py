"""The verb ``cqstore groups``."""

import sys
import time
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cqstore.broker.groups.group_lag import GroupLags, LagTotals, QueueLag, near_groups
from cqstore.broker.metadata.model import BrokerMetadata, Form
from cqstore.broker.one_form import BrokerForm, end_with_faults, note_remarks, read_one_form
from cqstore.broker.ranking import Limit, Sort, ranked
from cqstore.cli.known_queues import require_topic
from cqstore.cli.limited import BoundedAnswer
from cqstore.cli.options import (
    Backend,
    CommitLogFolder,
    ConfigFile,
    Dir,
    Rows,
    note,
    open_store,
)
from cqstore.cli.output import RowFormat, output
from cqstore.cli.progress import progress
from cqstore.cli.table import Row
from cqstore.store.errors import RefusedStoreError
from cqstore.store.progress import Progress
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of


class GroupsBy(StrEnum):
    """Subject of a row of ``cqstore groups``."""

    GROUP = "group"
    TOPIC = "topic"
    QUEUE = "queue"


COLUMNS = {
    GroupsBy.GROUP: (
        "group", "topics", "queues", "lag", "expired", "beyond", "uncommitted", "retryLag",
        "deadLetters", "nextStoreTimestamp", "ageSeconds",
    ),
    GroupsBy.TOPIC: (
        "group", "topic", "kind", "queues", "messages", "lag", "expired", "beyond", "uncommitted",
        "nextStoreTimestamp", "ageSeconds",
    ),
    GroupsBy.QUEUE: (
        "group", "topic", "kind", "queueId", "min", "max", "messages", "offset", "lag", "expired",
        "beyond", "nextStoreTimestamp", "ageSeconds",
    ),
}  # fmt: skip


_HEADS = {"uncommitted": "no offset", "retryLag": "retry lag", "deadLetters": "dead letters"}
"""Column → header on a terminal, of words that can be folded into several lines."""
_ON_TERMINAL = {
    GroupsBy.GROUP: (
        "group", "queues", "lag", "expired", "beyond", "uncommitted", "retryLag", "deadLetters",
        "ageSeconds",
    ),
    GroupsBy.TOPIC: (
        "group", "topic", "messages", "lag", "expired", "beyond", "uncommitted", "ageSeconds",
    ),
    GroupsBy.QUEUE: ("group", "topic", "queueId", "min", "max", "offset", "lag", "ageSeconds"),
}  # fmt: skip
"""Columns shown on a terminal of width 80; the others follow from these or need another
``--by``."""
RowOf = Annotated[
    GroupsBy, typer.Option(help="Print one row per group, topic of a group, or queue.")
]
OneGroup = Annotated[str, typer.Option(metavar="G", help="Show only this group.")]
OneTopic = Annotated[str, typer.Option(metavar="T", help="Show only this topic.")]
Lagging = Annotated[
    bool, typer.Option("--lagging", help="Show only rows with lag, retries or dead letters.")
]


def groups(
    root: Dir,
    by: RowOf = GroupsBy.GROUP,
    group: OneGroup = "",
    topic: OneTopic = "",
    sort: Sort = "lag",
    limit: Limit = 0,
    *,
    lagging: Lagging = False,
    form: BrokerForm = None,
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
    kind: Rows = RowFormat.TABLE,
) -> None:
    """Show the lag of consumer groups, per group, topic or queue. Changes nothing.

    As in RocketMQ, lag is the max offset minus the consumer offset. 'expired' is the part of the
    lag that has left the log, 'beyond' the part of an offset above the max offset. Times are in ms
    since the epoch. The age is that of the next message to consume. A terminal shows fewer columns
    than a file or pipe. Totals are on standard error. Exit code 1 if metadata cannot be read.

    Examples:
        cqstore groups show DIR --lagging
        cqstore groups show DIR --group order-consumers --by queue --output json
    """
    now = time.time_ns() // 1_000_000
    with open_store(root, config, backend, commit_log) as store:
        metadata, lags = _read_metadata(store, form, config)
        _check_known(store, lags, group, topic)
        totals, bounded = LagTotals(), BoundedAnswer()
        with progress("reading", components_of(store).queues.queues_estimate(), "queues") as tick:
            queues = _counted(lags, totals, group, topic, tick)
            rows = _ROWS[by](queues, now, () if group or topic else lags.groups)
            if lagging:
                rows = (row for row in rows if _is_lagging(row))
            found = ranked(rows, sort, COLUMNS[by], limit, bounded)
        is_shown = kind is RowFormat.TABLE and sys.stdout.isatty()
        output(kind).rows(narrow(found, by) if is_shown else found, bounded.has_more)
    note(
        f"lag {totals.lag} ({totals.expired} expired) in {totals.queues} queues of "
        f"{len(totals.topics)} topics; retry lag {totals.retry_lag}, dead letters "
        f"{totals.dead_letters}"
    )
    for key in lags.unsure:
        note(f"the key {key!r} has several readings as topic@group: it is split at the first '@'")
    note_remarks([metadata])
    end_with_faults(metadata.faults)


def _read_metadata(
    store: MessageStore, form: Form | None, config: Path | None
) -> tuple[BrokerMetadata, GroupLags]:
    with progress("reading the metadata"):
        metadata = read_one_form(components_of(store).paths, form, config)
        return metadata, GroupLags(store, metadata)


def _check_known(store: MessageStore, lags: GroupLags, group: str, topic: str) -> None:
    """Refuse an unknown group or topic.

    Raises:
        RefusedStoreError: the group has neither settings nor offsets.
        NoSuchQueueError: the topic has neither queues nor offsets.
    """
    if group and group not in lags.groups:
        hint = near_groups(group, lags.groups)
        raise RefusedStoreError(f"group {group!r} has neither settings nor offsets{hint}")
    if topic and topic not in lags.topics and topic not in lags.rows:
        require_topic(store, topic)


def _counted(
    lags: GroupLags, totals: LagTotals, group: str, topic: str, tick: Progress
) -> Iterator[QueueLag]:
    for found in lags.queues(tick):
        if group in {"", found.group} and topic in {"", found.queue.topic}:
            totals.add_by_kind(found)
            yield found


def _is_lagging(row: Row) -> bool:
    if "lag" in row and row["lag"] is None:  # only dead letters have no lag
        return bool(row["messages"])
    return any(row.get(name) for name in ("lag", "beyond", "retryLag", "deadLetters"))


def _by_group(queues: Iterable[QueueLag], now: int, everyone: Iterable[str]) -> Iterator[Row]:
    """Yield one row per group; ``everyone``: groups that get a row without a queue."""
    found = {name: LagTotals() for name in sorted(everyone)}
    for queue in queues:
        found.setdefault(queue.group, LagTotals()).add_by_kind(queue)
    for name, sums in found.items():
        yield {
            "group": name, "topics": len(sums.topics), "queues": sums.queues, "lag": sums.lag,
            "expired": sums.expired, "beyond": sums.beyond, "uncommitted": sums.uncommitted,
            "retryLag": sums.retry_lag, "deadLetters": sums.dead_letters,
            **_next(sums.oldest, now),
        }  # fmt: skip


def _by_topic(queues: Iterable[QueueLag], now: int, _: Iterable[str]) -> Iterator[Row]:
    """Yield one row per topic of each group."""
    found: dict[tuple[str, str], tuple[LagTotals, QueueLag]] = {}
    for queue in queues:
        key = queue.group, queue.queue.topic
        found.setdefault(key, (LagTotals(), queue))[0].add(queue)
    for (group, topic), (sums, first) in found.items():
        yield {
            "group": group, "topic": topic, "kind": first.kind.value, "queues": sums.queues,
            "messages": sums.messages, "lag": sums.lag if first.is_consumed else None,
            "expired": sums.expired, "beyond": sums.beyond, "uncommitted": sums.uncommitted,
            **_next(sums.oldest, now),
        }  # fmt: skip


def _by_queue(queues: Iterable[QueueLag], now: int, _: Iterable[str]) -> Iterator[Row]:
    """Yield one row per queue of each group."""
    for found in queues:
        yield {
            "group": found.group, "topic": found.queue.topic, "kind": found.kind.value,
            "queueId": found.queue.queue_id, "min": found.min_offset, "max": found.max_offset,
            "messages": found.messages, "offset": found.offset,
            "lag": found.lag if found.is_consumed else None, "expired": found.expired,
            "beyond": found.beyond,
            **_next(found.next_timestamp, now),
        }  # fmt: skip


def narrow(rows: Iterable[Row], by: GroupsBy) -> Iterator[Row]:
    """Yield the rows with only the columns that fit 80 characters."""
    for row in rows:
        yield {_HEADS.get(name, name): row[name] for name in _ON_TERMINAL[by]}


def _next(timestamp: int | None, now: int) -> Row:
    age = None if timestamp is None else max(now - timestamp, 0) // 1000
    return {"nextStoreTimestamp": timestamp, "ageSeconds": age}


_ROWS = {GroupsBy.GROUP: _by_group, GroupsBy.TOPIC: _by_topic, GroupsBy.QUEUE: _by_queue}
