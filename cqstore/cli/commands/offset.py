"""``cqstore offset``: the queue offset that a time leads to."""

from datetime import UTC, datetime, timedelta
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
    open_store,
)
from cqstore.cli.output import OutputFormat, output
from cqstore.store.queue.time_search import BoundaryType


def offset(
    root: Dir,
    topic: Annotated[str, typer.Option(metavar="T", help="The topic.")],
    time: Annotated[
        str, typer.Option(metavar="TIME", help="ms since the epoch, or ISO 8601 (UTC if bare).")
    ],
    queue_id: QueueId = 0,
    boundary: Annotated[
        BoundaryType, typer.Option(help="lower: at or after the time; upper: at or before it.")
    ] = BoundaryType.LOWER,
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Search a queue by store time. Changes nothing."""
    timestamp = milliseconds(time)
    with open_store(root, config, backend, commit_log) as store:
        require_queue(store, topic, queue_id)
        found = store.offset_by_time(topic, queue_id, timestamp, boundary)
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


def milliseconds(text: str, option: str = "--time") -> int:
    """Return a time that ``option`` of the command line has, as ms since the epoch.

    Raises:
        typer.BadParameter: it is neither ms nor ISO 8601.
    """
    try:
        if text.lstrip("-").isdecimal():
            return int(text)  # not of thousands of digits
        moment = datetime.fromisoformat(text)
    except ValueError as exc:
        raise typer.BadParameter(
            f"{text!r:.60} is neither ms nor ISO 8601", param_hint=option
        ) from exc
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)  # exact, as a float is not after 2038


_EPOCH = datetime.fromtimestamp(0, UTC)
