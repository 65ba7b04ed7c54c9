"""Derived traces: operations drawn from the store's own queues.

Queues are drawn in proportion to their messages, so hot queues stay hot; offsets, times, filters
and sizes are the store's own. The seed determines everything.
"""

from collections.abc import Callable, Sequence
from itertools import islice, pairwise
from math import ceil

import numpy as np
from numpy.random import Generator

from cqstore.ab.stores.store_survey import StoreSurvey, sampled_units
from cqstore.ab.trace.operations import (
    Estimate,
    ListQueues,
    ListTopics,
    MaxOffset,
    MinOffset,
    Operation,
    Pull,
    Put,
    TimeSearch,
)
from cqstore.store.queue.units import QueueKey

PULLED = 32
"""Number of messages per pull."""
_BACK = 0.15
"""Parameter of the geometric distribution that favours the newest messages."""
MIXED_TOPIC = "cqstore-ab-mixed"
_MIXED_QUEUES = 8
Derivation = Callable[[StoreSurvey, Generator, int], list[Operation]]
"""Returns about so many operations for a surveyed store, drawn from the generator."""


def tail_pulls(found: StoreSurvey, draw: Generator, count: int) -> list[Operation]:
    """Pulls from a few messages before the end of hot queues; some find nothing new."""
    behind = np.minimum(draw.geometric(_BACK, count) - 1, PULLED)
    pulls: list[Operation] = []
    for at, back in zip(_hot(found, draw, count), behind.tolist(), strict=True):
        high, low = int(found.high[at]), int(found.low[at])
        pulls.append(_pull(found.keys[at], max(high - back, low)))
    return pulls


def catch_up_pulls(found: StoreSurvey, draw: Generator, count: int) -> list[Operation]:
    """Pulls of whole queues, one after the other, from the first message to the last."""
    pulls: list[Operation] = []
    while len(pulls) < count:
        for at in _hot(found, draw, count):
            offsets = range(int(found.low[at]), int(found.high[at]), PULLED)
            pulls += [_pull(found.keys[at], offset) for offset in islice(offsets, 1024)]
            if len(pulls) >= count:
                break
    return pulls[:count]


def random_pulls(found: StoreSurvey, draw: Generator, count: int) -> list[Operation]:
    """Pulls from anywhere, each message as likely as any other."""
    return [_pull(key, offset) for key, offset in sampled_units(found, count, draw)]


def filtered_pulls(found: StoreSurvey, draw: Generator, count: int) -> list[Operation]:
    """Pulls from anywhere with a tag filter that matches about 1 %."""
    units = sampled_units(found, count, draw)
    return [_pull(key, offset, found.tags) for key, offset in units]


def time_searches(found: StoreSurvey, draw: Generator, count: int) -> list[Operation]:
    """Searches of hot queues for a time between the log's first and last."""
    first, last = found.times
    times = draw.integers(first, last + 1, count).tolist()
    return [
        TimeSearch(**_named(found.keys[at]), timestamp=time)
        for at, time in zip(_hot(found, draw, count), times, strict=True)
    ]


def lag_estimates(found: StoreSurvey, draw: Generator, count: int) -> list[Operation]:
    """Estimates of the messages from anywhere to the end that match a group's filter."""
    ends = dict(zip(found.keys, found.high.tolist(), strict=True))
    return [
        Estimate(**_named(key), offset=offset, to=ends[key], tags=found.tags or None)
        for key, offset in sampled_units(found, count, draw)
    ]


def offset_questions(found: StoreSurvey, draw: Generator, count: int) -> list[Operation]:
    """Reads of min and max offset of hot queues, alternating."""
    kinds = (MinOffset, MaxOffset)
    return [
        kinds[number % 2](**_named(found.keys[at]))
        for number, at in enumerate(_hot(found, draw, count))
    ]


def topic_listings(found: StoreSurvey, draw: Generator, count: int) -> list[Operation]:
    """Listings of the queues of hot topics."""
    return [ListQueues(topic=found.keys[at].topic) for at in _hot(found, draw, count)]


def full_listings(found: StoreSurvey, draw: Generator, count: int) -> list[Operation]:
    """Listings of all queues with their offsets, and of all topics, alternating."""
    _ = found, draw
    kinds: tuple[Operation, Operation] = (ListQueues(), ListTopics())
    return [kinds[number % 2] for number in range(min(count, 1000))]


def puts(found: StoreSurvey, draw: Generator, count: int) -> list[Operation]:
    """Puts to queues of the comparison's own topic, with bodies of the usual size."""
    queues = draw.integers(_MIXED_QUEUES, size=count).tolist()
    size = found.body_bytes
    return [Put(topic=MIXED_TOPIC, queue_id=queue, size=size, tags="a") for queue in queues]


KINDS: dict[str, Derivation] = {
    "tail-pull": tail_pulls,
    "catch-up-pull": catch_up_pulls,
    "random-pull": random_pulls,
    "filtered-pull": filtered_pulls,
    "time-search": time_searches,
    "lag-estimate": lag_estimates,
    "offsets": offset_questions,
    "put": puts,
}
"""Kinds of operations in a mixed workload."""
DEFAULT_MIX = {"tail-pull": 55, "random-pull": 10, "offsets": 10, "time-search": 5, "put": 20}
"""Default shares, in percent."""


def mixed(mix: dict[str, int]) -> Derivation:
    """Return a derivation of several kinds of operations in the shares of ``mix``, shuffled."""

    def derive(found: StoreSurvey, draw: Generator, count: int) -> list[Operation]:
        kinds = [kind for kind in mix if kind != "filtered-pull" or found.tags]
        bounds = np.cumsum([0, *(mix[kind] for kind in kinds)]) / sum(mix[kind] for kind in kinds)
        all_of: list[Operation] = []
        for kind, (low, high) in zip(kinds, pairwise((bounds * count).tolist()), strict=True):
            all_of += KINDS[kind](found, draw, ceil(high) - ceil(low))
        order: Sequence[int] = draw.permutation(len(all_of)).tolist()
        return [all_of[at] for at in order]

    return derive


def _hot(found: StoreSurvey, draw: Generator, count: int) -> list[int]:
    """Draw queues in proportion to their messages."""
    lengths = found.high - found.low
    picked: list[int] = draw.choice(len(lengths), count, p=lengths / lengths.sum()).tolist()
    return picked


def _pull(key: QueueKey, offset: int, tags: str | None = None) -> Pull:
    return Pull(topic=key.topic, queue_id=key.queue_id, offset=offset, count=PULLED, tags=tags)


def _named(key: QueueKey) -> dict[str, object]:
    return {"topic": key.topic, "queue_id": key.queue_id}
