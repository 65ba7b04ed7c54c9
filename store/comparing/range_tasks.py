"""Comparison of the queues of two quiescent places in ranges; any process can run a task."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cqstore.store.comparing.blocks import DeepCheck
from cqstore.store.comparing.comparison import Comparison
from cqstore.store.comparing.comparison_findings import ComparisonFindings
from cqstore.store.comparing.listed_queues import Range, TouchedQueues, Wanted, union
from cqstore.store.comparing.log_heads import LogHeads
from cqstore.store.comparing.queue_walk import Bounds
from cqstore.store.comparing.verified_queues import KnownFile, QueueFacts, VerifiedQueues
from cqstore.store.queue.backend_replica import selects
from cqstore.store.queue.queue_location import QueuePlace
from cqstore.store.queue.units import QueueKey


def range_items(
    source: QueuePlace, target: QueuePlace, bounds: Bounds, ranges: Sequence[Range], **more: object
) -> list[str]:
    """Return the input of each range's task as JSON, with ``more`` for ``compare_item``."""
    same = {"source": source.to_fields(), "target": target.to_fields(), "bounds": bounds, **more}
    return [json.dumps({**same, "range": each}) for each in ranges]


def compare_range(item: str) -> str:
    """Compare one range of two backends of a store: the task of a process."""
    given = json.loads(item)
    places = QueuePlace.of(given["source"]), QueuePlace.of(given["target"])
    return compare_item(given, *places, agreed=False).text()


def compare_item(
    given: dict[str, Any],
    source: QueuePlace,
    target: QueuePlace,
    *,
    agreed: bool = True,
    deep: Callable[[LogHeads], DeepCheck] | None = None,
) -> ComparisonFindings:
    """Compare a range, in the calling process.

    Keys of ``given``: ``selections``: a topic is compared only if it is in all of them; ``facts``:
    keep the facts of the queues; ``known``: a ``KnownFile``, whose queues are skipped.
    """
    after, up_to = (QueueKey(*key) if key else None for key in given["range"])
    log, between = LogHeads(source.log_folders), (after, up_to)
    wanted = _wanted(given.get("selections", ()))
    opened = source.open()
    try:
        other = target.open()
        try:
            comparison = Comparison(
                opened, other, log, Bounds(*given["bounds"]), deep(log) if deep else None,
                agreed=agreed, facts=QueueFacts(source) if given.get("facts") else None,
            )  # fmt: skip
            if not (known := given.get("known")):
                return comparison.run(union(opened, other, between, wanted))
            verified = VerifiedQueues.of(KnownFile(Path(known[0]), known[1]))
            touched = TouchedQueues(opened, other, QueueFacts(source), verified)
            found = comparison.run(touched.between(between, wanted))
            found.passed_over = touched.passed_over
            return found
        finally:
            other.close()
    finally:
        opened.close()


def _wanted(selections: Sequence[str]) -> Wanted:
    """Return a filter of queues by their topics."""
    if not selections:
        return iter
    return partial(filter, lambda queue: all(selects(each, queue.topic) for each in selections))
