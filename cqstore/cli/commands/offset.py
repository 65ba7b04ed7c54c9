"""``cqstore offset``: finds the queue offset for a store time."""

from typing import Annotated

import typer

from cqstore.cli.known_queues import require_queue
from cqstore.cli.options import (
    Backend,
    CommitLogFolder,
    ConfigFile,
    Dir,
    Format,
    QueueId,
    Topic,
    open_store,
)
from cqstore.cli.output import OutputFormat, output
from cqstore.store.errors import RefusedStoreError
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.service.reading.store_times import parse_time, time_ms

TIME_FORMS = "milliseconds since the epoch, or ISO 8601 (UTC if it has no time zone)"
"""Accepted formats of a time, for the help of options."""


def offset(
    root: Dir,
    topic: Topic,
    time: Annotated[
        str, typer.Option(metavar="TIME", help=f"Store time to search for: {TIME_FORMS}.")
    ],
    queue_id: QueueId = 0,
    boundary: Annotated[
        BoundaryType,
        typer.Option(
            help="Offset to return: lower is at or after the time, upper is at or before it."
        ),
    ] = BoundaryType.LOWER,
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Find the queue offset that belongs to a store time. Changes nothing.

    The store time of each record is compared, so the result is correct even if the clock was set
    back. No message stored at or after the time is before the lower offset. No message stored
    before the time is after the upper offset.

    Examples:
        cqstore offset DIR --topic orders --time 2026-03-01T00:00:00Z
        cqstore offset DIR --topic orders --time 1772323200000 --boundary upper
    """
    timestamp = milliseconds(time, up=boundary is BoundaryType.LOWER)
    with open_store(root, config, backend, commit_log) as store:
        require_queue(store, topic, queue_id)
        found = store.offset_at_time(topic, queue_id, timestamp, boundary)
        output(kind).record(
            {
                "topic": topic,
                "queueId": queue_id,
                "timestamp": timestamp,
                "boundary": boundary.value,
                "offset": found,
                "min": store.min_offset(topic, queue_id),
                "max": store.max_offset(topic, queue_id),
            }
        )


def milliseconds(text: str, option: str = "--time", *, up: bool = False) -> int:
    """Return the time given with ``option``, in ms; see ``time_ms``.

    Raises:
        typer.BadParameter: the text is neither ms nor ISO 8601, or is probably in another unit.
    """
    try:
        return time_ms(parse_time(text), up=up)
    except RefusedStoreError as exc:
        raise typer.BadParameter(str(exc), param_hint=option) from exc
