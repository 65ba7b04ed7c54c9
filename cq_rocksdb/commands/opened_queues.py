"""The RocksDB queues of an open store, for the verbs of ``cqstore rocksdb``."""

from cqstore.cq_rocksdb.folders import NO_QUEUES
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.errors import RefusedStoreError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of


def rocksdb_queues(store: MessageStore) -> RocksDBConsumeQueueStore:
    """Return the queues that a store keeps in RocksDB.

    Raises:
        RefusedStoreError: the store has no RocksDB queues.
    """
    for backend in components_of(store).queues.backends():
        if isinstance(backend, RocksDBConsumeQueueStore):
            return backend
    raise RefusedStoreError(NO_QUEUES, path=store.root)
