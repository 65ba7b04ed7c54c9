"""Detection of writes by another program to backends that are left behind.

RocketMQ does not use ``cqstore/mode``: a broker that is started with the old ``storeType``
continues the queues that were left behind, at their old end.
"""

from collections.abc import Collection, Mapping

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import StoreError
from cqstore.store.journals.backend_state import BackendState
from cqstore.store.queue.backends import backend
from cqstore.store.queue.context import QueueStoreContext

_LOG = StoreLogger(__name__)


def written_since(
    context: QueueStoreContext, backend_state: BackendState, kept: Collection[str]
) -> Mapping[str, int]:
    """Return backend → phy offset up to which another program wrote to it after its line.

    Called before the recovery, which adds those writes.
    """
    found: dict[str, int] = {}
    for name, line in backend_state.lagging.items() if backend_state.mode is not None else ():
        if name in kept:
            continue
        try:
            end = backend(name).written_to(context)
        except StoreError as exc:
            _LOG.warning("cannot read the %s queues that were left behind: %s", name, exc)
            continue
        if end > line:
            found[name] = end
            _LOG.warning("%s", sentence(name, line, end, next(iter(kept))))
    return found


def sentence(name: str, line: int, end: int, read: str) -> str:
    """Return a sentence with the finding and what to do."""
    return (
        f"the {name} queues, left behind at phy offset {line}, were written afterwards, up to at"
        f" least {end}: a broker was started with storeType={backend(name).store_type()}. Its"
        f" messages are in the log, from which they are dispatched to the {read} queues (cqstore"
        " recover lists queues with reassigned offsets as restartedQueues). Start the broker with"
        f" storeType={backend(read).store_type()}, or go back with cqstore migrate rollback"
    )
