"""Operations of a trace on queues that the compared store does not have."""

from collections.abc import Iterator, Sequence

from cqstore.ab.stores.store_survey import MAX_QUEUES, StoreSurvey
from cqstore.ab.trace.operations import Operation, Put


def unknown_queues(operations: Sequence[Operation], found: StoreSurvey) -> Iterator[str]:
    """Yield a sentence if operations read queues without messages, as of another store's trace.

    Queues that the trace puts to are known. With more queues than the survey keeps, nothing is
    yielded.
    """
    if len(found.keys) >= MAX_QUEUES:
        return
    known = {*found.keys}
    put = {(each.topic, each.queue_id) for each in operations if isinstance(each, Put)}
    read = [
        (topic, getattr(each, "queue_id", 0))
        for each in operations
        if (topic := getattr(each, "topic", None)) is not None and hasattr(each, "queue_id")
    ]
    unknown = sum(key not in known and key not in put for key in read)
    if unknown:
        yield (
            f"{unknown:,} of {len(operations):,} operations of the trace are on queues without a"
            " message in this store: was the trace recorded on another store, or with --anonymise?"
        )
