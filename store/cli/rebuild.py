"""``cqstore rebuild``: queues and index anew from the commit log."""

from typing import Annotated

import typer

from store.cli.known_queues import near
from store.cli.options import (
    INT_MAX,
    Backend,
    ConfigFile,
    CutAt,
    Dir,
    Format,
    about_end,
    check_is_store,
    note,
    pointing_to_check,
    read_config,
)
from store.cli.output import OutputFormat, output
from store.cli.progress import progress
from store.errors import NoSuchQueueError, StoreConfigError
from store.service.message_store import MessageStore
from store.service.recovering.replacement import Rebuild

Topic = Annotated[str | None, typer.Option(metavar="T", help="Only the queues of this topic.")]
QueueId = Annotated[
    int | None,
    typer.Option(metavar="Q", min=0, max=INT_MAX, help="Only this queue of the topic."),
]
Index = Annotated[bool, typer.Option("--index", help="The index by keys, and not the queues.")]


def rebuild(
    root: Dir,
    topic: Topic = None,
    queue_id: QueueId = None,
    *,
    index: Index = False,
    cut_at: CutAt = None,
    config: ConfigFile = None,
    backend: Backend = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Build all queues anew from the commit log, in another backend too, or single ones.

    All queues, or the index: what was there is moved to DIR/cqstore/replaced, and with --backend
    the new queues are in that backend. Single queues are replaced in their place. Next offsets of
    queues without records stay, and deleted topics stay deleted.
    """
    settings = read_config(config, root)
    check_is_store(root, settings)
    if topic is None:
        if queue_id is not None:
            raise StoreConfigError("--queue-id needs --topic")
        parts = Rebuild.INDEX if index else Rebuild.QUEUES
    elif index:
        raise StoreConfigError("--index builds the whole index: leave --topic out")
    else:
        parts = Rebuild.NOTHING
    with (
        pointing_to_check(root),
        progress("rebuilding", about_end(root, settings)) as tick,
        MessageStore.open(
            root, settings, backend=None if topic else backend, cut_at=cut_at,
            rebuild=parts, housekeeping=False, progress=tick,
        ) as store,
    ):  # fmt: skip
        report = store.report
        record: dict[str, object] = {
            "backend": "+".join(part.name for part in store.queues.parts())
        }
        if topic is None:
            record |= {"scannedRecords": report.scanned_records, "units": report.dispatched_units}
        else:
            done = store.rebuild_queues(topic, queue_id, tick)
            if not done.queues:
                which = f"queue {queue_id} of topic" if queue_id is not None else "topic"
                raise NoSuchQueueError(
                    f"{which} {topic!r} has no record in the log{near(store, topic)}"
                )
            record |= {"topic": topic, "queues": done.queues, "units": done.units}
        before = store.paths.replaced
    output(kind).record(record)
    if topic is None and before.is_dir():
        note(f"what was there before lies in {before}; remove it when you are content")
