"""Comparison of the two backends of a store: in several processes, if the store is not open."""

from cqstore.store.comparing.compared import Compared
from cqstore.store.comparing.comparison_findings import ComparisonFindings
from cqstore.store.comparing.open_sides import two_backends
from cqstore.store.comparing.queue_walk import NO_END, Bounds
from cqstore.store.comparing.range_tasks import compare_range, range_items
from cqstore.store.comparing.ranges import cut_ranges
from cqstore.store.comparing.verified_queues import KnownFile
from cqstore.store.concurrency.processes import in_processes
from cqstore.store.concurrency.task_worker import unwrap
from cqstore.store.journals.store_lock import locked_by
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.backends import unlike_others
from cqstore.store.queue.bulk import bulk_backend, bulk_names
from cqstore.store.queue.combined import CombinedConsumeQueueStore
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.queue_location import QueuePlace, settings_of_tasks
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import CQ_UNIT_SIZE


def compare_backends(
    store: MessageStore,
    *,
    locked: bool = False,
    known: KnownFile | None = None,
    progress: Progress = noop,
) -> Compared:
    """Compare the whole range of all queues of a store that was opened read-only.

    Ranges of queues are tasks of processes, one process per core. This process does the work if
    there is only one range, if the store is being written, or if a backend cannot be read without
    opening it. With ``locked`` the caller holds the store's lock. ``known`` names queues to skip.
    ``progress`` is called with phy offsets if this process does the work.

    Raises:
        RefusedStoreError: only one backend is in use.
        StoreIOError, CorruptionError: a backend cannot be read.
    """
    reference, copy = two_backends(components_of(store).queues)
    if not _is_at_rest(store, reference, copy, locked=locked):
        return store.verify(progress=progress)
    source, target = (_place(store, each) for each in (reference, copy))
    bounds = Bounds(max(store.min_phy_offset(), 0), NO_END)
    queues = components_of(store).queues
    assert isinstance(queues, CombinedConsumeQueueStore)
    given = (str(known.path), known.complete_to) if known else None
    items = range_items(
        source, target, bounds, cut_ranges(source, target),
        selections=queues.selections, known=given,
    )  # fmt: skip
    found, span = ComparisonFindings(), store.max_phy_offset() - bounds.min_phy_offset

    def tick(done: int) -> None:
        progress(bounds.min_phy_offset + span * done // len(items))

    texts = (
        [compare_range(items[0])]
        if len(items) == 1
        else [unwrap(*outcome) for outcome in in_processes(compare_range, items, tick)]
    )
    for text in texts:
        found.add(ComparisonFindings.of(text))
    names = (source.backend, target.backend)
    timeless = frozenset(name for name in names if not bulk_backend(name).keeps_timestamps)
    return Compared(*names, found, timeless)


def _is_at_rest(store: MessageStore, *kept: ConsumeQueueStore, locked: bool) -> bool:
    """Return whether all data is on disk, and any process can read it."""
    return (
        store.last_exit_ok
        and (locked or not locked_by(components_of(store).paths))
        and {each.name for each in kept} <= set(bulk_names())
        and unlike_others(components_of(store).paths) is None
    )


def _place(store: MessageStore, backend: ConsumeQueueStore) -> QueuePlace:
    size = backend.units_per_file * CQ_UNIT_SIZE
    settings = settings_of_tasks(store.config, mapped_file_size_consume_queue=size)
    folders = tuple(components_of(store).layout.log_folders)
    return QueuePlace(backend.name, store.root.absolute(), folders, settings)
