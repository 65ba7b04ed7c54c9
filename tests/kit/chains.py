"""Chains of index files that tests make by hand, walked by the core."""

from cqstore.store.core._maps import FileMap
from cqstore.store.index._chain import ChainFile
from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.index.layout import IndexGeometry


def chain_file(
    mapped: FileMap, slots: int, entries: int, began: int, drained: int, *, read_only: bool
) -> ChainFile:
    """Return what the core has to know of an index file, without pending keys."""
    made = ChainFile()
    made.mapped, made.geometry = mapped, IndexGeometry(slots, entries)
    made.begin_timestamp, made.read_only = began, read_only
    made.waiting = (IndexBatch(), drained)
    return made


def walk_chain(
    before: list[int], mapped: FileMap, slots: int, entries: int, wanted: int, max_num: int,
    begin: int, end: int, began: int, drained: int, *, read_only: bool,
) -> list[int] | None:  # fmt: skip
    """Return ``before`` and the phy offsets in a chain; ``None``: it may be damaged."""
    file, found = chain_file(mapped, slots, entries, began, drained, read_only=read_only), [*before]
    walked = file.walk(found, wanted, max_num, begin, end, drained, is_checked=False)
    return found if walked else None
