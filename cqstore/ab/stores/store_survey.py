"""A survey of the compared store: its shape, and the data from which traces are derived.

The store is opened read-only and not changed. Memory is bounded: with many queues, all sizes are
kept, but names and offsets only of a sample.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cqstore.ab.results.result import Shape
from cqstore.store.errors import CorruptionError, RefusedStoreError
from cqstore.store.journals.store_lock import refuse_if_open
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import unlike_others
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import MessageProperty
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig

MAX_QUEUES = 200_000
"""Maximum number of queues whose names and offsets are kept."""
_SAMPLES = 4_000
"""Number of messages that are read for tags and sizes."""
_WANTED, _MIN_SHARE, _MAX_SHARE = 0.01, 0.002, 0.05
"""Share of messages that a filter should match, and the accepted range."""


@dataclass(slots=True)
class StoreSurvey:
    """Survey of the compared store: shape, queues, times, body size and tags."""

    shape: Shape
    log_folders: list[Path]
    log_file_size: int
    min_phy_offset: int
    max_phy_offset: int
    backend: str | None
    """Backend of the existing queues; ``None`` if there are no queues."""
    units_per_file: int
    expired: list[tuple[QueueKey, int]]
    """Queues whose records have all expired, with their max offsets."""
    keys: list[QueueKey] = field(default_factory=list)
    low: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    high: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """Min and max offsets of ``keys``, which all have units."""
    times: tuple[int, int] = (0, 0)
    """Store times of the first and the last record, ms."""
    body_bytes: int = 0
    """Median size of the sampled bodies."""
    tags: str = ""
    """Tag filter that matches about 1 %; empty if there is none."""
    tags_share: float = 0.0


def survey(root: Path, config: StoreConfig, seed: int) -> StoreSurvey:
    """Survey the store in ``root``.

    Raises:
        StoreLockedError: the store is open.
        RefusedStoreError: there is no store, or it cannot be compared.
        CorruptionError, StoreIOError: the store cannot be read.
    """
    refuse_if_open(StorePaths(root))
    with MessageStore.open(root, config, read_only=True, housekeeping=False) as store:
        _refuse(store, root)
        found = _spans(store, root, np.random.default_rng(seed))
        _find_times(store, found)
        _samples(store, found, np.random.default_rng(seed + 1))
    return found


def _refuse(store: MessageStore, root: Path) -> None:
    if not store.last_exit_ok or store.report.damage is not None:
        raise RefusedStoreError(
            "the store was not closed cleanly or is damaged: repair it or a copy before you compare"
            " it (cqstore recover)",
            path=root,
        )
    if (batches := unlike_others(components_of(store).paths)) is not None:
        raise RefusedStoreError(
            "cannot compare a store with batch queues: only files support them", path=batches
        )
    if store.max_phy_offset() <= max(store.min_phy_offset(), 0):
        raise RefusedStoreError("the commit log is empty: there is nothing to compare", path=root)


def _spans(store: MessageStore, root: Path, draw: np.random.Generator) -> StoreSurvey:
    """Return the offsets of the store's queues, or of a uniform sample if there are many."""
    kept: list[tuple[QueueKey, int, int]] = []
    counts: list[int] = []
    expired: list[tuple[QueueKey, int]] = []
    topics: set[str] = set()
    for key, low, high in store.queue_spans():
        topics.add(key.topic)
        counts.append(high - low)
        if low >= high:
            if high > 0:
                expired.append((key, high))
        elif len(kept) < MAX_QUEUES:
            kept.append((key, low, high))
        elif (at := int(draw.integers(len(counts)))) < MAX_QUEUES:
            kept[at] = (key, low, high)
    log = components_of(store).log
    kept.sort()
    return StoreSurvey(
        shape=shape_of(root, len(topics), np.array(counts, np.int64), store),
        log_folders=components_of(store).layout.log_folders,
        log_file_size=log.files.file_size,
        min_phy_offset=max(log.min_phy_offset(), 0),
        max_phy_offset=log.max_phy_offset(),
        backend=components_of(store).layout.backends[0]
        if components_of(store).layout.backends
        else None,
        units_per_file=components_of(store).queues.units_per_file,
        expired=expired,
        keys=[key for key, _, _ in kept],
        low=np.array([low for _, low, _ in kept], np.int64),
        high=np.array([high for _, _, high in kept], np.int64),
    )


def shape_of(root: Path, topics: int, counts: NDArray[np.int64], store: MessageStore) -> Shape:
    """Return the size of the store, and the distribution of units over queues."""
    log, units = components_of(store).log, int(counts.sum())
    ordered = np.sort(counts)
    places = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    quantiles = np.quantile(ordered, list(places.values()), method="lower") if len(counts) else ()
    shares = {}
    for percent in (1, 10):
        hottest = ordered[len(ordered) - max(1, len(ordered) * percent // 100) :]
        shares[str(percent)] = float(hottest.sum()) / units if units else 0.0
    return Shape(
        root=str(root), topics=topics, queues=len(counts), units=units,
        log_bytes=log.max_phy_offset() - max(log.min_phy_offset(), 0),
        log_files=len(log.files.files()),
        units_of_queue=dict(zip(places, (int(each) for each in quantiles), strict=False)),
        share_of_hottest=shares,
    )  # fmt: skip


def _find_times(store: MessageStore, found: StoreSurvey) -> None:
    record = next(components_of(store).log.scan(found.min_phy_offset), None)
    first = record.store_timestamp if record is not None else 0
    found.times = (first, max(first, _last_time(store, found)))


def _last_time(store: MessageStore, found: StoreSurvey) -> int:
    """Return the latest store time among the last units of some queues."""
    picked = np.argsort(found.high - found.low)[-64:].tolist()
    last = 0
    for at in picked:
        queue = components_of(store).queues.queue(*found.keys[at])
        last = max(last, queue.unit_timestamp(int(found.high[at]) - 1))
    return last


def _samples(store: MessageStore, found: StoreSurvey, draw: np.random.Generator) -> None:
    """Read some messages to find the usual body size and the tags."""
    if not found.keys:
        return
    sizes, tags = [], Counter[str]()
    for key, offset in sampled_units(found, _SAMPLES, draw):
        result = store.get_message(*key, offset, 1)
        try:
            messages = result.messages()
        except CorruptionError:  # reported by check, and answered alike by every side
            continue
        for message in messages:
            sizes.append(len(message.stored_body))
            tags[message.properties.get(MessageProperty.TAGS, "")] += 1
    found.body_bytes = int(np.median(sizes)) if sizes else 0
    found.tags, found.tags_share = _filter(tags)


def sampled_units(
    found: StoreSurvey, count: int, draw: np.random.Generator
) -> Iterator[tuple[QueueKey, int]]:
    """Yield random units of the store with uniform probability, so hot queues are frequent."""
    lengths = found.high - found.low
    queues = draw.choice(len(lengths), count, p=lengths / lengths.sum())
    places = draw.random(count)
    offsets = found.low[queues] + (places * lengths[queues]).astype(np.int64)
    for queue, offset in zip(queues.tolist(), offsets.tolist(), strict=True):
        yield found.keys[queue], offset


def _filter(tags: Counter[str]) -> tuple[str, float]:
    """Return the tags, rarest first, whose total share is closest to 1 %, and that share."""
    total, share, chosen = sum(tags.values()), 0.0, list[str]()
    for tag, count in sorted(tags.items(), key=lambda item: (item[1], item[0])):
        if not tag or "|" in tag or tag.strip() != tag:
            continue
        more = share + count / total
        if chosen and abs(more - _WANTED) >= abs(share - _WANTED):
            break
        share, chosen = more, [*chosen, tag]
    if not chosen or not _MIN_SHARE <= share <= _MAX_SHARE:
        return "", share
    return " || ".join(chosen), share
