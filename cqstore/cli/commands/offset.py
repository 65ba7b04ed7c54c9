"""``cqstore offset``: the queue offset that a time leads to."""

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
from cqstore.store.errors import RefusedStoreError
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.service.reading.store_times import parse_time, time_ms


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
    """Search a queue by store time. Changes nothing.

    The time of each record is compared: also after a clock was set back, no message that was stored
    at or after the time is before the lower offset, and none from before it is after the upper one.
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
    """Return a time that ``option`` of the command line has, see ``time_ms``.

    Raises:
        typer.BadParameter: it is neither ms nor ISO 8601, or probably meant in another unit.
    """
    try:
        return time_ms(parse_time(text), up=up)
    except RefusedStoreError as exc:
        raise typer.BadParameter(str(exc), param_hint=option) from exc
