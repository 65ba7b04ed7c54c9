"""The verb ``cqstore pending``."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from cqstore.broker.metadata.forms import NO_METADATA
from cqstore.broker.metadata.json_form import read_delays
from cqstore.broker.metadata.model import BrokerMetadata, Form
from cqstore.broker.one_form import BrokerForm, end_with_faults, find_one_form, note_remarks
from cqstore.broker.pending.delayed import delay_levels, delayed_messages, delayed_units
from cqstore.broker.pending.half_messages import HalfMessages
from cqstore.broker.pending.pending_parts import PendingMessage, PendingPart, PendingSource, Step
from cqstore.broker.pending.rocksdb_pending import rocksdb_pending
from cqstore.broker.pending.timer import timer_parts
from cqstore.broker.ranking import Limit, Sort, ranked
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
from cqstore.store.progress import Progress
from cqstore.store.record.message import HALF_TOPIC, SCHEDULE_TOPIC
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

PART_COLUMNS = (
    "source", "part", "position", "max", "pending", "overdue", "decided", "firstDueTimestamp",
    "lastDueTimestamp", "oldestStoreTimestamp",
)  # fmt: skip
_TIMERS = (PendingSource.TIMER, PendingSource.TIMER_QUEUE, PendingSource.ROCKSDB_TIMER)
MESSAGE_COLUMNS = (
    "source", "part", "queueOffset", "phy", "topic", "uniqKey", "storeTimestamp", "dueTimestamp",
    "checkTimes", "opOffset",
)  # fmt: skip

Source = Annotated[
    PendingSource | None,
    typer.Option(metavar="SOURCE", help=f"Show only this source: {', '.join(PendingSource)}."),
]
Listed = Annotated[
    bool, typer.Option("--list", help="Print one row per message; this reads the records.")
]
Precision = Annotated[
    int,
    typer.Option(
        "--timer-precision", metavar="MS", min=1, help="Value of timerPrecisionMs of the broker."
    ),
]


def pending(
    root: Dir,
    of: Source = None,
    sort: Sort = "source",
    limit: Limit = 0,
    *,
    listed: Listed = False,
    precision: Precision = 1000,
    form: BrokerForm = None,
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
    kind: Rows = RowFormat.TABLE,
) -> None:
    """Show pending messages: delayed, timer and half messages. Changes nothing.

    Delayed messages are counted per level from the broker's position, with their due times. Half
    messages are counted per queue, with those that an op message has already decided. Timer
    messages are counted in the timer wheel, in their queue and in rocksdbstore. Times are in ms
    since the epoch.

    --list prints only delayed messages and the half messages of queues. Exit code 1 if a position
    or an op message cannot be read.

    Examples:
        cqstore pending DIR
        cqstore pending DIR --list --of half --limit 20
    """
    now = time.time_ns() // 1_000_000
    if listed and of not in {None, PendingSource.DELAY, PendingSource.HALF}:
        raise typer.BadParameter(f"not supported for --of {of}", param_hint="--list")
    with open_store(root, config, backend, commit_log) as store, progress("reading") as tick:
        broker = _positions(store, form, of, config)
        steps = _Steps(tick)
        half = HalfMessages(store, broker.offsets, steps)
        tick.measure(_units(store, broker, half, of), "messages")
        bounded = BoundedAnswer()
        if listed:
            messages = map(_message_row, _messages(store, broker, half, of, steps))
            found = ranked(messages, sort, MESSAGE_COLUMNS, limit, bounded)
            output(kind).rows(found, bounded.has_more)
        else:
            parts = list(_parts(store, broker, half, of, now, steps))
            parts += _timer_parts(store, of, precision, now)
            found = ranked(map(_part_row, parts), sort, PART_COLUMNS, limit, bounded)
            output(kind).rows(found, bounded.has_more)
            _note_totals(parts)
    note_remarks([broker])
    end_with_faults([*broker.faults, *half.faults])


class _Steps:
    """Counter of the units and records read so far, for the progress display."""

    def __init__(self, show: Progress) -> None:
        self._show, self._sum = show, 0

    def __call__(self, count: int) -> None:
        self._sum += count
        self._show(self._sum)


def _units(
    store: MessageStore, broker: BrokerMetadata, half: HalfMessages, of: PendingSource | None
) -> int:
    """Return the number of units and records to read, without those of timers."""
    found = delayed_units(store, broker.delay_offsets) if of in {None, PendingSource.DELAY} else 0
    return found + (half.units() if of in {None, PendingSource.HALF} else 0)


def _positions(
    store: MessageStore, form: Form | None, of: PendingSource | None, conf: Path | None
) -> BrokerMetadata:
    """Return the broker's positions in the existing queues; report those that are unknown.

    Raises:
        RefusedStoreError: there are half messages, and several forms of metadata.
    """
    config = components_of(store).paths.config
    found = BrokerMetadata(Form.JSON, config)  # filled from the existing forms
    if of in {None, PendingSource.DELAY} and _has_queues(store, SCHEDULE_TOPIC):
        read_delays(config, found)
        if not found.delay_offsets:
            note("no delay level offsets found: a broker starts at the min offset of each level")
    if of in {None, PendingSource.HALF} and _has_queues(store, HALF_TOPIC):
        broker = find_one_form(components_of(store).paths, form, conf)
        if broker is None:
            note(f"{NO_METADATA}: a broker checks half messages from the min offset on")
            return found
        found.offsets = broker.offsets
        known = {*map(str, found.faults)}  # every form uses the same file of delay levels
        found.faults += [each for each in broker.faults if str(each) not in known]
    return found


def _has_queues(store: MessageStore, topic: str) -> bool:
    return next(store.queue_keys(topic), None) is not None


def _parts(
    store: MessageStore, broker: BrokerMetadata, half: HalfMessages,
    of: PendingSource | None, now: int, step: Step,
) -> Iterator[PendingPart]:  # fmt: skip
    """Yield the pending messages per delay level and half-message queue, from ``of`` or all."""
    if of in {None, PendingSource.DELAY}:
        yield from delay_levels(store, broker.delay_offsets, now, step)
    if of in {None, PendingSource.HALF}:
        yield from half.parts()


def _timer_parts(
    store: MessageStore, of: PendingSource | None, precision: int, now: int
) -> Iterator[PendingPart]:
    """Return the pending timer messages, from source ``of`` or all sources."""
    if of in {PendingSource.DELAY, PendingSource.HALF}:
        return iter(())
    database = rocksdb_pending(components_of(store).paths, now)
    found = timer_parts(store, database.timer_offset, precision, now) + database.parts
    return (part for part in found if of in {None, part.source})


def _messages(
    store: MessageStore,
    broker: BrokerMetadata,
    half: HalfMessages,
    of: PendingSource | None,
    step: Step,
) -> Iterator[PendingMessage]:
    """Yield each pending message, from source ``of`` or all sources."""
    if of in {None, PendingSource.DELAY}:
        yield from delayed_messages(store, broker.delay_offsets, step)
    if of in {None, PendingSource.HALF}:
        yield from half.messages()


def _note_totals(parts: Iterable[PendingPart]) -> None:
    """Print a sentence with the number of pending messages of all sources."""
    sums = {source: [0, 0] for source in PendingSource}
    for part in parts:
        sums[part.source][0] += part.pending
        sums[part.source][1] += part.overdue + part.decided
    timers = sum(sums[source][0] for source in _TIMERS)
    delayed, overdue = sums[PendingSource.DELAY]
    half = sums[PendingSource.HALF][0] + sums[PendingSource.ROCKSDB_HALF][0]
    note(
        f"{delayed} delayed messages pending, {overdue} of them overdue; "
        f"{half} half messages undecided, {sums[PendingSource.HALF][1]} decided; "
        f"{timers} timer messages pending"
    )


def _part_row(part: PendingPart) -> Row:
    values = (
        part.source.value, part.part, part.position, part.max_offset, part.pending, part.overdue,
        part.decided, part.first_due, part.last_due, part.oldest,
    )  # fmt: skip
    return dict(zip(PART_COLUMNS, values, strict=True))


def _message_row(found: PendingMessage) -> Row:
    values = (
        found.source.value, found.part, found.queue_offset, found.phy_offset, found.topic,
        found.unique_key, found.store_timestamp, found.due, found.check_times, found.op_offset,
    )  # fmt: skip
    return dict(zip(MESSAGE_COLUMNS, values, strict=True))
