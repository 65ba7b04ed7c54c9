"""Puts one record into an index, as the dispatcher does with a batch of them."""

from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.index.index_service import IndexService


def index_record(
    index: IndexService,
    topic: str,
    uniq_key: str | None,
    keys: str | None,
    phy_offset: int,
    store_timestamp: int,
    tags: str | None = None,
) -> None:
    """Index one record under its keys."""
    batch = IndexBatch()
    batch.add_record(topic, uniq_key, keys, tags, phy_offset, store_timestamp)
    index.put_batch(batch)
