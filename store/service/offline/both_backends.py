"""Comparison of the two backends of a store: in several processes, if the store is not open."""

from dataclasses import dataclass

from cqstore.store.comparing.compared import Compared
from cqstore.store.comparing.comparison_findings import ComparisonFindings
from cqstore.store.comparing.open_sides import two_backends
from cqstore.store.comparing.queue_walk import NO_END, Bounds
from cqstore.store.comparing.range_tasks import compare_range, range_items
from cqstore.store.comparing.ranges import RANGE_QUEUES, cut_ranges
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

_MAX_KNOWN = 200_000
"""Queues of a range of which most need no comparison: a process takes longer to start."""


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
    at_rest = None
    if store.last_exit_ok and (locked or not locked_by(components_of(store).paths)):
        at_rest = backends_at_rest(store)
    if at_rest is None:
        return store.verify(progress=progress)
    return at_rest.compare(known, progress)


@dataclass(frozen=True, slots=True)
class BackendsAtRest:
    """The two backends of a store, in a form that any process can read while it is closed."""

    source: QueuePlace
    target: QueuePlace
    bounds: Bounds
    log_end: int
    """End of the log, phy offset."""
    selections: list[str]
    """A topic is compared if it is in all of them."""

    def compare(self, known: KnownFile | None = None, progress: Progress = noop) -> Compared:
        """Compare both backends, see ``compare_backends``."""
        given = (str(known.path), known.complete_to) if known else None
        max_queues = RANGE_QUEUES if known is None else _MAX_KNOWN
        items = range_items(
            self.source, self.target, self.bounds,
            cut_ranges(self.source, self.target, max_queues=max_queues),
            selections=self.selections, known=given,
        )  # fmt: skip
        found, begin = ComparisonFindings(), self.bounds.min_phy_offset

        def tick(done: int) -> None:
            progress(begin + (self.log_end - begin) * done // len(items))

        texts = (
            [compare_range(items[0])]
            if len(items) == 1
            else [unwrap(*outcome) for outcome in in_processes(compare_range, items, tick)]
        )
        for text in texts:
            found.add(ComparisonFindings.of(text))
        names = (self.source.backend, self.target.backend)
        timeless = frozenset(name for name in names if not bulk_backend(name).keeps_timestamps)
        return Compared(*names, found, timeless)


def backends_at_rest(store: MessageStore) -> BackendsAtRest | None:
    """Return the two backends of an open store; ``None``: one can only be read by opening it.

    Raises:
        RefusedStoreError: only one backend is in use.
    """
    components = components_of(store)
    queues = components.queues
    reference, copy = two_backends(queues)
    is_readable = {reference.name, copy.name} <= {*bulk_names()}
    if not is_readable or unlike_others(components.paths) is not None:
        return None
    assert isinstance(queues, CombinedConsumeQueueStore)
    return BackendsAtRest(
        _place(store, reference), _place(store, copy),
        Bounds(max(store.min_phy_offset(), 0), NO_END), store.max_phy_offset(),
        queues.selections,
    )  # fmt: skip


def _place(store: MessageStore, backend: ConsumeQueueStore) -> QueuePlace:
    size = backend.units_per_file * CQ_UNIT_SIZE
    settings = settings_of_tasks(store.config, mapped_file_size_consume_queue=size)
    folders = tuple(components_of(store).layout.log_folders)
    return QueuePlace(backend.name, store.root.absolute(), folders, settings)
