"""Filters of a lag estimate, see ``cqstore.store.queue._estimate``."""

from collections.abc import Callable, Collection

from cqstore.store.queue import _estimate

MessageFilter = Callable[[int | None], bool]
"""Takes a tags code and returns whether the message may match; ``None`` must match."""
_MAX_FAST_CODES = 16


def fast_filter(codes: Collection[int] | None) -> _estimate.FastFilter | None:
    """Return the compiled filter; ``None``: there are too many codes. Without codes all match."""
    if codes is not None and len(codes) > _MAX_FAST_CODES:
        return None
    return _estimate.FastFilter(codes)
